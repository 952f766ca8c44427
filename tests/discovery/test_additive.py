"""Causal additive models: fits against closed forms, directions, mixed columns, resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from intervae.discovery import bootstrap
from intervae.discovery.additive import (
    AdditiveRegressions,
    adjusted_r_squared,
    discover_additive,
    forbid_weak_pairs,
)
from intervae.discovery.multinomial import fit_logits, newton_step

NAMES = ["z0", "z1", "z2", "a", "b", "c"]
KINDS = ["continuous"] * 4 + ["binary", "categorical"]


def curved(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.tanh(2 * x) + 0.25 * x**2 + 0.5 * rng.normal(size=len(x))


def simulated_table(rows: int = 600, seed: int = 0) -> np.ndarray:
    """a -> z0, z1 -> b (binary), c (four categories) -> z2."""
    rng = np.random.default_rng(seed)
    a, z1, c = rng.normal(size=rows), rng.normal(size=rows), rng.integers(4, size=rows)
    b = rng.random(rows) < 1 / (1 + np.exp(-6 * z1))
    return np.stack(
        [
            curved(a, rng),
            z1,
            np.array([-3.0, -1.0, 3.0, 1.5])[c] + 0.6 * rng.normal(size=rows),
            a,
            b,
            c,
        ],
        axis=1,
    )


def bipartite() -> np.ndarray:
    """Allowed edges: between the first three variables and the others."""
    latent = np.arange(6) < 3
    return latent[:, None] != latent[None]


def test_finds_every_edge_and_direction_of_mixed_columns() -> None:
    for seed in range(3):
        result = discover_additive(
            simulated_table(seed=seed),
            NAMES,
            KINDS,
            knowledge=forbid_weak_pairs(
                simulated_table(seed=seed), NAMES, KINDS, bipartite(), 0.15
            ),
        )
        assert {(a, b) for a, b, _ in result.graph.edges} == {("a", "z0"), ("z1", "b"), ("c", "z2")}


def test_units_and_signs_do_not_change_the_graph() -> None:
    table = simulated_table()
    scaled = table * np.array([10, -3, 0.01, 100, 1, 1]) + np.array([5, 0, 1, -7, 0, 0])
    first, second = (discover_additive(t, NAMES, KINDS).graph for t in (table, scaled))
    assert [e[:2] for e in first.edges] == [e[:2] for e in second.edges]
    np.testing.assert_allclose(first.weights, second.weights, atol=2e-3)


def test_a_linear_relation_is_ambiguous_and_a_curved_one_is_not() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=800)
    line = discover_additive(
        np.stack([x, x + 0.7 * rng.normal(size=800)], 1), ["x", "y"], ["continuous"] * 2
    )
    assert len(line.ambiguous) == 1
    curve = discover_additive(np.stack([x, curved(x, rng)], 1), ["x", "y"], ["continuous"] * 2)
    assert curve.graph.edges[0][:2] == ("x", "y")
    assert curve.ambiguous == []


def test_independent_columns_have_no_edges() -> None:
    rng = np.random.default_rng(1)
    table = np.column_stack(
        [rng.normal(size=(300, 4)), rng.integers(2, size=300), rng.integers(4, size=300)]
    )
    assert discover_additive(table, NAMES, KINDS).graph.edges == []


def test_gain_is_the_gaussian_likelihood_of_least_squares() -> None:
    table = simulated_table()
    regressions = AdditiveRegressions(table, NAMES, KINDS)
    basis, value = regressions.basis[:, regressions.slices[3]], regressions.values[:, 0]
    residual = value - basis @ np.linalg.lstsq(basis, value, rcond=None)[0]
    fit = regressions.fit([3], 0)
    assert fit.gain + fit.parameters == pytest.approx(
        -0.5 * len(table) * math.log(float((residual**2).mean())), rel=2e-3
    )
    assert fit.strengths[0] ** 2 == pytest.approx(1 - float((residual**2).mean()), rel=2e-3)


@pytest.mark.parametrize("classes", [2, 4, 12])
def test_logits_agree_with_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(700, 3))
    x = (x - x.mean(0)) / x.std(0)
    logits = x @ rng.normal(size=(3, classes))
    y = (
        np.exp(logits - logits.max(1, keepdims=True)) * rng.exponential(size=logits.shape) ** -1
    ).argmax(1)  # a draw of the softmax
    targets = np.eye(classes)[y]
    weights, gain = fit_logits(x, targets)
    peer = LogisticRegression(C=1 / (1e-4 * len(x)), max_iter=2000).fit(x, y)
    probabilities = peer.predict_proba(x)
    expected = float(
        np.log(probabilities[np.arange(len(y)), y]).sum()
        - (targets * np.log(targets.mean(0))).sum()
    )
    assert gain == pytest.approx(expected, abs=0.3)
    if classes > 2:
        np.testing.assert_allclose(weights, (peer.coef_ - peer.coef_.mean(0)).T, atol=0.1)


def test_newton_step_is_gradient_over_hessian() -> None:
    """Against finite differences of the gradient, 3 classes and 2 inputs."""
    rng = np.random.default_rng(0)
    x, ridge = rng.normal(size=(50, 2)), np.full((2, 1), 0.5)
    targets, weights = np.eye(3)[rng.integers(3, size=50)], rng.normal(size=(2, 3))

    def gradient(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        odds = np.exp(x @ w)
        probabilities = odds / odds.sum(1, keepdims=True)
        return x.T @ (targets - probabilities) - ridge * w, probabilities

    here, probabilities = gradient(weights)
    step = newton_step(x, probabilities, here, ridge)
    np.testing.assert_allclose(
        (gradient(weights + 1e-6 * step)[0] - here) / 1e-6, -here, rtol=1e-3, atol=1e-3
    )


def test_required_edges_are_kept_and_forbidden_ones_left_out() -> None:
    result = discover_additive(
        simulated_table(),
        NAMES,
        KINDS,
        knowledge={"required": [("z0", "a")], "forbidden": [("z1", "b")]},
    )
    edges = {(a, b) for a, b, _ in result.graph.edges}
    assert ("z0", "a") in edges
    assert ("z1", "b") not in edges
    assert result.graph.is_acyclic


def test_bootstrap_is_confident_of_curved_edges_and_split_on_a_linear_one() -> None:
    rng = np.random.default_rng(3)
    table, x = simulated_table(400), rng.normal(size=400)
    knowledge = forbid_weak_pairs(table, NAMES, KINDS, bipartite(), 0.15)
    sure = bootstrap(
        table, discover_additive, resamples=20, names=NAMES, kinds=KINDS, knowledge=knowledge
    )
    assert sure.confidence[3, 0] > 0.9
    assert sure.confidence[1, 4] > 0.9
    assert sure.confidence[0, 4] < 0.1
    line = bootstrap(
        np.stack([x, x + rng.normal(size=400)], 1),
        discover_additive,
        resamples=20,
        names=["x", "y"],
        kinds=["continuous"] * 2,
    )
    assert line.confidence[0, 1] + line.confidence[1, 0] == pytest.approx(1)
    assert 0.1 < line.confidence[0, 1] < 0.9


def test_adjusted_r_squared_of_a_line_and_of_a_parabola() -> None:
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=4000), rng.normal(size=4000)
    assert adjusted_r_squared(x, x + noise) == pytest.approx(0.5, abs=0.04)
    assert adjusted_r_squared(x, x + noise, linear=True) == pytest.approx(0.5, abs=0.04)
    assert adjusted_r_squared(x, x**2 + math.sqrt(2) * noise, linear=True) == pytest.approx(
        0, abs=0.03
    )
    assert adjusted_r_squared(x, x**2 + math.sqrt(2) * noise) == pytest.approx(0.5, abs=0.08)
