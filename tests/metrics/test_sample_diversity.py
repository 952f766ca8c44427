"""diversity and mode_shares: closed forms and collapsed generators."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from intervae.errors import DataError, UsageError
from intervae.metrics.sample_diversity import diversity, mode_shares


def test_diversity_is_the_ratio_of_mean_pairwise_distances() -> None:
    rng = np.random.default_rng(0)
    samples, data = rng.normal(size=(40, 2, 3, 3)), rng.normal(5, 2, size=(30, 2, 3, 3))
    expected = pdist(samples.reshape(40, -1)).mean() / pdist(data.reshape(30, -1)).mean()
    result = diversity(samples, data)
    assert float(result) == pytest.approx(expected, rel=1e-9)
    assert (result.metric, result.n) == ("diversity", 40)
    assert float(diversity(data, data)) == pytest.approx(1)
    assert float(diversity(3 * data - 7, data)) == pytest.approx(3)


def test_a_constant_generator_has_zero_diversity() -> None:
    data = np.random.default_rng(0).random((50, 1, 8, 8))
    assert float(diversity(np.repeat(data[:1], 50, axis=0), data)) == 0
    assert float(diversity(np.concatenate([data[:1]] * 49 + [data[1:2]]), data)) < 0.1


def test_diversity_of_two_points_in_closed_form() -> None:
    """With half of N samples at each of two points, two differ with probability N / 2 (N - 1)."""
    samples = np.repeat([[0.0], [1.0]], 10, axis=0)
    assert float(diversity(samples, [[0.0], [2.0]])) == pytest.approx(10 / 19 / 2)
    assert not math.isnan(float(diversity(samples + 1e6, [[0.0], [2.0]])))


def test_mode_shares_use_the_nearest_mode() -> None:
    modes = np.eye(3)
    samples = np.concatenate([modes[[0] * 6], modes[[1] * 3], modes[[2]]]) + np.random.default_rng(
        0
    ).normal(0, 0.05, (10, 3))
    result = mode_shares(samples, modes, ["a", "b", "c"])
    assert result.per_variable == {"a": 0.6, "b": 0.3, "c": 0.1}
    assert float(result) == 0.1
    assert float(mode_shares(samples[:9], modes)) == 0


def test_wrong_arguments_raise() -> None:
    good = np.eye(3)
    for error, words, call in (
        (DataError, "finite", lambda: diversity([[np.nan], [1.0]], [[0.0], [1.0]])),
        (DataError, "2 rows or more", lambda: diversity(good[:1], good)),
        (DataError, "equally many", lambda: diversity(good[:, :2], good)),
        (DataError, "are equal; pass data", lambda: diversity(good, np.ones((4, 3)))),
        (DataError, "3 numbers each and modes 2", lambda: mode_shares(good, good[:, :2])),
        (UsageError, "3 different ones", lambda: mode_shares(good, good, ["a", "b"])),
    ):
        with pytest.raises(error, match=words):
            call()
