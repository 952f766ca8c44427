"""Sprites (Li and Mandt 2018, Disentangled Sequential Autoencoder): 1,296 characters in 9 sequences, each a clip of 8 frames in colour.

The file holds palette indices, one sequence after the other; it is read a sequence at a time, and each clip goes straight to its place in
memory, small, in the order training, validation, test, so that the splits are slices of one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from intervae.data.base import Dataset, Split, Variable, split_rows
from intervae.data.images import Size, as_size, check_memory, progress, resize_images
from intervae.data.readers.files import Home, Npy, choose_rows, open_npz, read_array
from intervae.errors import UsageError, unknown

HOME = Home("Sprites", "sprites", "YingzhenLi/Sprites on GitHub, composed and packed as docs/datasets.md says")
FILE = "sprites_li2018.npz"
SIDE, FRAMES = 64, 8
AT_ONCE = 64  # clips
LARGEST_TABLE = 2**20  # entries of an array that is no picture


@dataclass(frozen=True)
class Cast:
    """Everything in the file but the pictures."""

    sequences: tuple[str, ...]  # an action and a direction each, such as walk_left
    attributes: np.ndarray  # (characters, a) codes
    attribute_names: tuple[str, ...]
    palette: np.ndarray  # (colours, 3) uint8
    train: np.ndarray  # (characters,) bool


def sprites(
    *,
    size: int | Sequence[int] = 32,
    actions: str | Sequence[str] | None = None,
    sequences: str | Sequence[str] | None = None,
    frames: int = FRAMES,
    samples: int | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Read the clips.

    Arguments:
        size: make the 64 x 64 frames this many pixels, square or (height, width); a size that divides 64 is averaged.
        actions: only these of walk, spellcard and slash; also as one text with commas.
        sequences: only these, such as "walk_left"; also as one text with commas.
        frames: only the first so many of the 8 frames.
        samples: keep only this many clips, drawn at random.
        validation, seed: the fraction of the training characters that is kept for validation. The paper's 296 held-out characters are
            the test split: no character is in two splits.
    """
    wanted = as_size(size) or (32, 32)
    if isinstance(frames, bool) or not isinstance(frames, int) or not 1 <= frames <= FRAMES:
        raise UsageError(f"frames={frames!r} must be a whole number from 1 to {FRAMES}.")
    path = HOME.need(FILE)
    cast = read_cast(path)
    chosen = choose_sequences(cast.sequences, actions, sequences)
    characters = len(cast.train)
    clips = (chosen[:, None] * characters + np.arange(characters)).ravel()  # as they lie in the file
    clips = clips[choose_rows(len(clips), samples, seed)]
    parts = split_rows(len(clips), validation=validation, test=~cast.train[clips % characters], seed=seed, groups=clips % characters)
    order = clips[np.concatenate(parts)]
    variables, labels = label_clips(cast, order)
    images = torch.from_numpy(read_clips(path, cast, order, frames, wanted))
    values, ends = torch.as_tensor(labels, dtype=torch.float32), np.cumsum([len(part) for part in parts])
    train, held, test = (Split(images[end - len(p) : end], values[end - len(p) : end]) for p, end in zip(parts, ends, strict=True))
    measured = tuple(v.measured_on(labels[: ends[0], i]) for i, v in enumerate(variables))
    note = "splits: the test characters are the paper's, no character is in two splits"
    return Dataset("sprites", train, held, test, variables=measured, notes=(note,))


def choose_sequences(known: Sequence[str], actions: str | Sequence[str] | None, sequences: str | Sequence[str] | None) -> np.ndarray:
    """The numbers of the sequences that both filters let through."""
    kept = np.ones(len(known), bool)
    for what, asked, having in (("action", actions, [name.rpartition("_")[0] for name in known]), ("sequence", sequences, known)):
        if asked is not None:
            names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
            for name in names:
                if name not in having:
                    raise unknown(f"{what} of sprites", name, set(having))
            kept &= np.isin(having, names)
    if not kept.any():
        raise UsageError(f"actions={actions!r} and sequences={sequences!r} leave no clip; choose some that go together.")
    return np.flatnonzero(kept)


def label_clips(cast: Cast, clips: np.ndarray) -> tuple[list[Variable], np.ndarray]:
    """Attributes of the character, action and direction of the clips (N,), codes (N, n); without those of the latter that are all the same."""
    number, character = np.divmod(clips, len(cast.train))
    variables = [
        Variable(name, "categorical", categories=tuple(map(str, range(int(codes.max()) + 1))))
        for name, codes in zip(cast.attribute_names, cast.attributes.T, strict=True)
    ]
    columns = list(cast.attributes[character].T)
    for i, name in enumerate(("action", "direction")):
        words = [sequence.rpartition("_")[2 * i] for sequence in cast.sequences]
        categories = tuple(dict.fromkeys(words))  # in the order of the file
        codes = np.array([categories.index(word) for word in words])[number]
        if len(np.unique(codes)) > 1:
            variables.append(Variable(name, "categorical", categories=categories))
            columns.append(codes)
    return variables, np.stack(columns, axis=1).astype(np.float64)


# ---- the file -----------------------------------------------------------------------------------------------------------
def read_cast(path: Path) -> Cast:
    with open_npz(HOME, path) as array:
        sequences, names = (tuple(map(str, small_array(array(key), "U", 1))) for key in ("sequences", "attribute_names"))
        palette, attributes, train = (
            small_array(array("palette"), "u", 2),
            small_array(array("attributes"), "iu", 2),
            small_array(array("train"), "b", 1),
        )
    if palette.shape[1] != 3 or palette.dtype != np.uint8 or len(palette) > 256:
        HOME.broken(path, f"has a palette of shape {palette.shape} and type {palette.dtype} where up to 256 colours (n, 3) uint8 are expected")
    if attributes.shape != (len(train), len(names)) or not 0 <= int(attributes.min()) <= int(attributes.max()) < 256:
        HOME.broken(path, f"has attributes of shape {attributes.shape} for {len(train)} characters and the attributes {', '.join(names)}")
    if not all("_" in name for name in sequences):
        HOME.broken(path, f"has sequences that are no action_direction: {', '.join(sequences)}")
    return Cast(sequences, attributes.astype(np.int64), names, palette, train)


def small_array(array: Npy, kinds: str, axes: int) -> np.ndarray:
    """All of an array that is no picture, after a check of its type (numpy's letters) and of how many axes it has."""
    if array.dtype.kind not in kinds or len(array.shape) != axes or not 0 < np.prod(array.shape) <= LARGEST_TABLE:
        array.home.broken(array.path, f"has a table of shape {array.shape} and type {array.dtype}, which none of its tables is")
    return read_array(array)


def read_clips(path: Path, cast: Cast, clips: np.ndarray, frames: int, size: Size) -> np.ndarray:
    """The clips (N,), numbered as they lie in the file, in their order: (N, frames, 3, *size) uint8."""
    characters = len(cast.train)
    place = np.full(len(cast.sequences) * characters, -1)
    place[clips] = np.arange(len(clips))
    with open_npz(HOME, path) as array:
        stored = array("frames")
        expected = (len(cast.sequences), FRAMES, characters, SIDE, SIDE)
        if stored.shape != expected or stored.dtype != np.uint8:
            HOME.broken(path, f"has frames of shape {stored.shape} and type {stored.dtype} where uint8 {expected} is expected")
        check_memory(len(clips) * frames * 3 * size[0] * size[1], path.name, "pass a smaller size= (--size), or samples=")
        images = np.empty((len(clips), frames, 3, *size), np.uint8)
        for number, sequence in progress(stored.rows(1), len(cast.sequences), "reading Sprites"):
            if sequence.max() >= len(cast.palette):
                HOME.broken(path, f"uses the colour {sequence.max()} of a palette of {len(cast.palette)}")
            wanted = np.flatnonzero(place[number * characters : (number + 1) * characters] >= 0)
            for start in range(0, len(wanted), AT_ONCE):
                rows = wanted[start : start + AT_ONCE]
                indices = sequence[0, :frames, rows]  # (n, frames, 64, 64), the chosen axis comes first
                pictures = _paint(indices.reshape(-1, SIDE, SIDE), cast.palette, size)
                images[place[number * characters + rows]] = pictures.reshape(len(rows), frames, 3, *size)
    return images


def _paint(indices: np.ndarray, palette: np.ndarray, size: Size) -> np.ndarray:
    """(N, 64, 64) palette indices to (N, 3, *size) uint8; the mean of whole blocks of pixels where the size allows it."""
    high, wide = SIDE // size[0], SIDE // size[1]
    if (high * size[0], wide * size[1]) != (SIDE, SIDE) or high * wide > 256:
        return resize_images(np.ascontiguousarray(palette[indices].transpose(0, 3, 1, 2)), size)
    lanes = np.zeros((len(palette), 4), np.uint16)  # the three channels side by side in one 64-bit number, so that one sum adds them all
    lanes[:, :3] = palette
    packed = lanes.view(np.uint64)[:, 0][indices]  # (N, 64, 64)
    rows = sum(packed[:, i::high] for i in range(high))
    blocks = np.ascontiguousarray(sum(rows[:, :, i::wide] for i in range(wide)))  # at most 256 * 255, which fits a lane
    sums = blocks.view(np.uint16).reshape(len(indices), *size, 4)[..., :3].astype(np.float32)
    return np.rint(sums / (high * wide)).astype(np.uint8).transpose(0, 3, 1, 2)
