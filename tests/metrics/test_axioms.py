"""The axioms on images of three pixels, a -> b and c, with known values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.data import Variable
from intervae.errors import DataError, UsageError
from intervae.metrics.axioms import composition, effectiveness, f1_score, minimality, reversibility
from intervae.metrics.image_regressor import fit_image_regressor
from intervae.metrics.interventions import random_interventions

VARIABLES = tuple(Variable(name, mean=0.5, std=0.1, low=0.3, high=0.7) for name in "abc")
GRAPH = CausalGraph.from_edges("abc", [("a", "b")])


def images_and_values(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, 1, 3) of a, b = a / 2 + noise and c, and these values (n, 3)."""
    rng = np.random.default_rng(7)
    a, noise, c = rng.uniform(0.3, 0.7, (3, n))
    values = np.column_stack([a, a / 2 + noise / 2, c])
    return values[:, None, None, :].copy(), values


def exact(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
    """The true counterfactual: b changes by half of the change of a; c has no cause."""
    after = np.array(images, dtype=np.float64)
    for name, value in do.items():
        if name == "a":
            after[:, 0, 0, 1] += (value - after[:, 0, 0, 0]) / 2
        after[:, 0, 0, "abc".index(name)] = value
    return after


class PixelRegressor:
    """A regressor that returns the three pixels."""

    variables, names = VARIABLES, ("a", "b", "c")

    def __call__(self, images: np.ndarray) -> np.ndarray:
        return np.asarray(images)[:, 0, 0, :].astype(np.float64)


REGRESSOR: Any = PixelRegressor()


def test_true_counterfactuals_satisfy_every_axiom() -> None:
    images, values = images_and_values()
    for m in [
        *composition(exact, images, values, VARIABLES),
        *reversibility(exact, images, values, VARIABLES),
    ]:
        assert m.value == pytest.approx(0, abs=1e-6), m.metric
        assert m.per_variable == pytest.approx(dict.fromkeys("abc", 0.0), abs=1e-6)
    (effective,) = effectiveness(exact, images, VARIABLES, REGRESSOR)
    assert effective.value == pytest.approx(0, abs=1e-5)
    others, _ = minimality(exact, images, values, VARIABLES, REGRESSOR, GRAPH)
    assert others.value == pytest.approx(0, abs=1e-5)


def test_composition_accumulates_the_drift_of_null_interventions() -> None:
    images, values = images_and_values()

    def drifting(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        return exact(images, do) + 0.01

    once, often = composition(drifting, images, values, VARIABLES)
    assert (once.metric, often.metric) == ("composition_1", "composition_10")
    assert once.value == pytest.approx(0.01, abs=1e-6)
    assert often.value == pytest.approx(0.1, abs=1e-6)
    # do(c = its own value) resets c: it is 0.01 off, the other two pixels drift
    assert often.per_variable["c"] == pytest.approx((0.1 + 0.1 + 0.01) / 3, abs=1e-6)
    assert [m.metric for m in composition(drifting, images, values, VARIABLES, times=(3,))] == [
        "composition_3"
    ]


def test_reversibility_accumulates_over_cycles() -> None:
    images, values = images_and_values()

    def leaky_cycle(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        after = exact(images, do)
        if "a" in do:
            after[:, 0, 0, 2] += 0.01  # do(a) changes c, twice per cycle
        return after

    once, often = reversibility(leaky_cycle, images, values, VARIABLES)
    assert (once.metric, often.metric) == ("reversibility_1", "reversibility_10")
    assert once.per_variable == pytest.approx({"a": 0.02 / 3, "b": 0, "c": 0}, abs=1e-6)
    assert often.per_variable == pytest.approx({"a": 0.2 / 3, "b": 0, "c": 0}, abs=1e-6)
    assert often.value == pytest.approx(0.2 / 9, abs=1e-6)


def test_reversibility_measures_information_lost_by_an_intervention() -> None:
    images, values = images_and_values()

    def clipped(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        after = exact(images, do)
        if "a" in do:  # raising a clips b at 0.5
            after[:, 0, 0, 1] = np.where(
                do["a"] > images[:, 0, 0, 0],
                np.minimum(after[:, 0, 0, 1], 0.5),
                after[:, 0, 0, 1],
            )
        return after

    (once,) = reversibility(clipped, images, values, VARIABLES, cycles=(1,))
    a, b, _ = values.T
    target = random_interventions(VARIABLES, len(images), seed=0)["a"]
    lost = np.where(target > a, np.maximum(b + (target - a) / 2 - 0.5, 0), np.maximum(b - 0.5, 0))
    assert once.per_variable["a"] == pytest.approx(lost.mean() / 3, abs=1e-6)
    assert lost.mean() > 0.02


def test_effectiveness_is_the_distance_to_the_intended_value() -> None:
    images, _ = images_and_values()

    def halfway(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        return (exact(images, do) + images) / 2

    (result,) = effectiveness(halfway, images, VARIABLES, REGRESSOR)
    draws = random_interventions(VARIABLES, len(images), seed=0)
    expected = {
        name: np.abs(draws[name] - images[:, 0, 0, i]).mean() / 2 for i, name in enumerate("abc")
    }
    assert result.metric == "effectiveness_error"
    assert result.per_variable == pytest.approx(expected, abs=1e-6)
    assert result.value == pytest.approx(
        np.mean(list(expected.values())) / 0.1, abs=1e-5
    )  # in standard deviations
    (nothing,) = effectiveness(lambda x, do: x, images, VARIABLES, REGRESSOR)
    assert nothing.value == pytest.approx(2 * result.value, rel=1e-4)


def test_minimality_of_non_descendants_and_of_pixels() -> None:
    images, values = images_and_values()

    def leaky(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        after = exact(images, do)
        if "a" in do:
            after[:, 0, 0, 2] -= 0.05  # c is no effect of a
        if "b" in do:
            after[:, 0, 0, 0] += 0.02  # a is no effect of b
        return after

    others, picture = minimality(leaky, images, values, VARIABLES, REGRESSOR, GRAPH)
    assert others.metric == "minimality_variables"
    assert others.per_variable == pytest.approx(
        {"a": 0.5, "b": 0.2 / 2, "c": 0}, abs=1e-5
    )  # of a and c, under do(b), one moved
    draws = random_interventions(VARIABLES, len(images), seed=0)
    change = np.abs(draws["a"] - values[:, 0])
    expected = ((change + change / 2 + 0.05).mean() / 3) / (change.mean() / 0.1)
    assert picture.metric == "minimality_picture"
    assert picture.per_variable["a"] == pytest.approx(expected, rel=1e-5)
    # c alone: one of three pixels moves by the intended change
    assert picture.per_variable["c"] == pytest.approx(0.1 / 3, rel=1e-5)
    drifting = minimality(
        lambda x, do: leaky(x, do) + 0.01, images, values, VARIABLES, REGRESSOR, GRAPH
    )
    for before, after in zip((others, picture), drifting, strict=True):
        # changes that do({}) makes too do not count
        assert after.per_variable == pytest.approx(before.per_variable, abs=1e-5)
    alone = minimality(
        exact, images, values[:, :1], VARIABLES[:1], REGRESSOR, CausalGraph.empty("a")
    )
    # there is no other variable
    assert [m.metric for m in alone] == ["minimality_picture"]


# ---- binary and categorical variables ------------------------------------------------------------
CLASSES = (
    Variable("lit", "binary", low=0, high=1, std=0.5),
    Variable("hue", "categorical", categories=("r", "g", "b"), low=0, high=2),
)


def paint(values: np.ndarray) -> np.ndarray:
    """Values (N, 2) to images (N, 3, 2, 2): hue in the left half, lamp in the right half."""
    images = np.zeros((len(values), 3, 2, 2))
    images[np.arange(len(values)), values[:, 1].astype(int), :, 0] = 1
    images[:, :, :, 1] = values[:, 0, None, None]
    return images


def test_classes_are_scored_by_accuracy_and_f1() -> None:
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.integers(0, 2, 300), rng.integers(0, 3, 300)]).astype(float)
    regressor = fit_image_regressor(paint(values), values, CLASSES)

    def query(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        shown = regressor(images)
        if "hue" in do:
            shown[:, 1] = do["hue"]
        if "lit" in do:
            shown[:, 0] = 1  # the lamp cannot be switched off
        return paint(shown)

    accuracy, f1 = effectiveness(query, paint(values), CLASSES, regressor)
    lit = random_interventions(CLASSES, 300, seed=0)["lit"].mean()  # fraction set to 1
    assert (accuracy.metric, f1.metric) == ("effectiveness_accuracy", "effectiveness_f1")
    assert accuracy.per_variable == pytest.approx({"lit": lit, "hue": 1.0})
    assert f1.per_variable == pytest.approx({"lit": 2 * lit / (1 + lit), "hue": 1.0})
    others, _ = minimality(
        query, paint(values), values, CLASSES, regressor, CausalGraph.empty(("lit", "hue"))
    )
    assert others.per_variable == {"lit": 0, "hue": 0}


def test_f1_score_formula() -> None:
    assert f1_score(np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])) == 0.5  # TP 1, FP 1, FN 1
    assert f1_score(np.array([1, 1]), np.array([1, 1])) == 1
    assert f1_score(np.array([0, 0]), np.array([1, 1])) == 0
    assert f1_score(np.array([0, 0]), np.array([0, 0])) == 1


def test_wrong_input_raises() -> None:
    images, values = images_and_values()
    with pytest.raises(DataError, match=r"labels must be \(40, 3\)"):
        composition(exact, images, values[:3], VARIABLES)
    with pytest.raises(UsageError, match="at least once"):
        composition(exact, images, values, VARIABLES, times=(0,))
    with pytest.raises(DataError, match="does not measure 'd'"):
        effectiveness(exact, images, [*VARIABLES, Variable("d")], REGRESSOR)
    with pytest.raises(DataError, match=r"answer to do\(a\)"):
        effectiveness(lambda x, do: x + 5, images, VARIABLES, REGRESSOR)
