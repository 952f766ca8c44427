"""Equal-width bins and the mutual information of binned values."""

from __future__ import annotations

import numpy as np


def equal_width_bins(values: np.ndarray, bins: int) -> np.ndarray:
    """Return bin numbers (N,) from 0 over the range of `values`; a constant has one bin."""
    try:
        edges = np.histogram(values, bins)[1]
    except ValueError:  # the values differ only by rounding
        return np.zeros(len(values), dtype=np.int64)
    return np.digitize(values, edges[:-1]) - 1


def mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """Return the plug-in estimate in nats for class numbers (N,), biased up by cells / 2N."""
    width = int(b.max()) + 1
    counts = np.bincount(a * width + b, minlength=(int(a.max()) + 1) * width)
    counts = counts.reshape(-1, width).astype(np.float64)
    # products of integers, so that a constant gives exactly 0
    expected = counts.sum(1, keepdims=True) * counts.sum(0)
    filled = counts > 0
    terms = counts[filled] * np.log(counts[filled] * len(a) / expected[filled])
    return max(0.0, float(terms.sum() / len(a)))
