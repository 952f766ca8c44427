"""Rooms of 3D Shapes (Burgess and Kim 2018): a room with an object, 10 x 10 x 10 hues x 8 scales x 4 shapes x 15 orientations, 64 x 64 in colour.

The 480,000 pictures are 5.9 GB; the file is read a block at a time, only where a chosen picture lies, each picture straight to its place, in the
order training, validation, test, so that the splits are slices of one array. `levels` or `samples` choose fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import torch

from intervae.data.base import Dataset, Split, split_rows
from intervae.data.images import Size, as_size, check_memory, progress, resize_images
from intervae.data.readers.files import Home, choose_rows
from intervae.data.simulators.shapes3d import SHAPES, VARIABLES, level_rows
from intervae.errors import UsageError

HOME = Home("3D Shapes", "shapes3d", "google-deepmind/3d-shapes on GitHub")
FILE = "3dshapes.h5"
SIDE = 64
AT_ONCE = 1024  # pictures, 13 MB
LARGEST_TABLE = 2**22  # rows


def shapes3d(
    *,
    size: int | Sequence[int] = SIDE,
    levels: str | Sequence[int] | None = None,
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read 3D Shapes.

    Arguments:
        size: make the 64 x 64 pictures this many pixels, square or (height, width).
        levels: a smaller grid: how many values of each of the six factors, evenly spaced, such as (5, 5, 5, 4, 4, 5); also as one text.
        samples: keep only this many pictures, drawn at random.
        validation, test, seed: random splits.
    """
    if levels is not None and samples is not None:
        raise UsageError("levels= and samples= each choose pictures; give one of them.")
    path, wanted = HOME.need(FILE), as_size(size) or (SIDE, SIDE)
    with HOME.reading(path), h5py.File(path, "r") as file:
        table, sizes = _read_labels(path, file)
        kept = np.ravel_multi_index(np.meshgrid(*level_rows(levels, sizes), indexing="ij"), sizes).ravel()
        kept = kept[choose_rows(len(kept), samples, seed)]
        parts = split_rows(len(kept), validation=validation, test=test, seed=seed)
        order = kept[np.concatenate(parts)]
        images = torch.from_numpy(_read_pictures(path, file, order, wanted))
    labels, ends = torch.as_tensor(table[order], dtype=torch.float32), np.cumsum([len(part) for part in parts])
    train, held, unseen = (Split(images[end - len(p) : end], labels[end - len(p) : end]) for p, end in zip(parts, ends, strict=True))
    measured = tuple(v.measured_on(table[order[: ends[0]], i]) for i, v in enumerate(VARIABLES))
    return Dataset("shapes3d", train, held, unseen, variables=measured)


def _read_labels(path: Path, file: h5py.File) -> tuple[np.ndarray, tuple[int, ...]]:
    """The factors (N, 6) and how many values each has, after a check that the rows are the complete grid, the last factor changing fastest."""
    for name in ("images", "labels"):
        if not isinstance(file.get(name), h5py.Dataset):
            HOME.broken(path, f"has no array {name!r}, only {', '.join(sorted(file)) or 'nothing'}")
    stored = file["labels"]
    if stored.ndim != 2 or stored.shape[1] != len(VARIABLES) or not 0 < stored.shape[0] <= LARGEST_TABLE or stored.dtype.kind not in "iuf":
        HOME.broken(path, f"has labels of shape {stored.shape} and type {stored.dtype} where numbers (N, {len(VARIABLES)}) are expected")
    table = np.asarray(stored[:], dtype=np.float64)
    columns = [np.unique(column, return_inverse=True) for column in table.T]
    sizes = tuple(len(values) for values, _ in columns)
    places = [codes.reshape(-1) for _, codes in columns]
    if math.prod(sizes) != len(table) or (np.ravel_multi_index(places, sizes) != np.arange(len(table))).any():
        HOME.broken(path, f"is no complete grid of factors in their order: {len(table)} rows with {sizes} values")
    if not set(columns[4][0].tolist()) <= set(map(float, range(len(SHAPES)))):
        HOME.broken(path, f"has shapes that are no codes from 0 to {len(SHAPES) - 1}")
    return table, sizes


def _read_pictures(path: Path, file: h5py.File, order: np.ndarray, size: Size) -> np.ndarray:
    """The pictures of the rows (N,) in their order: (N, 3, *size) uint8."""
    stored, rows = file["images"], len(file["labels"])
    if stored.shape != (rows, SIDE, SIDE, 3) or stored.dtype != np.uint8:
        HOME.broken(path, f"has pictures of shape {stored.shape} and type {stored.dtype} where uint8 {(rows, SIDE, SIDE, 3)} is expected")
    check_memory(len(order) * 3 * size[0] * size[1], path.name, "pass levels=, samples= or a smaller size= (--size)")
    images = np.empty((len(order), 3, *size), np.uint8)
    place = np.argsort(order)
    wanted = order[place]  # sorted rows, and where each goes
    for start in progress(range(0, rows, AT_ONCE), -(-rows // AT_ONCE), "reading 3D Shapes"):
        first, last = np.searchsorted(wanted, (start, start + AT_ONCE))
        if last > first:
            block = stored[start : min(start + AT_ONCE, rows)][wanted[first:last] - start]
            pictures = np.ascontiguousarray(block.transpose(0, 3, 1, 2))
            images[place[first:last]] = pictures if size == (SIDE, SIDE) else resize_images(pictures, size)
    return images
