"""Where the graph of CausalVAE comes from: labels, the loss, or a known graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_causal_vae import SMALL, chain, make, with_weights

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Spec, Variable, build_dataset
from intervae.discovery import discover
from intervae.errors import DataError, UsageError
from intervae.models import CausalVAE
from intervae.settings import describe_settings


def linear_gaussian(n: int = 800, seed: int = 0) -> Dataset:
    """Labels of the chain a -> b -> c with noises of unequal variance; the images are blank."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = 1.5 * a + 0.8 * rng.normal(size=n)
    c = -1.2 * b + 1.5 * rng.normal(size=n)
    images = np.zeros((n, 1, 8, 8), dtype=np.uint8)
    return build_dataset(
        "chain", images, np.stack([a, b, c], 1), [Variable(name) for name in "abc"]
    )


def test_lagrangian_finds_the_skeleton_of_a_chain_and_logs_a_from_zero() -> None:
    data = linear_gaussian()
    model = make(data, "lagrangian", epochs=0)
    lines = model.fit(data).history
    assert {frozenset(edge[:2]) for edge in model.graph.edges} == {frozenset("ab"), frozenset("bc")}
    assert {line["phase"] for line in lines} == {"graph"}
    history = np.array([line["adjacency"] for line in lines])
    assert not history[0].any()  # from A = 0
    edges = model.graph.weights != 0
    assert np.abs(history[-1][edges]) == pytest.approx(np.abs(model.graph.weights[edges]), rel=1e-5)
    assert torch.equal(model.mask, model.support)


def test_known_graph_keeps_its_edges_and_learns_their_weights(make_data: Any) -> None:
    data = make_data()
    model = make(data, chain())
    assert model.graph == CausalGraph(
        ("a", "b", "c"), chain().weights.astype(np.float32).astype(np.float64)
    )
    before = model.weights.detach().clone()
    model.fit(data)
    after = model.weights.detach()
    assert (after[0, 1] != before[0, 1]) & (after[1, 2] != before[1, 2])
    assert torch.equal(after != 0, torch.as_tensor(chain().adjacency, dtype=torch.bool))
    assert [edge[:2] for edge in model.graph.edges] == [edge[:2] for edge in chain().edges]


def test_known_graph_may_have_more_variables_in_any_order(make_data: Any) -> None:
    wider = CausalGraph.from_edges(("x", "c", "b", "a"), [("a", "b"), ("b", "c"), ("x", "a")])
    assert [edge[:2] for edge in make(make_data(), wider).graph.edges] == [("a", "b"), ("b", "c")]


def test_the_graph_is_graph_from_the_labels_of_the_training_split(pendulum: Dataset) -> None:
    model = make(pendulum, "independence", epochs=0)
    model.fit(pendulum, seed=3)
    graph = discover(
        pendulum.train.labels.numpy(), names=pendulum.names, kinds=["continuous"] * 4, seed=3
    ).graph
    assert np.array_equal(model.graph.adjacency, graph.adjacency)
    assert graph.edges
    u = model.spec.normalise(pendulum.train.labels).numpy()
    for i in range(4):
        parents = np.flatnonzero(graph.adjacency[:, i])
        if len(parents):
            slopes = np.linalg.lstsq(u[:, parents], u[:, i], rcond=None)[0]
            assert np.allclose(model.weights.detach().numpy()[parents, i], slopes, atol=1e-4)


@pytest.mark.parametrize("graph", ["joint", "lagrangian", "independence"])
def test_diagonal_stays_zero_and_the_graph_acyclic(graph: str, pendulum: Dataset) -> None:
    model = make(pendulum, graph)
    model.fit(pendulum)
    assert not model.weights.diagonal().any()
    assert not model.adjacency.diagonal().any()
    assert model.graph.is_acyclic


def test_graph_is_acyclic_for_any_weights(make_data: Any) -> None:
    model = make(make_data(kinds=("continuous",) * 6), edge_threshold=0.3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = rng.normal(scale=0.6, size=(6, 6))
        with_weights(model, weights)
        graph = model.graph
        assert graph.is_acyclic
        assert not np.diagonal(graph.weights).any()
        assert all(abs(weight) >= 0.3 for _, _, weight in graph.edges)
        assert np.allclose(graph.weights[graph.weights != 0], weights[graph.weights != 0])


def test_default_graph_is_auto_and_the_model_stores_the_resolved_method(make_data: Any) -> None:
    listed = {entry["name"]: entry["default"] for entry in describe_settings(CausalVAE.Settings)}
    assert listed["graph"] == "auto"
    for kinds, method in (
        (("continuous", "continuous"), "independence"),
        (("continuous", "binary"), "lagrangian"),
    ):
        assert CausalVAE(make_data(kinds=kinds).spec, **SMALL).settings.graph == method


def test_errors_for_a_known_graph_with_a_cycle_or_a_missing_variable(make_data: Any) -> None:
    data = make_data()
    with pytest.raises(DataError, match="cycle"):
        make(data, chain([("a", "b", 1.0), ("b", "a", 1.0)]))
    with pytest.raises(DataError, match="'c'"):
        make(data, CausalGraph.from_edges(("a", "b"), [("a", "b")]))
    with pytest.raises(UsageError, match="graph=given needs a graph"):
        make(data, "given").fit(data)
    with pytest.raises(UsageError, match=r"graph='notears'.*lagrangian"):
        make(data, "notears")


def test_errors_for_data_without_suitable_labels() -> None:
    with pytest.raises(DataError, match="learns from labels"):
        CausalVAE(Spec((1, 16, 16)))
    with pytest.raises(DataError, match="not clips"):
        CausalVAE(Spec((1, 16, 16), (Variable("a"),), frames=4))


@pytest.mark.parametrize(
    "settings",
    [
        {"dims": 0},
        {"hidden": 0},
        {"channels": ()},
        {"channels": (8, 0)},
        {"mechanism_hidden": 0},
        {"dims": -1},
        {"dimz": 2},
    ],
)
def test_invalid_settings_raise_errors(settings: dict[str, Any], make_data: Any) -> None:
    with pytest.raises(UsageError):
        make(make_data(), **settings)
