"""Labelled grids of tiny images, and their transitions as sets, for tests."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from intervae.data import Dataset, Transitions, Variable, build_dataset

SIZES = (3, 4, 5)
NAMES = ("shape", "angle", "shade")
SPLITS = ("train", "validation", "test")


def grid_table(sizes: tuple[int, ...] = SIZES) -> np.ndarray:
    """Return all combinations of values that are neither whole numbers nor evenly spaced."""
    return np.array(
        list(itertools.product(*([0.5 + 0.1 * v**2 for v in range(size)] for size in sizes)))
    )


def grid_data(
    sizes: tuple[int, ...] = SIZES,
    names: tuple[str, ...] = NAMES,
    table: np.ndarray | None = None,
    **options: Any,
) -> Dataset:
    """Return a data set of all combinations; the pixels of an image are its number."""
    table = grid_table(sizes) if table is None else table
    images = np.arange(len(table)).astype("<u4").view(np.uint8).reshape(-1, 1, 2, 2)
    variables = [Variable(name) for name in names[: table.shape[1]]]
    options = {"validation": 0.4, "test": 0.3, **options}
    return build_dataset("made", images, table, variables, **options)


def triples(pairs: Transitions) -> set[tuple[int, int, int]]:
    """Return the pairs as a set of (before, after, action)."""
    return set(zip(pairs.before.tolist(), pairs.after.tolist(), pairs.action.tolist(), strict=True))
