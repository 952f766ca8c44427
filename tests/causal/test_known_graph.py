"""Known graphs in the forms that callers have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from intervae.causal import CausalGraph
from intervae.causal.known_graph import as_graph
from intervae.data import Dataset
from intervae.errors import IntervaeError

NAMES = ("a", "b", "c")
GRAPH = CausalGraph.from_edges(NAMES, [("a", "b"), ("b", "c")])


def test_every_form_of_a_graph_is_the_same_graph(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(GRAPH.to_json()))
    network = nx.DiGraph()
    network.add_nodes_from(NAMES)
    network.add_edges_from([("a", "b"), ("b", "c")])
    forms = [GRAPH, path, str(path), GRAPH.to_json(), network, "a->b, b -> c", "a -> b -> c"]
    forms += [[("a", "b"), ("b", "c")], (("a", "b", 1.0), ["b", "c"])]
    for form in forms:
        assert as_graph(form, NAMES) == GRAPH, form
    for word in ("auto", "independence", None):
        assert as_graph(word, NAMES) is word


def test_models_take_every_form(
    make_model: Callable[..., Any], make_data: Callable[..., Dataset], tmp_path: Path
) -> None:
    data = make_data()
    first, second = data.names[:2]
    edges = CausalGraph.from_edges(data.names, [(first, second)])
    path = tmp_path / "g.json"
    path.write_text(json.dumps(edges.to_json()))
    for name in ("causal-vae", "causal-gan", "deep-scm"):
        for form in ([(first, second)], str(path), f"{first} -> {second}"):
            assert make_model(name, data, graph=form).graph == edges


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("no-such.json", "no such file"),
        ("a -> ", "not an edge"),
        ("a -> b, c", "'c' is not an edge"),
        ("a -> d", "'d'"),
        ([("a", "d")], "'d'"),
        ([("a",)], "an edge is"),
        (["a->b"], "an edge is"),
        ({"variables": NAMES}, "not a graph"),
        (nx.Graph([("a", "b")]), "directed"),
    ],
)
def test_wrong_graphs_say_what_is_wrong(form: Any, words: str) -> None:
    with pytest.raises(IntervaeError, match=words):
        as_graph(form, NAMES)
