"""Effectiveness and flips on images of four pixels: a -> b, c, and one that no variable sets."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.data import Variable
from intervae.errors import DataError
from intervae.metrics.attribute_scores import counterfactual_attributes
from intervae.metrics.axioms import f1_score
from intervae.metrics.base import Measurement
from intervae.metrics.variable_regressor import VariableRegressor

NAMES = ("a", "b", "c")
VARIABLES = tuple(Variable(name, "binary", categories=("no", "yes")) for name in NAMES)
GRAPH = CausalGraph.from_edges(NAMES, [("a", "b")])
# every combination of a, b, c and of four grey levels: do() maps the images onto themselves
WORLD = np.array(list(itertools.product((0, 1), (0, 1), (0, 1), (0, 0.25, 0.5, 0.75))))
IMAGES, LABELS = WORLD[:, None, None, :], WORLD[:, :3]


class PixelClassifier(VariableRegressor):
    """Reads the pixels; misreads c = 1 at one grey level, c = 0 and a at another."""

    variables = VARIABLES

    def __init__(self, perfect: bool = False) -> None:
        self.perfect = perfect

    @property
    def training_images(self) -> int:
        return 0

    def __call__(self, images: Any) -> np.ndarray:
        pixels = np.asarray(images)[:, 0, 0, :].astype(np.float64)
        values, grey = np.round(pixels[:, :3]), pixels[:, 3]
        if self.perfect:
            return values
        values[(grey == 0.25) & (values[:, 2] == 1), 2] = 0
        values[grey == 0.5, 0] = 1 - values[grey == 0.5, 0]
        values[(grey == 0.5) & (values[:, 2] == 0), 2] = 1
        return values


def oracle(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
    """The true counterfactual with b = a xor noise."""
    after = np.array(images)
    for name, value in do.items():
        if name == "a":
            changed = after[:, 0, 0, 0] != value
            after[changed, 0, 0, 1] = 1 - after[changed, 0, 0, 1]
        after[:, 0, 0, NAMES.index(name)] = value
    return after


def identity(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
    return images


def measure(
    query: Any,
    classifier: VariableRegressor,
    rows: slice | np.ndarray = slice(None),
    graph: CausalGraph = GRAPH,
) -> dict[str, Measurement]:
    results = counterfactual_attributes(
        query, IMAGES[rows], LABELS[rows], VARIABLES, classifier, graph
    )
    return {m.metric: m for m in results}


def test_true_counterfactuals_score_as_the_classifier_does_on_real_pictures() -> None:
    results = measure(oracle, PixelClassifier())
    accuracy = results["effectiveness_accuracy"]
    assert accuracy.per_variable == {"a": 0.75, "b": 1.0, "c": 0.75}
    assert accuracy.per_variable == results["predictor_accuracy_min"].per_variable
    for metric in ("effectiveness_accuracy", "effectiveness_f1"):
        expected = dict(results[metric].parameters["real_pictures"])
        assert expected.pop("value") == pytest.approx(results[metric].value)
        assert results[metric].per_variable == pytest.approx(expected)


def test_true_counterfactuals_flip_nothing_beside_the_reconstruction() -> None:
    results = measure(oracle, PixelClassifier())
    assert results["composition_1"].value == 0
    assert results["composition_psnr"].value == pytest.approx(100)
    for metric in ("attribute_flips", "attribute_flips_excess", "attribute_flips_excess_worst"):
        assert results[metric].value == 0, metric
    pairs = {
        v: set(each) for v, each in results["attribute_flips"].parameters["attributes"].items()
    }
    assert pairs == {"a": {"c"}, "b": {"a", "c"}, "c": {"a", "b"}}  # b is an effect of a


def test_identity_scores_what_doing_nothing_does() -> None:
    results = measure(identity, PixelClassifier())
    for metric, value in (("accuracy", 0.25), ("f1", None)):
        result = results[f"effectiveness_{metric}"]
        nothing = dict(result.parameters["doing_nothing"])
        assert nothing.pop("value") == result.value
        assert result.per_variable == nothing
        if value is not None:
            assert nothing == {"a": value, "b": 0.0, "c": value}  # the classifier's own errors
    assert results["attribute_flips"].value == 0
    assert measure(identity, PixelClassifier(True))["effectiveness_accuracy"].value == 0


def test_real_pictures_are_weighed_by_the_new_values() -> None:
    """c = 1 is read at grey .25 as 0: of few images with c = 1, nearly all become c = 1."""
    rows = np.flatnonzero((WORLD[:, 2] == 0) | (WORLD[:, 0] + WORLD[:, 1] == 2))
    results = measure(oracle, PixelClassifier(), rows)
    own, read = LABELS[rows, 2], PixelClassifier()(IMAGES[rows])[:, 2]
    recall, specificity = (read == 1)[own == 1].mean(), (read == 0)[own == 0].mean()
    ones = (own == 0).mean()
    assert ones == 0.8
    expected = results["effectiveness_accuracy"].parameters["real_pictures"]["c"]
    assert expected == pytest.approx(ones * recall + (1 - ones) * specificity)
    # F1 of a sample with these shares: 4 images of the value 1 for each of the value 0
    repeated = np.concatenate([np.tile(np.flatnonzero(own == 1), 16), np.flatnonzero(own == 0)])
    f1 = results["effectiveness_f1"].parameters["real_pictures"]["c"]
    assert f1 == pytest.approx(f1_score(read[repeated], own[repeated]))


def test_flips_count_what_else_changes() -> None:
    def careless(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        """do(c) also sets a to 0; every answer sets b to 0 at grey 0."""
        after = oracle(images, do)
        if "c" in do:
            after[:, 0, 0, 0] = 0
        after[after[:, 0, 0, 3] == 0, 0, 0, 1] = 0
        return after

    results = measure(careless, PixelClassifier(True))
    flips, excess = results["attribute_flips"], results["attribute_flips_excess"]
    assert flips.parameters["attributes"]["c"] == {"a": 0.5, "b": 0.125}
    assert flips.per_variable == {"a": 0.0, "b": 0.0, "c": 0.3125}
    assert flips.parameters["reconstruction"]["c"] == 0.0625  # b alone, at grey 0
    assert excess.per_variable["c"] == 0.25
    worst = results["attribute_flips_worst"]
    assert (worst.value, worst.parameters["attribute"]["c"]) == (0.5, "a")
    assert results["attribute_flips_excess_worst"].value == 0.5
    assert results["composition_1"].value == pytest.approx(0.125 / 4)


def test_a_chain_leaves_out_effects_and_a_variable_with_one_value_has_no_reference() -> None:
    chain = CausalGraph.from_edges(NAMES, [("a", "b"), ("b", "c")])
    rows = np.flatnonzero(LABELS[:, 0] == 0)
    results = measure(oracle, PixelClassifier(), rows, chain)
    assert set(results["attribute_flips"].per_variable) == {"b", "c"}  # a has no non-descendant
    reference = results["effectiveness_accuracy"].parameters["real_pictures"]
    assert set(reference) == {"value", "b", "c"}


def test_labels_and_classifier_must_fit() -> None:
    with pytest.raises(DataError, match="labels must be 0 or 1"):
        counterfactual_attributes(oracle, IMAGES, LABELS + 0.5, VARIABLES, PixelClassifier(), GRAPH)
    with pytest.raises(DataError, match="train it on the same ones"):
        counterfactual_attributes(
            oracle, IMAGES, LABELS[:, :2], VARIABLES[:2], PixelClassifier(), GRAPH
        )
