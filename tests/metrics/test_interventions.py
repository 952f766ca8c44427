"""Interventions of counterfactual metrics, and the arithmetic of their headlines."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.data import Variable
from intervae.metrics.interventions import (
    MODEL,
    causes_and_effects,
    non_descendants,
    random_interventions,
    summarise_interventions,
)

GRAPH = CausalGraph.from_edges("abcd", [("a", "b"), ("b", "c")])  # d is alone


def test_random_interventions_are_uniform() -> None:
    variables = [
        Variable("v", low=2, high=4),
        Variable("b", "binary", low=0, high=1),
        Variable("c", "categorical", low=0, high=3),
    ]
    draws = random_interventions(variables, 4000, seed=0)
    assert 2 <= draws["v"].min() < 2.01 < 3.99 < draws["v"].max() <= 4
    assert np.bincount(draws["b"].astype(int)) / 4000 == pytest.approx(1 / 2, abs=0.03)
    assert np.bincount(draws["c"].astype(int)) / 4000 == pytest.approx(1 / 4, abs=0.03)
    assert (draws["c"] == np.round(draws["c"])).all()


def test_non_descendants_of_a_graph() -> None:
    assert [non_descendants(GRAPH, name) for name in "abcd"] == [
        ["d"],
        ["a", "d"],
        ["a", "b", "d"],
        ["a", "b", "c"],
    ]


def test_a_variable_without_edges_is_neither_cause_nor_effect() -> None:
    assert causes_and_effects(GRAPH, "abcd") == {"causes": ["a", "b"], "effects": ["c"]}
    assert causes_and_effects(GRAPH, "d") == {"causes": [], "effects": []}


def test_headline_is_over_all_with_causes_effects_and_references_beside() -> None:
    scores = {
        MODEL: {"a": 1.0, "b": 3.0, "c": 10.0, "d": 2.0},
        "doing_nothing": {"a": 8.0, "b": 4.0, "c": 5.0, "d": 7.0},
    }
    value, parameters = summarise_interventions(GRAPH, scores)
    assert value == 4
    assert parameters == {
        "headline": "mean over do(a), do(b), do(c), do(d)",
        "doing_nothing": {"value": 6, **scores["doing_nothing"]},
        "causes": {"value": 2, "doing_nothing": 6, "variables": ["a", "b"]},
        "effects": {"value": 10, "doing_nothing": 5, "variables": ["c"]},
    }


def test_groups_without_members_are_left_out() -> None:
    value, parameters = summarise_interventions(GRAPH, {MODEL: {"c": 3.0, "d": 5.0}})
    assert value == 4
    assert parameters == {
        "headline": "mean over do(c), do(d)",
        "effects": {"value": 3, "variables": ["c"]},
    }
