"""Whether a generator collapsed: how far apart its samples are, and how they share out over modes that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.samples import numbers


def diversity(samples: Any, data: Any) -> Measurement:
    """Mean distance between two samples over the mean distance between two rows of the data.

    Arguments:
        samples: (N, ...) what the generator made; distances are Euclidean over all its numbers, such as pixels.
        data: (M, ...) of the same shape, in the same units.

    1 where samples differ as much as data do, 0 for a generator that always makes the same. It does not tell what is made: noise raises it,
    and one of many modes can be missing; see `mode_shares`.
    """
    made, real = _rows(samples, "samples", 2), _rows(data, "data", 2)
    _check_alike(made, real, "data")
    spread = _mean_distance(real)
    if spread == 0:
        raise DataError("the data are all alike, so nothing can be as diverse as they are; pass data that vary.")
    return Measurement("diversity", _mean_distance(made) / spread, len(made), parameters={"data": len(real)})


def mode_shares(samples: Any, modes: Any, names: Sequence[str] | None = None) -> Measurement:
    """The share of the samples that lie nearest to each of the known modes; the headline is the smallest share.

    Arguments:
        samples: (N, ...) what the generator made.
        modes: (k, ...) one typical row of each mode.
        names: of the modes; mode0, mode1, ... without.
    """
    made, typical = _rows(samples, "samples", 1), _rows(modes, "modes", 1)
    _check_alike(made, typical, "modes")
    labels = [f"mode{i}" for i in range(len(typical))] if names is None else [str(name) for name in names]
    if len(labels) != len(typical) or len(set(labels)) != len(labels):
        raise UsageError(f"names must be {len(typical)} different ones, one for each mode, not {labels}.")
    nearest = _squared_distances(made, typical).argmin(1)
    shares = np.bincount(nearest, minlength=len(typical)) / len(made)
    return Measurement("mode_shares", float(shares.min()), len(made), dict(zip(labels, shares.tolist(), strict=True)))


def _rows(values: Any, name: str, fewest: int) -> np.ndarray:
    array = numbers(values, name)
    if array.ndim < 2 or len(array) < fewest or 0 in array.shape:
        raise DataError(f"{name} have shape {array.shape}; give {fewest} row{'s' * (fewest > 1)} or more, each with one number or more.")
    return array.reshape(len(array), -1)


def _check_alike(samples: np.ndarray, others: np.ndarray, what: str) -> None:
    if samples.shape[1] != others.shape[1]:
        raise DataError(f"samples have {samples.shape[1]} numbers each and {what} {others.shape[1]}; they must be alike.")


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(N, d) and (M, d) to (N, M)."""
    centre = b.mean(0)  # smaller numbers leave less to rounding
    a, b = a - centre, b - centre
    return np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0.0)


def _mean_distance(rows: np.ndarray) -> float:
    """Over all pairs of different rows."""
    if (rows == rows[0]).all():
        return 0.0
    distances = np.sqrt(_squared_distances(rows, rows))
    np.fill_diagonal(distances, 0.0)
    return float(distances.sum() / (len(rows) * (len(rows) - 1)))
