"""dSprites (Matthey et al. 2017): 737,280 black-and-white 64 x 64 images on a complete grid.

The factors are 3 shapes, 6 scales, 40 orientations and 32 x 32 positions. The images are stored as
bits in one array of 377 MB, in the order training, validation, test, so that the splits are slices
of it and the grid looks images up in the same memory.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.build import consecutive_slices, split_rows
from intervae.data.dataset import Dataset
from intervae.data.memory import check_memory
from intervae.data.progress import progress
from intervae.data.readers.archives import NpzArray, open_npz
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.readers.packed_bits import PackedSplit, unpack_bits
from intervae.data.variables import Variable
from intervae.errors import DataError, QueryError, unknown

# what the paper's dSprites is, beside results made with the second of the files below
RENDERED_AGAIN = (
    "the original dSprites; ours is rendered again, with about 60 images off by a pixel"
)
SOURCE = FileSource("dSprites", "dsprites", "deepmind/dsprites-dataset on GitHub")
FILES = {
    "full": (
        "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
        "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.rebuilt.npz",
    ),
    "downsampled": ("dsprites_downsampled.npz",),
}
SIDE = 64  # pixels
CHUNK = 4096  # images read at a time, 16 MB
VARIABLES = (
    Variable("shape", "categorical", categories=("square", "ellipse", "heart")),
    Variable("scale"),
    Variable("orientation", unit="radians"),
    Variable("position_x"),
    Variable("position_y"),
)


def dsprites(
    *,
    file: str = "full",
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read dSprites.

    Arguments:
        file: "full", or "downsampled" for dsprites_downsampled.npz, a grid with fewer orientations
            and positions.
        samples: number of images, drawn at random; default all. With it the data set has no
            `grid`.
        validation, test, seed: random splits.
    """
    path = _path(file)
    factor_values = _read_factors(path)
    n = math.prod(len(values) for values in factor_values)
    rows = choose_rows(n, samples, seed)
    splits = split_rows(len(rows), validation=validation, test=test, seed=seed)
    order = rows[np.concatenate(splits)]
    position = np.full(n, -1)
    position[order] = np.arange(len(order))
    bits = _read_bits(path, position)
    grid = DspritesGrid(bits, torch.from_numpy(position), factor_values)
    table = grid.values(grid.classes(order))
    labels = torch.as_tensor(table, dtype=torch.float32)
    train, held_out, test_split = (
        PackedSplit(bits=bits[part], labels=labels[part]) for part in consecutive_slices(splits)
    )
    return Dataset(
        "dsprites",
        train,
        held_out,
        test_split,
        variables=tuple(
            v.with_scale_of(table[: len(splits[0]), i]) for i, v in enumerate(VARIABLES)
        ),
        grid=grid if samples is None else None,
    )


class DspritesGrid:
    """Lookup of the image of any combination of factors.

    A combination is a row of five classes (shape, scale, orientation, position x, position y),
    each counted from 0.

    Arguments:
        bits: (N, 1, 64, 8) uint8, the packed images in any order.
        position: (N,) where in `bits` the image of each row of the file is.
        factor_values: for each factor the value of each class, in the variable's own units.
    """

    names = tuple(variable.name for variable in VARIABLES)

    def __init__(
        self, bits: Tensor, position: Tensor, factor_values: tuple[np.ndarray, ...]
    ) -> None:
        self.bits, self.position, self.factor_values = bits, position, factor_values

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.factor_values)

    def __len__(self) -> int:
        return len(self.position)

    def to(self, device: torch.device | str) -> DspritesGrid:
        return DspritesGrid(self.bits.to(device), self.position.to(device), self.factor_values)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, 5) classes, each drawn uniformly and independently."""
        return rng.integers(0, self.factor_sizes, (n, len(self.names)))

    def rows(self, classes: Any) -> np.ndarray:
        """Return the row (N,) in the file of classes (N, 5): the inverse of `classes`."""
        return np.ravel_multi_index(tuple(self._checked(classes).T), self.factor_sizes)

    def classes(self, rows: Any) -> np.ndarray:
        """Return the classes (N, 5) of rows (N,) of the file."""
        return np.stack(np.unravel_index(np.asarray(rows), self.factor_sizes), axis=1)

    def values(self, classes: Any) -> np.ndarray:
        """Return labels (N, 5) in the variables' own units; a shape is its code."""
        checked = self._checked(classes)
        return np.stack(
            [values[checked[:, i]] for i, values in enumerate(self.factor_values)], axis=1
        )

    def images(self, classes: Any) -> Tensor:
        """Return (N, 1, 64, 64) uint8 of 0 and 255, on the device of the grid."""
        rows = torch.as_tensor(self.rows(classes), device=self.position.device)
        return unpack_bits(self.bits[self.position[rows]]).mul_(255)

    def _checked(self, classes: Any) -> np.ndarray:
        """Return classes (N, 5) as integers, or raise an error."""
        values = np.asarray(classes.detach().cpu() if isinstance(classes, Tensor) else classes)
        integers = values.astype(np.int64)
        if values.ndim != 2 or values.shape[1] != len(self.names) or (integers != values).any():
            raise QueryError(
                f"classes must be whole numbers of shape (N, {len(self.names)}), "
                f"one column for each of {', '.join(self.names)}."
            )
        if ((integers < 0) | (integers >= self.factor_sizes)).any():
            raise QueryError(
                f"classes are counted from 0 and must be below {self.factor_sizes} "
                f"({', '.join(self.names)})."
            )
        return integers


# ---- the file -------------------------------------------------------------------------------
def _path(file: str) -> Path:
    if file not in FILES:
        raise unknown("file of dsprites", file, FILES)
    return SOURCE.require(*FILES[file])


def _read_factors(path: Path) -> tuple[np.ndarray, ...]:
    """Return the values of each factor's classes; the rows must be the complete grid in order."""
    with open_npz(SOURCE, path) as open_array:
        classes = _read_table(open_array("latents_classes"), "iu")
        values = _read_table(open_array("latents_values"), "iuf")
    sizes = tuple(int(size) for size in classes.max(axis=0) + 1)
    if (
        sizes[0] != len(VARIABLES[0].categories)
        or math.prod(sizes) != len(classes)
        or len(values) != len(classes)
    ):
        SOURCE.raise_broken(
            path, f"is no complete grid of factors: {len(classes)} rows with {sizes} classes"
        )
    if (np.ravel_multi_index(tuple(classes.T), sizes) != np.arange(len(classes))).any():
        SOURCE.raise_broken(
            path, "does not have its rows in the order of the factors, the last changing fastest"
        )
    first_rows = [math.prod(sizes[i + 1 :]) * np.arange(size) for i, size in enumerate(sizes)]
    class_values = [values[rows, i] for i, rows in enumerate(first_rows)]
    if any((column != class_values[i][classes[:, i]]).any() for i, column in enumerate(values.T)):
        SOURCE.raise_broken(path, "gives one class of a factor two values")
    return (np.arange(sizes[0], dtype=np.float64), *class_values[1:])


def _read_table(array: NpzArray, kinds: str) -> np.ndarray:
    """Return (N, 5); the published table has a constant colour before the other five factors."""
    if (
        len(array.shape) != 2
        or array.shape[1] not in (5, 6)
        or array.shape[0] < 1
        or array.dtype.kind not in kinds
    ):
        SOURCE.raise_broken(
            array.path,
            f"has factors of shape {array.shape} and type {array.dtype} "
            "where numbers (N, 5) or (N, 6) are expected",
        )
    check_memory(array.shape[0] * 6 * array.dtype.itemsize, array.path.name, "check the file")
    table = array.read()[:, -5:]
    if not (np.isfinite(table).all() and (table >= 0).all()):
        SOURCE.raise_broken(array.path, "has factors that are negative or not finite")
    return table


def _read_bits(path: Path, position: np.ndarray) -> Tensor:
    """Return (n, 1, 64, 8): the images whose `position` (N,) is not negative, each there."""
    with open_npz(SOURCE, path) as open_array:
        images = open_array("imgs")
        expected = (len(position), SIDE, SIDE)
        if images.shape != expected or images.dtype not in (np.uint8, np.bool_):
            SOURCE.raise_broken(
                path,
                f"has pictures of shape {images.shape} and type {images.dtype} "
                f"where uint8 {expected} is expected",
            )
        count = int((position >= 0).sum())
        check_memory(count * SIDE * SIDE // 8, path.name, "pass samples=")
        bits = np.empty((count, 1, SIDE, SIDE // 8), np.uint8)
        chunks = -(-len(position) // CHUNK)
        for start, chunk in progress(images.chunks(CHUNK), chunks, "reading dSprites"):
            if chunk.max() > 1:
                raise DataError(
                    f"{path.name}: the pictures must be 0 and 1, but there is {chunk.max()}; "
                    f"get the file again from {SOURCE.page}."
                )
            places = position[start : start + len(chunk)]
            used = places >= 0
            bits[places[used], 0] = np.packbits(chunk if used.all() else chunk[used], axis=-1)
    return torch.from_numpy(bits)
