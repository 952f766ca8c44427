"""Energy distance between two samples (Székely and Rizzo 2013): 0 where, and only where, they come from the same distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist, pdist

from intervae.errors import DataError
from intervae.metrics.base import Measurement

MOST = 2000  # points of each sample, as every pair is looked at


def energy_distance(ones: Any, others: Any, *, most: int = MOST, seed: int = 0) -> Measurement:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| with Euclidean distances, in the unit of the samples.

    The means over pairs of different points are unbiased, so samples of one distribution score near 0, at times slightly below.

    Arguments:
        ones, others: (N, d) and (M, d).
        most: points of each that are compared, drawn at random where there are more.
    """
    both = [np.asarray(sample, dtype=np.float64) for sample in (ones, others)]
    if any(sample.ndim != 2 or len(sample) < 2 or not np.isfinite(sample).all() for sample in both) or both[0].shape[1] != both[1].shape[1]:
        raise DataError(f"energy_distance compares finite samples (N, d) and (M, d) of two points or more, not {both[0].shape} and {both[1].shape}.")
    rng = np.random.default_rng(seed)
    x, y = (sample[np.sort(rng.permutation(len(sample))[:most])] for sample in both)
    value = 2 * cdist(x, y).mean() - pdist(x).mean() - pdist(y).mean()
    return Measurement("energy_distance", float(value), len(x) + len(y), parameters={"most": most, "seed": seed}, higher_is_better=False)
