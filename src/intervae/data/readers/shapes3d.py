"""Rooms of 3D Shapes (Burgess and Kim 2018): 480,000 images of 64 x 64 in colour.

The factors are 10 x 10 x 10 hues, 8 scales, 4 shapes and 15 orientations. The file is read a block
at a time, each image straight to its place in the order training, validation, test, so that the
splits are slices of one array (5.9 GB in all).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import torch

from intervae.data.build import consecutive_slices, split_rows
from intervae.data.dataset import Dataset, Split
from intervae.data.memory import check_memory
from intervae.data.pixel_arrays import Size, as_size, resize_images
from intervae.data.progress import progress
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.simulators.shapes3d import SHAPES, VARIABLES, level_rows
from intervae.errors import UsageError

SOURCE = FileSource("3D Shapes", "shapes3d", "google-deepmind/3d-shapes on GitHub")
FILE = "3dshapes.h5"
SIDE = 64
CHUNK = 1024  # images read at a time, 13 MB
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
        size: resize the 64 x 64 images to this many pixels, square or (height, width).
        levels: number of evenly spaced values of each of the six factors for a smaller grid, such
            as (5, 5, 5, 4, 4, 5); also as one text.
        samples: number of images, drawn at random; default all.
        validation, test, seed: random splits.
    """
    if levels is not None and samples is not None:
        raise UsageError("levels= and samples= each choose pictures; give one of them.")
    path, target = SOURCE.require(FILE), as_size(size) or (SIDE, SIDE)
    with SOURCE.reading(path), h5py.File(path, "r") as file:
        table, sizes = _read_labels(path, file)
        grid = np.meshgrid(*level_rows(levels, sizes), indexing="ij")
        rows = np.ravel_multi_index(grid, sizes).ravel()
        rows = rows[choose_rows(len(rows), samples, seed)]
        splits = split_rows(len(rows), validation=validation, test=test, seed=seed)
        order = rows[np.concatenate(splits)]
        images = torch.from_numpy(_read_images(path, file, order, target))
    labels = torch.as_tensor(table[order], dtype=torch.float32)
    slices = consecutive_slices(splits)
    train, held_out, test_split = (Split(images[part], labels[part]) for part in slices)
    variables = tuple(v.with_scale_of(table[order[slices[0]], i]) for i, v in enumerate(VARIABLES))
    return Dataset("shapes3d", train, held_out, test_split, variables=variables)


def _read_labels(path: Path, file: h5py.File) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the factors (N, 6) and the number of values of each.

    The rows must be the complete grid, the last factor changing fastest.
    """
    for name in ("images", "labels"):
        if not isinstance(file.get(name), h5py.Dataset):
            SOURCE.raise_broken(
                path, f"has no array {name!r}, only {', '.join(sorted(file)) or 'nothing'}"
            )
    stored = file["labels"]
    if (
        stored.ndim != 2
        or stored.shape[1] != len(VARIABLES)
        or not 0 < stored.shape[0] <= LARGEST_TABLE
        or stored.dtype.kind not in "iuf"
    ):
        SOURCE.raise_broken(
            path,
            f"has labels of shape {stored.shape} and type {stored.dtype} "
            f"where numbers (N, {len(VARIABLES)}) are expected",
        )
    table = np.asarray(stored[:], dtype=np.float64)
    columns = [np.unique(column, return_inverse=True) for column in table.T]
    sizes = tuple(len(values) for values, _ in columns)
    codes = [inverse.reshape(-1) for _, inverse in columns]
    if (
        math.prod(sizes) != len(table)
        or (np.ravel_multi_index(codes, sizes) != np.arange(len(table))).any()
    ):
        SOURCE.raise_broken(
            path,
            f"is no complete grid of factors in their order: {len(table)} rows with {sizes} values",
        )
    if not set(columns[4][0].tolist()) <= set(map(float, range(len(SHAPES)))):
        SOURCE.raise_broken(path, f"has shapes that are no codes from 0 to {len(SHAPES) - 1}")
    return table, sizes


def _read_images(path: Path, file: h5py.File, order: np.ndarray, size: Size) -> np.ndarray:
    """Return the images of the rows `order` (N,) as (N, 3, *size) uint8."""
    stored, rows = file["images"], len(file["labels"])
    expected = (rows, SIDE, SIDE, 3)
    if stored.shape != expected or stored.dtype != np.uint8:
        SOURCE.raise_broken(
            path,
            f"has pictures of shape {stored.shape} and type {stored.dtype} "
            f"where uint8 {expected} is expected",
        )
    needed = len(order) * 3 * size[0] * size[1]
    check_memory(needed, path.name, "pass levels=, samples= or a smaller size= (--size)")
    images = np.empty((len(order), 3, *size), np.uint8)
    place = np.argsort(order)
    sorted_rows = order[place]
    for start in progress(range(0, rows, CHUNK), -(-rows // CHUNK), "reading 3D Shapes"):
        first, last = np.searchsorted(sorted_rows, (start, start + CHUNK))
        if last > first:
            block = stored[start : min(start + CHUNK, rows)][sorted_rows[first:last] - start]
            chunk = np.ascontiguousarray(block.transpose(0, 3, 1, 2))
            images[place[first:last]] = resize_images(chunk, size)
    return images
