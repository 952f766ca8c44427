"""Random functions of the cross-modal simulator: mechanisms, as in NOTEARS, and transforms."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from intervae.errors import UsageError

UNITS, SMALLEST_WEIGHT, LARGEST_WEIGHT = 100, 0.5, 2.0  # of a mechanism, as NOTEARS draws them
MAX_DRAWS = 10_000  # mechanisms drawn before a minimum signal is given up
FEATURES, LENGTH_SCALE = 256, 2.0  # of a Gaussian process over the standardised latent
TABLE_END, TABLE_STEPS = 8.0, 1601  # range and size of a tabulated transform, in std of the latent


@dataclass(frozen=True)
class SigmoidMechanism:
    """f(x) = sum_k outer_k sigmoid(inner_k x), weights of size 0.5 to 2 with random signs."""

    inner: np.ndarray  # (UNITS,)
    outer: np.ndarray  # (UNITS,)

    @classmethod
    def draw(cls, rng: np.random.Generator) -> SigmoidMechanism:
        sizes = rng.uniform(SMALLEST_WEIGHT, LARGEST_WEIGHT, (2, UNITS))
        return cls(*(sizes * rng.choice([-1.0, 1.0], (2, UNITS))))

    @classmethod
    def draw_with_signal(cls, rng: np.random.Generator, weakest: float) -> SigmoidMechanism:
        """Draw until f of a N(0, 1) parent has at least the standard deviation `weakest`."""
        points, weights = np.polynomial.hermite_e.hermegauss(31)
        weights = weights / weights.sum()
        for _ in range(MAX_DRAWS):
            mechanism = cls.draw(rng)
            signal = mechanism(points)
            if weakest == 0 or np.sqrt(weights @ (signal - weights @ signal) ** 2) >= weakest:
                return mechanism
        raise UsageError(
            f"weakest={weakest:g}: none of {MAX_DRAWS} random mechanisms is that strong; "
            "ask for less."
        )

    def __call__(self, parent: np.ndarray) -> np.ndarray:
        return expit(np.asarray(parent)[..., None] * self.inner) @ self.outer


@dataclass(frozen=True)
class GaussianProcessTransform:
    """Transform of one latent before it is rendered.

    A sample h of a Gaussian process over the standardised latent s, or, where `monotone`,
    s + integral of softplus(h) from 0 to s. It is tabulated within TABLE_END standard deviations;
    a monotone transform is linear beyond.
    """

    mean: float
    std: float
    frequencies: np.ndarray  # (FEATURES,) random Fourier features of an RBF kernel
    phases: np.ndarray  # (FEATURES,)
    monotone: bool

    @classmethod
    def draw(
        cls, rng: np.random.Generator, mean: float, std: float, *, monotone: bool
    ) -> GaussianProcessTransform:
        frequencies = rng.normal(0.0, 1.0 / LENGTH_SCALE, FEATURES)
        phases = rng.uniform(0.0, 2 * np.pi, FEATURES)
        return cls(mean, std, frequencies, phases, monotone)

    def process(self, s: np.ndarray) -> np.ndarray:
        """Sample h of the Gaussian process at standardised latents; its variance is 1."""
        angles = np.asarray(s)[..., None] * self.frequencies + self.phases
        return np.sqrt(2 / FEATURES) * np.cos(angles).sum(-1)

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        s = (np.asarray(latent) - self.mean) / self.std
        result = np.interp(s, *self.table)
        outside = np.abs(s) > TABLE_END
        if not self.monotone:
            result[outside] = self.process(s[outside])
        elif outside.any():
            side = np.sign(s)
            result += np.where(outside, (s - side * TABLE_END) * self._outer_slope(side), 0.0)
        return result

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Latents with these transformed values; only for a monotone transform."""
        grid, transformed = self.table
        beyond = values - np.clip(values, transformed[0], transformed[-1])
        s = np.interp(values, transformed, grid) + beyond / self._outer_slope(np.sign(beyond))
        return s * self.std + self.mean

    @functools.cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Standardised latents and their transformed values; the integral is 0 at 0."""
        grid = np.linspace(-TABLE_END, TABLE_END, TABLE_STEPS)
        process = self.process(grid)
        if not self.monotone:
            return grid, process
        slope = np.logaddexp(0.0, process)
        area = np.concatenate([[0.0], np.cumsum((slope[1:] + slope[:-1]) / 2 * np.diff(grid))])
        return grid, grid + area - area[TABLE_STEPS // 2]

    def _outer_slope(self, side: np.ndarray) -> np.ndarray:
        """Slope of a monotone transform below (side -1) or above (side 1) the table."""
        ends = self.process(np.array([-TABLE_END, TABLE_END]))
        below, above = 1.0 + np.logaddexp(0.0, ends)
        return np.where(side < 0, below, above)
