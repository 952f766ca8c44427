"""Curves of a graph's edges, through the lanes of the layers between cause and effect."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.path import Path as Curve

from intervae.figures.graph_layout import GraphLayout

PORT = 18.0  # canvas pixels between arrows at a node that is wide enough
ASIDE = 6.0  # distance of the two edges of a 2-cycle from their common lane


def route_edges(
    edges: Sequence[tuple[int, int]],
    layout: GraphLayout,
    boxes: np.ndarray,
    left: float,
    rows: np.ndarray,
) -> list[Curve]:
    """Return a smooth path for each edge (cause, effect).

    Arguments:
        boxes: (n, 4) x, y, width and height of the nodes.
        left: x of the layout's origin.
        rows: y of the top of each layer.
    """
    # (upper, lower)
    ways = [(a, b) if layout.layer[a] < layout.layer[b] else (b, a) for a, b in edges]
    leave, arrive = _ports(ways, layout, boxes, left, 0), _ports(ways, layout, boxes, left, 1)
    curves = []
    for k, (upper, lower) in enumerate(ways):
        aside = 0.0 if ways.count(ways[k]) == 1 else -ASIDE if ways.index(ways[k]) == k else ASIDE
        height = boxes[upper, 3]
        points = [(leave[k], boxes[upper, 1] + height)]
        for layer, lane in enumerate(layout.lanes[upper, lower], start=layout.layer[upper] + 1):
            points += [
                (lane + left + aside, rows[layer]),
                (lane + left + aside, rows[layer] + height),
            ]
        points.append((arrive[k], boxes[lower, 1]))
        curves.append(_smooth(points if edges[k][0] == upper else points[::-1]))
    return curves


def _ports(
    ways: list[tuple[int, int]], layout: GraphLayout, boxes: np.ndarray, left: float, end: int
) -> np.ndarray:
    """Return x where each edge meets its upper (end 0) or lower (end 1) node.

    Edges are side by side along the border, ordered by where they lead.
    """
    toward = [
        layout.lanes[way][-end] if layout.lanes[way] else layout.x[way[1 - end]] for way in ways
    ]
    x = np.zeros(len(ways))
    for node in {way[end] for way in ways}:
        own = sorted((k for k, way in enumerate(ways) if way[end] == node), key=toward.__getitem__)
        pitch = min(PORT, (boxes[node, 2] - 16) / len(own))
        x[own] = layout.x[node] + left + pitch * (np.arange(len(own)) - (len(own) - 1) / 2)
    return x


def _smooth(points: list[tuple[float, float]]) -> Curve:
    """Return cubic pieces, vertical inside layers and nearly straight at the nodes."""
    vertices, codes = [points[0]], [Curve.MOVETO]
    last = len(points) - 2
    for k, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        across, down = 0.25 * (x1 - x0), 0.4 * (y1 - y0)
        vertices += [
            (x0 + (across if k == 0 else 0), y0 + down),
            (x1 - (across if k == last else 0), y1 - down),
            (x1, y1),
        ]
        codes += [Curve.CURVE4] * 3
    return Curve(vertices, codes)


def sample_curve(curve: Curve) -> np.ndarray:
    """Return points (P, 2) about 4 pixels apart along a path of cubic pieces."""
    t, v = np.linspace(0, 1, 24)[:, None], np.asarray(curve.vertices)
    ahead, back = (
        np.array([t**3, 3 * t**2 * (1 - t)]),
        np.array([(1 - t) ** 3, 3 * t * (1 - t) ** 2]),
    )
    points = np.concatenate(
        [
            v[k] * back[0] + v[k + 1] * back[1] + v[k + 2] * ahead[1] + v[k + 3] * ahead[0]
            for k in range(0, len(v) - 1, 3)
        ]
    )
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    even = np.linspace(0, length[-1], max(8, int(length[-1] / 4)))
    return np.stack(
        [np.interp(even, length, points[:, 0]), np.interp(even, length, points[:, 1])], axis=1
    )
