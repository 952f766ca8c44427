"""Which action turned one picture into another: accuracy over actions and over the factors they change, beside the majority's (CT-VAE, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.metrics.base import Measurement


def action_accuracy(probabilities: Any, actions: Any, names: Sequence[str] = (), *, seen: Any = None) -> list[Measurement]:
    """Accuracy of the most probable action, and of always guessing the most frequent one.

    Arguments:
        probabilities: (N, A) of each action, or any scores that grow with them; of equal ones the first counts.
        actions: (N,) the true ones, whole numbers below A.
        names: of the A actions.
        seen: (M,) actions of the training split, which decide what the majority is; without it `actions` do, to the majority's advantage.

    Returns:
        action_accuracy: mean 1[argmax_a p(a | x, y) = action]; per_variable holds it for each action that occurs (its recall); the
            parameters hold the confusion matrix, rows the truth, columns the answer.
        majority_accuracy: mean 1[majority = action].
    """
    scores, truth = _checked(probabilities, actions)
    names = _names(names, scores.shape[1], "actions")
    majority = _majority(truth, seen, scores.shape[1])
    return _results(scores.argmax(1), truth, majority, names, "action_accuracy", "majority_accuracy")


def factor_accuracy(probabilities: Any, actions: Any, factor_of: Any, names: Sequence[str] = (), *, seen: Any = None) -> list[Measurement]:
    """Accuracy of the factor that the most probable action changes, whichever way, and of always guessing the most frequent factor.

    Arguments:
        factor_of: (A,) the factor of each action, whole numbers from 0.
        names: of the factors. Other arguments as in `action_accuracy`.

    Returns:
        factor_accuracy and factor_majority_accuracy, as in `action_accuracy`. The parameters also hold `by_total_probability`, the accuracy
        of the factor whose actions have the highest probability together.
    """
    scores, truth = _checked(probabilities, actions)
    factors = _whole(factor_of, "factor_of")
    if factors.shape != (scores.shape[1],):
        raise DataError(f"factor_of must hold one factor for each of the {scores.shape[1]} actions, not shape {factors.shape}.")
    names = _names(names, int(factors.max()) + 1, "factors")
    totals = np.stack([scores[:, factors == f].sum(1) for f in range(len(names))], axis=1)
    majority = _majority(factors[truth], None if seen is None else factors[_below(seen, scores.shape[1], "seen")], len(names))
    found = _results(factors[scores.argmax(1)], factors[truth], majority, names, "factor_accuracy", "factor_majority_accuracy")
    found[0].parameters["by_total_probability"] = float((totals.argmax(1) == factors[truth]).mean())
    return found


def confusion_matrix(predicted: Any, truth: Any, classes: int) -> np.ndarray:
    """(classes, classes) counts: `matrix[t, p]` of the samples that are t and were taken for p."""
    ours, theirs = _below(predicted, classes, "predicted"), _below(truth, classes, "truth")
    if len(ours) != len(theirs):
        raise DataError(f"there are {len(ours)} predictions for {len(theirs)} true classes; give as many.")
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (theirs, ours), 1)
    return matrix


def _results(predicted: np.ndarray, truth: np.ndarray, majority: int, names: Sequence[str], ours: str, theirs: str) -> list[Measurement]:
    matrix = confusion_matrix(predicted, truth, len(names))
    counts = matrix.sum(1)
    each = {name: float(matrix[i, i] / counts[i]) for i, name in enumerate(names) if counts[i]}
    parameters = {"classes": list(names), "confusion": matrix.tolist()}
    guess = float((truth == majority).mean())
    return [
        Measurement(ours, float((predicted == truth).mean()), len(truth), each, None, parameters, True),
        Measurement(theirs, guess, len(truth), {}, None, {"majority": names[majority]}, None),
    ]


def _majority(truth: np.ndarray, seen: Any, classes: int) -> int:
    return int(np.bincount(truth if seen is None else _below(seen, classes, "seen"), minlength=classes).argmax())


def _checked(probabilities: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = np.asarray(probabilities, dtype=np.float64)
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise DataError(f"probabilities must be finite and (samples, actions) with one of each at least, not of shape {scores.shape}.")
    truth = _below(actions, scores.shape[1], "actions")
    if len(truth) != len(scores):
        raise DataError(f"there are probabilities of {len(scores)} samples, but {len(truth)} true actions; give as many.")
    return scores, truth


def _below(values: Any, classes: int, what: str) -> np.ndarray:
    """(N,) whole numbers, each a known class."""
    array = _whole(values, what)
    if array.ndim != 1 or not len(array) or array.max() >= classes:
        raise DataError(f"{what} must be one class number below {classes} for each sample, not shape {array.shape}{_largest(array)}.")
    return array


def _largest(array: np.ndarray) -> str:
    return f" with the largest {array.max()}" if array.size else ""


def _whole(values: Any, what: str) -> np.ndarray:
    array = np.asarray(values)
    whole = array.astype(np.int64) if array.dtype.kind in "iufb" and np.isfinite(array).all() else np.array([-1])
    if whole.shape != array.shape or (whole != array).any() or (whole < 0).any():
        raise DataError(f"{what} must be whole numbers from 0.")
    return whole


def _names(names: Sequence[str], count: int, what: str) -> tuple[str, ...]:
    if names and len(names) != count:
        raise DataError(f"{len(names)} names were given for {count} {what}; give one each.")
    return tuple(names) or tuple(str(i) for i in range(count))
