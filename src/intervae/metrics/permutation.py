"""The naming of a graph's latents, or of each frame's, under which it comes closest to the true graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment, quadratic_assignment

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.metrics.graphs import DISTANCE, Graph, GraphMetrics, adjacency, compare, states

MOST_EXACT = 8  # variables up to which every permutation is tried: 8! = 40,320
MOST_ORDERS = 50_000  # that are tried of the latents of frames: 4 latents and 3 frames have 24, or 13,824 if each frame has its own


def best_permutation(true: Graph, estimated: Graph) -> GraphMetrics:
    """`graph_metrics` of latents that come in no particular order: of all ways to name them, one with the least SHD.

    Up to 8 variables every permutation is tried ("exact"). Beyond, linear assignments (by degrees, and Frank-Wolfe steps on the quadratic
    problem) are improved by the best swap of two variables for as long as one helps ("assignment and swaps"): an upper bound of the least SHD.
    `parameters["search"]` says which. Names of variables play no role; metric names end in `_permuted`; `permutation[i]` is the estimated
    variable that stands for true variable i.
    """
    truth, found = adjacency(true, "true", undirected=False), adjacency(estimated, "estimated", undirected=True)
    if truth.shape != found.shape:
        raise DataError(f"the true graph has {len(truth)} variables and the estimated one {len(found)}; a permutation needs as many of each.")
    exact = len(truth) <= MOST_EXACT
    order = _try_all(truth, found) if exact else _assign_and_swap(truth, found)
    plain = compare(truth, found[np.ix_(order, order)])
    parameters: dict[str, Any] = {
        **plain.parameters,
        "permutation": [int(i) for i in order],
        "search": "exact" if exact else "assignment and swaps",
        "matching": "best permutation",
    }
    if isinstance(true, CausalGraph) and isinstance(estimated, CausalGraph):
        parameters["matched"] = {true.names[i]: estimated.names[j] for i, j in enumerate(order)}
    parts = {f"{key}_permuted": replace(part, metric=f"{key}_permuted", parameters=parameters) for key, part in plain.parts.items()}
    return replace(plain, metric="shd_permuted", parameters=parameters, parts=parts)


def best_frame_permutation(true: Graph, estimated: Graph, frames: int, *, shared: bool = True) -> GraphMetrics:
    """`graph_metrics` of the latents of several frames, each frame's in no particular order: of all ways to name them, one with the least SHD.

    Variables stand in the order of time, as many in every frame. The true graph may have fewer than the estimated one: the latents to spare
    then have no edges in truth. With `shared` one order serves all frames, as one encoder reads them all; without, each frame has its own.
    Coordinates that move by one law, apart from each other, have the same graph after any rotation, so for them this is up to rotation as well.
    """
    truth, found = adjacency(true, "true", undirected=False), adjacency(estimated, "estimated", undirected=False)
    if frames < 1 or len(truth) % frames or len(found) % frames or len(truth) > len(found):
        raise DataError(f"{len(truth)} true and {len(found)} estimated variables are not those of {frames} frames, with no fewer estimated ones.")
    own, k = len(truth) // frames, len(found) // frames
    ways = math.factorial(k) ** (1 if shared else frames)
    if ways > MOST_ORDERS:
        raise DataError(f"{k} latents of {frames} frames can be named in {ways} ways, more than the {MOST_ORDERS} that are tried.")
    place = (np.arange(frames)[:, None] * k + np.arange(own)).ravel()
    padded = np.zeros_like(found)
    padded[np.ix_(place, place)] = truth
    one = list(itertools.permutations(range(k)))
    orders = np.array([np.concatenate([t * k + np.array(order) for t, order in enumerate(choice)]) for choice in _choices(one, frames, shared)])
    order = orders[_distance(states(padded), states(found), orders).argmin()]
    plain = compare(padded, found[np.ix_(order, order)])
    parameters: dict[str, Any] = {**plain.parameters, "permutation": [int(i) for i in order], "matching": "best permutation of each frame's latents"}
    parts = {f"{key}_permuted": replace(part, metric=f"{key}_permuted", parameters=parameters) for key, part in plain.parts.items()}
    return replace(plain, metric="shd_permuted", parameters=parameters, parts=parts)


def _choices(one: list[tuple[int, ...]], frames: int, shared: bool) -> Iterable[Sequence[tuple[int, ...]]]:
    return ([order] * frames for order in one) if shared else itertools.product(one, repeat=frames)


def _distance(true: np.ndarray, found: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """(P,) SHD, twice over, of states (n, n) with the found ones taken in each of the orders (P, n)."""
    return DISTANCE[true, found[orders[:, :, None], orders[:, None, :]]].sum((1, 2))


def _try_all(true: np.ndarray, found: np.ndarray) -> np.ndarray:
    orders = np.array(list(itertools.permutations(range(len(true)))))  # the identity first, so that it wins ties
    return orders[_distance(states(true), states(found), orders).argmin()]


def _assign_and_swap(true: np.ndarray, found: np.ndarray) -> np.ndarray:
    target, source = states(true), states(found)
    skeleton = np.abs(found) + (found == -1).T  # an undirected edge as both directions
    options = {"maximize": True, "rng": np.random.default_rng(0)}
    frank_wolfe = quadratic_assignment(true.astype(float), np.minimum(skeleton, 1).astype(float), options=options).col_ind
    starts = (np.arange(len(true)), _by_degrees(true, found), frank_wolfe)
    orders = np.array([_swap(target, source, np.array(start)) for start in starts])
    return orders[_distance(target, source, orders).argmin()]


def _by_degrees(true: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Linear assignment by what a variable's edges, and those of its neighbours, look like."""

    def signature(graph: np.ndarray) -> np.ndarray:
        forward, links = (graph == 1).astype(float), (graph != 0) | (graph.T != 0)
        own = np.stack([forward.sum(1), forward.sum(0), links.sum(1)], axis=1)
        return np.hstack([own, links @ own / np.maximum(links.sum(1, keepdims=True), 1)])

    costs = np.abs(signature(true)[:, None] - signature(found)[None]).sum(2)
    return linear_sum_assignment(costs)[1]


def _swap(true: np.ndarray, found: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Swap the two variables that lower the distance of states most, until no swap does."""
    places = np.arange(len(true))
    while True:
        now = found[np.ix_(order, order)]
        # costs[a, b]: of place a, all its pairs, if it had the variable of place b while every other place kept its own
        costs = np.stack([DISTANCE[row[None, :], now].sum(1) for row in true])
        stays = DISTANCE[true, now]  # pair (a, b) as it is; the diagonal is 0
        turned = DISTANCE[true, now.T]  # pair (a, b) after the swap
        to_self = DISTANCE[true.diagonal()[:, None], now.T] + DISTANCE[true, now.diagonal()[None, :]]  # counted in costs[a, b], but not pairs
        moved = costs - to_self
        own = costs[places, places]
        change = moved + moved.T + turned - (own[:, None] + own[None, :] - stays)
        np.fill_diagonal(change, 0)
        a, b = np.unravel_index(change.argmin(), change.shape)
        if change[a, b] >= 0:
            return order
        order[[a, b]] = order[[b, a]]
