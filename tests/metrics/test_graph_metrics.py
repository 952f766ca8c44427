"""Graph metrics against counted edits, all orientations, scikit-learn and an oracle."""

from __future__ import annotations

import itertools
import json
import os
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.metrics import edge_curves, graph_metrics
from random_dags import random_dag

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])


@st.composite
def digraphs(draw, n: int = 4) -> np.ndarray:
    entries = draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    array = np.array(entries, dtype=int).reshape(n, n)
    np.fill_diagonal(array, 0)
    return array


# ---- SHD and rates -------------------------------------------------------------------------------
def edits(graph: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All graphs over three variables that differ by one added, removed or reversed edge."""
    neighbours = []
    for j, i in itertools.permutations(range(3), 2):
        changed = list(graph)
        changed[3 * j + i] = 1 - graph[3 * j + i]
        neighbours.append(tuple(changed))
        if graph[3 * j + i] and not graph[3 * i + j]:
            turned = list(graph)
            turned[3 * j + i], turned[3 * i + j] = 0, 1
            neighbours.append(tuple(turned))
    return neighbours


def test_shd_is_the_least_number_of_edits():
    start = tuple(CHAIN.ravel().tolist())
    distance, waiting = {start: 0}, deque([start])
    while waiting:
        graph = waiting.popleft()
        for other in edits(graph):
            if other not in distance:
                distance[other] = distance[graph] + 1
                waiting.append(other)
    assert len(distance) == 64
    for graph, steps in distance.items():
        assert graph_metrics(CHAIN, np.array(graph).reshape(3, 3)).shd == steps


@settings(max_examples=60, deadline=None)
@given(digraphs(), digraphs(), digraphs())
def test_shd_is_a_metric_and_equals_causal_graph_shd(a, b, c):
    def shd(x, y):
        return graph_metrics(x, y).shd

    assert (shd(a, b) == 0) == np.array_equal(a, b)
    assert shd(a, b) == shd(b, a)
    assert shd(a, c) <= shd(a, b) + shd(b, c)
    assert shd(a, b) == CausalGraph(tuple("wxyz"), a).shd(CausalGraph(tuple("wxyz"), b))


def test_rates_counted_by_hand():
    true = np.zeros((5, 5), dtype=int)
    true[[0, 1, 2, 3], [1, 2, 3, 4]] = 1  # a chain of four edges
    estimated = np.zeros((5, 5), dtype=int)
    estimated[[0, 2, 0, 4], [1, 1, 4, 0]] = (
        1  # one right, one turned, and 0 <-> 4 extra, which is two edges
    )
    result = graph_metrics(true, estimated)
    assert result.shd == 2 + 1 + 2  # missing, turned, extra
    assert result.tpr == 1 / 4
    assert result.fpr == 3 / (10 - 4)
    assert result.fdr == 3 / 4
    assert float(result) == result.value == 5
    assert [row.metric for row in result.rows()] == ["shd", "tpr", "fpr", "fdr"]
    assert [row.higher_is_better for row in result.rows()] == [False, True, False, False]
    assert result.parameters == {
        "variables": 5,
        "true_edges": 4,
        "found_edges": 4,
        "undirected_edges": 0,
    }
    assert json.loads(json.dumps(result.to_json()))["parts"]["tpr"]["value"] == 0.25
    assert result.permutation is None


def test_perfect_and_empty_estimates():
    perfect, empty = graph_metrics(CHAIN, CHAIN), graph_metrics(CHAIN, 0 * CHAIN)
    assert (perfect.shd, perfect.tpr, perfect.fpr, perfect.fdr) == (0, 1, 0, 0)
    assert (empty.shd, empty.tpr, empty.fpr, empty.fdr) == (2, 0, 0, 0)
    nothing = graph_metrics(0 * CHAIN, 0 * CHAIN)
    assert (nothing.shd, nothing.tpr, nothing.fpr, nothing.fdr) == (0, 0, 0, 0)
    full = np.triu(np.ones((3, 3), dtype=int), 1)
    assert graph_metrics(full, full.T).fpr == 3  # no pair without an edge: the denominator is 1


def test_an_undirected_edge_on_the_skeleton_counts_once_and_as_correct():
    """Also with -1 in both entries."""
    for entries in (([0], [1]), ([1], [0]), ([0, 1], [1, 0])):
        estimated = np.zeros((3, 3), dtype=int)
        estimated[entries] = -1
        result = graph_metrics(CHAIN, estimated)
        assert (result.shd, result.tpr, result.fpr, result.fdr) == (1, 0.5, 0, 0)
        assert result.parameters["undirected_edges"] == result.parameters["found_edges"] == 1
    estimated = np.zeros((3, 3), dtype=int)
    estimated[0, 2] = estimated[2, 0] = -1
    result = graph_metrics(CHAIN, estimated)
    assert (result.shd, result.tpr, result.fpr, result.fdr) == (3, 0, 1, 1)


def test_a_cpdag_scores_as_its_best_orientation():
    rng = np.random.default_rng(0)
    for _ in range(30):
        true, estimated = random_dag(rng, 5, 0.4), random_dag(rng, 5, 0.4)
        edges = np.argwhere(estimated)
        estimated[tuple(edges[rng.random(len(edges)) < 0.5].T)] = -1
        result = graph_metrics(true, estimated)
        options = []
        for turns in itertools.product((False, True), repeat=int((estimated == -1).sum())):
            oriented = np.where(estimated == 1, 1, 0)
            for (j, i), turned in zip(np.argwhere(estimated == -1), turns, strict=True):
                oriented[(i, j) if turned else (j, i)] = 1
            options.append(graph_metrics(true, oriented))
        assert result.shd == min(option.shd for option in options)
        assert result.tpr == max(option.tpr for option in options)
        assert result.fdr == min(option.fdr for option in options)
        assert result.fpr == min(option.fpr for option in options)


def test_causal_graphs_are_compared_by_name():
    true = CausalGraph.from_edges("abc", [("a", "b", -1.0), ("b", "c", 0.3)])
    estimated = CausalGraph.from_edges("cba", [("a", "b", -0.2), ("c", "b", -1.0)])
    result = graph_metrics(true, estimated)
    assert (result.shd, result.tpr, result.fdr) == (1, 0.5, 0.5)
    assert graph_metrics(true, estimated.subgraph("abc").adjacency).shd == 1
    with pytest.raises(DataError, match=r"z in one only.*best_permutation"):
        graph_metrics(true, CausalGraph.empty("abz"))


@pytest.mark.parametrize(
    ("estimated", "message"),
    [
        (np.full((3, 3), 0.3), "holds 0.3, but an array of edges holds 0, 1 and -1"),
        (np.eye(3), "variable 0 of the estimated graph causes itself"),
        (
            np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 0]]),
            "both an undirected .* and a directed .* causal-learn",
        ),
        (np.zeros((2, 3)), "square table"),
        (np.zeros((0, 0)), "square table"),
        (np.zeros((4, 4)), "3 variables and the estimated one 4"),
        (np.full((3, 3), np.nan), "hold nan"),
    ],
)
def test_arrays_that_are_no_graph_raise(estimated, message):
    with pytest.raises(DataError, match=message):
        graph_metrics(CHAIN, estimated)


def test_an_undirected_edge_in_the_true_graph_raises():
    with pytest.raises(
        DataError, match="the true graph holds -1, but an array of edges holds 0 and 1;"
    ):
        graph_metrics(-CHAIN, CHAIN)


# ---- curves --------------------------------------------------------------------------------------
@pytest.mark.parametrize("decimals", [1, 8])
def test_areas_equal_scikit_learn_and_points_equal_graph_metrics(decimals):
    rng = np.random.default_rng(0)
    true = random_dag(rng, 7, 0.4)
    weights = np.round(
        (true * 0.5 + rng.normal(size=(7, 7))) * rng.choice([0, 1, -1], size=(7, 7)), decimals
    )  # ties, zeros, signs
    curves = edge_curves(true, weights)
    pairs = ~np.eye(7, dtype=bool)
    assert curves.auroc.value == pytest.approx(roc_auc_score(true[pairs], np.abs(weights[pairs])))
    assert curves.auprc.value == pytest.approx(
        average_precision_score(true[pairs], np.abs(weights[pairs]))
    )
    assert curves.auprc.parameters["chance"] == true.sum() / 42
    assert curves.thresholds[0] == np.inf
    assert (np.diff(curves.thresholds) < 0).all()
    for t, threshold in enumerate(curves.thresholds):
        estimated = ((np.abs(weights) >= threshold) & pairs).astype(int)
        assert curves.shd[t] == graph_metrics(true, estimated).shd
        assert curves.tpr[t] == pytest.approx(estimated[true == 1].mean())
        assert curves.fpr[t] == pytest.approx(estimated[(true == 0) & pairs].mean())
        assert curves.precision[t] == pytest.approx(
            true[estimated == 1].mean() if estimated.any() else 1.0
        )
    assert ((np.abs(weights) >= curves.thresholds[-1]) & pairs).sum() == (
        (weights != 0) & pairs
    ).sum()


def test_curves_of_perfect_reversed_and_constant_weights():
    weights = CHAIN * 0.4 + 0.1
    assert (edge_curves(CHAIN, weights).auroc.value, edge_curves(CHAIN, weights).auprc.value) == (
        1,
        1,
    )
    assert edge_curves(CHAIN, 1 - weights).auroc.value == 0
    flat = edge_curves(CHAIN, np.ones((3, 3)))
    assert (flat.auroc.value, flat.auprc.value) == (0.5, pytest.approx(2 / 6))
    assert float(edge_curves(CHAIN, np.zeros((3, 3))).auroc) == 0.5


def test_curves_compare_by_name_and_need_edges():
    true = CausalGraph.from_edges("abc", [("a", "b"), ("b", "c")])
    estimated = CausalGraph.from_edges("cba", [("a", "b", 0.9), ("b", "c", -0.8), ("c", "a", 0.1)])
    assert edge_curves(true, estimated).auroc.value == 1
    assert edge_curves(true, estimated).shd.tolist() == [2, 1, 0, 1]
    with pytest.raises(DataError, match="has 0 of 6 possible edges"):
        edge_curves(0 * CHAIN, CHAIN)
    with pytest.raises(DataError, match="3 variables and the weights 2"):
        edge_curves(CHAIN, np.zeros((2, 2)))


# ---- an independent implementation ---------------------------------------------------------------
def test_graph_metrics_agree_with_an_independent_implementation():
    folder = os.environ.get("INTERVAE_ORACLES")
    if not folder:
        pytest.skip("set INTERVAE_ORACLES to the folder with graph_metrics_oracle.npz")
    oracle = np.load(Path(folder) / "graph_metrics_oracle.npz")
    columns = oracle["columns"].tolist()
    for k, expected in enumerate(oracle["metrics"]):
        result = graph_metrics(oracle[f"B{k:03d}"], oracle[f"E{k:03d}"])
        ours = {
            "fdr": result.fdr,
            "tpr": result.tpr,
            "fpr": result.fpr,
            "shd": result.shd,
            "nnz": result.parameters["found_edges"],
        }
        assert ours == dict(zip(columns, expected, strict=True))
