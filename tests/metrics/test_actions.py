"""Accuracy of actions and factors, on predictions small enough to count."""

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
# right, wrong direction, wrong factor, right, right, wrong direction
PROBABILITIES = np.array(
    [
        [0.7, 0.1, 0.1, 0.1],
        [0.2, 0.5, 0.2, 0.1],
        [0.3, 0.25, 0.4, 0.05],
        [0.1, 0.6, 0.2, 0.1],
        [0.0, 0.1, 0.8, 0.1],
        [0.1, 0.2, 0.3, 0.4],
    ]
)


def test_action_accuracy_by_counting() -> None:
    ours, majority = action_accuracy(PROBABILITIES, TRUE, NAMES)
    assert (ours.metric, ours.value, ours.n) == ("action_accuracy", 3 / 6, 6)
    assert ours.per_variable == {
        "x+": pytest.approx(1 / 3),
        "x-": 1.0,
        "y+": 0.5,
    }  # y- does not occur
    assert ours.parameters["confusion"] == [[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert (majority.metric, majority.value, majority.parameters) == (
        "majority_accuracy",
        3 / 6,
        {"majority": "x+"},
    )


def test_factor_accuracy_ignores_the_direction() -> None:
    ours, majority = factor_accuracy(PROBABILITIES, TRUE, FACTOR_OF, ("x", "y"))
    assert (ours.metric, ours.value) == ("factor_accuracy", 5 / 6)
    assert ours.per_variable == {"x": 3 / 4, "y": 1.0}
    assert ours.parameters["confusion"] == [[3, 1], [0, 2]]
    assert ours.parameters["by_total_probability"] == 1.0  # 0.55 for x in the third row
    assert (majority.metric, majority.value) == ("factor_majority_accuracy", 4 / 6)


def test_training_actions_determine_the_majority() -> None:
    training = [2, 2, 2, 0, 1]
    assert action_accuracy(PROBABILITIES, TRUE, NAMES, training_actions=training)[1].value == 2 / 6
    assert action_accuracy(PROBABILITIES, TRUE, NAMES, training_actions=training)[1].parameters == {
        "majority": "y+"
    }
    assert (
        factor_accuracy(PROBABILITIES, TRUE, FACTOR_OF, training_actions=training)[1].value == 2 / 6
    )


def test_confusion_matrix_equals_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    predicted, truth = rng.integers(0, 5, (2, 200))
    np.testing.assert_array_equal(
        confusion_matrix(predicted, truth, 5),
        sklearn.metrics.confusion_matrix(truth, predicted, labels=range(5)),
    )


def test_accuracy_of_random_and_perfect_predictions() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 8, 8000)
    factor_of = np.arange(8) // 2
    guesses = rng.uniform(size=(8000, 8))
    assert action_accuracy(guesses, truth)[0].value == pytest.approx(1 / 8, abs=0.02)
    assert factor_accuracy(guesses, truth, factor_of)[0].value == pytest.approx(1 / 4, abs=0.02)
    perfect = np.eye(8)[truth]
    assert (
        action_accuracy(perfect, truth)[0].value
        == factor_accuracy(perfect, truth, factor_of)[0].value
        == 1
    )
    opposite = np.eye(8)[truth ^ 1]  # the right factor, the wrong direction
    assert (
        action_accuracy(opposite, truth)[0].value,
        factor_accuracy(opposite, truth, factor_of)[0].value,
    ) == (0, 1)


@pytest.mark.parametrize(
    ("probabilities", "actions", "words"),
    [
        (PROBABILITIES[0], TRUE, r"\(samples, actions\)"),
        (np.full((6, 4), np.nan), TRUE, "finite"),
        (PROBABILITIES, TRUE[:3], "6 samples, but 3"),
        (PROBABILITIES, TRUE + 2, "below 4.*largest 4"),
        (PROBABILITIES, TRUE - 1, "whole numbers from 0"),
        (PROBABILITIES, TRUE + 0.5, "whole numbers from 0"),
        (np.zeros((0, 4)), [], "at least one of each"),
    ],
)
def test_invalid_predictions_raise(probabilities: Any, actions: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        action_accuracy(probabilities, actions)


def test_invalid_names_and_factors_raise() -> None:
    with pytest.raises(DataError, match="there are 3 names for 4 actions"):
        action_accuracy(PROBABILITIES, TRUE, NAMES[:3])
    with pytest.raises(DataError, match="one factor for each of the 4 actions"):
        factor_accuracy(PROBABILITIES, TRUE, (0, 1))
    with pytest.raises(DataError, match="predictions for"):
        confusion_matrix([0, 1], [0], 2)
