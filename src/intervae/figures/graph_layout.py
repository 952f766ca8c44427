"""Layered layout of a graph: causes above effects, few crossings (Sugiyama et al. 1981).

An edge over several layers passes through a point in each layer between. These points are ordered
and placed like nodes, so that no edge runs through a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

SWEEPS = 12


@dataclass(frozen=True)
class GraphLayout:
    """Positions of nodes and edges.

    Arguments:
        x: (n,) centres of the nodes; the leftmost border is at 0.
        layer: (n,) from 0 at the top.
        isolated_layer: the first layer of nodes without edges, which come last.
        lanes: for each edge (upper, lower), its x in every layer between the two.
        width: of the drawing.
    """

    x: np.ndarray
    layer: np.ndarray
    isolated_layer: int
    lanes: dict[tuple[int, int], list[float]]
    width: float


def arrange(
    widths: np.ndarray, edges: Iterable[tuple[int, int]], *, gap: float, lane: float, widest: float
) -> GraphLayout:
    """Arrange nodes of `widths` (n,) and acyclic `edges` (upper, lower).

    Arguments:
        gap: between neighbouring nodes, and between a node and a passing edge.
        lane: between edges that pass a layer side by side.
        widest: largest width of a layer, unless a single node is wider.
    """
    pairs = sorted(set(edges))
    layer = _layers(widths, pairs, gap, widest)
    sizes, levels, links, chains = _with_lanes(widths, layer, pairs)
    rows = [
        [node for node in range(len(sizes)) if levels[node] == level]
        for level in range(max(levels) + 1)
    ]
    rows = _order(rows, links, len(sizes))
    x = _place(rows, links, np.array(sizes), len(widths), gap, lane)
    x -= min(x[node] - sizes[node] / 2 for node in range(len(sizes)))
    lanes = {pair: [float(x[node]) for node in chain] for pair, chain in chains.items()}
    isolated_layer = max((int(layer[node]) + 1 for pair in pairs for node in pair), default=0)
    return GraphLayout(
        x[: len(widths)],
        layer,
        isolated_layer,
        lanes,
        max(float(x[node] + sizes[node] / 2) for node in range(len(sizes))),
    )


def _layers(
    widths: np.ndarray, pairs: list[tuple[int, int]], gap: float, widest: float
) -> np.ndarray:
    """Put each node into the first layer with room below its causes; isolated nodes come last."""
    n = len(widths)
    parents: list[list[int]] = [[a for a, b in pairs if b == node] for node in range(n)]
    depth = np.zeros(n, dtype=int)
    for _ in range(n):  # the longest path has at most n nodes
        depth = np.array(
            [1 + max((depth[p] for p in parents[node]), default=-1) for node in range(n)]
        )
    connected = {node for pair in pairs for node in pair}
    layer, room = np.zeros(n, dtype=int), [widest] * (2 * n + 1)

    def put(node: int, first: int) -> None:
        while room[first] < min(widths[node], widest):
            first += 1
        layer[node] = first
        room[first] -= widths[node] + gap

    for node in sorted(connected, key=lambda i: (depth[i], i)):
        put(node, max((layer[p] + 1 for p in parents[node]), default=0))
    below = max((layer[node] + 1 for node in connected), default=0)
    for node in sorted(set(range(n)) - connected):
        put(node, below)
    return layer


def _with_lanes(
    widths: np.ndarray, layer: np.ndarray, pairs: list[tuple[int, int]]
) -> tuple[list, list, list, dict]:
    """Add a point in every layer that an edge passes, so that links join neighbouring layers."""
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
    """Return the order with the fewest crossings over sweeps down and up.

    A sweep sorts each row by the mean position of its neighbours in the previous row.
    """
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
            degree = neighbours.sum(1)
            mean = neighbours @ position / np.maximum(degree, 1)
            order[level] = row[np.argsort(np.where(degree > 0, mean, position[row]), kind="stable")]
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
    """Count pairs of links between neighbouring rows whose ends are in opposite order."""
    total = 0
    for row, after in pairwise(order):
        start, end = below[row][:, after].nonzero()
        total += int(((start[:, None] < start) & (end[:, None] > end)).sum())
    return total


def _place(
    rows: list[list[int]],
    links: list[tuple[int, int]],
    sizes: np.ndarray,
    nodes: int,
    gap: float,
    lane: float,
) -> np.ndarray:
    """Return x of all nodes and points.

    Each row moves to the mean of its neighbours as far as order and gaps allow, a least-squares
    problem in closed form.
    """
    from sklearn.isotonic import isotonic_regression

    # long edges have larger weights, which straightens them
    pull = np.array([1.0 + 2.0 * ((a >= nodes) + (b >= nodes)) for a, b in links])
    half = _matrix(links, pull, len(sizes))
    near = (half + half.T).tocsr()
    x, plan = np.zeros(len(sizes)), []
    for row in map(np.array, rows):
        steps = (sizes[row[1:]] + sizes[row[:-1]]) / 2 + np.where(
            (row[1:] >= nodes) & (row[:-1] >= nodes), lane, gap
        )
        start = np.concatenate([[0.0], np.cumsum(steps)])
        x[row] = start - start[-1] / 2
        plan.append((row, start, near[row], near[row].sum(1)))
    for sweep in range(4 * SWEEPS):
        middle = 0.2 if sweep < 3 * SWEEPS else 0.0  # pull to the middle, which keeps it narrow
        for row, start, pulls, strength in plan[:: 1 if sweep % 2 == 0 else -1]:
            target = np.where(strength > 0, pulls @ x / np.maximum(strength + middle, 1), x[row])
            x[row] = (
                isotonic_regression(target - start, sample_weight=np.maximum(strength, 0.01))
                + start
            )
    return x
