"""BIC of linear Gaussian relations, a local score for `ges`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


class GaussianBIC:
    """N/2 log(residual variance) + penalty/2 log(N) per parent; lower is better.

    The regressions are on standardised columns (N, n).
    """

    def __init__(self, columns: np.ndarray, penalty: float = 1.0) -> None:
        self.rows, self.penalty = len(columns), penalty
        self.correlation = np.corrcoef(columns.T)
        self._scores: dict[tuple[int, tuple[int, ...]], float] = {}

    def __call__(self, variable: int, parents: Sequence[int]) -> float:
        key = (variable, tuple(sorted(parents)))
        if key not in self._scores:
            residual = max(self.unexplained(variable, key[1]), 1e-12)
            price = 0.5 * self.penalty * math.log(self.rows)
            self._scores[key] = 0.5 * self.rows * math.log(residual) + price * len(key[1])
        return self._scores[key]

    def unexplained(self, variable: int, parents: Sequence[int]) -> float:
        """Return the residual variance, as a fraction of the variable's variance."""
        if not len(parents):
            return 1.0
        correlations = self.correlation[variable, list(parents)]
        return 1.0 - float(correlations @ self.coefficients(variable, parents))

    def coefficients(self, variable: int, parents: Sequence[int]) -> np.ndarray:
        """Return the standardised regression weights of the parents."""
        rows = list(parents)
        return np.linalg.solve(
            self.correlation[np.ix_(rows, rows)], self.correlation[rows, variable]
        )
