"""Where the nodes and edges of a graph go: layers from cause to effect, few crossings, straight long edges (Sugiyama et al. 1981).

An edge over several layers is led through a point in each layer between, and these points take part in the ordering like nodes, so that
no edge runs through a node that it does not belong to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array
from sklearn.isotonic import isotonic_regression

SWEEPS = 12


@dataclass(frozen=True)
class Layout:
    """Arguments:
    x: (n,) middles of the nodes, the leftmost border at 0.
    layer: (n,) from 0 at the top.
    loose: the first layer of nodes without edges, which come last.
    lanes: for each edge (upper, lower), its x in every layer between the two.
    width: of the whole drawing.
    """

    x: np.ndarray
    layer: np.ndarray
    loose: int
    lanes: dict[tuple[int, int], list[float]]
    width: float


def arrange(widths: np.ndarray, edges: Iterable[tuple[int, int]], *, gap: float, lane: float, widest: float) -> Layout:
    """Arrange nodes of the given widths (n,), where `edges` (upper, lower) have no cycle.

    Arguments:
        gap: between neighbouring nodes, and between a node and an edge that passes it.
        lane: between edges that pass a layer side by side.
        widest: what no row of nodes is wider than, unless one of them is.
    """
    pairs = sorted(set(edges))
    layer = _layers(widths, pairs, gap, widest)
    sizes, levels, links, chains = _with_lanes(widths, layer, pairs)
    rows = [[node for node in range(len(sizes)) if levels[node] == level] for level in range(max(levels) + 1)]
    rows = _order(rows, links, len(sizes))
    x = _place(rows, links, np.array(sizes), len(widths), gap, lane)
    x -= min(x[node] - sizes[node] / 2 for node in range(len(sizes)))
    lanes = {pair: [float(x[node]) for node in chain] for pair, chain in chains.items()}
    loose = max((int(layer[node]) + 1 for pair in pairs for node in pair), default=0)
    return Layout(x[: len(widths)], layer, loose, lanes, max(float(x[node] + sizes[node] / 2) for node in range(len(sizes))))


def _layers(widths: np.ndarray, pairs: list[tuple[int, int]], gap: float, widest: float) -> np.ndarray:
    """Each node below all its causes, in the first layer that has room; nodes without any edge go last."""
    n = len(widths)
    parents: list[list[int]] = [[a for a, b in pairs if b == node] for node in range(n)]
    depth = np.zeros(n, dtype=int)
    for _ in range(n):  # the longest path has at most n nodes
        depth = np.array([1 + max((depth[p] for p in parents[node]), default=-1) for node in range(n)])
    touched = {node for pair in pairs for node in pair}
    layer, room = np.zeros(n, dtype=int), [widest] * (2 * n + 1)

    def put(node: int, first: int) -> None:
        while room[first] < min(widths[node], widest):
            first += 1
        layer[node] = first
        room[first] -= widths[node] + gap

    for node in sorted(touched, key=lambda i: (depth[i], i)):
        put(node, max((layer[p] + 1 for p in parents[node]), default=0))
    below = max((layer[node] + 1 for node in touched), default=0)
    for node in sorted(set(range(n)) - touched):
        put(node, below)
    return layer


def _with_lanes(widths: np.ndarray, layer: np.ndarray, pairs: list[tuple[int, int]]) -> tuple[list, list, list, dict]:
    """Add a narrow point in every layer that an edge passes; links then join neighbouring layers only."""
    sizes, levels = [float(w) for w in widths], [int(v) for v in layer]
    links: list[tuple[int, int]] = []
    chains: dict[tuple[int, int], list[int]] = {}
    for upper, lower in pairs:
        chain = []
        for level in range(int(layer[upper]) + 1, int(layer[lower])):
            chain.append(len(sizes))
            sizes.append(0.0)
            levels.append(level)
        path = [upper, *chain, lower]
        links += pairwise(path)
        chains[upper, lower] = chain
    return sizes, levels, links, chains


def _order(rows: list[list[int]], links: list[tuple[int, int]], count: int) -> list[list[int]]:
    """Sweep down and up, sorting each row by the mean position of its neighbours in the row before; keep the order with fewest crossings."""
    above = _matrix([(b, a) for a, b in links], np.ones(len(links)), count)
    below = above.T.tocsr()
    order = [np.array(row) for row in rows]
    position = np.zeros(count)
    for row in order:
        position[row] = _spread(len(row))
    best, fewest = list(order), _crossings(order, below)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for level in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            row = order[level]
            neighbours = (above if down else below)[row]
            many = neighbours.sum(1)
            wanted = np.where(many > 0, neighbours @ position / np.maximum(many, 1), position[row])
            order[level] = row[np.argsort(wanted, kind="stable")]
            position[order[level]] = _spread(len(row))
        crossings = _crossings(order, below)
        if crossings < fewest:
            best, fewest = list(order), crossings
    return [row.tolist() for row in best]


def _matrix(links: list[tuple[int, int]], values: np.ndarray, count: int) -> csr_array:
    ends = np.array(links, dtype=int).reshape(-1, 2)
    return csr_array((values, (ends[:, 0], ends[:, 1])), shape=(count, count))


def _spread(k: int) -> np.ndarray:
    return (np.arange(k) + 0.5) / k


def _crossings(order: list[np.ndarray], below: csr_array) -> int:
    """Pairs of links between neighbouring rows whose ends lie in opposite order."""
    total = 0
    for row, after in pairwise(order):
        start, end = below[row][:, after].nonzero()
        total += int(((start[:, None] < start) & (end[:, None] > end)).sum())
    return total


def _place(rows: list[list[int]], links: list[tuple[int, int]], sizes: np.ndarray, nodes: int, gap: float, lane: float) -> np.ndarray:
    """x of everything: each row moves to the mean of its neighbours as far as order and gaps allow, a least-squares problem in closed form."""
    pull = np.array([1.0 + 2.0 * ((a >= nodes) + (b >= nodes)) for a, b in links])  # long edges are kept straight first
    half = _matrix(links, pull, len(sizes))
    near = (half + half.T).tocsr()
    x, plan = np.zeros(len(sizes)), []
    for row in map(np.array, rows):
        steps = (sizes[row[1:]] + sizes[row[:-1]]) / 2 + np.where((row[1:] >= nodes) & (row[:-1] >= nodes), lane, gap)
        start = np.concatenate([[0.0], np.cumsum(steps)])
        x[row] = start - start[-1] / 2
        plan.append((row, start, near[row], near[row].sum(1)))
    for sweep in range(4 * SWEEPS):
        middle = 0.2 if sweep < 3 * SWEEPS else 0.0  # drawn together at first, so that the whole is not wider than it need be
        for row, start, pulls, strength in plan[:: 1 if sweep % 2 == 0 else -1]:
            wanted = np.where(strength > 0, pulls @ x / np.maximum(strength + middle, 1), x[row])
            x[row] = isotonic_regression(wanted - start, sample_weight=np.maximum(strength, 0.01)) + start
    return x
