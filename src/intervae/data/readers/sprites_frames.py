"""The single frames of Sprites (Li and Mandt 2018): a complete grid of characters, actions, directions and times, of which pairs are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import as_size
from intervae.data.readers.files import choose_rows
from intervae.data.readers.sprites import FILE, FRAMES, HOME, choose_sequences, label_clips, read_cast, read_clips
from intervae.errors import unknown

WAYS = ("picture", "character")


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
        size: make the 64 x 64 frames this many pixels, square or (height, width); a size that divides 64 is averaged.
        actions: only these of walk, spellcard and slash; also as one text with commas.
        sequences: only these, such as "walk_left"; also as one text with commas.
        by: "picture" draws the splits at random, "character" keeps the paper's 296 held-out characters as test split, and validation
            characters apart from the training ones.
        samples: keep only this many frames, drawn at random.
        validation, test, seed: random splits.
    """
    if by not in WAYS:
        raise unknown("way to split", by, WAYS)
    path = HOME.need(FILE)
    cast = read_cast(path)
    characters = len(cast.train)
    clips = (choose_sequences(cast.sequences, actions, sequences)[:, None] * characters + np.arange(characters)).ravel()
    variables, labels = label_clips(cast, clips)
    images = read_clips(path, cast, clips, FRAMES, as_size(size) or (64, 64))
    images = images.reshape(-1, *images.shape[2:])  # (clips * frames, 3, H, W)
    table = np.column_stack([labels.repeat(FRAMES, axis=0), np.tile(np.arange(FRAMES), len(clips))])
    character = (clips % characters).repeat(FRAMES)
    if samples is not None:
        rows = choose_rows(len(images), samples, seed)
        images, table, character = images[rows], table[rows], character[rows]
    return build_dataset(
        "sprites-frames",
        images,
        table,
        [*variables, Variable("frame")],
        validation=validation,
        test=test if by == "picture" else ~cast.train[character],
        seed=seed,
        groups=None if by == "picture" else character,
    )
