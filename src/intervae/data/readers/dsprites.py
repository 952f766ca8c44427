"""dSprites (Matthey et al. 2017): 3 shapes x 6 scales x 40 orientations x 32 x 32 positions, one black-and-white 64 x 64 picture of each.

The 737,280 pictures are 3 GB; the file is unpacked piece by piece and kept as bits in one array of 377 MB, in the order training,
validation, test, so that the splits are slices of it and the grid looks pictures up in the same memory.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.base import Dataset, Variable, split_rows
from intervae.data.images import check_memory, progress
from intervae.data.readers.files import Home, Npy, choose_rows, open_npz, read_array
from intervae.data.readers.packed import PackedSplit, unpack_bits
from intervae.errors import DataError, QueryError, unknown

HOME = Home("dSprites", "dsprites", "deepmind/dsprites-dataset on GitHub")
FILES = {
    "full": ("dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz", "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.rebuilt.npz"),
    "downsampled": ("dsprites_downsampled.npz",),
}
SIDE = 64  # pixels
AT_ONCE = 4096  # pictures, 16 MB
VARIABLES = (
    Variable("shape", "categorical", categories=("square", "ellipse", "heart")),
    Variable("scale"),
    Variable("orientation", unit="radians"),
    Variable("position_x"),
    Variable("position_y"),
)


def dsprites(*, file: str = "full", samples: int | None = None, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Dataset:
    """Read dSprites.

    Arguments:
        file: "full", or "downsampled" for the factorial subset dsprites_downsampled.npz with fewer orientations and positions.
        samples: keep only this many pictures, drawn at random; the data set then has no `grid`.
        validation, test, seed: random splits.
    """
    path = _path(file)
    factor_values = _read_factors(path)
    n = math.prod(len(values) for values in factor_values)
    chosen = choose_rows(n, samples, seed)
    parts = [chosen[part] for part in split_rows(len(chosen), validation=validation, test=test, seed=seed)]
    order = np.concatenate(parts)
    position = np.full(n, -1)
    position[order] = np.arange(len(order))
    bits = _read_bits(path, position)
    grid = DspritesGrid(bits, torch.from_numpy(position), factor_values)
    table = grid.values(grid.classes(order))
    labels = torch.as_tensor(table, dtype=torch.float32)
    ends = np.cumsum([len(part) for part in parts])
    splits = [PackedSplit(bits=bits[end - len(part) : end], labels=labels[end - len(part) : end]) for part, end in zip(parts, ends, strict=True)]
    variables = tuple(v.measured_on(table[: len(parts[0]), i]) for i, v in enumerate(VARIABLES))
    return Dataset("dsprites", splits[0], splits[1], splits[2], variables=variables, grid=grid if samples is None else None)


def dsprites_grid(*, file: str = "full") -> DspritesGrid:
    """All of dSprites as a table of pictures, without splits; `load_data("dsprites").grid` is the same in another order of memory."""
    path = _path(file)
    factor_values = _read_factors(path)
    position = np.arange(math.prod(len(values) for values in factor_values))
    return DspritesGrid(_read_bits(path, position), torch.from_numpy(position), factor_values)


class DspritesGrid:
    """The picture of any combination of factors, as a metric asks that holds one factor and draws the others.

    A combination is a row of five classes (shape, scale, orientation, position x, position y), each counted from 0.

    Arguments:
        bits: (N, 1, 64, 8) uint8, the packed pictures in any order.
        position: (N,) where in `bits` the picture of each row of the file is.
        factor_values: for each factor the value of each class, in the variable's own units.
    """

    names = tuple(variable.name for variable in VARIABLES)

    def __init__(self, bits: Tensor, position: Tensor, factor_values: tuple[np.ndarray, ...]) -> None:
        self.bits, self.position, self.factor_values = bits, position, factor_values

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.factor_values)

    def __len__(self) -> int:
        return len(self.position)

    def to(self, device: torch.device | str) -> DspritesGrid:
        return DspritesGrid(self.bits.to(device), self.position.to(device), self.factor_values)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 5) classes, each drawn uniformly and independently."""
        return rng.integers(0, self.factor_sizes, (n, len(self.names)))

    def rows(self, classes: Any) -> np.ndarray:
        """(N, 5) classes to the row (N,) of each picture in the file, the inverse of `classes`."""
        return np.ravel_multi_index(tuple(self._checked(classes).T), self.factor_sizes)

    def classes(self, rows: Any) -> np.ndarray:
        """Rows (N,) of the file to classes (N, 5)."""
        return np.stack(np.unravel_index(np.asarray(rows), self.factor_sizes), axis=1)

    def values(self, classes: Any) -> np.ndarray:
        """(N, 5) classes to (N, 5) labels in the variables' own units; a shape is its code."""
        checked = self._checked(classes)
        return np.stack([values[checked[:, i]] for i, values in enumerate(self.factor_values)], axis=1)

    def images(self, classes: Any) -> Tensor:
        """(N, 5) classes to (N, 1, 64, 64) uint8 of 0 and 255, on the device of the grid."""
        rows = torch.as_tensor(self.rows(classes), device=self.position.device)
        return unpack_bits(self.bits[self.position[rows]]).mul_(255)

    def _checked(self, classes: Any) -> np.ndarray:
        given = np.asarray(classes.detach().cpu() if isinstance(classes, Tensor) else classes)
        whole = given.astype(np.int64)
        if given.ndim != 2 or given.shape[1] != len(self.names) or not (whole == given).all():
            raise QueryError(f"classes must be whole numbers of shape (N, {len(self.names)}), one column for each of {', '.join(self.names)}.")
        if ((whole < 0) | (whole >= self.factor_sizes)).any():
            raise QueryError(f"classes are counted from 0 and must be below {self.factor_sizes} ({', '.join(self.names)}).")
        return whole


# ---- the file -------------------------------------------------------------------------------------------------------------
def _path(file: str) -> Path:
    if file not in FILES:
        raise unknown("file of dsprites", file, FILES)
    return HOME.need(*FILES[file])


def _read_factors(path: Path) -> tuple[np.ndarray, ...]:
    """The values of each factor's classes, after a check that the rows are the complete grid in order; a shape's value is its code."""
    with open_npz(HOME, path) as array:
        classes, values = _factors(array("latents_classes"), "iu"), _factors(array("latents_values"), "iuf")
    sizes = tuple(int(size) for size in classes.max(axis=0) + 1)
    if sizes[0] != len(VARIABLES[0].categories) or math.prod(sizes) != len(classes) or len(values) != len(classes):
        HOME.broken(path, f"is no complete grid of factors: {len(classes)} rows with {sizes} classes")
    if (np.ravel_multi_index(tuple(classes.T), sizes) != np.arange(len(classes))).any():
        HOME.broken(path, "does not have its rows in the order of the factors, the last changing fastest")
    first = [math.prod(sizes[i + 1 :]) * np.arange(size) for i, size in enumerate(sizes)]  # where each class appears first
    found = [values[rows, i] for i, rows in enumerate(first)]
    if any((column != found[i][classes[:, i]]).any() for i, column in enumerate(values.T)):
        HOME.broken(path, "gives one class of a factor two values")
    return (np.arange(sizes[0], dtype=np.float64), *found[1:])


def _factors(array: Npy, kinds: str) -> np.ndarray:
    """(N, 5): the published table has the colour, which is always white, before the other five."""
    if len(array.shape) != 2 or array.shape[1] not in (5, 6) or array.shape[0] < 1 or array.dtype.kind not in kinds:
        HOME.broken(array.path, f"has factors of shape {array.shape} and type {array.dtype} where numbers (N, 5) or (N, 6) are expected")
    check_memory(array.shape[0] * 6 * array.dtype.itemsize, array.path.name, "check the file")
    table = read_array(array)[:, -5:]
    if not (np.isfinite(table).all() and (table >= 0).all()):
        HOME.broken(array.path, "has factors that are negative or not finite")
    return table


def _read_bits(path: Path, position: np.ndarray) -> Tensor:
    """The pictures whose `position` (N,) is not negative, each at its position: (n, 1, 64, 8)."""
    with open_npz(HOME, path) as array:
        pictures = array("imgs")
        expected = (len(position), SIDE, SIDE)
        if pictures.shape != expected or pictures.dtype not in (np.uint8, np.bool_):
            HOME.broken(path, f"has pictures of shape {pictures.shape} and type {pictures.dtype} where uint8 {expected} is expected")
        kept = int((position >= 0).sum())
        check_memory(kept * SIDE * SIDE // 8, path.name, "pass samples=")
        bits = np.empty((kept, 1, SIDE, SIDE // 8), np.uint8)
        for start, rows in progress(pictures.rows(AT_ONCE), -(-len(position) // AT_ONCE), "reading dSprites"):
            if rows.max() > 1:
                raise DataError(f"{path.name}: the pictures must be 0 and 1, but there is {rows.max()}; get the file again from {HOME.page}.")
            places = position[start : start + len(rows)]
            wanted = places >= 0
            bits[places[wanted], 0] = np.packbits(rows if wanted.all() else rows[wanted], axis=-1)
    return torch.from_numpy(bits)
