"""How well a model's variables are the labels: R^2 in the labels' own units, with nothing refitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intervae.errors import DataError
from intervae.metrics.base import Measurement


def r2(measured: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> Measurement:
    """R^2_i = 1 - sum (measured_i - label_i)^2 / sum (label_i - mean)^2 for each variable; the headline is the worst one.

    Arguments:
        measured: (N, n) values that the model reads off the images, in the labels' units.
        labels: (N, n) the truth.

    No line is fitted between the two: a latent with the wrong offset or slope scores below its squared correlation, because do() in
    the label's units would then set the wrong value.
    """
    measured, labels = np.asarray(measured, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if measured.shape != labels.shape or labels.ndim != 2 or labels.shape[1] != len(names):
        raise DataError(f"measured values {measured.shape} and labels {labels.shape} must both be (samples, {len(names)}).")
    for what, values in (("measured value", measured), ("label", labels)):
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise DataError(f"the {what} of {names[column]!r} for sample {row} is {values[row, column]}, so R^2 is not defined.")
    total = ((labels - labels.mean(0)) ** 2).sum(0)
    if (total == 0).any():
        raise DataError(f"variable {names[int(np.argmin(total))]!r} is constant in these samples, so R^2 is not defined.")
    scores = 1 - ((measured - labels) ** 2).sum(0) / total
    return Measurement("r2_min", float(scores.min()), len(labels), dict(zip(names, scores.tolist(), strict=True)), higher_is_better=True)
