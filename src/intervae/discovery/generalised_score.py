"""The generalised score of a variable given its parents (Huang et al. 2018, Eqs. 9 to 12): cross-validated likelihood of kernel regression.

The variable's Gaussian kernel, seen as features, is regressed on the kernel of its parents; the score is the likelihood of the held-out features,
for any kinds of variables and relations. Each kernel is replaced by its pivoted Cholesky factor, exact to 1e-12, so that a fold costs
the cube of the rank (some tens) instead of the cube of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

from intervae.discovery.kernels import squared_distances

FOLDS, RIDGE, NOISE = 10, 0.01, 0.01  # k, lambda and gamma of the paper
ACCURACY = 1e-12  # of a kernel's entries, against a diagonal of 1
WIDTH = 2.0  # of a kernel, as a multiple of the median distance over sqrt(2)


class GeneralisedScore:
    """Local scores of one table, each computed once; lower is better.

    Arguments:
        blocks: one (N, k) block of numbers per variable: a column, or the one-hot of a categorical one.
    """

    def __init__(self, blocks: Sequence[np.ndarray]) -> None:
        self.rows = len(blocks[0])
        self.kernels = [_kernel(block.reshape(self.rows, -1)) for block in blocks]
        self._features: dict[tuple[int, ...], np.ndarray] = {}
        self._scores: dict[tuple[int, tuple[int, ...]], float] = {}
        size = self.rows // FOLDS
        self.folds = [slice(k * size, self.rows if k == FOLDS - 1 else (k + 1) * size) for k in range(FOLDS)]

    def __call__(self, variable: int, parents: Sequence[int]) -> float:
        key = (variable, tuple(sorted(parents)))
        if key not in self._scores:
            own = self._centred((variable,))
            self._scores[key] = self._with_parents(own, self._centred(key[1])) if key[1] else self._alone(own)
        return self._scores[key]

    def _centred(self, variables: tuple[int, ...]) -> np.ndarray:
        """(N, r) features F with F F^T the doubly centred product of the variables' kernels."""
        if variables not in self._features:
            product = np.prod([self.kernels[v] for v in variables], axis=0) if len(variables) > 1 else self.kernels[variables[0]]
            factor, pivots, rank, _ = dpstrf(product, lower=1, tol=ACCURACY)
            features = np.empty((self.rows, int(rank)))
            features[pivots - 1] = np.tril(factor)[:, : int(rank)]
            self._features[variables] = features - features.mean(axis=0)
        return self._features[variables]

    def _alone(self, own: np.ndarray) -> float:
        """Without parents the held-out features have the covariance of the others."""
        total, everything = 0.0, own.T @ own
        for fold in self.folds:
            test = own[fold]
            others = self.rows - len(test)
            total += self._fold(test, (everything - test.T @ test) / (NOISE * others))
        return total / FOLDS

    def _with_parents(self, own: np.ndarray, given: np.ndarray) -> float:
        """With parents, their residuals have that of the others' residuals; ridge regression in closed form."""
        square, cross, everything = given.T @ given, given.T @ own, own.T @ own
        total = 0.0
        for fold in self.folds:
            test, seen = own[fold], given[fold]
            others = self.rows - len(test)
            ridge = others * RIDGE
            inner = square - seen.T @ seen
            outer = cross - seen.T @ test
            shrunk = inner.copy()
            shrunk[np.diag_indices_from(shrunk)] += ridge
            coefficients = cho_solve(cho_factor(shrunk, lower=True, check_finite=False), outer, check_finite=False)  # (p, r)
            # residuals G = (features - given coefficients) / ridge of the training rows; M = G^T G
            middle = everything - test.T @ test - 2.0 * (outer.T @ coefficients) + coefficients.T @ inner @ coefficients
            total += self._fold(test - seen @ coefficients, others * RIDGE**2 / NOISE * middle / ridge**2)
        return total / FOLDS

    def _fold(self, held_out: np.ndarray, spread: np.ndarray) -> float:
        """-log likelihood of held-out residuals (v, r) with covariance NOISE (I + spread), as the reference counts its constants."""
        covariance = (spread + spread.T) / 2.0
        covariance[np.diag_indices_from(covariance)] += 1.0
        lower, _ = cho_factor(covariance, lower=True, check_finite=False)
        misfit = float(np.vdot(held_out, cho_solve((lower, True), held_out.T, check_finite=False).T)) / NOISE
        rows = len(held_out)
        return (rows * rows * math.log(2.0 * math.pi) + rows * float(np.log(np.diagonal(lower)).sum()) + misfit) / 2.0


def _kernel(block: np.ndarray) -> np.ndarray:
    """(N, N) Gaussian kernel exp(-d^2 / (2 w^2)), w = 2 sqrt(median(d^2) / 2) over the pairs that differ."""
    distances = squared_distances(block)
    pairs = distances[np.triu_indices(len(distances), 1)]
    pairs = pairs[pairs > 1e-12 * pairs.max(initial=0.0)]
    width = WIDTH**2 * 0.5 * (float(np.median(pairs)) if len(pairs) else 1.0)
    return np.exp(distances / (-2.0 * width))


def generalised_score(table: np.ndarray, variable: int, parents: Sequence[int] = ()) -> float:
    """The score of one variable of (N, n) numbers given some others; lower is better."""
    columns = [np.asarray(table, dtype=np.float64)[:, v] for v in (variable, *parents)]
    return GeneralisedScore(columns)(0, range(1, len(columns)))
