"""MIC and TIC: the maximal and the total information coefficient (Reshef et al. 2011; MIC_e and TIC_e: Reshef et al. 2016).

Every grid of y rows and x columns with x y <= B = max(n^alpha, 4) is a cell; its value is the largest mutual information found for such a
grid over log min(x, y), in [0, 1]. MIC is the largest cell, TIC the sum of the cells, and normalised TIC their mean.

Both depend on n: independent data of n = 100 already score a MIC of about 0.23, of n = 2000 about 0.11. Report n and `permutation_null`
beside every value.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from intervae.errors import DataError, UsageError, unknown
from intervae.metrics import _mine

ESTIMATORS = {
    "approx": _mine.LARGER_DIRECTION,  # APPROX-MIC: one axis equipartitioned, the other optimised; the better choice of axis in each cell
    "e": _mine.LARGER_SIDE,  # MIC_e: the axis with more bins equipartitioned; the better choice where both have as many: symmetric
    "e-reference": _mine.LARGER_SIDE_FIRST,  # MIC_e as widely implemented: x equipartitioned where both have as many: not symmetric
}
SMALLEST_N = 4  # fewer samples cannot fill the smallest grid, two by two


class MineMatrix(NamedTuple):
    """MIC and TIC of every column of X with every column of Y, and the number of samples behind them."""

    mic: np.ndarray  # (columns of X, columns of Y)
    tic: np.ndarray  # (columns of X, columns of Y)
    n: int


@dataclass(frozen=True)
class PermutationNull:
    """MIC and normalised TIC of a pair beside the values of the same data with y shuffled; p = (1 + shuffles as high) / (1 + shuffles)."""

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
        return (
            f"MIC {self.mic:.3f} (null {self.mic_null_mean:.3f} ± {self.mic_null_std:.3f}, p = {self.mic_p:.3g}), "
            f"TIC {self.tic:.3f} (null {self.tic_null_mean:.3f} ± {self.tic_null_std:.3f}, p = {self.tic_p:.3g}), "
            f"n = {self.n}, {self.permutations} permutations"
        )


def mic(x: Any, y: Any, *, alpha: float = 0.6, c: float = 15, estimator: str = "approx") -> float:
    """Maximal information coefficient of two samples (n,), in [0, 1]; 0 where either is constant.

    alpha: grids have at most n^alpha cells. c: the optimised axis may be cut at c times as many places as it gets columns.
    estimator: "approx" (Reshef et al. 2011), "e" (2016, symmetric) or "e-reference" (2016, as widely implemented).
    """
    return float(mine_matrix(_column(x, "x"), _column(y, "y"), alpha=alpha, c=c, estimator=estimator, threads=1).mic[0, 0])


def tic(x: Any, y: Any, *, alpha: float = 0.6, c: float = 15, estimator: str = "approx", normalised: bool = True) -> float:
    """Total information coefficient of two samples (n,): the mean of the cells, or their sum with normalised=False. Arguments as in `mic`."""
    columns = _column(x, "x"), _column(y, "y")
    return float(mine_matrix(*columns, alpha=alpha, c=c, estimator=estimator, normalised=normalised, threads=1).tic[0, 0])


def mic_matrix(X: Any, Y: Any, *, alpha: float = 0.6, c: float = 15, estimator: str = "approx", threads: int | None = None) -> np.ndarray:
    """MIC of every column of X (n, p) with every column of Y (n, q): (p, q)."""
    return mine_matrix(X, Y, alpha=alpha, c=c, estimator=estimator, threads=threads).mic


def tic_matrix(
    X: Any, Y: Any, *, alpha: float = 0.6, c: float = 15, estimator: str = "approx", normalised: bool = True, threads: int | None = None
) -> np.ndarray:
    """TIC of every column of X (n, p) with every column of Y (n, q): (p, q)."""
    return mine_matrix(X, Y, alpha=alpha, c=c, estimator=estimator, normalised=normalised, threads=threads).tic


def mine_matrix(
    X: Any, Y: Any, *, alpha: float = 0.6, c: float = 15, estimator: str = "approx", normalised: bool = True, threads: int | None = None
) -> MineMatrix:
    """MIC and TIC of every column of X (n, p) with every column of Y (n, q) in one pass, on `threads` cores (all of them by default)."""
    left, right = _table(X, "X"), _table(Y, "Y")
    if len(left) != len(right):
        raise DataError(f"MIC and TIC need paired samples, but X has {len(left)} and Y has {len(right)}; pass arrays of the same length.")
    n = len(left)
    if n < SMALLEST_N:
        raise DataError(f"MIC and TIC need at least {SMALLEST_N} samples, but got {n}; pass more samples.")
    allowed, widest, most_clumps = _grids(n, alpha, c, estimator)
    most_rows = len(allowed) + 1
    scores, unit = _mine.score_table(n)
    left_ranked, right_ranked = _mine.rank(left, most_rows, scores), _mine.rank(right, most_rows, scores)
    shape = (left.shape[1], right.shape[1])
    pairs = np.ascontiguousarray(np.indices(shape).reshape(2, -1).T)  # (p q, 2)
    found = np.empty((len(pairs), 2))

    def score(part: slice) -> None:
        grids = allowed, widest, most_clumps, ESTIMATORS[estimator]
        _mine.score_pairs(left_ranked, right_ranked, pairs[part], *grids, scores, unit, found[part])

    _in_parallel(score, len(pairs), threads)
    total = found[:, 1] / (allowed - 1).sum() if normalised else found[:, 1]
    return MineMatrix(found[:, 0].reshape(shape), total.reshape(shape), n)


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
    """What MIC and normalised TIC of this pair would be without dependence: `permutations` shuffles of y against x.

    The smallest p-value that can come out is 1 / (permutations + 1).
    """
    if permutations < 2:
        raise UsageError(f"permutations is {permutations}, but a null distribution needs at least 2; 100 is usual.")
    left, right = _column(x, "x"), _column(y, "y")
    generator = np.random.default_rng(seed)
    shuffled = [generator.permutation(right[:, 0]) for _ in range(permutations)]
    table = np.stack([right[:, 0], *shuffled], axis=1)  # (n, 1 + permutations)
    result = mine_matrix(left, table, alpha=alpha, c=c, estimator=estimator, threads=threads)

    def summary(values: np.ndarray) -> tuple[float, float, float, float]:
        observed, null = values[0], values[1:]
        return float(observed), float(null.mean()), float(null.std(ddof=1)), float((1 + (null >= observed).sum()) / (1 + permutations))

    return PermutationNull(result.n, permutations, *summary(result.mic[0]), *summary(result.tic[0]))


def _grids(n: int, alpha: float, c: float, estimator: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For 2, 3, ... rows: the columns that keep a grid within B cells, the columns that are optimised, the most superclumps."""
    if estimator not in ESTIMATORS:
        raise unknown("estimator", estimator, ESTIMATORS)
    if not 0 < alpha <= 1:
        raise UsageError(f"alpha is {alpha}, but grids have n^alpha cells with 0 < alpha <= 1; 0.6 is usual.")
    if not (1 <= c < math.inf):
        raise UsageError(f"c is {c}, but it must be a finite number of at least 1; 15 is usual.")
    cells = max(n**alpha, 4.0)
    rows = np.arange(2, math.floor(cells / 2) + 1)
    allowed = np.floor(cells / rows).astype(np.int64)
    widest = allowed if estimator == "approx" else np.minimum(allowed, rows)
    most_clumps = np.floor(np.minimum(c * allowed, n)).astype(np.int64)
    return allowed, widest, most_clumps


def _in_parallel(work: Any, count: int, threads: int | None) -> None:
    """Call work(slice) over range(count); the compiled code frees the interpreter lock, so plain threads use all cores."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}, but at least 1 is needed; leave it out to use every core.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(threads or cores, count)
    if workers <= 1:
        work(slice(0, count))
        return
    bounds = np.linspace(0, count, min(count, 8 * workers) + 1).astype(int)  # small parts: pairs of labels take less time than others
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, map(slice, bounds[:-1], bounds[1:])))


def _column(values: Any, name: str) -> np.ndarray:
    """`values` (n,) as a checked table of one column."""
    array = _numbers(values, name)
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}, but one variable (n,) is needed; for several columns use mine_matrix.")
    return array[:, None]


def _table(values: Any, name: str) -> np.ndarray:
    """`values` (n, p) as a checked table."""
    array = _numbers(values, name)
    if array.ndim != 2:
        raise DataError(f"{name} has shape {array.shape}, but a table (samples, dims) is needed; reshape it.")
    return array


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name} cannot be read as numbers ({error}); pass a numeric array or a detached tensor on the CPU.") from error
    if not np.isfinite(array).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{name} has {array[bad]} at index {bad if len(bad) > 1 else bad[0]}; remove or fill missing samples first.")
    return array
