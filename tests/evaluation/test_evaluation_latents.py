"""Evaluation on data whose true graph has latents that models of the labels lack."""

from __future__ import annotations

import pytest

import intervae
from intervae.data import load_data
from intervae.errors import UsageError
from intervae.evaluation import evaluate


def test_axioms_use_the_subgraph_of_the_labels_and_shd_does_not_apply():
    data = load_data("cross-modal", graph="2/6", samples=80, size=16, weakest=1.0)
    model = intervae.create("causal-vae", data, seed=0)
    measurements = {m.metric: m for m in evaluate(model, data, ["axioms"])}
    minimality = measurements["minimality_picture"]
    assert minimality.parameters["graph"] == "true"
    assert set(minimality.per_variable) <= {"u1", "u2"}
    with pytest.raises(
        UsageError, match="metric 'shd' does not apply to causal-vae on cross-modal"
    ):
        evaluate(model, data, ["shd"])
