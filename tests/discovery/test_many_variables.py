"""Searches for many variables: screening, kernels of few columns, known graphs, knowledge."""

import math

import numpy as np
import pytest

from intervae.discovery import discover
from intervae.discovery.entropy_order_search import EntropyOrderSearch, entropy
from intervae.discovery.greedy_regressions import GreedyRegressions
from intervae.discovery.kernels import (
    gaussian_kernel_factor,
    leave_one_out,
    squared_distances,
    standardise,
)
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.neighbour_screening import screen_neighbours
from intervae.errors import UsageError

SEARCHES = ("entropy", "screened", "local")


def chain(variables: int, rows: int = 400) -> np.ndarray:
    """x0 -> x1 -> ..., each a sine of the one before plus uniform noise."""
    e = np.random.default_rng(3).uniform(-1.7, 1.7, size=(variables, rows))
    columns = [e[0]]
    for noise in e[1:]:
        columns.append(np.sin(1.2 * columns[-1]) + 0.4 * noise)
    return np.stack(columns, axis=1)


def test_the_factor_of_all_columns_is_the_kernel() -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    factor = gaussian_kernel_factor(points, rank=60)
    np.testing.assert_allclose(
        factor @ factor.T, np.exp(-0.5 * squared_distances(points)), atol=1e-6
    )
    assert gaussian_kernel_factor(points, rank=5).shape == (60, 5)


def test_few_columns_of_the_kernel_give_the_same_residuals() -> None:
    table = standardise(chain(3))
    exact = leave_one_out(table[:, :2], table[:, 2:])
    quick = leave_one_out(table[:, :2], table[:, 2:], rank=80, whole_kernel=False)
    assert np.corrcoef(exact[:, 0], quick[:, 0])[0, 1] > 0.99
    assert (quick**2).mean() == pytest.approx((exact**2).mean(), rel=0.03)


def test_screening_keeps_neighbours_and_drops_independent_variables() -> None:
    rng = np.random.default_rng(1)
    a, b, other = rng.normal(size=(3, 600))
    product = a * b + 0.3 * rng.normal(size=600)  # no linear relation with either
    neighbours = screen_neighbours(standardise(np.stack([a, b, product, other], axis=1)), 3)
    assert neighbours[0, 2]
    assert neighbours[1, 2]
    assert not neighbours[3].any()
    np.testing.assert_array_equal(neighbours, neighbours.T)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_chain_is_found_among_neighbours(search: str) -> None:
    order = np.random.default_rng(2).permutation(6)
    names = [f"x{i}" for i in order]
    result = discover(chain(6)[:, order], names=names, search=search, check_directions=False)
    edges = [edge[:2] for edge in result.graph.edges]
    true = {(f"x{i}", f"x{i + 1}") for i in range(5)}
    assert {frozenset(edge) for edge in edges} == {frozenset(edge) for edge in true}
    if search != "local":  # the greedy search may reverse edges
        assert set(edges) == true


@pytest.mark.parametrize("search", SEARCHES)
def test_knowledge_is_satisfied_among_neighbours(search: str) -> None:
    known = {"required": [["x3", "x2"], ["x0", "x3"]], "forbidden": [["x0", "x1"]]}
    result = discover(chain(4), search=search, knowledge=known, check_directions=False)
    edges = {edge[:2] for edge in result.graph.edges}
    assert {("x3", "x2"), ("x0", "x3")} <= edges
    assert ("x0", "x1") not in edges


def test_an_unknown_search_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="screened"):
        discover(chain(3), search="beam")


# ---- entropies of noises ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("draw", "exact"),
    [
        ("normal", 0.5 * math.log(2 * math.pi * math.e)),
        ("uniform", 0.0),
        ("laplace", 1 + math.log(2)),
    ],
)
def test_entropies_are_those_of_the_distributions(draw: str, exact: float) -> None:
    values = getattr(np.random.default_rng(0), draw)(size=4000)
    assert entropy(values, 0.01) == pytest.approx(exact, abs=0.03)
    assert entropy(7.0 * values, 0.01) == pytest.approx(exact + math.log(7.0), abs=0.03)
    # below the resolution the standard deviation does not count
    assert entropy(1e-6 * values, 0.5) == pytest.approx(entropy(1e-9 * values, 0.5))


def test_predictors_of_a_product_are_its_factors() -> None:
    a, b, c, d, noise = np.random.default_rng(1).normal(size=(5, 600))
    table = standardise(np.stack([a, b, a * b + 0.3 * noise, c, d], axis=1))
    regressions = GreedyRegressions(table, price=4.0)
    assert regressions.choose(2, frozenset({0, 1, 3, 4})) == {0, 1}
    assert regressions.choose(2, frozenset({3, 4})) == frozenset()
    assert 3 in regressions.choose(2, frozenset({0, 1, 4}), frozenset({3}))


def test_determined_variables_are_noticed() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.uniform(-1, 1, size=(2, 400))
    for noise, determined in ((0.0, True), (0.3, False)):
        c = np.sin(2 * a) + b + noise * rng.normal(size=400)
        regressions = GreedyRegressions(standardise(np.stack([a, b, c], axis=1)), price=4.0)
        none = Knowledge.parse(None).constraints(["a", "b", "c"])
        assert EntropyOrderSearch(regressions, none, 0.05, 0).has_determined() is determined


def test_a_linear_gaussian_edge_has_no_direction_by_entropy() -> None:
    x, noise = np.random.default_rng(3).normal(size=(2, 500))
    table = np.stack([x, 0.8 * x + 0.6 * noise], axis=1)
    result = discover(table, search="entropy", check_directions=False)
    assert [edge[:2] for edge in result.graph.edges] == result.ambiguous
    assert len(result.ambiguous) == 1
    cubic = np.stack([x, x**3 / 3 + x + noise], axis=1)
    result = discover(cubic, search="entropy", check_directions=False)
    assert ([edge[:2] for edge in result.graph.edges], result.ambiguous) == ([("x0", "x1")], [])
