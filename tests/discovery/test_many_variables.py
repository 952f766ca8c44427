"""Searches for many variables: screening, kernels of few columns, known graphs, knowledge."""

import numpy as np
import pytest

from intervae.discovery import discover
from intervae.discovery.kernels import (
    gaussian_kernel_factor,
    leave_one_out,
    squared_distances,
    standardise,
)
from intervae.discovery.neighbour_screening import screen_neighbours
from intervae.errors import UsageError

SEARCHES = ("screened", "local")


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
    if search == "screened":  # the greedy search may reverse edges
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
