"""Greedy choice of the predictors of a variable by kernel regressions, among many candidates.

The candidate that improves the leave-one-out error most is added until none is worth its price in
nats of log-likelihood, nor a pair; then those that are not worth it are dropped. Only the
candidates with the most promising additive and bilinear gains get a kernel regression.
Shapes: N rows, n variables.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from intervae.discovery.kernels import leave_one_out
from intervae.discovery.neighbour_screening import orthonormal_curves

Variables = frozenset[int]
PROMISING = 3  # candidates that get a kernel regression
MOST = 8  # predictors of a variable
RANK = 80  # of the kernels
STABILISER = 1e-6  # of least squares, relative to the mean diagonal


class GreedyRegressions:
    """Regressions of the columns of one table on each other, with caches.

    Arguments:
        columns: (N, n) standardised variables.
        price: nats of log-likelihood that a predictor must be worth.
    """

    def __init__(self, columns: np.ndarray, price: float) -> None:
        self.columns, self.price = columns, price
        self.rows, self.variables = columns.shape
        self.curves = [orthonormal_curves(column) for column in columns.T]
        self._residuals: dict[tuple[Variables, int], np.ndarray] = {}

    def residuals(self, predictors: Variables, variable: int) -> np.ndarray:
        """Return leave-one-out residuals (N,) of a variable."""
        key = predictors, variable
        if key not in self._residuals:
            inputs, target = self.columns[:, sorted(predictors)], self.columns[:, [variable]]
            self._residuals[key] = leave_one_out(inputs, target, rank=RANK, whole_kernel=False)[
                :, 0
            ]
        return self._residuals[key]

    def error(self, predictors: Variables, variable: int) -> float:
        """Return the mean squared leave-one-out error / variance of the variable."""
        return float((self.residuals(predictors, variable) ** 2).mean())

    def choose(
        self, variable: int, candidates: Variables, required: Variables = frozenset()
    ) -> Variables:
        """Return the predictors of a variable among the candidates, with the required ones."""
        chosen = required
        while len(chosen) < max(MOST, len(required)) and candidates - chosen:
            larger = self._enlarge(variable, chosen, candidates - chosen)
            if larger is None:
                break
            chosen = larger
        while chosen > required:
            smaller = [chosen - {j} for j in sorted(chosen - required)]
            best = min(smaller, key=lambda predictors: self.error(predictors, variable))
            if self._gain(best, chosen, variable) > self.price:
                break
            chosen = best
        return chosen

    def _gain(self, smaller: Variables, larger: Variables, variable: int) -> float:
        """Return the log-likelihood ratio of Gaussian residuals, in nats."""
        errors = self.error(smaller, variable), self.error(larger, variable)
        return 0.5 * self.rows * float(np.log(errors[0] / max(errors[1], 1e-300)))

    def _enlarge(self, variable: int, chosen: Variables, candidates: Variables) -> Variables | None:
        """Return the predictors with the best candidate, or the best pair; None if too weak.

        The factors of a product can both be useless alone: they predict the squared residuals.
        """
        residuals = self.residuals(chosen, variable)
        larger = [chosen | {j} for j in self._promising(residuals, chosen, candidates)]
        best = min(larger, key=lambda predictors: self.error(predictors, variable))
        if self._gain(chosen, best, variable) > self.price:
            return best
        pair = chosen.union(self._promising(residuals**2, chosen, candidates)[:2])
        return pair if self._gain(chosen, pair, variable) > 2.0 * self.price else None

    def _promising(
        self, target: np.ndarray, chosen: Variables, candidates: Collection[int]
    ) -> list[int]:
        """Return the candidates with the largest gains by curves, and by curves times predictors.

        The gain is that of least squares on a target (N,), less the parameters (AIC).
        """
        target = target - target.mean()
        variance = float(target @ target)
        factors = [np.ones(self.rows), *(self.columns[:, k] for k in sorted(chosen))]
        gains = {}
        for j in sorted(candidates):
            features = np.concatenate([self.curves[j] * f[:, None] for f in factors], axis=1)
            features -= features.mean(axis=0)
            products, projected = features.T @ features, features.T @ target
            diagonal = np.diag_indices_from(products)
            products[diagonal] += STABILISER * np.trace(products) / len(products)
            explained = float(projected @ np.linalg.solve(products, projected)) / variance
            unexplained = max(1.0 - explained, 1e-12)
            gains[j] = -0.5 * self.rows * np.log(unexplained) - features.shape[1]
        return sorted(gains, key=lambda j: -gains[j])[:PROMISING]
