"""Best permutations of latents against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.metrics import best_frame_permutation, best_permutation, graph_metrics
from intervae.metrics.graph_permutation import _assign_and_swap, _swap
from intervae.metrics.graphs import compare, pair_states
from random_dags import random_dag

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])


# ---- best permutation ----------------------------------------------------------------------------
def test_all_permutations_of_few_variables_are_tried():
    rng = np.random.default_rng(0)
    for _ in range(10):
        true, estimated = random_dag(rng, 5, 0.5), random_dag(rng, 5, 0.5)
        estimated[tuple(np.argwhere(estimated)[:1].T)] = -1
        result = best_permutation(true, estimated)
        orders = list(itertools.permutations(range(5)))
        assert result.shd == min(
            graph_metrics(true, estimated[np.ix_(order, order)]).shd for order in orders
        )
        again = graph_metrics(true, estimated[np.ix_(result.permutation, result.permutation)])
        assert (again.shd, again.tpr, again.fpr, again.fdr) == (
            result.shd,
            result.tpr,
            result.fpr,
            result.fdr,
        )
        assert result.parameters["search"] == "exact"


@pytest.mark.parametrize("n", [6, 8, 12, 25])
def test_a_permuted_graph_is_recovered(n):
    rng = np.random.default_rng(n)
    true = random_dag(rng, n, 3 / n)
    order = rng.permutation(n)
    result = best_permutation(true, true[np.ix_(order, order)])
    assert (result.shd, result.tpr, result.fpr, result.fdr) == (0, 1, 0, 0)
    assert result.parameters["search"] == ("exact" if n <= 8 else "assignment and swaps")
    assert [row.metric for row in result.rows()] == [
        "shd_permuted",
        "tpr_permuted",
        "fpr_permuted",
        "fdr_permuted",
    ]


def test_assignment_and_swaps_are_near_the_optimum():
    rng = np.random.default_rng(1)
    excess = []
    for _ in range(25):
        true, estimated = random_dag(rng, 6, 0.4), random_dag(rng, 6, 0.4)
        estimated = np.where(rng.random((6, 6)) < 0.3, -estimated, estimated)
        order = _assign_and_swap(true, estimated)
        excess.append(
            compare(true, estimated[np.ix_(order, order)]).shd
            - best_permutation(true, estimated).shd
        )
    assert min(excess) >= 0
    assert np.mean(excess) < 0.3
    large, other = random_dag(rng, 15, 0.2), random_dag(rng, 15, 0.2)
    assert best_permutation(large, other).shd <= graph_metrics(large, other).shd


def test_swaps_end_in_a_local_optimum():
    rng = np.random.default_rng(2)
    for _ in range(10):
        true, estimated = random_dag(rng, 7, 0.4), random_dag(rng, 7, 0.4)
        order = _swap(pair_states(true), pair_states(estimated), rng.permutation(7))
        least = compare(true, estimated[np.ix_(order, order)]).shd
        for a, b in itertools.combinations(range(7), 2):
            other = order.copy()
            other[[a, b]] = other[[b, a]]
            assert compare(true, estimated[np.ix_(other, other)]).shd >= least


def test_trap_best_permutation_lowers_the_shd_of_random_graphs():
    rng = np.random.default_rng(0)
    places = np.argwhere(np.triu(np.ones((5, 5)), 1))

    def four_edges() -> np.ndarray:
        graph, order = np.zeros((5, 5), dtype=int), rng.permutation(5)
        graph[tuple(places[rng.choice(10, 4, replace=False)].T)] = 1
        return graph[np.ix_(order, order)]

    pairs = [(four_edges(), four_edges()) for _ in range(80)]
    assert np.mean([graph_metrics(a, b).shd for a, b in pairs]) == pytest.approx(5.6, abs=0.4)
    assert np.mean([best_permutation(a, b).shd for a, b in pairs]) == pytest.approx(2.0, abs=0.3)


def test_best_permutation_reports_matched_names():
    true = CausalGraph.from_edges(
        ["light", "angle", "shadow"], [("light", "shadow"), ("angle", "shadow"), ("light", "angle")]
    )
    estimated = CausalGraph.from_edges(
        ["z0", "z1", "z2"], [("z2", "z0"), ("z2", "z1"), ("z1", "z0")]
    )
    result = best_permutation(true, estimated)
    assert result.shd == 0
    assert result.parameters["matched"] == {"light": "z2", "angle": "z1", "shadow": "z0"}
    assert result.permutation == (2, 1, 0)
    with pytest.raises(DataError, match="as many of each"):
        best_permutation(true, CHAIN[:2, :2])


# ---- frames --------------------------------------------------------------------------------------
def forward_graph(rng: np.random.Generator, frames: int, k: int, density: float) -> np.ndarray:
    time = np.repeat(np.arange(frames), k)
    return (
        (rng.random((frames * k, frames * k)) < density) & (time[:, None] < time[None, :])
    ).astype(int)


@pytest.mark.parametrize("shared", [True, False])
def test_best_frame_permutation_equals_brute_force(
    shared: bool,
) -> None:
    rng, frames, k = np.random.default_rng(0), 2, 3
    for _ in range(20):
        true, estimated = (forward_graph(rng, frames, k, 0.4) for _ in range(2))
        least = np.inf
        for orders in itertools.product(itertools.permutations(range(k)), repeat=frames):
            if not shared or len(set(orders)) == 1:
                order = np.concatenate([t * k + np.array(own) for t, own in enumerate(orders)])
                least = min(
                    least, np.abs(true - estimated[np.ix_(order, order)]).sum()
                )  # edges go forward only, so none can be reversed
        assert best_frame_permutation(true, estimated, frames, shared=shared).shd == least


def test_surplus_latents_have_no_true_edges() -> None:
    true = np.zeros((6, 6), dtype=int)
    true[[0, 2, 1, 3], [4, 4, 5, 5]] = 1  # x3 from x1 and x2, y3 from y1 and y2
    estimated = np.zeros((12, 12), dtype=int)
    estimated[[3, 7, 1, 5], [11, 11, 9, 9]] = 1  # latents 3 and 1 of 4
    result = best_frame_permutation(true, estimated, 3)
    assert result.shd == 0
    assert set(result.parameters["permutation"][:2]) == {1, 3}
    assert [i % 4 for i in result.parameters["permutation"][4:8]] == result.parameters[
        "permutation"
    ][:4]
    estimated[2, 10] = 1
    assert best_frame_permutation(true, estimated, 3).shd == 1
    estimated[2, 10], estimated[7, 11], estimated[6, 11] = (
        0,
        0,
        1,
    )  # the second frame has another order
    assert best_frame_permutation(true, estimated, 3).shd == 2
    assert best_frame_permutation(true, estimated, 3, shared=False).shd == 0


def test_graphs_that_do_not_fit_the_frames_raise() -> None:
    for true, estimated, frames in (
        (np.zeros((6, 6)), np.zeros((8, 8)), 3),
        (np.zeros((9, 9)), np.zeros((6, 6)), 3),
        (np.zeros((4, 4)), np.zeros((4, 4)), 0),
    ):
        with pytest.raises(DataError, match="frames"):
            best_frame_permutation(true, estimated, frames)
    with pytest.raises(DataError, match="more than the 50000"):
        best_frame_permutation(np.zeros((18, 18)), np.zeros((18, 18)), 2)
