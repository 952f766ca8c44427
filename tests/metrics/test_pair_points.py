"""Points of the beta-VAE score, and the classifier trained by Adagrad steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from intervae.metrics import beta_vae_score
from intervae.metrics.codes_and_factors import check_codes_and_factors
from intervae.metrics.factor_sampling import TableSampler
from intervae.metrics.pair_points import AdagradClassifier, pair_points

FACTORS = np.array(list(itertools.product(range(2), range(3), range(4))) * 8, dtype=float)
RNG = np.random.default_rng(0)


def sampler(codes: np.ndarray) -> TableSampler:
    samples = check_codes_and_factors(codes, FACTORS, names=None, kinds="discrete", dims=None)
    return TableSampler(samples, 20)


def overlapping(n: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.random.default_rng(1).integers(3, size=n)
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
    return centres[labels] + np.random.default_rng(2).normal(size=(n, 2)), labels


def test_a_shared_factor_has_distance_zero_and_others_their_mean_distance() -> None:
    points = pair_points(sampler(FACTORS), 2000, 30, np.random.default_rng(0))
    for distances, shared in zip(*points, strict=True):
        assert distances[shared] == 0
    free = points.distances[points.shared == 0]
    # E|u - v| of different rows: of n uniform values (n^2 - 1) / (3 n), hardly less here
    assert free[:, 1].mean() == pytest.approx(8 / 9, abs=0.02)
    assert free[:, 2].mean() == pytest.approx(15 / 12, abs=0.02)


def test_signed_differences_average_to_zero() -> None:
    points = pair_points(sampler(FACTORS), 5000, 20, np.random.default_rng(0), np.subtract)
    assert np.abs(points.distances).max() < 0.1


def test_the_score_is_that_of_a_logistic_regression_on_the_points() -> None:
    codes = FACTORS @ RNG.normal(size=(3, 3)) + RNG.normal(size=FACTORS.shape)
    sizes = {"batch": 8, "training": 600, "test": 300}
    train, test = (
        pair_points(sampler(codes), 8, count, np.random.default_rng([5, k]))
        for count, k in ((600, 3), (300, 4))
    )
    scale = train.distances.std(0)
    model = LogisticRegression(max_iter=1000).fit(train.distances / scale, train.shared)
    expected = (model.predict(test.distances / scale) == test.shared).mean()
    assert beta_vae_score(codes, FACTORS, seed=5, kinds="discrete", **sizes).value == expected


def test_the_first_adagrad_step_moves_each_weight_by_the_rate_against_its_gradient() -> None:
    inputs, labels = np.array([[2.0, -3.0]]), np.array([1])
    model = AdagradClassifier(1, learning_rate=0.1, batch=1)
    model.fit(np.vstack([inputs, inputs]), np.array([1, 1]))
    # the gradient of class c is (p_c - [c = label]) x
    np.testing.assert_allclose(model.weights, 0.1 * np.outer([1, -1, 1], [-1, 1]), rtol=1e-6)
    assert model.predict(inputs).tolist() == labels.tolist()


def test_many_steps_reach_the_logistic_regression_without_a_penalty() -> None:
    inputs, labels = overlapping(3000)
    exact = LogisticRegression(C=1e9).fit(inputs, labels)
    model = AdagradClassifier(6000, learning_rate=0.1, batch=64).fit(inputs, labels)
    assert (model.predict(inputs) == exact.predict(inputs)).mean() > 0.98
    contrast = model.weights - model.weights.mean(1, keepdims=True)
    np.testing.assert_allclose(contrast[:2].T, exact.coef_, atol=0.15)


def test_trap_few_steps_on_small_inputs_are_near_chance() -> None:
    """In contrast to a converged regression on standardised inputs."""
    inputs, labels = overlapping(3000)
    scores = {
        scale: (AdagradClassifier(1000).fit(scale * inputs, labels).predict(scale * inputs))
        for scale in (1.0, 1e-3)
    }
    assert (scores[1.0] == labels).mean() > 0.65
    assert (scores[1e-3] == labels).mean() < 0.5


def test_classifiers_repeat_with_their_seed() -> None:
    inputs, labels = overlapping(200)
    first, again, other = (
        AdagradClassifier(50, seed=seed).fit(inputs, labels).weights for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
