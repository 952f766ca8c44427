"""Axioms by default without a simulator: a blob must not look good, the truth must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from intervae.causal import CausalGraph
from intervae.data import Dataset, Variable, build_dataset
from intervae.evaluation import evaluate, poor_answers
from intervae.metrics.base import Measurement

HALVES = {"top": slice(0, 4), "bottom": slice(4, 8)}


def draw(values: np.ndarray) -> np.ndarray:
    """Images (N, 1, 8, 8) uint8 whose halves have the grey levels `values` (N, 2)."""
    return np.repeat(values.round().astype(np.uint8), 4, axis=1)[:, None, :, None].repeat(8, 3)


@pytest.fixture(scope="module")
def data() -> Dataset:
    labels = np.random.default_rng(0).uniform(20, 230, (900, 2)).round()
    graph = CausalGraph.empty(tuple(HALVES))
    variables = [Variable(name) for name in HALVES]
    return build_dataset("halves", draw(labels), labels, variables, graph=graph)


def measure(
    make_model: Callable[..., Any], data: Dataset, query: Callable[..., Any]
) -> dict[str, Measurement]:
    model = make_model("causal-vae", data, graph=CausalGraph.empty(data.names))
    model.counterfactual = query
    return {m.metric: m for m in evaluate(model, data)}


def true_answer(images: Any, do: dict[str, Any]) -> torch.Tensor:
    after = torch.as_tensor(np.array(images), dtype=torch.float32)
    after = after / 255 if np.asarray(images).dtype == np.uint8 else after
    for name, value in do.items():
        level = torch.as_tensor(np.asarray(value, dtype=np.float32)).reshape(-1, 1, 1, 1)
        after[:, :, HALVES[name]] = level / 255
    return after


def test_one_blob_for_everything_does_not_look_good(
    make_model: Callable[..., Any], data: Dataset
) -> None:
    blob = data.train.images.float().mean(0, keepdim=True) / 255
    results = measure(make_model, data, lambda images, do: blob.repeat(len(images), 1, 1, 1))
    for name in ("composition_1", "effectiveness_error"):
        m = results[name]
        assert m.value == pytest.approx(m.parameters["mean_picture"]["value"], rel=0.05)
        assert m.n > 100
    texts = poor_answers(list(results.values()))
    assert any(text.startswith("composition_1") and "mean picture" in text for text in texts)
    assert any(text.startswith("effectiveness_error") for text in texts)


def test_the_truth_looks_good_and_doing_nothing_is_told_apart(
    make_model: Callable[..., Any], data: Dataset
) -> None:
    true = measure(make_model, data, true_answer)
    assert true["composition_1"].value < 1e-6
    assert true["effectiveness_error"].value < 0.1
    nothing = true["effectiveness_error"].parameters["doing_nothing"]["value"]
    assert nothing > 0.8  # standard deviations between two random values
    assert true["minimality_variables"].value < 0.05
    assert not poor_answers(list(true.values()))
    idle = measure(make_model, data, lambda images, do: true_answer(images, {}))
    (text,) = poor_answers(list(idle.values()))
    assert text.startswith("effectiveness_error")
    assert "doing nothing" in text


def test_axioms_run_by_default_only_without_a_simulator(
    make_model: Callable[..., Any], pendulum: Dataset
) -> None:
    model = make_model("causal-vae", pendulum)
    names = {m.metric for m in evaluate(model, replace(pendulum, simulator=None))}
    assert {"composition_1", "effectiveness_error", "minimality_variables"} <= names
    assert "composition_1" not in {m.metric for m in evaluate(model, pendulum)}


def test_data_that_is_all_for_testing_fits_the_regressor_on_half(
    make_model: Callable[..., Any], data: Dataset
) -> None:
    model = make_model("causal-vae", data, graph=CausalGraph.empty(data.names))
    model.counterfactual = true_answer
    alone = replace(data, train=data.train[:0], validation=data.validation[:0])
    results = {m.metric: m for m in evaluate(model, alone, ["axioms"])}
    assert results["composition_1"].n == len(data.test) // 2
    assert results["predictor_r2_min"].parameters["training_pictures"] == len(data.test) // 2
    assert results["predictor_r2_min"].value > 0.9
