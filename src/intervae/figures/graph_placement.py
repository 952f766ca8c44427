"""Boxes of nodes and curves of edges of a drawn graph, in canvas pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.path import Path as Curve

from intervae.causal.graph import CausalGraph
from intervae.figures.edge_routing import route_edges
from intervae.figures.graph_edges import DrawnEdge, downward_pairs
from intervae.figures.graph_layout import arrange
from intervae.figures.style import SMALL
from intervae.figures.text_layout import printable, text_width

NAME, NODE_HEIGHT, PADDING = 12.0, 30.0, 14.0
WIDEST = 760.0  # canvas pixels of nodes side by side, about the width of a README
MAX_LABELLED_EDGES = 60  # edges up to which strengths are printed


@dataclass(frozen=True)
class GraphPlacement:
    """A graph on the canvas, with its left top corner at (0, 0).

    Arguments:
        names: of the nodes, as printed.
        boxes: (n, 4) left, top, width and height of the nodes.
        curves: of the edges, from cause to effect.
        width, height: of the drawing.
    """

    names: list[str]
    boxes: np.ndarray
    curves: list[Curve]
    width: float
    height: float

    def moved(self, left: float, top: float) -> tuple[np.ndarray, list[Curve]]:
        """Return boxes and curves with the left top corner at (left, top)."""
        boxes = self.boxes + np.array([left, top, 0, 0])
        corner = np.array([left, top])
        curves = [Curve(np.asarray(c.vertices) + corner, c.codes) for c in self.curves]
        return boxes, curves


def place_graph(
    graph: CausalGraph, true_graph: CausalGraph | None, edges: list[DrawnEdge]
) -> GraphPlacement:
    """Place nodes and `edges`, causes above effects; the true graph decides if there is one."""
    names = [printable(name) for name in graph.names]
    widths = np.array([max(text_width(name, NAME) + 2 * PADDING, 44) for name in names])
    longest = max((text_width(edge.label, SMALL) for edge in edges if edge.label), default=0.0)
    # room for the labels
    gap = (32 if len(graph) <= 8 else 16) + longest / 2
    lane = 12 + (longest / 2 if len(edges) <= MAX_LABELLED_EDGES / 2 else 0)
    layout = arrange(
        widths, downward_pairs(graph, true_graph, edges), gap=gap, lane=lane, widest=WIDEST
    )
    # steeper where edges are long sideways
    level = NODE_HEIGHT + float(np.clip(0.1 * layout.width, 56, 90)) + (14 if longest else 0)
    # nodes without edges stand close together
    steps = [
        level
        if row < layout.isolated_layer
        else NODE_HEIGHT + (34 if row == layout.isolated_layer else 12)
        for row in range(1, layout.layer.max() + 1)
    ]
    rows = np.concatenate([[0.0], np.cumsum(steps)])  # the top of each layer
    boxes = np.stack(
        [layout.x - widths / 2, rows[layout.layer], widths, np.full(len(widths), NODE_HEIGHT)],
        axis=1,
    )
    curves = route_edges([(edge.cause, edge.effect) for edge in edges], layout, boxes, 0.0, rows)
    return GraphPlacement(names, boxes, curves, layout.width, float(rows[-1]) + NODE_HEIGHT)
