"""MIC and TIC: maximal and total information coefficient (Reshef et al. 2011; MIC_e: 2016).

Every grid of y rows and x columns with x y <= B = max(n^alpha, 4) is a cell. Its value is the
largest mutual information over such grids divided by log min(x, y), in [0, 1]. MIC is the largest
cell, TIC the sum of the cells, normalised TIC their mean.

Both depend on n: independent data score a MIC of about 0.23 for n = 100 and 0.11 for n = 2000.
Report n and `permutation_null` with every value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from intervae.errors import DataError, UsageError, unknown
from intervae.metrics import mic_grid_search
from intervae.metrics.mic_partitions import rank

ESTIMATORS = {
    # APPROX-MIC: one axis equipartitioned, the other optimised; the larger direction of each cell
    "approx": mic_grid_search.LARGER_DIRECTION,
    # MIC_e: the axis with more bins equipartitioned; symmetric
    "e": mic_grid_search.LARGER_SIDE,
    # MIC_e as widely implemented: x equipartitioned in square cells; not symmetric
    "e-reference": mic_grid_search.LARGER_SIDE_FIRST,
}
SMALLEST_N = 4  # fewer samples cannot fill the smallest grid, two by two


class MineMatrix(NamedTuple):
    """MIC and TIC of every column of X with every column of Y, and the number of samples."""

    mic: np.ndarray  # (columns of X, columns of Y)
    tic: np.ndarray  # (columns of X, columns of Y)
    n: int


@dataclass(frozen=True)
class PermutationNull:
    """MIC and normalised TIC of a pair, and of the same data with y shuffled.

    p = (1 + number of shuffles with a value as high) / (1 + number of shuffles).
    """

    n: int
    permutations: int
    mic: float
    mic_null_mean: float
    mic_null_std: float
    mic_p: float
    tic: float
    tic_null_mean: float
    tic_null_std: float
    tic_p: float

    def __str__(self) -> str:
        mic_null = f"{self.mic_null_mean:.3f} ± {self.mic_null_std:.3f}"
        tic_null = f"{self.tic_null_mean:.3f} ± {self.tic_null_std:.3f}"
        return (
            f"MIC {self.mic:.3f} (null {mic_null}, p = {self.mic_p:.3g}), "
            f"TIC {self.tic:.3f} (null {tic_null}, p = {self.tic_p:.3g}), "
            f"n = {self.n}, {self.permutations} permutations"
        )


def mic(x: Any, y: Any, *, alpha: float = 0.6, c: float = 15, estimator: str = "approx") -> float:
    """Return the maximal information coefficient of two samples (n,), in [0, 1].

    A constant sample scores 0.

    Arguments:
        alpha: grids have at most n^alpha cells.
        c: candidate cuts of the optimised axis per column.
        estimator: "approx" (Reshef et al. 2011), "e" (2016, symmetric) or "e-reference" (2016, as
            widely implemented).
    """
    result = mine_matrix(
        _column(x, "x"), _column(y, "y"), alpha=alpha, c=c, estimator=estimator, threads=1
    )
    return float(result.mic[0, 0])


def tic(
    x: Any,
    y: Any,
    *,
    alpha: float = 0.6,
    c: float = 15,
    estimator: str = "approx",
    normalised: bool = True,
) -> float:
    """Return the total information coefficient of two samples (n,): the mean of the cells.

    With normalised=False it is their sum. Other arguments as in `mic`.
    """
    columns = _column(x, "x"), _column(y, "y")
    result = mine_matrix(
        *columns, alpha=alpha, c=c, estimator=estimator, normalised=normalised, threads=1
    )
    return float(result.tic[0, 0])


def mic_matrix(
    X: Any,
    Y: Any,
    *,
    alpha: float = 0.6,
    c: float = 15,
    estimator: str = "approx",
    threads: int | None = None,
) -> np.ndarray:
    """Return the MIC of every column of X (n, p) with every column of Y (n, q): (p, q)."""
    return mine_matrix(X, Y, alpha=alpha, c=c, estimator=estimator, threads=threads).mic


def tic_matrix(
    X: Any,
    Y: Any,
    *,
    alpha: float = 0.6,
    c: float = 15,
    estimator: str = "approx",
    normalised: bool = True,
    threads: int | None = None,
) -> np.ndarray:
    """Return the TIC of every column of X (n, p) with every column of Y (n, q): (p, q)."""
    return mine_matrix(
        X, Y, alpha=alpha, c=c, estimator=estimator, normalised=normalised, threads=threads
    ).tic


def mine_matrix(
    X: Any,
    Y: Any,
    *,
    alpha: float = 0.6,
    c: float = 15,
    estimator: str = "approx",
    normalised: bool = True,
    threads: int | None = None,
) -> MineMatrix:
    """Return MIC and TIC of every column of X (n, p) with every column of Y (n, q) in one pass.

    Runs on `threads` cores, by default on all. Other arguments as in `mic` and `tic`.
    """
    left, right = _table(X, "X"), _table(Y, "Y")
    if len(left) != len(right):
        raise DataError(
            f"MIC and TIC need paired samples, but X has {len(left)} and Y has {len(right)}; "
            "pass arrays of the same length."
        )
    n = len(left)
    if n < SMALLEST_N:
        raise DataError(
            f"MIC and TIC need at least {SMALLEST_N} samples, but got {n}; pass more samples."
        )
    allowed, widest, max_clumps = _grids(n, alpha, c, estimator)
    most_rows = len(allowed) + 1
    scores, unit = mic_grid_search.score_table(n)
    left_ranked = rank(left, most_rows, scores)
    right_ranked = rank(right, most_rows, scores)
    shape = (left.shape[1], right.shape[1])
    pairs = np.ascontiguousarray(np.indices(shape).reshape(2, -1).T)  # (p q, 2)
    values = np.empty((len(pairs), 2))  # largest cell, sum of cells

    def score(chunk: slice) -> None:
        grids = allowed, widest, max_clumps, ESTIMATORS[estimator]
        mic_grid_search.score_pairs(
            left_ranked, right_ranked, pairs[chunk], *grids, scores, unit, values[chunk]
        )

    _in_parallel(score, len(pairs), threads)
    total = values[:, 1] / (allowed - 1).sum() if normalised else values[:, 1]
    return MineMatrix(values[:, 0].reshape(shape), total.reshape(shape), n)


def permutation_null(
    x: Any,
    y: Any,
    *,
    alpha: float = 0.6,
    c: float = 15,
    estimator: str = "approx",
    permutations: int = 100,
    seed: int = 0,
    threads: int | None = None,
) -> PermutationNull:
    """Estimate the null distribution of MIC and normalised TIC from shuffles of y.

    The smallest possible p-value is 1 / (permutations + 1).
    """
    if permutations < 2:
        raise UsageError(
            f"permutations is {permutations}, but a null distribution needs at least 2; "
            "100 is usual."
        )
    left, right = _column(x, "x"), _column(y, "y")
    generator = np.random.default_rng(seed)
    shuffled = [generator.permutation(right[:, 0]) for _ in range(permutations)]
    table = np.stack([right[:, 0], *shuffled], axis=1)  # (n, 1 + permutations)
    result = mine_matrix(left, table, alpha=alpha, c=c, estimator=estimator, threads=threads)

    def summary(values: np.ndarray) -> tuple[float, float, float, float]:
        observed, null = values[0], values[1:]
        return (
            float(observed),
            float(null.mean()),
            float(null.std(ddof=1)),
            float((1 + (null >= observed).sum()) / (1 + permutations)),
        )

    return PermutationNull(result.n, permutations, *summary(result.mic[0]), *summary(result.tic[0]))


def _grids(
    n: int, alpha: float, c: float, estimator: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For 2, 3, ... rows: columns allowed by B, columns to optimise, largest superclump count."""
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    if not 0 < alpha <= 1:
        raise UsageError(
            f"alpha is {alpha}, but grids have n^alpha cells with 0 < alpha <= 1; 0.6 is usual."
        )
    if not (1 <= c < math.inf):
        raise UsageError(f"c is {c}, but it must be a finite number of at least 1; 15 is usual.")
    cells = max(n**alpha, 4.0)
    rows = np.arange(2, math.floor(cells / 2) + 1)
    allowed = np.floor(cells / rows).astype(np.int64)
    widest = allowed if estimator == "approx" else np.minimum(allowed, rows)
    max_clumps = np.floor(np.minimum(c * allowed, n)).astype(np.int64)
    return allowed, widest, max_clumps


def _in_parallel(work: Callable[[slice], None], count: int, threads: int | None) -> None:
    """Call work(slice) over range(count) in threads; compiled code releases the GIL."""
    if threads is not None and threads < 1:
        raise UsageError(
            f"threads is {threads}, but at least 1 is needed; leave it out to use all cores."
        )
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    workers = min(threads or cores, count)
    if workers <= 1:
        work(slice(0, count))
        return
    chunks = min(count, 8 * workers)  # small ones, as pairs of discrete columns take less time
    bounds = np.linspace(0, count, chunks + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, map(slice, bounds[:-1], bounds[1:])))


def _column(values: Any, name: str) -> np.ndarray:
    """Return `values` (n,) as a checked table of one column."""
    array = _numbers(values, name)
    if array.ndim != 1:
        raise DataError(
            f"{name} has shape {array.shape}, but one variable (n,) is needed; "
            "for several columns use mine_matrix."
        )
    return array[:, None]


def _table(values: Any, name: str) -> np.ndarray:
    """Return `values` (n, p) as a checked table."""
    array = _numbers(values, name)
    if array.ndim != 2:
        raise DataError(
            f"{name} has shape {array.shape}, but a table (samples, dims) is needed; reshape it."
        )
    return array


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name} cannot be read as numbers ({error}); "
            "pass a numeric array or a detached tensor on the CPU."
        ) from error
    if not np.isfinite(array).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        index = bad if len(bad) > 1 else bad[0]
        raise DataError(
            f"{name} has {array[bad]} at index {index}; remove or fill missing samples first."
        )
    return array
