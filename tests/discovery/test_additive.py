"""Causal additive models: closed forms of the fits, directions of curved relations, columns of every kind, and resampled tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from intervae.discovery import bootstrap
from intervae.discovery.additive import OPEN, Regressions, additive, explained, fit_logits, newton_step, plausible

NAMES = ["z0", "z1", "z2", "a", "b", "c"]
KINDS = ["continuous"] * 4 + ["binary", "categorical"]


def bent(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.tanh(2 * x) + 0.25 * x**2 + 0.5 * rng.normal(size=len(x))


def world(rows: int = 600, seed: int = 0) -> np.ndarray:
    """a -> z0, z1 -> b (binary), c (four categories) -> z2."""
    rng = np.random.default_rng(seed)
    a, z1, c = rng.normal(size=rows), rng.normal(size=rows), rng.integers(4, size=rows)
    b = rng.random(rows) < 1 / (1 + np.exp(-6 * z1))
    return np.stack([bent(a, rng), z1, np.array([-3.0, -1.0, 3.0, 1.5])[c] + 0.6 * rng.normal(size=rows), a, b, c], axis=1)


def two_sided() -> np.ndarray:
    """Edges between the latents (the first three) and the others only."""
    latent = np.arange(6) < 3
    return latent[:, None] != latent[None]


def test_every_edge_of_a_mixed_world_is_found_with_its_direction() -> None:
    for seed in range(3):
        found = additive(world(seed=seed), NAMES, KINDS, knowledge=plausible(world(seed=seed), NAMES, KINDS, two_sided(), 0.15))
        assert {(a, b) for a, b, _ in found.graph.edges} == {("a", "z0"), ("z1", "b"), ("c", "z2")}


def test_units_and_signs_turn_no_edge() -> None:
    table = world()
    scaled = table * np.array([10, -3, 0.01, 100, 1, 1]) + np.array([5, 0, 1, -7, 0, 0])
    first, second = (additive(t, NAMES, KINDS).graph for t in (table, scaled))
    assert [e[:2] for e in first.edges] == [e[:2] for e in second.edges]
    np.testing.assert_allclose(first.weights, second.weights, atol=2e-3)


def test_a_straight_relation_is_open_and_a_bent_one_is_not() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=800)
    line = additive(np.stack([x, x + 0.7 * rng.normal(size=800)], 1), ["x", "y"], ["continuous"] * 2)
    assert len(line.ambiguous) == 1
    curve = additive(np.stack([x, bent(x, rng)], 1), ["x", "y"], ["continuous"] * 2)
    assert curve.graph.edges[0][:2] == ("x", "y")
    assert curve.ambiguous == []


def test_independent_columns_have_no_edges() -> None:
    rng = np.random.default_rng(1)
    table = np.column_stack([rng.normal(size=(300, 4)), rng.integers(2, size=300), rng.integers(4, size=300)])
    assert additive(table, NAMES, KINDS).graph.edges == []


def test_the_gain_of_a_value_is_the_gaussian_likelihood_of_least_squares() -> None:
    table = world()
    regressions = Regressions(table, NAMES, KINDS)
    basis, value = regressions.basis[:, regressions.slices[3]], regressions.values[:, 0]
    left = value - basis @ np.linalg.lstsq(basis, value, rcond=None)[0]
    fit = regressions.fit([3], 0)
    assert fit.gain + fit.free == pytest.approx(-0.5 * len(table) * math.log(float((left**2).mean())), rel=2e-3)
    assert fit.strengths[0] ** 2 == pytest.approx(1 - float((left**2).mean()), rel=2e-3)


@pytest.mark.parametrize("classes", [2, 4, 12])
def test_logits_are_those_of_multinomial_regression(classes: int) -> None:
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(700, 3))
    x = (x - x.mean(0)) / x.std(0)
    logits = x @ rng.normal(size=(3, classes))
    y = (np.exp(logits - logits.max(1, keepdims=True)) * rng.exponential(size=logits.shape) ** -1).argmax(1)  # a draw of the softmax
    targets = np.eye(classes)[y]
    weights, gain = fit_logits(x, targets)
    peer = LogisticRegression(C=1 / (1e-4 * len(x)), max_iter=2000).fit(x, y)
    chances = peer.predict_proba(x)
    expected = float(np.log(chances[np.arange(len(y)), y]).sum() - (targets * np.log(targets.mean(0))).sum())
    assert gain == pytest.approx(expected, abs=0.3)
    if classes > 2:
        np.testing.assert_allclose(weights, (peer.coef_ - peer.coef_.mean(0)).T, atol=0.1)


def test_a_newton_step_is_slope_over_curvature() -> None:
    """Against finite differences of the slope, 3 classes and 2 inputs."""
    rng = np.random.default_rng(0)
    x, ridge = rng.normal(size=(50, 2)), np.full((2, 1), 0.5)
    targets, weights = np.eye(3)[rng.integers(3, size=50)], rng.normal(size=(2, 3))

    def slope(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        odds = np.exp(x @ w)
        chances = odds / odds.sum(1, keepdims=True)
        return x.T @ (targets - chances) - ridge * w, chances

    here, chances = slope(weights)
    step = newton_step(x, chances, here, ridge)
    np.testing.assert_allclose((slope(weights + 1e-6 * step)[0] - here) / 1e-6, -here, rtol=1e-3, atol=1e-3)


def test_what_is_required_is_kept_and_what_is_forbidden_is_not_found() -> None:
    found = additive(world(), NAMES, KINDS, knowledge={"required": [("z0", "a")], "forbidden": [("z1", "b")]})
    edges = {(a, b) for a, b, _ in found.graph.edges}
    assert ("z0", "a") in edges
    assert ("z1", "b") not in edges
    assert found.graph.is_acyclic


def test_resamples_are_sure_of_clear_edges_and_split_on_a_straight_one() -> None:
    rng = np.random.default_rng(3)
    table, x = world(400), rng.normal(size=400)
    known = plausible(table, NAMES, KINDS, two_sided(), 0.15)
    sure = bootstrap(table, additive, resamples=20, names=NAMES, kinds=KINDS, knowledge=known)
    assert sure.confidence[3, 0] > 0.9
    assert sure.confidence[1, 4] > 0.9
    assert sure.confidence[0, 4] < 0.1
    line = bootstrap(np.stack([x, x + rng.normal(size=400)], 1), additive, resamples=20, names=["x", "y"], kinds=["continuous"] * 2)
    assert line.confidence[0, 1] + line.confidence[1, 0] == pytest.approx(1)
    assert 0.1 < line.confidence[0, 1] < 0.9


def test_explained_share_of_a_line_and_of_a_parabola() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=4000), rng.normal(size=4000)
    assert explained(x, x + noise) == pytest.approx(0.5, abs=0.04)
    assert explained(x, x + noise, straight=True) == pytest.approx(0.5, abs=0.04)
    assert explained(x, x**2 + math.sqrt(2) * noise, straight=True) == pytest.approx(0, abs=0.03)
    assert explained(x, x**2 + math.sqrt(2) * noise) == pytest.approx(0.5, abs=0.08)
    assert OPEN > 0
