"""Two kernel tools: leave-one-out residuals of Gaussian kernel ridge in closed form, and HSIC with its gamma null (Gretton et al. 2008)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.special import gammaincc

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # kernel widths tried, as multiples of the median distance
RIDGES = tuple(10.0**k for k in range(-8, 2))  # penalties tried, against kernels with a unit diagonal
SMALLEST_P = 1e-300


def standardise(columns: np.ndarray) -> np.ndarray:
    """(N, n) to zero mean and unit variance, column by column."""
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def squared_distances(points: np.ndarray) -> np.ndarray:
    """(N, d) points to their (N, N) squared Euclidean distances."""
    norms = (points**2).sum(axis=1)
    return np.maximum(norms[:, None] + norms[None, :] - 2.0 * points @ points.T, 0.0)


def median_square(distances: np.ndarray) -> float:
    """The median of the (N, N) squared distances between different points; their mean where more than half of the pairs coincide."""
    pairs = distances[np.triu_indices(len(distances), 1)]
    return float(np.median(pairs)) or float(pairs.mean()) or 1.0


def gaussian_kernel(points: np.ndarray) -> np.ndarray:
    """(N, N) Gaussian kernel of (N,) or (N, d) points; its width is the median distance."""
    distances = squared_distances(points.reshape(len(points), -1))
    return np.exp(distances / (-2.0 * median_square(distances)))


# ---- regression -----------------------------------------------------------------------------------------------------
def leave_one_out(inputs: np.ndarray, targets: np.ndarray, *, rank: int = 300) -> np.ndarray:
    """What each target would be missed by if its own row were left out of a Gaussian kernel ridge regression.

    Width and penalty are those of the smallest mean squared leave-one-out error, chosen for every target by itself; the
    kernel's factorisation is shared by all targets. The closed form is residual_i / (1 - H_ii) with the hat matrix H.

    Arguments:
        inputs: (N, d) standardised predictors; with d = 0 only the mean is fitted.
        targets: (N, t) standardised targets.
        rank: the kernel matrix is replaced by its pivoted Cholesky factor of at most this rank (exact below it, to 1e-10).

    Returns:
        (N, t) leave-one-out residuals.
    """
    rows = len(targets)
    if inputs.shape[1] == 0:
        return (targets - targets.mean(axis=0)) * (rows / (rows - 1.0))
    distances = squared_distances(inputs)
    scale = median_square(distances)
    best_error = np.full(targets.shape[1], np.inf)
    best = np.empty_like(targets)
    for width in WIDTHS:
        vectors, values = kernel_eigenvectors(np.exp(distances / (-2.0 * scale * width**2)), rank)
        shrink = values[:, None] / (values[:, None] + np.array(RIDGES))  # (r, ridges)
        leverage = np.clip((vectors**2) @ shrink, 0.0, 1.0 - 1e-10)  # (N, ridges)
        projected = vectors.T @ targets  # (r, t)
        for ridge in range(len(RIDGES)):
            fitted = vectors @ (shrink[:, ridge, None] * projected)
            residuals = (targets - fitted) / (1.0 - leverage[:, ridge, None])
            error = (residuals**2).mean(axis=0)
            better = error < best_error
            best_error[better], best[:, better] = error[better], residuals[:, better]
    return best


def kernel_eigenvectors(kernel: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading eigenvectors (N, r) and eigenvalues (r,) of a positive semi-definite (N, N) kernel, r <= rank, through its pivoted Cholesky factor."""
    factor, pivots, found, _ = dpstrf(kernel, lower=1, tol=1e-10)
    kept = min(int(found), rank)
    columns = np.empty((len(kernel), kept))
    columns[pivots - 1] = np.tril(factor)[:, :kept]
    values, vectors = np.linalg.eigh(columns.T @ columns)
    large = values > 1e-12 * values[-1]
    values, vectors = values[large], vectors[:, large]
    return columns @ (vectors / np.sqrt(values)), values


# ---- dependence -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Centred:
    """A kernel with a unit diagonal made ready for HSIC: centred, with the mean of its off-diagonal entries."""

    kernel: np.ndarray  # (N, N), doubly centred
    off_diagonal: float

    @classmethod
    def of(cls, kernel: np.ndarray) -> Centred:
        rows, means = len(kernel), kernel.mean(axis=0)
        centred = kernel - means[:, None] - means[None, :] + means.mean()
        return cls(centred, float((kernel.sum() - np.trace(kernel)) / (rows * (rows - 1.0))))


def hsic(a: Centred, b: Centred) -> float:
    """The biased Hilbert-Schmidt independence criterion tr(K H L H) / N^2."""
    return float(np.vdot(a.kernel, b.kernel)) / len(a.kernel) ** 2


def hsic_null(a: Centred, b: Centred) -> tuple[float, float]:
    """Mean and variance of `hsic` under independence (Gretton et al. 2008, Eqs. 5 and 6 / Theorems 3 and 4)."""
    rows = len(a.kernel)
    mean = (1.0 - a.off_diagonal) * (1.0 - b.off_diagonal) / rows
    product = a.kernel * b.kernel
    off_squares = float(np.vdot(product, product)) - float((np.diagonal(product) ** 2).sum())
    variance = 2.0 * (rows - 4.0) * (rows - 5.0) / (rows * (rows - 1.0) * (rows - 2.0) * (rows - 3.0)) * off_squares / (rows * (rows - 1.0))
    return mean, variance


def dependence_p(a: Centred, b: Centred) -> float:
    """p-value of independence by HSIC with a gamma null matched to its mean and variance."""
    mean, variance = hsic_null(a, b)
    return max(float(gammaincc(mean**2 / variance, hsic(a, b) * mean / variance)), SMALLEST_P)


def decades(p: float) -> float:
    """-log10 p."""
    return -math.log10(max(p, SMALLEST_P))
