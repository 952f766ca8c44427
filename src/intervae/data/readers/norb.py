"""Small NORB (LeCun et al. 2004): stereo pictures of 50 toys under 9 elevations, 18 azimuths and 6 lightings, with the published test split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal

import numpy as np

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import Size, as_size, check_memory, progress, resize_images
from intervae.data.readers.files import Home, at_end, choose_rows, open_bytes, read_numbers, take
from intervae.errors import UsageError

HOME = Home("Small NORB", "norb", "cs.nyu.edu/~ylclab/data/norb-v1.0-small")
PARTS = ("smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing")
TYPES: dict[int, np.dtype] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}  # magic number -> what the matrix holds
MOST_AXES = 8
AT_ONCE = 2048  # pictures
CATEGORY = Variable("category", "categorical", categories=("animal", "human", "plane", "truck", "car"))
ELEVATION = Variable("elevation", unit="degrees")
AZIMUTH = Variable("azimuth", unit="degrees")
LIGHTING = Variable("lighting", "categorical", categories=tuple("012345"))
INSTANCE = Variable("instance", "categorical", categories=tuple("0123456789"))


def norb(
    *,
    size: int | Sequence[int] = 32,
    camera: int | Literal["both"] = 0,
    instance: bool = False,
    samples: int | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Read small NORB.

    Arguments:
        size: resize the 96 x 96 pictures to this many pixels, square or (height, width).
        camera: 0 or 1 for the picture of one camera, "both" for two channels.
        instance: also make the toy's number within its category a variable; no toy of the test split is in the training split.
        samples: keep only this many of the 48,600 pictures, drawn at random.
        validation, seed: the fraction of the training pictures that is kept for validation, drawn at random.
    """
    if camera not in (0, 1, "both") or isinstance(camera, bool | float):
        raise UsageError(f'camera={camera!r} is not a choice; choose 0, 1 or "both".')
    if not isinstance(instance, bool):
        raise UsageError(f"instance={instance!r} must be true or false.")
    wanted = as_size(size) or (96, 96)
    tables = [_read_labels(part) for part in PARTS]
    ends = np.cumsum([len(table) for table in tables])
    rows = choose_rows(int(ends[-1]), samples, seed)
    cameras = slice(0, 2) if camera == "both" else slice(camera, camera + 1)
    own = [rows[rows < ends[0]], rows[rows >= ends[0]] - ends[0]]
    images = [_read_pictures(part, len(table), chosen, cameras, wanted) for part, table, chosen in zip(PARTS, tables, own, strict=True)]
    variables = (CATEGORY, ELEVATION, AZIMUTH, LIGHTING, *((INSTANCE,) if instance else ()))
    labels = np.concatenate(tables)[rows, : len(variables)]
    return build_dataset("norb", np.concatenate(images), labels, variables, validation=validation, test=rows >= ends[0], seed=seed)


def _read_labels(part: str) -> np.ndarray:
    """(N, 5): category, elevation and azimuth in degrees, lighting, instance."""
    category_at, info_at = (_find(part, what) for what in ("cat", "info"))
    category, info = read_matrix(category_at), read_matrix(info_at)
    if category.ndim != 1 or info.shape != (len(category), 4):
        HOME.broken(info_at, f"has the shape {info.shape} beside categories of shape {category.shape} where (N, 4) and (N,) are expected")
    instance, elevation, azimuth, lighting = info.T
    for path, values, largest in (
        (category_at, category, 4),
        (info_at, instance, 9),
        (info_at, elevation, 8),
        (info_at, azimuth, 34),
        (info_at, lighting, 5),
    ):
        if len(values) and not (values.min() >= 0 and values.max() <= largest):
            HOME.broken(path, f"has a label outside 0 to {largest} ({values.min()} to {values.max()})")
    return np.stack([category, 30 + 5 * elevation, 10 * azimuth, lighting, instance], axis=1)


def _read_pictures(part: str, count: int, rows: np.ndarray, cameras: slice, size: Size) -> np.ndarray:
    """The chosen rows (sorted) of a part, (n, C, *size) uint8; the file is read a few pictures at a time."""
    path = _find(part, "dat")
    with open_bytes(HOME, path) as stream:
        shape, dtype = _header(path, stream)
        if dtype != np.uint8 or len(shape) != 4 or shape[:2] != (count, 2):
            HOME.broken(path, f"has a matrix of shape {shape} and type {dtype} where bytes ({count}, 2, 96, 96) are expected")
        check_memory(len(rows) * (cameras.stop - cameras.start) * size[0] * size[1], path.name, "pass a smaller size= (--size)")
        out = np.empty((len(rows), cameras.stop - cameras.start, *size), np.uint8)
        for start in progress(range(0, count, AT_ONCE), -(-count // AT_ONCE), "reading NORB"):
            n = min(AT_ONCE, count - start)
            pairs = np.frombuffer(take(HOME, path, stream, n * math.prod(shape[1:])), np.uint8).reshape(n, *shape[1:])
            first, last = np.searchsorted(rows, (start, start + n))
            if last > first:
                out[first:last] = resize_images(pairs[rows[first:last] - start][:, cameras], size)
        at_end(HOME, path, stream)
    return out


def _find(part: str, what: str) -> Path:
    return HOME.need(f"{part}-{what}.mat.gz", f"{part}-{what}.mat")


def _header(path: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Magic number, number of axes, then their lengths, of which there are three at least, all little-endian."""
    magic, axes = read_numbers(HOME, path, stream, 2, "<I")
    if magic not in TYPES:
        HOME.broken(path, f"is no NORB matrix of bytes or integers (its magic number is 0x{magic:08X})")
    if not 1 <= axes <= MOST_AXES:
        HOME.broken(path, f"says that it has {axes} axes")
    return read_numbers(HOME, path, stream, max(3, axes), "<I")[:axes], TYPES[magic]


def read_matrix(path: Path) -> np.ndarray:
    """A whole matrix of the labels."""
    with open_bytes(HOME, path) as stream:
        shape, dtype = _header(path, stream)
        needed = math.prod(shape) * dtype.itemsize
        check_memory(needed, path.name, "its header is wrong")
        values = np.frombuffer(take(HOME, path, stream, needed), dtype).reshape(shape)
        at_end(HOME, path, stream)
    return values
