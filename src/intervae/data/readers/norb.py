"""Small NORB (LeCun et al. 2004): stereo images of 50 toys, with the published test split.

The factors are 5 categories, 9 elevations, 18 azimuths and 6 lightings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.memory import check_memory
from intervae.data.pixel_arrays import Size, as_size, resize_images
from intervae.data.progress import progress
from intervae.data.readers.archives import check_end, open_bytes, read_exactly, read_numbers
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Variable
from intervae.errors import UsageError

SOURCE = FileSource("Small NORB", "norb", "cs.nyu.edu/~ylclab/data/norb-v1.0-small")
FILE_STEMS = (
    "smallnorb-5x46789x9x18x6x2x96x96-training",
    "smallnorb-5x01235x9x18x6x2x96x96-testing",
)
DTYPE_OF_MAGIC: dict[int, np.dtype] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
MAXIMUM_AXES = 8
CHUNK = 2048  # images read at a time
CATEGORY = Variable(
    "category", "categorical", categories=("animal", "human", "plane", "truck", "car")
)
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
        size: resize the 96 x 96 images to this many pixels, square or (height, width).
        camera: 0 or 1 for the image of one camera, "both" for two channels.
        instance: add the toy's number within its category as a variable; no toy of the test split
            is in the training split.
        samples: number of images, drawn at random; default all 48,600.
        validation, seed: fraction of the training images for validation, drawn at random.
    """
    if camera not in (0, 1, "both") or isinstance(camera, bool | float):
        raise UsageError(f'camera={camera!r} is not a choice; choose 0, 1 or "both".')
    if not isinstance(instance, bool):
        raise UsageError(f"instance={instance!r} must be true or false.")
    target = as_size(size) or (96, 96)
    train_table, test_table = (_read_labels(part) for part in FILE_STEMS)
    train_count, test_count = len(train_table), len(test_table)
    rows = choose_rows(train_count + test_count, samples, seed)
    is_test = rows >= train_count
    cameras = slice(0, 2) if camera == "both" else slice(camera, camera + 1)
    train_rows, test_rows = rows[~is_test], rows[is_test] - train_count
    images = [
        _read_images(FILE_STEMS[0], train_count, train_rows, cameras, target),
        _read_images(FILE_STEMS[1], test_count, test_rows, cameras, target),
    ]
    variables = (CATEGORY, ELEVATION, AZIMUTH, LIGHTING, *((INSTANCE,) if instance else ()))
    labels = np.concatenate([train_table, test_table])[rows, : len(variables)]
    return build_dataset(
        "norb",
        np.concatenate(images),
        labels,
        variables,
        validation=validation,
        test=is_test,
        seed=seed,
    )


def _read_labels(part: str) -> np.ndarray:
    """Return (N, 5): category, elevation and azimuth in degrees, lighting, instance."""
    category_path, info_path = _find(part, "cat"), _find(part, "info")
    category, info = read_matrix(category_path), read_matrix(info_path)
    if category.ndim != 1 or info.shape != (len(category), 4):
        SOURCE.raise_broken(
            info_path,
            f"has the shape {info.shape} beside categories of shape {category.shape} "
            "where (N, 4) and (N,) are expected",
        )
    instance, elevation, azimuth, lighting = info.T
    for path, values, largest in (
        (category_path, category, 4),
        (info_path, instance, 9),
        (info_path, elevation, 8),
        (info_path, azimuth, 34),
        (info_path, lighting, 5),
    ):
        if len(values) and not (values.min() >= 0 and values.max() <= largest):
            SOURCE.raise_broken(
                path, f"has a label outside 0 to {largest} ({values.min()} to {values.max()})"
            )
    return np.stack([category, 30 + 5 * elevation, 10 * azimuth, lighting, instance], axis=1)


def _read_images(part: str, count: int, rows: np.ndarray, cameras: slice, size: Size) -> np.ndarray:
    """Return the sorted rows (n,) of a part as (n, C, *size) uint8."""
    path = _find(part, "dat")
    channels = cameras.stop - cameras.start
    with open_bytes(SOURCE, path) as stream:
        shape, dtype = _read_header(path, stream)
        if dtype != np.uint8 or len(shape) != 4 or shape[:2] != (count, 2):
            SOURCE.raise_broken(
                path,
                f"has a matrix of shape {shape} and type {dtype} "
                f"where bytes ({count}, 2, 96, 96) are expected",
            )
        needed = len(rows) * channels * size[0] * size[1]
        check_memory(needed, path.name, "pass a smaller size= (--size)")
        images = np.empty((len(rows), channels, *size), np.uint8)
        for start in progress(range(0, count, CHUNK), -(-count // CHUNK), "reading NORB"):
            n = min(CHUNK, count - start)
            content = read_exactly(SOURCE, path, stream, n * math.prod(shape[1:]))
            pairs = np.frombuffer(content, np.uint8).reshape(n, *shape[1:])
            first, last = np.searchsorted(rows, (start, start + n))
            if last > first:
                chunk = pairs[rows[first:last] - start][:, cameras]
                images[first:last] = resize_images(chunk, size)
        check_end(SOURCE, path, stream)
    return images


def _find(part: str, content: str) -> Path:
    return SOURCE.require(f"{part}-{content}.mat.gz", f"{part}-{content}.mat")


def _read_header(path: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Read magic number, number of axes, and their lengths (at least three), little-endian."""
    magic, axes = read_numbers(SOURCE, path, stream, 2, "<I")
    if magic not in DTYPE_OF_MAGIC:
        SOURCE.raise_broken(
            path, f"is no NORB matrix of bytes or integers (its magic number is 0x{magic:08X})"
        )
    if not 1 <= axes <= MAXIMUM_AXES:
        SOURCE.raise_broken(path, f"says that it has {axes} axes")
    lengths = read_numbers(SOURCE, path, stream, max(3, axes), "<I")
    return lengths[:axes], DTYPE_OF_MAGIC[magic]


def read_matrix(path: Path) -> np.ndarray:
    """Read a matrix of labels at once."""
    with open_bytes(SOURCE, path) as stream:
        shape, dtype = _read_header(path, stream)
        needed = math.prod(shape) * dtype.itemsize
        check_memory(needed, path.name, "its header is wrong")
        values = np.frombuffer(read_exactly(SOURCE, path, stream, needed), dtype).reshape(shape)
        check_end(SOURCE, path, stream)
    return values
