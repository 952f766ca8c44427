"""Evaluation on data whose true graph also holds latents, which no model of the labelled variables has."""

from __future__ import annotations

import pytest

import intervae
from intervae.data import load_data
from intervae.errors import UsageError
from intervae.evaluation import evaluate


def test_axioms_need_only_the_variables_and_graphs_over_other_nodes_are_not_compared():
    data = load_data("cross-modal", graph="2/6", samples=80, size=16, weakest=1.0)
    model = intervae.create("causal-vae", data, seed=0)
    found = {m.metric: m for m in evaluate(model, data, ["axioms"])}
    minimality = next(m for name, m in found.items() if name.startswith("minimality"))
    assert minimality.parameters["graph"] == "true"
    assert set(minimality.per_variable) <= {"u1", "u2"}
    with pytest.raises(UsageError, match="metric 'shd' does not apply to causal-vae on cross-modal"):
        evaluate(model, data, ["shd"])
