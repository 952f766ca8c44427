"""Accuracy of actions between images and of the factors they change (CT-VAE, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.metrics.base import Measurement


def action_accuracy(
    probabilities: Any, actions: Any, names: Sequence[str] = (), *, training_actions: Any = None
) -> list[Measurement]:
    """Return the accuracy of the most probable action, and of always guessing the majority.

    Arguments:
        probabilities: (N, A), or any scores that increase with them; ties count as the first.
        actions: (N,) true actions, whole numbers below A.
        names: of the A actions.
        training_actions: (M,) actions that determine the majority; default: `actions`.

    Returns:
        action_accuracy: mean 1[argmax_a p(a | x, y) = action]; per_variable holds the recall of
            each action that occurs, parameters the confusion matrix (rows: truth).
        majority_accuracy: mean 1[majority = action].
    """
    scores, truth = _check_scores(probabilities, actions)
    names = _names(names, scores.shape[1], "actions")
    majority = _majority(truth, training_actions, scores.shape[1])
    return _results(
        scores.argmax(1), truth, majority, names, "action_accuracy", "majority_accuracy"
    )


def factor_accuracy(
    probabilities: Any,
    actions: Any,
    factor_of: Any,
    names: Sequence[str] = (),
    *,
    training_actions: Any = None,
) -> list[Measurement]:
    """Return the accuracy of the most probable action's factor, and of the most frequent factor.

    Arguments:
        factor_of: (A,) factor of each action, whole numbers from 0.
        names: of the factors. Other arguments as in `action_accuracy`.

    Returns:
        factor_accuracy and factor_majority_accuracy, as in `action_accuracy`. The parameter
        `by_total_probability` is the accuracy of the factor whose actions have the largest total
        probability.
    """
    scores, truth = _check_scores(probabilities, actions)
    factors = _whole_numbers(factor_of, "factor_of")
    if factors.shape != (scores.shape[1],):
        raise DataError(
            f"factor_of must hold one factor for each of the {scores.shape[1]} actions, "
            f"not shape {factors.shape}."
        )
    names = _names(names, int(factors.max()) + 1, "factors")
    totals = np.stack([scores[:, factors == f].sum(1) for f in range(len(names))], axis=1)
    training_factors = None
    if training_actions is not None:
        numbers = _class_numbers(training_actions, scores.shape[1], "training_actions")
        training_factors = factors[numbers]
    majority = _majority(factors[truth], training_factors, len(names))
    results = _results(
        factors[scores.argmax(1)],
        factors[truth],
        majority,
        names,
        "factor_accuracy",
        "factor_majority_accuracy",
    )
    correct = totals.argmax(1) == factors[truth]
    results[0].parameters["by_total_probability"] = float(correct.mean())
    return results


def confusion_matrix(predicted: Any, truth: Any, classes: int) -> np.ndarray:
    """Return counts (classes, classes); `matrix[t, p]` counts samples of class t predicted as p."""
    columns = _class_numbers(predicted, classes, "predicted")
    rows = _class_numbers(truth, classes, "truth")
    if len(rows) != len(columns):
        raise DataError(
            f"there are {len(columns)} predictions for {len(rows)} true classes; "
            "give the same number."
        )
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (rows, columns), 1)
    return matrix


def _results(
    predicted: np.ndarray,
    truth: np.ndarray,
    majority: int,
    names: Sequence[str],
    metric: str,
    majority_metric: str,
) -> list[Measurement]:
    """Return the accuracy of predictions, and of the majority class."""
    matrix = confusion_matrix(predicted, truth, len(names))
    counts = matrix.sum(1)
    recall = {name: float(matrix[i, i] / counts[i]) for i, name in enumerate(names) if counts[i]}
    parameters = {"classes": list(names), "confusion": matrix.tolist()}
    accuracy, guess = float((predicted == truth).mean()), float((truth == majority).mean())
    return [
        Measurement(metric, accuracy, len(truth), recall, None, parameters, True),
        Measurement(
            majority_metric, guess, len(truth), {}, None, {"majority": names[majority]}, None
        ),
    ]


def _majority(truth: np.ndarray, training: Any, classes: int) -> int:
    """Return the most frequent class of `training`, or of `truth` if that is None."""
    if training is not None:
        truth = _class_numbers(training, classes, "training_actions")
    return int(np.bincount(truth, minlength=classes).argmax())


def _check_scores(probabilities: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (N, A) and true actions (N,)."""
    scores = np.asarray(probabilities, dtype=np.float64)
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise DataError(
            "probabilities must be finite and (samples, actions) with at least one of each, "
            f"not of shape {scores.shape}."
        )
    truth = _class_numbers(actions, scores.shape[1], "actions")
    if len(truth) != len(scores):
        raise DataError(
            f"there are probabilities of {len(scores)} samples, but {len(truth)} true actions; "
            "give the same number."
        )
    return scores, truth


def _class_numbers(values: Any, classes: int, name: str) -> np.ndarray:
    """Return class numbers (N,), each below `classes`."""
    array = _whole_numbers(values, name)
    if array.ndim != 1 or not len(array) or array.max() >= classes:
        raise DataError(
            f"{name} must be one class number below {classes} for each sample, not shape "
            f"{array.shape}{_largest(array)}."
        )
    return array


def _largest(array: np.ndarray) -> str:
    return f" with the largest {array.max()}" if array.size else ""


def _whole_numbers(values: Any, name: str) -> np.ndarray:
    """Return an int64 array of whole numbers from 0; an error if values are not."""
    array = np.asarray(values)
    valid = array.dtype.kind in "iufb" and np.isfinite(array).all()
    numbers = array.astype(np.int64) if valid else np.array([-1])
    if numbers.shape != array.shape or (numbers != array).any() or (numbers < 0).any():
        raise DataError(f"{name} must be whole numbers from 0.")
    return numbers


def _names(names: Sequence[str], count: int, name: str) -> tuple[str, ...]:
    if names and len(names) != count:
        raise DataError(f"there are {len(names)} names for {count} {name}; give one each.")
    return tuple(names) or tuple(str(i) for i in range(count))
