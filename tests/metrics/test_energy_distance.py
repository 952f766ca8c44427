"""The energy distance against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.metrics.energy_distance import energy_distance


def test_energy_distance_of_two_normals() -> None:
    """For X - Y ~ N(m, s^2): E|X - Y| = s sqrt(2/pi) exp(-m^2/2s^2) + m erf(m / s sqrt 2)."""
    rng = np.random.default_rng(0)
    shift, s = 1.5, math.sqrt(2)
    apart = s * math.sqrt(2 / math.pi) * math.exp(-(shift**2) / (2 * s**2)) + shift * math.erf(
        shift / (s * math.sqrt(2))
    )
    expected = 2 * apart - 2 * s * math.sqrt(2 / math.pi)
    result = energy_distance(
        rng.normal(size=(4000, 1)), rng.normal(shift, size=(4000, 1)), max_points=4000
    )
    assert result.value == pytest.approx(expected, abs=0.05)
    assert result.n == 8000


def test_equal_distributions_score_zero_and_different_ones_do_not() -> None:
    rng = np.random.default_rng(1)

    def parabola(n: int) -> np.ndarray:
        z = rng.normal(size=n)
        return np.stack([z, z**2 + 0.5 * rng.normal(size=n)], axis=1)

    same = energy_distance(parabola(3000), parabola(3000)).value
    other = parabola(3000)
    normal = rng.multivariate_normal(
        other.mean(0), np.cov(other.T), size=3000
    )  # the same mean and covariance
    assert abs(same) < 0.01
    assert energy_distance(other, normal).value > 5 * abs(same) + 0.01


def test_symmetry_scale_and_seed() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(500, 3)), rng.normal(size=(400, 3)) + 0.3
    value = energy_distance(x, y).value
    assert energy_distance(y, x).value == pytest.approx(value, rel=1e-12)
    assert energy_distance(10 * x, 10 * y).value == pytest.approx(10 * value, rel=1e-12)
    assert (
        energy_distance(x, y, max_points=100, seed=1).value
        == energy_distance(x, y, max_points=100, seed=1).value
        != energy_distance(x, y, max_points=100).value
    )


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((1, 2)), np.zeros((5, 2))),
        (np.zeros((5, 2)), np.zeros((5, 3))),
        (np.full((5, 1), np.nan), np.zeros((5, 1))),
    ],
)
def test_wrong_samples_raise(x: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(DataError, match="two points or more"):
        energy_distance(x, y)
