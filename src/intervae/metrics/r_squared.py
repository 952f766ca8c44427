"""R^2 of a model's variables against the labels, in the labels' units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intervae.errors import DataError
from intervae.metrics.base import Measurement


def r2(measured: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Measurement:
    """Return R^2_i = 1 - sum (measured_i - label_i)^2 / sum (label_i - mean)^2 of each variable.

    The headline is the minimum. No line is fitted: a wrong offset or slope lowers R^2 below the
    squared correlation.

    Arguments:
        measured: (N, n) values that the model measures on the images, in the labels' units.
        labels: (N, n) true values.
    """
    measured, labels = np.asarray(measured, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if measured.shape != labels.shape or labels.ndim != 2 or labels.shape[1] != len(names):
        raise DataError(
            f"measured values {measured.shape} and labels {labels.shape} must both be "
            f"(samples, {len(names)})."
        )
    for kind, values in (("measured value", measured), ("label", labels)):
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise DataError(
                f"the {kind} of {names[column]!r} for sample {row} is {values[row, column]}, "
                "so R^2 is not defined."
            )
    total = ((labels - labels.mean(0)) ** 2).sum(0)
    if (total == 0).any():
        raise DataError(
            f"variable {names[int(np.argmin(total))]!r} is constant in these samples, "
            "so R^2 is not defined."
        )
    scores = 1 - ((measured - labels) ** 2).sum(0) / total
    return Measurement(
        "r2_min",
        float(scores.min()),
        len(labels),
        dict(zip(names, scores.tolist(), strict=True)),
        higher_is_better=True,
    )
