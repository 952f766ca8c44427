"""Generalised score of a variable given its parents (Huang et al. 2018, Eqs. 9 to 12).

The score is the cross-validated likelihood of a kernel regression: the features of the variable's
Gaussian kernel are regressed on the kernel of its parents, for any kinds and relations. Kernels
are replaced by their pivoted Cholesky factors, exact to 1e-12, so that a fold costs the cube of
the rank (some tens) instead of the cube of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpstrf

from intervae.discovery.kernels import squared_distances

FOLDS, RIDGE, NOISE = 10, 0.01, 0.01  # k, lambda and gamma of the paper
ACCURACY = 1e-12  # of a kernel's entries, relative to its diagonal of 1
WIDTH = 2.0  # kernel width / (median distance / sqrt(2))


class GeneralisedScore:
    """Local scores of one table, with a cache; lower is better.

    Arguments:
        blocks: one block (N, k) per variable: a column, or the one-hot of a categorical one.
    """

    def __init__(self, blocks: Sequence[np.ndarray]) -> None:
        self.rows = len(blocks[0])
        self.kernels = [_kernel(block.reshape(self.rows, -1)) for block in blocks]
        self._features: dict[tuple[int, ...], np.ndarray] = {}
        self._scores: dict[tuple[int, tuple[int, ...]], float] = {}
        size = self.rows // FOLDS
        self.folds = [
            slice(k * size, self.rows if k == FOLDS - 1 else (k + 1) * size) for k in range(FOLDS)
        ]

    def __call__(self, variable: int, parents: Sequence[int]) -> float:
        key = (variable, tuple(sorted(parents)))
        if key not in self._scores:
            own = self._centred_features((variable,))
            self._scores[key] = (
                self._with_parents(own, self._centred_features(key[1]))
                if key[1]
                else self._without_parents(own)
            )
        return self._scores[key]

    def _centred_features(self, variables: tuple[int, ...]) -> np.ndarray:
        """Return F (N, r) with F F^T the doubly centred product of the variables' kernels."""
        if variables not in self._features:
            product = (
                np.prod([self.kernels[v] for v in variables], axis=0)
                if len(variables) > 1
                else self.kernels[variables[0]]
            )
            factor, pivots, rank, _ = dpstrf(product, lower=1, tol=ACCURACY)
            features = np.empty((self.rows, int(rank)))
            features[pivots - 1] = np.tril(factor)[:, : int(rank)]
            self._features[variables] = features - features.mean(axis=0)
        return self._features[variables]

    def _without_parents(self, own: np.ndarray) -> float:
        """Return the score with the covariance of the training features, own (N, r)."""
        total, gram = 0.0, own.T @ own
        for fold in self.folds:
            test = own[fold]
            training_rows = self.rows - len(test)
            total += self._fold_score(test, (gram - test.T @ test) / (NOISE * training_rows))
        return total / FOLDS

    def _with_parents(self, own: np.ndarray, parents: np.ndarray) -> float:
        """Return the score of own (N, r) regressed on the parents' features (N, p) by ridge."""
        parents_gram, cross_gram, own_gram = parents.T @ parents, parents.T @ own, own.T @ own
        total = 0.0
        for fold in self.folds:
            test, test_parents = own[fold], parents[fold]
            training_rows = self.rows - len(test)
            ridge = training_rows * RIDGE
            inner = parents_gram - test_parents.T @ test_parents
            outer = cross_gram - test_parents.T @ test
            regularised = inner.copy()
            regularised[np.diag_indices_from(regularised)] += ridge
            coefficients = cho_solve(
                cho_factor(regularised, lower=True, check_finite=False), outer, check_finite=False
            )  # (p, r)
            # residuals G = (features - parents coefficients) / ridge of the training rows; G^T G
            residual_gram = (
                own_gram
                - test.T @ test
                - 2.0 * (outer.T @ coefficients)
                + coefficients.T @ inner @ coefficients
            )
            total += self._fold_score(
                test - test_parents @ coefficients,
                training_rows * RIDGE**2 / NOISE * residual_gram / ridge**2,
            )
        return total / FOLDS

    def _fold_score(self, held_out: np.ndarray, spread: np.ndarray) -> float:
        """Return -log likelihood of held-out residuals (v, r), covariance NOISE (I + spread).

        The constants are those of the reference implementation.
        """
        covariance = (spread + spread.T) / 2.0
        covariance[np.diag_indices_from(covariance)] += 1.0
        lower, _ = cho_factor(covariance, lower=True, check_finite=False)
        quadratic = (
            float(np.vdot(held_out, cho_solve((lower, True), held_out.T, check_finite=False).T))
            / NOISE
        )
        rows = len(held_out)
        return (
            rows * rows * math.log(2.0 * math.pi)
            + rows * float(np.log(np.diagonal(lower)).sum())
            + quadratic
        ) / 2.0


def _kernel(block: np.ndarray) -> np.ndarray:
    """Return the Gaussian kernel exp(-d^2 / (2 w^2)), (N, N), w = 2 sqrt(median(d^2) / 2).

    The median is over pairs of distinct points.
    """
    distances = squared_distances(block)
    pairs = distances[np.triu_indices(len(distances), 1)]
    pairs = pairs[pairs > 1e-12 * pairs.max(initial=0.0)]
    width = WIDTH**2 * 0.5 * (float(np.median(pairs)) if len(pairs) else 1.0)
    return np.exp(distances / (-2.0 * width))
