"""Drawings of a causal graph, alone or against the true one, without graphviz."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.edge_routing import sample_curve
from intervae.figures.graph_edges import (
    KINDS,
    UNDIRECTED,
    DrawnEdge,
    check_confidence,
    check_same_variables,
    edges_to_draw,
)
from intervae.figures.graph_placement import MAX_LABELLED_EDGES, NAME, place_graph
from intervae.figures.style import FAINT, INK, MARGIN, PALE, SMALL, TITLE
from intervae.figures.text_layout import printable, text_width, wrap_title


def draw_graph(
    path: str | Path,
    graph: CausalGraph,
    *,
    true_graph: CausalGraph | None = None,
    confidence: Any = None,
    undirected: Collection[tuple[str, str]] = (),
    title: str = "",
) -> None:
    """Draw `graph` with causes above effects; arrows have the width of their printed strength.

    Arguments:
        true_graph: colours the arrows as correct, wrong (in neither direction true) or reversed,
            and adds missing ones dashed. The layout follows the true graph, so that estimates of
            several methods can be compared.
        confidence: (n, n) in [0, 1], of the edge j -> i at [j, i]; fades the arrows and is printed
            after the strength.
        undirected: edges (cause, effect) of unknown direction, drawn dashed without a head.
    """
    check_suffix(path)
    graph_canvas(graph, true_graph, confidence, title, undirected).save(path)


def graph_canvas(
    graph: CausalGraph,
    true_graph: CausalGraph | None,
    confidence: Any,
    title: str,
    undirected: Collection[tuple[str, str]] = (),
) -> Canvas:
    if not len(graph):
        raise DataError("a graph without variables cannot be drawn.")
    edges = edges_to_draw(
        graph,
        check_same_variables(graph, true_graph),
        check_confidence(graph, confidence),
        undirected,
    )
    plan = place_graph(graph, true_graph, edges)
    legend = _legend(edges, true_graph is not None, confidence is not None)
    legend_width = sum(text_width(text, SMALL) + 46 for _, text in legend)
    inner = max(plan.width, legend_width, min(text_width(printable(title), TITLE, "bold"), 480))
    title_text, head = wrap_title(title, inner)
    height = head + plan.height
    canvas = Canvas(inner + 2 * MARGIN, MARGIN + height + (34 if legend else 0) + MARGIN)
    canvas.title(title_text)
    boxes, curves = plan.moved((canvas.width - plan.width) / 2, MARGIN + head)
    for edge, curve in zip(edges, curves, strict=True):
        canvas.add(_arrow(edge, curve, max(abs(e.weight) for e in edges)))
    _draw_nodes(canvas, plan.names, boxes)
    _draw_labels(canvas, edges, curves, boxes)
    _draw_legend(canvas, legend, (canvas.width - legend_width) / 2, MARGIN + height + 26)
    return canvas


def _draw_nodes(canvas: Canvas, names: list[str], boxes: np.ndarray) -> None:
    for k, (name, (x, y, w, h)) in enumerate(zip(names, boxes, strict=True)):
        canvas.add(
            FancyBboxPatch(
                (x, y),
                w,
                h,
                boxstyle="round,pad=0,rounding_size=7",
                fc=PALE,
                ec=INK,
                linewidth=1.1,
                gid=f"node-{k}",
                zorder=3,
            )
        )
        canvas.text(
            x + w / 2, y + h / 2, name, size=NAME, ha="center", va="center_baseline", zorder=4
        )


def _arrow(edge: DrawnEdge, curve: Curve, strongest: float) -> FancyArrowPatch:
    color, dashes = KINDS.get(edge.kind, (INK, "-"))
    width = 1.2 if edge.kind == "missing" else 0.9 + 1.5 * abs(edge.weight) / strongest
    options: dict[str, Any] = {
        "color": color,
        "linewidth": width,
        "linestyle": dashes,
        "alpha": edge.opacity,
        "gid": f"edge-{edge.cause}-{edge.effect}",
        "shrinkA": 0,
        "shrinkB": 0,
        "capstyle": "butt",
        "zorder": 1,
    }
    if not edge.directed:
        options |= {"arrowstyle": "-", "linestyle": UNDIRECTED[1]}
    else:
        options |= {
            "arrowstyle": "-|>,head_length=0.8,head_width=0.3",
            "mutation_scale": 7 + 2 * width,
            "joinstyle": "miter",
        }
    return FancyArrowPatch(path=curve, **options)


def _draw_labels(
    canvas: Canvas, edges: list[DrawnEdge], curves: list[Curve], boxes: np.ndarray
) -> None:
    """Draw each label on its arrow where it hides no node and no other label, or not at all."""
    if len(edges) > MAX_LABELLED_EDGES:
        return
    paths = [sample_curve(curve) for curve in curves]
    # left, top, right, bottom
    taken = np.stack(
        [boxes[:, 0], boxes[:, 1], boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]], axis=1
    )
    background = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    for k, edge in enumerate(edges):
        others = np.concatenate(
            [points for index, points in enumerate(paths) if index != k] or [np.empty((0, 2))]
        )
        half = np.array([text_width(edge.label or " ", SMALL) / 2 + 2, SMALL / 2 + 2])
        centre = _label_position(paths[k], others, taken, half)
        if not edge.label or centre is None:
            continue
        taken = np.vstack([taken, [*(centre - half), *(centre + half)]])
        # orange text on white is hard to read
        color = INK if edge.kind in ("", "reversed") else KINDS[edge.kind][0]
        canvas.text(
            centre[0],
            centre[1],
            edge.label,
            size=SMALL,
            color=color,
            ha="center",
            bbox=background,
            zorder=2,
        )


def _label_position(
    path: np.ndarray, others: np.ndarray, taken: np.ndarray, half: np.ndarray
) -> np.ndarray | None:
    """Return the best point of `path` (P, 2) for a label, None where all are taken.

    Arguments:
        others: (Q, 2) points of other arrows, of which few should be hidden.
        taken: (K, 4) boxes that must not be hidden.
        half: (2,) half the label's width and height.
    """
    fraction = np.linspace(0.15, 0.85, 29)  # of the path; the middle is preferred
    points = path[np.rint(fraction * (len(path) - 1)).astype(int)]  # (29, 2)
    low, high = (points - half)[:, None], (points + half)[:, None]
    free = ~((low < taken[:, 2:]) & (high > taken[:, :2])).all(2).any(1)
    hidden = (np.abs(others - points[:, None]) < half + 2).all(2).sum(1)
    cost = np.where(free, hidden + 6 * np.abs(fraction - 0.5), np.inf)
    return points[cost.argmin()] if free.any() else None


def _legend(edges: list[DrawnEdge], compared: bool, confident: bool) -> list[tuple[str, str]]:
    """Return the entries (kind of arrow or "", text) of the legend."""
    counts = {kind: sum(edge.kind == kind for edge in edges) for kind in KINDS}
    legend = [(kind, f"{kind} ({count})") for kind, count in counts.items() if count and compared]
    undirected = sum(not edge.directed for edge in edges)
    if undirected:
        legend.append(("undirected", f"no arrow head: direction unknown ({undirected})"))
    if confident and edges:
        with_strength = any(edge.strength for edge in edges)
        content = "strength (confidence)" if with_strength else "confidence"
        legend.append(("", f"on the arrows: {content}"))
    return legend


def _draw_legend(canvas: Canvas, legend: list[tuple[str, str]], x: float, y: float) -> None:
    for kind, text in legend:
        if kind:
            color, dashes = {**KINDS, "undirected": UNDIRECTED}[kind]
            canvas.axes.plot([x, x + 24], [y, y], color=color, linestyle=dashes, linewidth=2)
        canvas.text(x + 30 if kind else x, y, text, size=SMALL, color=FAINT)
        x += text_width(text, SMALL) + 46
