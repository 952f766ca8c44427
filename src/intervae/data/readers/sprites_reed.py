"""Sprites (Reed et al. 2015, Deep Visual Analogy-Making): 672 game characters in 178 frames of 6 animations, 60 x 60 in colour.

A character is a combination of 7 attributes, of which sex and hair do not go together freely; a frame is an animation, a direction and a phase.
An animation has 6 to 13 phases, and `hurt` only one direction, so the factors are no complete grid; a weapon shows only in `thrust` and `shoot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import Size, as_size, check_memory, progress, resize_images
from intervae.data.readers.files import Home, choose_rows, open_npz
from intervae.data.readers.sprites import small_array
from intervae.errors import unknown

HOME = Home("Sprites (Reed)", "sprites", "www.scottreed.info (nips2015-analogy-data.tar.gz, folder data/sprites), packed as docs/datasets.md says")
FILE = "sprites_reed2015.npz"
SIDE = 60
WAYS = ("picture", "character")
VALIDATION, TEST = 1, 2  # in the file's `split`


@dataclass(frozen=True)
class Cast:
    """Everything in the file but the pictures."""

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
        size: make the 60 x 60 frames this many pixels, square or (height, width).
        animations: only these of spellcast, thrust, walk, slash, shoot and hurt; also as one text with commas.
        by: "picture" draws the splits at random, "character" keeps the published ones of 500, 72 and 100 characters.
        samples: keep only this many frames, drawn at random.
        validation, test, seed: random splits.
    """
    if by not in WAYS:
        raise unknown("way to split", by, WAYS)
    path = HOME.need(FILE)
    cast = _read_cast(path)
    frames, characters = _choose(cast, animations), len(cast.attributes)
    chosen = (frames[:, None] * characters + np.arange(characters)).ravel()  # as they lie in the file
    chosen = chosen[choose_rows(len(chosen), samples, seed)]
    variables, labels = _label(cast, chosen)
    split = cast.split[chosen % characters]
    return build_dataset(
        "sprites-reed",
        _read_frames(path, cast, chosen, as_size(size) or (SIDE, SIDE)),
        labels,
        variables,
        validation=validation if by == "picture" else split == VALIDATION,
        test=test if by == "picture" else split == TEST,
        seed=seed,
    )


def _choose(cast: Cast, animations: str | Sequence[str] | None) -> np.ndarray:
    """The numbers of the frames of these animations."""
    if animations is None:
        return np.arange(len(cast.animation))
    names = [name.strip() for name in animations.split(",")] if isinstance(animations, str) else list(animations)
    for name in names:
        if name not in cast.animation:
            raise unknown("animation of sprites-reed", name, set(cast.animation))
    return np.flatnonzero(np.isin(cast.animation, names))


def _label(cast: Cast, chosen: np.ndarray) -> tuple[list[Variable], np.ndarray]:
    """Attributes, animation, direction and phase of the pictures (N,), codes (N, n); without those that are all the same."""
    frame, character = np.divmod(chosen, len(cast.attributes))
    animations = tuple(dict.fromkeys(cast.animation))  # in the order of the file
    number = np.array([animations.index(name) for name in cast.animation])
    columns: list[tuple[str, tuple[str, ...] | None, np.ndarray]] = [
        (name, None, codes[character]) for name, codes in zip(cast.attribute_names, cast.attributes.T, strict=True)
    ]
    columns += [("animation", animations, number[frame]), ("direction", cast.direction_names, cast.direction[frame])]
    variables, table = [], []
    for name, words, codes in columns:
        if codes.min() < codes.max():
            two = words is None and int(codes.max()) == 1
            variables.append(Variable(name, "binary" if two else "categorical", categories=words or tuple(map(str, range(int(codes.max()) + 1)))))
            table.append(codes)
    return [*variables, Variable("phase")], np.stack([*table, cast.phase[frame]], axis=1).astype(np.float64)


# ---- the file -----------------------------------------------------------------------------------------------------------
def _read_cast(path: Path) -> Cast:
    with open_npz(HOME, path) as array:
        names, animation, directions = (tuple(map(str, small_array(array(k), "U", 1))) for k in ("attribute_names", "animation", "direction_names"))
        attributes, palette = small_array(array("attributes"), "iu", 2), small_array(array("palette"), "u", 3)
        split, direction, phase = (small_array(array(key), "iu", 1).astype(np.int64) for key in ("split", "direction", "phase"))
    frames = len(animation)
    if attributes.shape != (len(split), len(names)) or palette.shape != (frames, 256, 3) or palette.dtype != np.uint8:
        HOME.broken(path, f"has attributes of shape {attributes.shape} and palettes {palette.shape} for {len(split)} characters and {frames} frames")
    if direction.shape != (frames,) or phase.shape != (frames,) or not 0 <= direction.min() <= direction.max() < len(directions):
        HOME.broken(path, f"does not give each of its {frames} frames one of {len(directions)} directions and a phase")
    return Cast(attributes.astype(np.int64), names, split, animation, direction, directions, phase, palette)


def _read_frames(path: Path, cast: Cast, chosen: np.ndarray, size: Size) -> np.ndarray:
    """The pictures (N,), numbered as they lie in the file and sorted: (N, 3, *size) uint8."""
    characters = len(cast.attributes)
    check_memory(len(chosen) * 3 * size[0] * size[1], path.name, "pass a smaller size= (--size), or samples=")
    images = np.empty((len(chosen), 3, *size), np.uint8)
    with open_npz(HOME, path) as array:
        stored = array("frames")
        expected = (len(cast.animation), characters, SIDE, SIDE)
        if stored.shape != expected or stored.dtype != np.uint8:
            HOME.broken(path, f"has frames of shape {stored.shape} and type {stored.dtype} where uint8 {expected} is expected")
        for number, frame in progress(stored.rows(1), len(cast.animation), "reading Sprites"):
            first, last = np.searchsorted(chosen, (number * characters, (number + 1) * characters))
            if last > first:
                indices = frame[0, chosen[first:last] - number * characters]
                pictures = np.stack([np.ascontiguousarray(channel)[indices] for channel in cast.palette[number].T], axis=1)
                images[first:last] = pictures if size == (SIDE, SIDE) else resize_images(pictures, size)
    return images
