"""Diversity of a generator's samples: distances between them, and their fractions per mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import as_finite_array


def diversity(samples: Any, data: Any) -> Measurement:
    """Return the mean distance between two samples over that between two rows of the data.

    1 means samples as diverse as the data, 0 a generator with a single output. Noise raises it, and
    a missing mode may not show; see `mode_shares`.

    Arguments:
        samples: (N, ...) output of the generator; distances are Euclidean over a row's numbers.
        data: (M, ...) of the same shape, in the same units.
    """
    generated, real = _as_rows(samples, "samples", 2), _as_rows(data, "data", 2)
    _check_equal_width(generated, real, "data")
    spread = _mean_distance(real)
    if spread == 0:
        raise DataError("all rows of the data are equal; pass data that vary.")
    value = _mean_distance(generated) / spread
    return Measurement("diversity", value, len(generated), parameters={"data": len(real)})


def mode_shares(samples: Any, modes: Any, names: Sequence[str] | None = None) -> Measurement:
    """Return the fraction of samples nearest to each mode; the headline is the smallest.

    Arguments:
        samples: (N, ...) output of the generator.
        modes: (k, ...) a typical row of each mode.
        names: of the modes; by default mode0, mode1, ...
    """
    generated, typical = _as_rows(samples, "samples", 1), _as_rows(modes, "modes", 1)
    _check_equal_width(generated, typical, "modes")
    if names is None:
        names = [f"mode{i}" for i in range(len(typical))]
    labels = [str(name) for name in names]
    if len(labels) != len(typical) or len(set(labels)) != len(labels):
        raise UsageError(
            f"names must be {len(typical)} different ones, one for each mode, not {labels}."
        )
    nearest = _squared_distances(generated, typical).argmin(1)
    shares = np.bincount(nearest, minlength=len(typical)) / len(generated)
    return Measurement(
        "mode_shares",
        float(shares.min()),
        len(generated),
        dict(zip(labels, shares.tolist(), strict=True)),
    )


def _as_rows(values: Any, name: str, fewest: int) -> np.ndarray:
    array = as_finite_array(values, name)
    if array.ndim < 2 or len(array) < fewest or 0 in array.shape:
        raise DataError(
            f"{name} have shape {array.shape}; give {fewest} row{'s' * (fewest > 1)} or more, "
            "each with one number or more."
        )
    return array.reshape(len(array), -1)


def _check_equal_width(samples: np.ndarray, rows: np.ndarray, name: str) -> None:
    if samples.shape[1] != rows.shape[1]:
        raise DataError(
            f"samples have {samples.shape[1]} numbers each and {name} {rows.shape[1]}; "
            "they must have equally many."
        )


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return squared distances (N, M) between rows (N, d) and (M, d)."""
    centre = b.mean(0)  # centred, which reduces rounding
    a, b = a - centre, b - centre
    return np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0.0)


def _mean_distance(rows: np.ndarray) -> float:
    """Return the mean distance over all pairs of different rows."""
    if (rows == rows[0]).all():
        return 0.0
    distances = np.sqrt(_squared_distances(rows, rows))
    np.fill_diagonal(distances, 0.0)
    return float(distances.sum() / (len(rows) * (len(rows) - 1)))
