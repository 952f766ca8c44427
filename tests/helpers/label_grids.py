"""Labels on a grid, images of squares, and which columns of labels vary."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intervae.data import Dataset, Variable, build_dataset


def grid(*counts: int) -> np.ndarray:
    """Return all combinations of this many values per variable."""
    return (
        np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1)
        .reshape(-1, len(counts))
        .astype(float)
    )


def squares(positions: int = 8, sizes: int = 6, side: int = 8) -> Dataset:
    """Images of a bright square at all positions in all sizes."""
    table = grid(positions, positions, sizes)
    x, y, size = (table / (np.array([positions, positions, sizes]) - 1)).T
    half, pixel = side * (0.06 + 0.22 * size), np.arange(side) + 0.5

    def cover(centre: np.ndarray) -> np.ndarray:
        return np.clip(
            half[:, None] + 0.5 - np.abs(pixel - side * (0.25 + 0.5 * centre)[:, None]), 0, 1
        )

    images = (255 * cover(y)[:, :, None] * cover(x)[:, None, :]).astype(np.uint8)[:, None]
    return build_dataset("squares", images, table, [Variable("x"), Variable("y"), Variable("size")])


def varying(table: Tensor) -> list[int]:
    """Return the columns that are not constant."""
    return torch.nonzero((table != table[:1]).any(0))[:, 0].tolist()
