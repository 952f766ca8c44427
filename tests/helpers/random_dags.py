"""Random acyclic graphs."""

import numpy as np


def random_dag(rng: np.random.Generator, n: int, density: float) -> np.ndarray:
    """Return the adjacency (n, n), 0 or 1, of a random order and random edges along it."""
    order = rng.permutation(n)
    return np.triu(rng.random((n, n)) < density, 1).astype(int)[np.ix_(order, order)]
