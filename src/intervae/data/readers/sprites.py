"""Sprites (Li and Mandt 2018, Disentangled Sequential Autoencoder): clips of game characters.

1,296 characters in 9 sequences, each a clip of 8 frames in colour. The file holds palette indices,
one sequence after the other; each clip goes straight to its place in the order training,
validation, test, so that the splits are slices of one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from intervae.data.build import consecutive_slices, split_rows
from intervae.data.dataset import Dataset, Split
from intervae.data.memory import check_memory
from intervae.data.options import read_names
from intervae.data.pixel_arrays import Size, as_size, resize_images
from intervae.data.progress import progress
from intervae.data.readers.archives import NpzArray, open_npz
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Variable
from intervae.errors import UsageError, unknown
from intervae.notes import Note

SOURCE = FileSource(
    "Sprites",
    "sprites",
    "YingzhenLi/Sprites on GitHub, composed and packed as docs/datasets.md says",
)
FILE = "sprites_li2018.npz"
SIDE, FRAMES = 64, 8
CHUNK = 64  # clips converted at a time
LARGEST_TABLE = 2**20  # entries of an array that is not an image


@dataclass(frozen=True)
class SpriteTables:
    """The arrays of the file, except for the images.

    Arguments:
        sequences: an action and a direction each, such as walk_left.
        attributes: (characters, a) codes.
        palette: (colours, 3) uint8.
        train: (characters,) bool.
    """

    sequences: tuple[str, ...]
    attributes: np.ndarray
    attribute_names: tuple[str, ...]
    palette: np.ndarray
    train: np.ndarray


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
        size: resize the 64 x 64 frames to this many pixels, square or (height, width); a size that
            divides 64 averages blocks of pixels.
        actions: subset of walk, spellcard and slash; also as one text with commas.
        sequences: subset such as "walk_left"; also as one text with commas.
        frames: number of frames from the first, at most 8.
        samples: number of clips, drawn at random; default all.
        validation, seed: fraction of the training characters for validation. The paper's 296
            held-out characters are the test split: no character is in two splits.
    """
    target = as_size(size) or (32, 32)
    if isinstance(frames, bool) or not isinstance(frames, int) or not 1 <= frames <= FRAMES:
        raise UsageError(f"frames={frames!r} must be a whole number from 1 to {FRAMES}.")
    path = SOURCE.require(FILE)
    tables = read_tables(path)
    clips = choose_clips(tables, actions, sequences)
    clips = clips[choose_rows(len(clips), samples, seed)]
    character = clips % len(tables.train)
    splits = split_rows(
        len(clips),
        validation=validation,
        test=~tables.train[character],
        seed=seed,
        groups=character,
    )
    order = clips[np.concatenate(splits)]
    variables, labels = label_clips(tables, order)
    images = torch.from_numpy(read_clips(path, tables, order, frames, target))
    values = torch.as_tensor(labels, dtype=torch.float32)
    slices = consecutive_slices(splits)
    train, held_out, test = (Split(images[part], values[part]) for part in slices)
    measured = tuple(v.with_scale_of(labels[slices[0], i]) for i, v in enumerate(variables))
    text = "splits: the test characters are the paper's, no character is in two splits"
    note = Note("grouped-splits", "character", text)
    return Dataset("sprites", train, held_out, test, variables=measured, notes=(note,))


def choose_clips(
    tables: SpriteTables,
    actions: str | Sequence[str] | None,
    sequences: str | Sequence[str] | None,
) -> np.ndarray:
    """Return the numbers of the clips, in the order of the file, that pass both filters."""
    passes = np.ones(len(tables.sequences), bool)
    sequence_actions = [name.rpartition("_")[0] for name in tables.sequences]
    for kind, names, values in (
        ("action", actions, sequence_actions),
        ("sequence", sequences, tables.sequences),
    ):
        if names is not None:
            chosen = read_names(names, f"{kind}s")
            for name in chosen:
                if name not in values:
                    raise unknown(f"{kind} of sprites", name, set(values))
            passes &= np.isin(values, chosen)
    if not passes.any():
        raise UsageError(
            f"actions={actions!r} and sequences={sequences!r} leave no clip; "
            "choose some that go together."
        )
    characters = len(tables.train)
    return (np.flatnonzero(passes)[:, None] * characters + np.arange(characters)).ravel()


def label_clips(tables: SpriteTables, clips: np.ndarray) -> tuple[list[Variable], np.ndarray]:
    """Return variables and codes (N, n) of clips (N,).

    They are the attributes of the character, and the action and direction where they vary.
    """
    number, character = np.divmod(clips, len(tables.train))
    variables = [
        Variable(name, "categorical", categories=tuple(map(str, range(int(codes.max()) + 1))))
        for name, codes in zip(tables.attribute_names, tables.attributes.T, strict=True)
    ]
    columns = list(tables.attributes[character].T)
    for i, name in enumerate(("action", "direction")):
        words = [sequence.rpartition("_")[2 * i] for sequence in tables.sequences]
        categories = tuple(dict.fromkeys(words))  # in the order of the file
        codes = np.array([categories.index(word) for word in words])[number]
        if len(np.unique(codes)) > 1:
            variables.append(Variable(name, "categorical", categories=categories))
            columns.append(codes)
    return variables, np.stack(columns, axis=1).astype(np.float64)


# ---- the file -------------------------------------------------------------------------------
def read_tables(path: Path) -> SpriteTables:
    """Read and check everything but the images."""
    with open_npz(SOURCE, path) as open_array:
        sequences = tuple(map(str, read_small_array(open_array("sequences"), "U", 1)))
        names = tuple(map(str, read_small_array(open_array("attribute_names"), "U", 1)))
        palette = read_small_array(open_array("palette"), "u", 2)
        attributes = read_small_array(open_array("attributes"), "iu", 2)
        train = read_small_array(open_array("train"), "b", 1)
    if palette.shape[1] != 3 or palette.dtype != np.uint8 or len(palette) > 256:
        SOURCE.raise_broken(
            path,
            f"has a palette of shape {palette.shape} and type {palette.dtype} "
            "where up to 256 colours (n, 3) uint8 are expected",
        )
    if (
        attributes.shape != (len(train), len(names))
        or not 0 <= int(attributes.min()) <= int(attributes.max()) < 256
    ):
        SOURCE.raise_broken(
            path,
            f"has attributes of shape {attributes.shape} for {len(train)} characters "
            f"and the attributes {', '.join(names)}",
        )
    if not all("_" in name for name in sequences):
        SOURCE.raise_broken(
            path, f"has sequences that are no action_direction: {', '.join(sequences)}"
        )
    return SpriteTables(sequences, attributes.astype(np.int64), names, palette, train)


def read_small_array(array: NpzArray, kinds: str, axes: int) -> np.ndarray:
    """Read an array that is not an image, after a check of its numpy kind and number of axes."""
    if (
        array.dtype.kind not in kinds
        or len(array.shape) != axes
        or not 0 < np.prod(array.shape) <= LARGEST_TABLE
    ):
        array.source.raise_broken(
            array.path,
            f"has a table of shape {array.shape} and type {array.dtype}, "
            "which none of its tables is",
        )
    return array.read()


def read_clips(
    path: Path, tables: SpriteTables, clips: np.ndarray, frames: int, size: Size
) -> np.ndarray:
    """Return clips (N,), numbered as in the file, as (N, frames, 3, *size) uint8."""
    characters = len(tables.train)
    place = np.full(len(tables.sequences) * characters, -1)
    place[clips] = np.arange(len(clips))
    with open_npz(SOURCE, path) as open_array:
        stored = open_array("frames")
        expected = (len(tables.sequences), FRAMES, characters, SIDE, SIDE)
        if stored.shape != expected or stored.dtype != np.uint8:
            SOURCE.raise_broken(
                path,
                f"has frames of shape {stored.shape} and type {stored.dtype} "
                f"where uint8 {expected} is expected",
            )
        needed = len(clips) * frames * 3 * size[0] * size[1]
        check_memory(needed, path.name, "pass a smaller size= (--size), or samples=")
        images = np.empty((len(clips), frames, 3, *size), np.uint8)
        count = len(tables.sequences)
        for number, sequence in progress(stored.chunks(1), count, "reading Sprites"):
            if sequence.max() >= len(tables.palette):
                SOURCE.raise_broken(
                    path, f"uses the colour {sequence.max()} of a palette of {len(tables.palette)}"
                )
            targets = place[number * characters : (number + 1) * characters]
            used = np.flatnonzero(targets >= 0)
            for start in range(0, len(used), CHUNK):
                rows = used[start : start + CHUNK]
                indices = sequence[0, :frames, rows]  # (n, frames, 64, 64)
                pixels = _apply_palette(indices.reshape(-1, SIDE, SIDE), tables.palette, size)
                images[targets[rows]] = pixels.reshape(len(rows), frames, 3, *size)
    return images


def _apply_palette(indices: np.ndarray, palette: np.ndarray, size: Size) -> np.ndarray:
    """Return palette indices (N, 64, 64) as (N, 3, *size) uint8.

    A size that divides 64 averages blocks of pixels. The three channels are added side by side in
    one 64-bit number; a block sum is at most 256 * 255, which fits the 16 bits of a channel.
    """
    high, wide = SIDE // size[0], SIDE // size[1]
    if (high * size[0], wide * size[1]) != (SIDE, SIDE) or high * wide > 256:
        return resize_images(np.ascontiguousarray(palette[indices].transpose(0, 3, 1, 2)), size)
    lanes = np.zeros((len(palette), 4), np.uint16)
    lanes[:, :3] = palette
    packed = lanes.view(np.uint64)[:, 0][indices]  # (N, 64, 64)
    rows = sum(packed[:, i::high] for i in range(high))
    blocks = np.ascontiguousarray(sum(rows[:, :, i::wide] for i in range(wide)))
    sums = blocks.view(np.uint16).reshape(len(indices), *size, 4)[..., :3].astype(np.float32)
    return np.rint(sums / (high * wide)).astype(np.uint8).transpose(0, 3, 1, 2)
