"""The permutation of a graph's latents with the least SHD to the true graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.metrics.graphs import (
    DISTANCE,
    Graph,
    GraphMetrics,
    adjacency,
    compare,
    pair_states,
)

MAX_EXACT_VARIABLES = 8  # variables up to which all permutations are tried: 8! = 40,320
MAX_PERMUTATIONS = 50_000  # of frames' latents; 4 latents and 3 frames have at most 13,824


def best_permutation(true: Graph, estimated: Graph) -> GraphMetrics:
    """Return `graph_metrics` under the permutation of the estimated variables with the least SHD.

    Variables are matched regardless of their names. Up to 8 variables all permutations are tried
    ("exact"). Beyond, linear assignments (by degrees, and by Frank-Wolfe steps on the quadratic
    problem) are improved by swaps of two variables while one helps ("assignment and swaps"), which
    gives an upper bound of the least SHD. `parameters["search"]` holds the method. Metric names end
    in `_permuted`; `permutation[i]` is the estimated variable of true variable i.
    """
    truth = adjacency(true, "true", undirected=False)
    edges = adjacency(estimated, "estimated", undirected=True)
    if truth.shape != edges.shape:
        raise DataError(
            f"the true graph has {len(truth)} variables and the estimated one {len(edges)}; "
            "a permutation needs as many of each."
        )
    exact = len(truth) <= MAX_EXACT_VARIABLES
    order = _try_all(truth, edges) if exact else _assign_and_swap(truth, edges)
    plain = compare(truth, edges[np.ix_(order, order)])
    parameters: dict[str, Any] = {
        **plain.parameters,
        "permutation": [int(i) for i in order],
        "search": "exact" if exact else "assignment and swaps",
        "matching": "best permutation",
    }
    if isinstance(true, CausalGraph) and isinstance(estimated, CausalGraph):
        parameters["matched"] = {true.names[i]: estimated.names[j] for i, j in enumerate(order)}
    return _permuted(plain, parameters)


def best_frame_permutation(
    true: Graph, estimated: Graph, frames: int, *, shared: bool = True
) -> GraphMetrics:
    """Return `graph_metrics` under the permutation of each frame's latents with the least SHD.

    Variables are in the order of time, equally many in every frame. The estimated graph may have
    more than the true one; the surplus latents have no true edges.

    Arguments:
        shared: whether all frames share one permutation, as with a common encoder.
    """
    truth = adjacency(true, "true", undirected=False)
    edges = adjacency(estimated, "estimated", undirected=False)
    if frames < 1 or len(truth) % frames or len(edges) % frames or len(truth) > len(edges):
        raise DataError(
            f"{len(truth)} true and {len(edges)} estimated variables do not fit {frames} frames; "
            "both must be multiples, with no fewer estimated than true variables."
        )
    true_per_frame, per_frame = len(truth) // frames, len(edges) // frames
    count = math.factorial(per_frame) ** (1 if shared else frames)
    if count > MAX_PERMUTATIONS:
        raise DataError(
            f"{per_frame} latents of {frames} frames have {count} permutations, "
            f"more than the {MAX_PERMUTATIONS} that are tried."
        )
    place = (np.arange(frames)[:, None] * per_frame + np.arange(true_per_frame)).ravel()
    padded = np.zeros_like(edges)
    padded[np.ix_(place, place)] = truth
    orders = np.array(
        [
            np.concatenate([t * per_frame + np.array(order) for t, order in enumerate(choice)])
            for choice in _frame_orders(per_frame, frames, shared)
        ]
    )
    order = orders[_doubled_shd(pair_states(padded), pair_states(edges), orders).argmin()]
    plain = compare(padded, edges[np.ix_(order, order)])
    parameters: dict[str, Any] = {
        **plain.parameters,
        "permutation": [int(i) for i in order],
        "matching": "best permutation of each frame's latents",
    }
    return _permuted(plain, parameters)


def _permuted(plain: GraphMetrics, parameters: dict[str, Any]) -> GraphMetrics:
    rates = {
        f"{key}_permuted": replace(rate, metric=f"{key}_permuted", parameters=parameters)
        for key, rate in plain.components.items()
    }
    return replace(plain, metric="shd_permuted", parameters=parameters, components=rates)


def _frame_orders(per_frame: int, frames: int, shared: bool) -> Iterable[Sequence[tuple[int, ...]]]:
    orders = list(itertools.permutations(range(per_frame)))
    if shared:
        return ([order] * frames for order in orders)
    return itertools.product(orders, repeat=frames)


def _doubled_shd(true: np.ndarray, estimated: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Return twice the SHD (P,) of states (n, n), the estimated ones in each of orders (P, n)."""
    return DISTANCE[true, estimated[orders[:, :, None], orders[:, None, :]]].sum((1, 2))


def _try_all(true: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    # the identity comes first and wins ties
    orders = np.array(list(itertools.permutations(range(len(true)))))
    return orders[_doubled_shd(pair_states(true), pair_states(estimated), orders).argmin()]


def _assign_and_swap(true: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    target, source = pair_states(true), pair_states(estimated)
    skeleton = np.abs(estimated) + (estimated == -1).T  # an undirected edge as both directions
    options = {"maximize": True, "rng": np.random.default_rng(0)}
    frank_wolfe = scipy.optimize.quadratic_assignment(
        true.astype(float), np.minimum(skeleton, 1).astype(float), options=options
    ).col_ind
    starts = (np.arange(len(true)), _by_degrees(true, estimated), frank_wolfe)
    orders = np.array([_swap(target, source, np.array(start)) for start in starts])
    return orders[_doubled_shd(target, source, orders).argmin()]


def _by_degrees(true: np.ndarray, estimated: np.ndarray) -> np.ndarray:
    """Assign variables by their degrees and those of their neighbours."""

    def signature(graph: np.ndarray) -> np.ndarray:
        forward, links = (graph == 1).astype(float), (graph != 0) | (graph.T != 0)
        own = np.stack([forward.sum(1), forward.sum(0), links.sum(1)], axis=1)
        return np.hstack([own, links @ own / np.maximum(links.sum(1, keepdims=True), 1)])

    costs = np.abs(signature(true)[:, None] - signature(estimated)[None]).sum(2)
    return scipy.optimize.linear_sum_assignment(costs)[1]


def _swap(true: np.ndarray, estimated: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Repeat the swap of two variables that lowers the distance of states most."""
    places = np.arange(len(true))
    while True:
        now = estimated[np.ix_(order, order)]
        # costs[a, b]: distance of all pairs of place a, if it alone had the variable of place b
        costs = np.stack([DISTANCE[row[None, :], now].sum(1) for row in true])
        unswapped = DISTANCE[true, now]  # pair (a, b) before the swap; the diagonal is 0
        swapped = DISTANCE[true, now.T]  # pair (a, b) after the swap
        # entries of costs[a, b] that are no pairs
        to_self = (
            DISTANCE[true.diagonal()[:, None], now.T] + DISTANCE[true, now.diagonal()[None, :]]
        )
        moved = costs - to_self
        own = costs[places, places]
        change = moved + moved.T + swapped - (own[:, None] + own[None, :] - unswapped)
        np.fill_diagonal(change, 0)
        a, b = np.unravel_index(change.argmin(), change.shape)
        if change[a, b] >= 0:
            return order
        order[[a, b]] = order[[b, a]]
