"""CausalVAE's label objective: terms against closed forms, graphs it finds, and its limits."""

import numpy as np
import pytest
import torch

from intervae.causal.acyclicity import polynomial
from intervae.data.simulators.pendulum import Pendulum
from intervae.discovery import discover
from intervae.discovery.lagrangian import LabelRegression, _constrained_minimum
from intervae.errors import DataError, UsageError


def collider(seed: int = 0, rows: int = 500) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, rows))
    return np.stack([left, left - right, right], axis=1)


def linear_regression(table: np.ndarray, l1: float = 0.0) -> LabelRegression:
    scaled = torch.from_numpy((table - table.mean(0)) / table.std(0))
    return LabelRegression(
        scaled, scaled, torch.zeros(table.shape[1], dtype=torch.bool), l1=l1, hidden=0, seed=0
    )


def test_the_linear_error_is_equation_11():
    regression = linear_regression(collider())
    flat = torch.from_numpy(np.random.default_rng(1).uniform(size=len(regression.start)))
    flat[18:] = 0.0  # no intercept
    weights = regression.weights(flat).numpy()
    covariance = (regression.inputs.T @ regression.inputs / len(regression.inputs)).numpy()
    expected = np.trace((np.eye(3) - weights).T @ covariance @ (np.eye(3) - weights))
    assert float(regression.squared_errors(flat).sum()) == pytest.approx(expected)


def test_without_constraint_it_is_ordinary_regression():
    table = collider() + 0.5 * np.random.default_rng(2).normal(size=(500, 3))
    regression = linear_regression(table)
    result = regression.weights(
        torch.from_numpy(regression.minimise(regression.start, 0.0, 0.0, 500))
    ).numpy()
    for i in range(3):
        others = [j for j in range(3) if j != i]
        expected = np.linalg.lstsq(
            regression.inputs[:, others].numpy(), regression.inputs[:, i].numpy(), rcond=None
        )[0]
        np.testing.assert_allclose(result[others, i], expected, atol=1e-3)
        assert result[i, i] == 0.0


def test_the_constraint_is_satisfied():
    regression = linear_regression(
        np.random.default_rng(3).normal(size=(200, 4)).cumsum(axis=1), l1=0.1
    )
    weights = regression.weights(
        torch.from_numpy(_constrained_minimum(regression, 1e-8, 40, 200)[-1])
    )
    assert float(polynomial(weights)) <= 1e-8
    assert float(weights.abs().max()) > 0.3


def test_the_skeleton_and_signs_of_a_linear_chain_are_found():
    rng = np.random.default_rng(6)
    a, b, c, d = rng.normal(size=(4, 600))
    b += 1.5 * a
    c -= b
    d += c
    result = discover(np.stack([c, a, d, b], axis=1), "lagrangian", names=list("cadb"))
    assert {frozenset(edge[:2]) for edge in result.graph.edges} == {
        frozenset("ab"),
        frozenset("bc"),
        frozenset("cd"),
    }
    for cause, effect, weight in result.graph.edges:
        assert (weight < 0) == ({cause, effect} == {"b", "c"})


def test_a_noise_free_collider_fits_better_reversed():
    """left -> sum <- right leaves 1 + 1 + 0 unexplained; sum -> left, {sum, left} -> right leaves
    1 + 1/2 + 0.
    """
    result = discover(collider(), "lagrangian", names=["left", "sum", "right"])
    regression = linear_regression(collider())
    causal = np.zeros(len(regression.start))
    causal[1], causal[9 + 7] = 0.5**0.5, 0.5**0.5  # left -> sum positive, right -> sum negative
    assert float(regression.squared_errors(torch.from_numpy(causal)).sum()) == pytest.approx(
        2.0, abs=0.02
    )
    assert sum(result.cost) < 1.7
    assert result.graph.parents("sum") == []


@pytest.mark.parametrize("mechanism", ["linear", "mlp"])
def test_knowledge_orients_the_collider(mechanism):
    known = {"tiers": [["left", "right"], ["sum"]], "required": [["left", "sum"]]}
    noisy = collider() + 0.3 * np.random.default_rng(1).normal(size=(500, 3))
    result = discover(
        noisy,
        "lagrangian",
        names=["left", "sum", "right"],
        knowledge=known,
        mechanism=mechanism,
        l1=0.02,
    )
    assert {edge[:2] for edge in result.graph.edges} == {("left", "sum"), ("right", "sum")}
    for weights in result.history:
        assert not weights[1].any()  # never an edge out of the sum


def test_a_required_edge_is_not_penalised():
    table = collider() + 0.5 * np.random.default_rng(2).normal(size=(500, 3))
    scaled = (table - table.mean(0)) / table.std(0)
    result = discover(
        table,
        "lagrangian",
        knowledge={"required": [["x0", "x1"]], "forbidden": [["x2", "x1"], ["x2", "x0"]]},
        l1=0.5,
    )
    assert result.graph.weights[0, 1] == pytest.approx(
        (scaled[:, 0] * scaled[:, 1]).mean(), abs=1e-3
    )  # the unpenalised regression weight


def test_networks_find_a_nonlinear_edge_that_a_linear_fit_misses():
    rng = np.random.default_rng(4)
    cause = rng.uniform(-1.7, 1.7, size=300)
    table = np.stack([cause**2 + 0.1 * rng.normal(size=300), cause], axis=1)
    assert discover(table, "lagrangian").graph.edges == []
    result = discover(table, "lagrangian", mechanism="mlp", l1=0.02)
    assert [edge[:2] for edge in result.graph.edges] == [("x1", "x0")]
    assert result.cost[1] < 0.2


def test_a_binary_label_is_predicted_through_the_logistic_function():
    rng = np.random.default_rng(5)
    inputs, targets = (
        rng.normal(size=(100, 2)),
        np.stack([rng.normal(size=100), rng.integers(0, 2, size=100)], axis=1),
    )
    regression = LabelRegression(
        torch.from_numpy(inputs),
        torch.from_numpy(targets),
        torch.tensor([False, True]),
        l1=0.0,
        hidden=0,
        seed=0,
    )
    flat = torch.zeros(10, dtype=torch.float64)
    flat[1], flat[9] = 0.8, -0.3  # 0 -> 1, and the intercept of 1
    expected = [
        (targets[:, 0] ** 2).mean(),
        ((targets[:, 1] - 1 / (1 + np.exp(0.3 - 0.8 * inputs[:, 0]))) ** 2).mean(),
    ]
    np.testing.assert_allclose(regression.squared_errors(flat).numpy(), expected)


def test_the_codes_of_a_binary_label_do_not_matter():
    table = collider(5)
    table[:, 1] = table[:, 1] > 0
    plain, recoded = (
        discover(table, "lagrangian"),
        discover(np.where([False, True, False], 3.0 + 4.0 * table, table), "lagrangian"),
    )
    assert {frozenset(edge[:2]) for edge in plain.graph.edges} >= {
        frozenset({"x0", "x1"}),
        frozenset({"x1", "x2"}),
    }
    np.testing.assert_allclose(recoded.graph.weights, plain.graph.weights, atol=1e-6)


def test_it_does_not_find_the_graph_of_the_published_pendulum_labels():
    """The labels determine each other, so the best regression is not the causal graph."""
    simulator = Pendulum()
    result = discover(
        simulator.simulate(simulator.published_grid()[0]), "lagrangian", names=simulator.graph.names
    )
    assert result.graph.shd(simulator.graph) > 0


def test_the_same_seed_gives_the_same_graph():
    first, again = (
        discover(collider(), "lagrangian", mechanism="mlp", samples=200, seed=3, rounds=2, steps=20)
        for _ in range(2)
    )
    assert first.graph == again.graph


def test_wrong_settings_and_categories_are_refused():
    with pytest.raises(UsageError, match="linear, mlp"):
        discover(collider(), "lagrangian", mechanism="spline")
    with pytest.raises(DataError, match="categorical column 'x1'"):
        discover(collider(), "lagrangian", kinds=["continuous", "categorical", "continuous"])
