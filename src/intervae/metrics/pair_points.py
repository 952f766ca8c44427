"""Points of the beta-VAE score and the classifier of its first use (Higgins et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from intervae.metrics.factor_sampling import FactorSampler

ROWS_AT_ONCE = 2**17  # samples in memory at a time, of at most MANY_CODES codes
MANY_CODES = 64

Difference = Callable[[np.ndarray, np.ndarray], np.ndarray]  # codes of both samples, elementwise


class PairPoints(NamedTuple):
    """Points of the beta-VAE score."""

    distances: np.ndarray  # (P, d), means over the pairs of a point
    shared: np.ndarray  # (P,) the factor that its pairs share


def absolute_difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.abs(first - second)


def pair_points(
    sampler: FactorSampler,
    batch: int,
    count: int,
    rng: np.random.Generator,
    difference: Difference = absolute_difference,
) -> PairPoints:
    """Draw `count` points of `batch` pairs, each point for a factor drawn uniformly."""
    index = rng.integers(sampler.samples.factors.shape[1], size=count)
    distances = []
    for chunk in chunks_of_points(index, batch, len(sampler.samples.code_names)):
        first, second = sampler.pairs(chunk, batch, rng)
        distances.append(difference(first, second).mean(1))
    return PairPoints(np.concatenate(distances), index)


def chunks_of_points(index: np.ndarray, batch: int, codes: int) -> Iterator[np.ndarray]:
    """Split points so that ROWS_AT_ONCE samples are in memory, fewer for more than MANY_CODES."""
    size = max(1, ROWS_AT_ONCE * MANY_CODES // max(codes, MANY_CODES) // batch)
    return (index[i : i + size] for i in range(0, len(index), size))


class AdagradClassifier:
    """Linear softmax classifier, trained by a fixed number of Adagrad steps from zero weights.

    Without standardised inputs and with few steps it depends on the scale of the inputs.

    Arguments:
        steps: gradient steps, each on `batch` points drawn with replacement.
    """

    def __init__(
        self, steps: int = 10_000, *, learning_rate: float = 1e-2, batch: int = 10, seed: int = 0
    ) -> None:
        self.steps, self.learning_rate, self.batch, self.seed = steps, learning_rate, batch, seed
        self.weights = np.zeros((0, 0))  # (d + 1, classes), the biases last

    def fit(self, inputs: np.ndarray, labels: np.ndarray) -> AdagradClassifier:
        """Train on inputs (N, d) and labels (N,) counted from 0."""
        inputs, targets = _with_one(inputs), np.eye(int(labels.max()) + 1)[labels]
        rng = np.random.default_rng(self.seed)
        weights = np.zeros((inputs.shape[1], targets.shape[1]))
        squares = np.full_like(weights, np.finfo(np.float64).tiny)
        for rows in rng.integers(len(inputs), size=(self.steps, self.batch)):
            x = inputs[rows]
            gradient = x.T @ (_softmax(x @ weights) - targets[rows]) / self.batch
            squares += gradient**2
            weights -= self.learning_rate * gradient / np.sqrt(squares)
        self.weights = weights
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the most probable label (N,) of each row of inputs (N, d)."""
        return (_with_one(inputs) @ self.weights).argmax(1)


def _with_one(inputs: np.ndarray) -> np.ndarray:
    return np.hstack([inputs, np.ones((len(inputs), 1))])


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)
