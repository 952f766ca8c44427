"""The arrows of a drawn graph: kinds against the true graph, labels, and direction of drawing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.figures.image_arrays import as_array
from intervae.figures.style import BLUE, INK, ORANGE, RED

# kind of an edge, compared with the true graph -> colour and dashes
KINDS: dict[str, tuple[str, Any]] = {
    "correct": (BLUE, "-"),
    "missing": ("#8c959f", (0, (4, 3))),
    "wrong": (RED, "-"),
    "reversed": (ORANGE, "-"),
}
UNDIRECTED: tuple[str, Any] = (INK, (0, (3, 1.6)))  # without an arrow head


@dataclass(frozen=True)
class DrawnEdge:
    """An arrow from variable `cause` to `effect`.

    Arguments:
        kind: a key of KINDS, or "" without a true graph.
        strength, confidence: as printed; "" where not shown.
    """

    cause: int
    effect: int
    kind: str
    weight: float
    strength: str
    confidence: str
    opacity: float
    directed: bool = True

    @property
    def label(self) -> str:
        """The text on the arrow: "strength (confidence)", or either alone."""
        if self.strength and self.confidence:
            return f"{self.strength} ({self.confidence})"
        return self.strength or self.confidence


def check_same_variables(graph: CausalGraph, true_graph: CausalGraph | None) -> CausalGraph | None:
    """Return the true graph with its variables in the order of `graph`."""
    if true_graph is None:
        return None
    different = sorted(set(graph.names) ^ set(true_graph.names))
    if different:
        raise DataError(
            f"graphs over different variables cannot be compared: {different} are in one only."
        )
    return true_graph.subgraph(graph.names)


def check_confidence(graph: CausalGraph, confidence: Any) -> np.ndarray | None:
    if confidence is None:
        return None
    table = as_array(confidence).astype(float)
    if table.shape != graph.weights.shape or not ((table >= 0) & (table <= 1)).all():
        raise DataError(
            f"the confidence of this graph must be {graph.weights.shape} numbers in [0, 1], "
            "one for each pair of variables."
        )
    return table


def edges_to_draw(
    graph: CausalGraph,
    true: CausalGraph | None,
    confidence: np.ndarray | None,
    undirected: Collection[tuple[str, str]] = (),
) -> list[DrawnEdge]:
    """Return the arrows of `graph`, and the missing ones; a reversed edge is drawn once."""
    weights, edges = graph.weights, []
    unweighted = bool(np.isin(weights, (0, 1)).all())
    for j, i in np.argwhere(weights != 0):
        kind = ""
        if true is not None:
            backwards = true.weights[i, j] != 0 and weights[i, j] == 0
            kind = "correct" if true.weights[j, i] else "reversed" if backwards else "wrong"
        strength = "" if unweighted else f"{weights[j, i]:.2f}".replace("-", "−")
        percentage, opacity = "", 1.0
        if confidence is not None:
            probability = confidence[j, i]
            percentage = f"{probability:.0%}"
            opacity = 0.25 + 0.75 * float(probability)
        directed = (graph.names[j], graph.names[i]) not in undirected
        edges.append(
            DrawnEdge(
                int(j), int(i), kind, float(weights[j, i]), strength, percentage, opacity, directed
            )
        )
    if true is not None:
        missing = (true.weights != 0) & (weights == 0) & (weights.T == 0)
        # one direction of a true 2-cycle
        half = (true.weights != 0) & (weights == 0) & (weights.T != 0) & (true.weights.T != 0)
        edges += [
            DrawnEdge(int(j), int(i), "missing", 0.0, "", "", 1.0)
            for j, i in np.argwhere(missing | half)
        ]
    return edges


def downward_pairs(
    graph: CausalGraph, true: CausalGraph | None, edges: list[DrawnEdge]
) -> list[tuple[int, int]]:
    """Return every drawn pair as (upper, lower).

    True edges point downwards first, then strong ones; edges that close a cycle point upwards.
    """
    rank = np.zeros_like(graph.weights)
    for edge in edges:
        rank[edge.cause, edge.effect] = 1e-3 + abs(edge.weight) / (
            1e-9 + np.abs(graph.weights).max(initial=0)
        )
    if true is not None:
        rank[true.subgraph(graph.names).weights != 0] += 10
    acyclic = CausalGraph(graph.names, rank).to_acyclic().weights != 0
    drawn = (rank != 0) | (rank.T != 0)
    return [(int(a), int(b)) for a, b in np.argwhere(drawn & _reachable(acyclic))]


def _reachable(adjacency: np.ndarray) -> np.ndarray:
    """Return (n, n) whether a directed path leads from j to i."""
    reach = adjacency.copy()
    for k in range(len(reach)):
        reach |= np.outer(reach[:, k], reach[k])
    return reach
