"""Accuracy over actions and factors, on answers small enough to count by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics

from intervae.errors import DataError
from intervae.metrics.actions import action_accuracy, confusion_matrix, factor_accuracy

NAMES = ("x+", "x-", "y+", "y-")
FACTOR_OF = (0, 0, 1, 1)
TRUE = np.array([0, 0, 0, 1, 2, 2])
# what the model thinks: right, wrong way, wrong factor, right, right, wrong way
PROBABILITIES = np.array(
    [[0.7, 0.1, 0.1, 0.1], [0.2, 0.5, 0.2, 0.1], [0.3, 0.25, 0.4, 0.05], [0.1, 0.6, 0.2, 0.1], [0.0, 0.1, 0.8, 0.1], [0.1, 0.2, 0.3, 0.4]]
)


def test_actions_are_counted() -> None:
    ours, majority = action_accuracy(PROBABILITIES, TRUE, NAMES)
    assert (ours.metric, ours.value, ours.n) == ("action_accuracy", 3 / 6, 6)
    assert ours.per_variable == {"x+": pytest.approx(1 / 3), "x-": 1.0, "y+": 0.5}  # y- never happened
    assert ours.parameters["confusion"] == [[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert (majority.metric, majority.value, majority.parameters) == ("majority_accuracy", 3 / 6, {"majority": "x+"})


def test_factors_are_counted_whichever_way_they_went() -> None:
    ours, majority = factor_accuracy(PROBABILITIES, TRUE, FACTOR_OF, ("x", "y"))
    assert (ours.metric, ours.value) == ("factor_accuracy", 5 / 6)
    assert ours.per_variable == {"x": 3 / 4, "y": 1.0}
    assert ours.parameters["confusion"] == [[3, 1], [0, 2]]
    assert ours.parameters["by_total_probability"] == 1.0  # 0.55 for the two ways of x in the third row
    assert (majority.metric, majority.value) == ("factor_majority_accuracy", 4 / 6)


def test_the_majority_is_that_of_the_training_split_where_it_is_given() -> None:
    seen = [2, 2, 2, 0, 1]
    assert action_accuracy(PROBABILITIES, TRUE, NAMES, seen=seen)[1].value == 2 / 6
    assert action_accuracy(PROBABILITIES, TRUE, NAMES, seen=seen)[1].parameters == {"majority": "y+"}
    assert factor_accuracy(PROBABILITIES, TRUE, FACTOR_OF, seen=seen)[1].value == 2 / 6


def test_a_confusion_matrix_is_everybodys() -> None:
    rng = np.random.default_rng(0)
    predicted, truth = rng.integers(0, 5, (2, 200))
    np.testing.assert_array_equal(confusion_matrix(predicted, truth, 5), sklearn.metrics.confusion_matrix(truth, predicted, labels=range(5)))


def test_random_answers_score_one_in_as_many_and_perfect_ones_all() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 8, 8000)
    factor_of = np.arange(8) // 2
    guesses = rng.uniform(size=(8000, 8))
    assert action_accuracy(guesses, truth)[0].value == pytest.approx(1 / 8, abs=0.02)
    assert factor_accuracy(guesses, truth, factor_of)[0].value == pytest.approx(1 / 4, abs=0.02)
    perfect = np.eye(8)[truth]
    assert action_accuracy(perfect, truth)[0].value == factor_accuracy(perfect, truth, factor_of)[0].value == 1
    turned = np.eye(8)[truth ^ 1]  # always the right factor, always the wrong way
    assert (action_accuracy(turned, truth)[0].value, factor_accuracy(turned, truth, factor_of)[0].value) == (0, 1)


@pytest.mark.parametrize(
    ("probabilities", "actions", "words"),
    [
        (PROBABILITIES[0], TRUE, r"\(samples, actions\)"),
        (np.full((6, 4), np.nan), TRUE, "finite"),
        (PROBABILITIES, TRUE[:3], "6 samples, but 3"),
        (PROBABILITIES, TRUE + 2, "below 4.*largest 4"),
        (PROBABILITIES, TRUE - 1, "whole numbers from 0"),
        (PROBABILITIES, TRUE + 0.5, "whole numbers from 0"),
        (np.zeros((0, 4)), [], "one of each at least"),
    ],
)
def test_answers_that_do_not_fit_are_refused(probabilities: Any, actions: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        action_accuracy(probabilities, actions)


def test_names_and_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="3 names were given for 4 actions"):
        action_accuracy(PROBABILITIES, TRUE, NAMES[:3])
    with pytest.raises(DataError, match="one factor for each of the 4 actions"):
        factor_accuracy(PROBABILITIES, TRUE, (0, 1))
    with pytest.raises(DataError, match="predictions for"):
        confusion_matrix([0, 1], [0], 2)
