"""Single frames of Sprites (Li and Mandt 2018): a complete grid of characters and movements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.pixel_arrays import as_size
from intervae.data.readers.file_source import choose_rows
from intervae.data.readers.sprites import (
    FILE,
    FRAMES,
    SOURCE,
    choose_clips,
    label_clips,
    read_clips,
    read_tables,
)
from intervae.data.variables import Variable
from intervae.errors import unknown

SPLITS_BY = ("picture", "character")


def sprites_frames(
    *,
    size: int | Sequence[int] = 64,
    actions: str | Sequence[str] | None = None,
    sequences: str | Sequence[str] | None = None,
    by: str = "picture",
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read the frames.

    Arguments:
        size: resize the 64 x 64 frames to this many pixels, square or (height, width); a size that
            divides 64 averages blocks of pixels.
        actions: subset of walk, spellcard and slash; also as one text with commas.
        sequences: subset such as "walk_left"; also as one text with commas.
        by: "picture" for random splits of the frames; "character" for the paper's 296 held-out
            characters as test split, and validation characters apart from the training ones.
        samples: number of frames, drawn at random; default all.
        validation, test, seed: random splits.
    """
    if by not in SPLITS_BY:
        raise unknown("way to split", by, SPLITS_BY)
    path = SOURCE.require(FILE)
    tables = read_tables(path)
    clips = choose_clips(tables, actions, sequences)
    variables, labels = label_clips(tables, clips)
    images = read_clips(path, tables, clips, FRAMES, as_size(size) or (64, 64))
    images = images.reshape(-1, *images.shape[2:])  # (clips * frames, 3, H, W)
    table = np.column_stack([labels.repeat(FRAMES, axis=0), np.tile(np.arange(FRAMES), len(clips))])
    character = (clips % len(tables.train)).repeat(FRAMES)
    if samples is not None:
        rows = choose_rows(len(images), samples, seed)
        images, table, character = images[rows], table[rows], character[rows]
    return build_dataset(
        "sprites-frames",
        images,
        table,
        [*variables, Variable("frame")],
        validation=validation,
        test=test if by == "picture" else ~tables.train[character],
        seed=seed,
        groups=None if by == "picture" else character,
    )
