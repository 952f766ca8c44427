"""Energy distance between two samples (Székely and Rizzo 2013)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from intervae.errors import DataError
from intervae.metrics.base import Measurement

MAX_POINTS = 2000  # of each sample, as all pairs are compared


def energy_distance(
    first: Any, second: Any, *, max_points: int = MAX_POINTS, seed: int = 0
) -> Measurement:
    """Return 2 E|X - Y| - E|X - X'| - E|Y - Y'| with Euclidean distances.

    It is 0 if and only if the distributions are equal. The means over pairs of different points are
    unbiased, so samples of one distribution score near 0, sometimes slightly below.

    Arguments:
        first, second: (N, d) and (M, d).
        max_points: points of each sample that are compared, a random subset of larger samples.
    """
    samples = [np.asarray(sample, dtype=np.float64) for sample in (first, second)]
    if (
        any(s.ndim != 2 or len(s) < 2 or not np.isfinite(s).all() for s in samples)
        or samples[0].shape[1] != samples[1].shape[1]
    ):
        raise DataError(
            "energy_distance compares finite samples (N, d) and (M, d) of two points or more, "
            f"not {samples[0].shape} and {samples[1].shape}."
        )
    rng = np.random.default_rng(seed)
    x, y = (sample[np.sort(rng.permutation(len(sample))[:max_points])] for sample in samples)
    value = (
        2 * scipy.spatial.distance.cdist(x, y).mean()
        - scipy.spatial.distance.pdist(x).mean()
        - scipy.spatial.distance.pdist(y).mean()
    )
    return Measurement(
        "energy_distance",
        float(value),
        len(x) + len(y),
        parameters={"max_points": max_points, "seed": seed},
        higher_is_better=False,
    )
