"""Checks of a table before a graph is learned: linear combinations and duplicate categories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from intervae.discovery.design_matrix import MAX_CATEGORIES
from intervae.errors import DataError
from intervae.notes import Note

SMALLEST_RESIDUAL = 1e-10  # residual variance / variance below which a column is collinear


class LinearCombination(NamedTuple):
    """A column that others determine linearly."""

    column: str
    predictors: tuple[str, ...]

    def __str__(self) -> str:
        predictors = ", ".join(map(repr, self.predictors))
        return f"column {self.column!r} is a linear combination of {predictors}"


def check_not_collinear(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Raise a DataError where a column is a linear combination of others.

    The edges among such columns are not identifiable.
    """
    numeric = [i for i, kind in enumerate(kinds) if kind != "categorical"]
    if len(columns) <= len(numeric):
        raise DataError(
            f"{len(columns)} rows are too few for {len(numeric)} columns; "
            "give more rows than columns."
        )
    combination = find_linear_combination(columns, names, kinds)
    if combination is not None:
        raise DataError(f"{combination}; leave it out.")


def check_no_duplicate_categories(
    columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]
) -> None:
    """Raise a DataError where a categorical column is another column under other codes."""
    duplicates = find_duplicate_categories(columns, kinds)
    if duplicates is not None:
        first, second = names[duplicates[0]], names[duplicates[1]]
        raise DataError(
            f"column {second!r} has the same information as {first!r}: each value of one goes "
            "with one value of the other; leave one of them out."
        )


def find_linear_combination(
    columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]
) -> LinearCombination | None:
    """Return the first column that is a linear combination of those before it, or None.

    Categorical columns are skipped.
    """
    numeric = [i for i, kind in enumerate(kinds) if kind != "categorical"]
    scaled = columns[:, numeric] - columns[:, numeric].mean(axis=0)
    scaled = scaled / columns[:, numeric].std(axis=0)
    # squared diagonal of R: the variance that the columns before leave unexplained
    residual = np.abs(np.diagonal(np.linalg.qr(scaled, mode="r"))) ** 2 / len(scaled)
    collinear = np.flatnonzero(residual < SMALLEST_RESIDUAL)
    if not len(collinear):
        return None
    target = int(collinear[0])
    weights = np.linalg.lstsq(scaled[:, :target], scaled[:, target], rcond=None)[0]
    predictors = tuple(names[numeric[j]] for j in np.flatnonzero(np.abs(weights) > 1e-6))
    return LinearCombination(names[numeric[target]], predictors)


def find_duplicate_categories(columns: np.ndarray, kinds: Sequence[str]) -> tuple[int, int] | None:
    """Return the first two columns, one of them categorical, that determine each other, or None."""
    levels = [len(np.unique(column)) for column in columns.T]
    for a, b in combinations(range(len(kinds)), 2):
        same_size = levels[a] == levels[b] <= MAX_CATEGORIES  # one_hot raises an error for more
        if (
            same_size
            and "categorical" in (kinds[a], kinds[b])
            and len(np.unique(columns[:, [a, b]], axis=0)) == levels[a]
        ):
            return a, b
    return None


def collinearity_notes(
    columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]
) -> tuple[Note, ...]:
    """Return a note about a collinear column, for methods that accept one."""
    combination = find_linear_combination(columns, names, kinds)
    if combination is None:
        return ()
    text = (
        f"{combination}: which of them are causes may be a guess; "
        "leave it out unless it is an effect without noise."
    )
    return (Note("collinear", combination.column, text),)
