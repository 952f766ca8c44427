"""Kernel methods: leave-one-out residuals of Gaussian kernel ridge regression, and HSIC tests.

HSIC with a gamma null distribution: Gretton et al. 2008.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.special import gammaincc

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # candidate kernel widths / median distance
RIDGES = tuple(10.0**k for k in range(-8, 2))  # candidate penalties, for kernels of unit diagonal
SMALLEST_P = 1e-300
SMALLEST_PIVOT = 1e-8  # of a kernel of unit diagonal, in a factor of few columns


def standardise(columns: np.ndarray) -> np.ndarray:
    """Scale columns (N, n) to zero mean and unit variance."""
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def squared_distances(points: np.ndarray) -> np.ndarray:
    """Return the squared Euclidean distances (N, N) of points (N, d)."""
    norms = (points**2).sum(axis=1)
    return np.maximum(norms[:, None] + norms[None, :] - 2.0 * points @ points.T, 0.0)


def median_square(distances: np.ndarray) -> float:
    """Return the median squared distance of pairs of points, from (N, N) squared distances.

    The mean if more than half of the pairs coincide.
    """
    pairs = np.take(distances, _pairs(len(distances)))
    return float(np.median(pairs, overwrite_input=True)) or float(pairs.mean()) or 1.0


@functools.lru_cache(maxsize=2)
def _pairs(rows: int) -> np.ndarray:
    """Return the places of the pairs i < j in a flattened table (rows, rows)."""
    return np.flatnonzero(np.triu(np.ones((rows, rows), dtype=bool), 1))


def gaussian_kernel(points: np.ndarray) -> np.ndarray:
    """Return the Gaussian kernel (N, N) of points (N,) or (N, d), of median-distance width."""
    distances = squared_distances(points.reshape(len(points), -1))
    return np.exp(distances / (-2.0 * median_square(distances)))


# ---- regression ----------------------------------------------------------------------------
def leave_one_out(
    inputs: np.ndarray, targets: np.ndarray, *, rank: int = 300, whole_kernel: bool = True
) -> np.ndarray:
    """Return leave-one-out residuals (N, t) of Gaussian kernel ridge regressions.

    Width and penalty minimise the mean squared leave-one-out error of each target; all targets
    share the factorisation of the kernel. The closed form is residual_i / (1 - H_ii) with the hat
    matrix H.

    Arguments:
        inputs: (N, d) standardised predictors; with d = 0 only the mean is fitted.
        targets: (N, t) standardised targets.
        rank: maximum rank of the kernel's pivoted Cholesky factor (exact to 1e-10 below it).
        whole_kernel: factorise the kernel (N, N); else only `rank` of its columns are computed,
            which is several times as fast for a small rank.
    """
    rows = len(targets)
    if inputs.shape[1] == 0:
        return (targets - targets.mean(axis=0)) * (rows / (rows - 1.0))
    distances = squared_distances(inputs if whole_kernel else inputs[:: max(rows // 200, 1)])
    scale = median_square(distances)
    best_error = np.full(targets.shape[1], np.inf)
    best = np.empty_like(targets)
    for width in WIDTHS:
        if whole_kernel:
            kernel = np.exp(distances / (-2.0 * scale * width**2))
            vectors, values = kernel_eigenvectors(kernel, rank)
        else:
            factor = gaussian_kernel_factor(inputs / (np.sqrt(scale) * width), rank)
            vectors, values = _eigenvectors(factor)
        shrink = values[:, None] / (values[:, None] + np.array(RIDGES))  # (r, ridges)
        leverage = np.clip((vectors**2) @ shrink, 0.0, 1.0 - 1e-10)  # (N, ridges)
        projected = vectors.T @ targets  # (r, t)
        for target in range(targets.shape[1]):  # all penalties at once
            fitted = vectors @ (shrink * projected[:, target, None])  # (N, ridges)
            residuals = (targets[:, target, None] - fitted) / (1.0 - leverage)
            errors = (residuals**2).mean(axis=0)
            ridge = int(errors.argmin())
            if errors[ridge] < best_error[target]:
                best_error[target], best[:, target] = errors[ridge], residuals[:, ridge]
    return best


def kernel_eigenvectors(kernel: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return leading eigenvectors (N, r) and eigenvalues (r,) of a kernel (N, N), r <= rank.

    They come from the pivoted Cholesky factor of the positive semi-definite kernel.
    """
    factor, pivots, full_rank, _ = dpstrf(kernel, lower=1, tol=1e-10)
    rank = min(int(full_rank), rank)
    columns = np.empty((len(kernel), rank))
    columns[pivots - 1] = np.tril(factor[:, :rank])
    return _eigenvectors(columns)


def gaussian_kernel_factor(points: np.ndarray, rank: int) -> np.ndarray:
    """Return the pivoted Cholesky factor (N, r) of the kernel of unit width of points (N, d).

    Each step takes the row that is explained worst; only r <= rank columns are computed.
    """
    rows = len(points)
    factor, unexplained = np.zeros((min(rank, rows), rows)), np.ones(rows)
    for k in range(len(factor)):
        pivot = int(unexplained.argmax())
        if unexplained[pivot] < SMALLEST_PIVOT:
            return factor[:k].T
        column = np.exp(-0.5 * ((points - points[pivot]) ** 2).sum(axis=1))
        column -= factor[:k, pivot] @ factor[:k]
        factor[k] = column / np.sqrt(unexplained[pivot])
        unexplained = np.maximum(unexplained - factor[k] ** 2, 0.0)
        unexplained[pivot] = 0.0
    return factor.T


def _eigenvectors(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvectors (N, r) and eigenvalues (r,) of columns (N, r) times their transpose."""
    values, vectors = np.linalg.eigh(columns.T @ columns)
    large = values > 1e-12 * values[-1]
    values, vectors = values[large], vectors[:, large]
    return columns @ (vectors / np.sqrt(values)), values


# ---- dependence ----------------------------------------------------------------------------
@dataclass(frozen=True)
class CentredKernel:
    """A doubly centred kernel for HSIC, from a kernel of unit diagonal."""

    kernel: np.ndarray  # (N, N)
    off_diagonal: float  # mean of the off-diagonal entries before centring

    @classmethod
    def from_kernel(cls, kernel: np.ndarray) -> CentredKernel:
        """Centre a kernel (N, N)."""
        rows, means = len(kernel), kernel.mean(axis=0)
        centred = kernel - means[:, None] - means[None, :] + means.mean()
        return cls(centred, float((kernel.sum() - np.trace(kernel)) / (rows * (rows - 1.0))))


def hsic(a: CentredKernel, b: CentredKernel) -> float:
    """Return the biased Hilbert-Schmidt independence criterion tr(K H L H) / N^2."""
    return float(np.vdot(a.kernel, b.kernel)) / len(a.kernel) ** 2


def hsic_null(a: CentredKernel, b: CentredKernel) -> tuple[float, float]:
    """Return mean and variance of `hsic` under independence.

    Gretton et al. 2008, Eqs. 5 and 6 / Theorems 3 and 4.
    """
    rows = len(a.kernel)
    mean = (1.0 - a.off_diagonal) * (1.0 - b.off_diagonal) / rows
    product = a.kernel * b.kernel
    off_squares = float(np.vdot(product, product)) - float((np.diagonal(product) ** 2).sum())
    variance = (
        2.0
        * (rows - 4.0)
        * (rows - 5.0)
        / (rows * (rows - 1.0) * (rows - 2.0) * (rows - 3.0))
        * off_squares
        / (rows * (rows - 1.0))
    )
    return mean, variance


def hsic_p_value(a: CentredKernel, b: CentredKernel) -> float:
    """Return the p-value of independence by HSIC, from a gamma null of matched moments."""
    mean, variance = hsic_null(a, b)
    return max(float(gammaincc(mean**2 / variance, hsic(a, b) * mean / variance)), SMALLEST_P)


def decades(p: float) -> float:
    """Return -log10 p."""
    return -math.log10(max(p, SMALLEST_P))
