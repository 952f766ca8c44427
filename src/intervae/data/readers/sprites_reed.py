"""Sprites (Reed et al. 2015, Deep Visual Analogy-Making): 60 x 60 frames of game characters.

672 characters in 178 frames of 6 animations. A character is a combination of 7 attributes, of which
sex and hair do not vary independently; a frame is an animation, a direction and a phase. An
animation has 6 to 13 phases, and `hurt` only one direction, so the factors are no complete grid; a
weapon is visible only in `thrust` and `shoot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.memory import check_memory
from intervae.data.options import read_names
from intervae.data.pixel_arrays import Size, as_size, resize_images
from intervae.data.progress import progress
from intervae.data.readers.archives import open_npz
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.readers.sprites import read_small_array
from intervae.data.variables import Kind, Variable
from intervae.errors import UsageError, unknown

SOURCE = FileSource(
    "Sprites (Reed)",
    "sprites",
    "www.scottreed.info (nips2015-analogy-data.tar.gz, folder data/sprites), "
    "packed as docs/datasets.md says",
)
FILE = "sprites_reed2015.npz"
SIDE = 60
SPLITS_BY = ("picture", "character")
VALIDATION, TEST = 1, 2  # codes of the file's `split`


@dataclass(frozen=True)
class ReedTables:
    """The arrays of the file, except for the images."""

    attributes: np.ndarray  # (characters, a) codes
    attribute_names: tuple[str, ...]
    split: np.ndarray  # (characters,)
    animation: tuple[str, ...]  # of each frame
    direction: np.ndarray  # (frames,) codes
    direction_names: tuple[str, ...]
    phase: np.ndarray  # (frames,)
    palette: np.ndarray  # (frames, 256, 3) uint8


def sprites_reed(
    *,
    size: int | Sequence[int] = SIDE,
    animations: str | Sequence[str] | None = None,
    by: str = "picture",
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read the frames.

    Arguments:
        size: resize the 60 x 60 frames to this many pixels, square or (height, width).
        animations: subset of spellcast, thrust, walk, slash, shoot and hurt; also as one text with
            commas.
        by: "picture" for random splits of the frames, "character" for the published ones of 500,
            72 and 100 characters.
        samples: number of frames, drawn at random; default all.
        validation, test, seed: random splits.
    """
    if by not in SPLITS_BY:
        raise unknown("way to split", by, SPLITS_BY)
    path = SOURCE.require(FILE)
    tables = _read_tables(path)
    frames, characters = _choose_frames(tables, animations), len(tables.attributes)
    images = (frames[:, None] * characters + np.arange(characters)).ravel()  # as in the file
    images = images[choose_rows(len(images), samples, seed)]
    variables, labels = _label_images(tables, images)
    split = tables.split[images % characters]
    return build_dataset(
        "sprites-reed",
        _read_images(path, tables, images, as_size(size) or (SIDE, SIDE)),
        labels,
        variables,
        validation=validation if by == "picture" else split == VALIDATION,
        test=test if by == "picture" else split == TEST,
        seed=seed,
    )


def _choose_frames(tables: ReedTables, animations: str | Sequence[str] | None) -> np.ndarray:
    """Return the numbers of the frames of these animations."""
    if animations is None:
        return np.arange(len(tables.animation))
    names = read_names(animations, "animations")
    if not names:
        raise UsageError(f"animations={animations!r} names no animation; give one, such as walk.")
    for name in names:
        if name not in tables.animation:
            raise unknown("animation of sprites-reed", name, set(tables.animation))
    return np.flatnonzero(np.isin(tables.animation, names))


def _label_images(tables: ReedTables, images: np.ndarray) -> tuple[list[Variable], np.ndarray]:
    """Return variables and codes (N, n) of images (N,), numbered as in the file.

    They are the attributes, animation and direction where they vary, and the phase.
    """
    frame, character = np.divmod(images, len(tables.attributes))
    animations = tuple(dict.fromkeys(tables.animation))  # in the order of the file
    animation = np.array([animations.index(name) for name in tables.animation])
    columns: list[tuple[str, tuple[str, ...] | None, np.ndarray]] = [
        (name, None, codes[character])
        for name, codes in zip(tables.attribute_names, tables.attributes.T, strict=True)
    ]
    columns += [
        ("animation", animations, animation[frame]),
        ("direction", tables.direction_names, tables.direction[frame]),
    ]
    variables, labels = [], []
    for name, words, codes in columns:
        if codes.min() < codes.max():
            is_binary = words is None and int(codes.max()) == 1
            categories = words or tuple(map(str, range(int(codes.max()) + 1)))
            kind: Kind = "binary" if is_binary else "categorical"
            variables.append(Variable(name, kind, categories=categories))
            labels.append(codes)
    table = np.stack([*labels, tables.phase[frame]], axis=1).astype(np.float64)
    return [*variables, Variable("phase")], table


# ---- the file -------------------------------------------------------------------------------
def _read_tables(path: Path) -> ReedTables:
    """Read and check everything but the images."""
    with open_npz(SOURCE, path) as open_array:
        names, animation, directions = (
            tuple(map(str, read_small_array(open_array(key), "U", 1)))
            for key in ("attribute_names", "animation", "direction_names")
        )
        attributes = read_small_array(open_array("attributes"), "iu", 2)
        palette = read_small_array(open_array("palette"), "u", 3)
        split, direction, phase = (
            read_small_array(open_array(key), "iu", 1).astype(np.int64)
            for key in ("split", "direction", "phase")
        )
    frames = len(animation)
    if (
        attributes.shape != (len(split), len(names))
        or palette.shape != (frames, 256, 3)
        or palette.dtype != np.uint8
    ):
        SOURCE.raise_broken(
            path,
            f"has attributes of shape {attributes.shape} and palettes {palette.shape} "
            f"for {len(split)} characters and {frames} frames",
        )
    if (
        direction.shape != (frames,)
        or phase.shape != (frames,)
        or not 0 <= direction.min() <= direction.max() < len(directions)
    ):
        SOURCE.raise_broken(
            path,
            f"does not give each of its {frames} frames one of {len(directions)} directions "
            "and a phase",
        )
    return ReedTables(
        attributes.astype(np.int64), names, split, animation, direction, directions, phase, palette
    )


def _read_images(path: Path, tables: ReedTables, numbers: np.ndarray, size: Size) -> np.ndarray:
    """Return the images of sorted numbers (N,), as in the file, as (N, 3, *size) uint8."""
    characters = len(tables.attributes)
    needed = len(numbers) * 3 * size[0] * size[1]
    check_memory(needed, path.name, "pass a smaller size= (--size), or samples=")
    images = np.empty((len(numbers), 3, *size), np.uint8)
    with open_npz(SOURCE, path) as open_array:
        stored = open_array("frames")
        expected = (len(tables.animation), characters, SIDE, SIDE)
        if stored.shape != expected or stored.dtype != np.uint8:
            SOURCE.raise_broken(
                path,
                f"has frames of shape {stored.shape} and type {stored.dtype} "
                f"where uint8 {expected} is expected",
            )
        for number, frame in progress(stored.chunks(1), len(tables.animation), "reading Sprites"):
            first, last = np.searchsorted(numbers, (number * characters, (number + 1) * characters))
            if last > first:
                indices = frame[0, numbers[first:last] - number * characters]
                channels = [np.ascontiguousarray(lut)[indices] for lut in tables.palette[number].T]
                images[first:last] = resize_images(np.stack(channels, axis=1), size)
    return images
