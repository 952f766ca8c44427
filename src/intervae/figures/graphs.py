"""A causal graph drawn from cause to effect, alone or against the true one; no graphviz needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.figures.layout import arrange
from intervae.figures.pixels import as_array
from intervae.figures.routes import route, trail
from intervae.figures.style import (
    BLUE,
    FAINT,
    INK,
    MARGIN,
    ORANGE,
    PALE,
    RED,
    SMALL,
    TITLE,
    Canvas,
    heading,
    known_suffix,
    put_heading,
    readable,
    text_width,
)

NAME, NODE_HEIGHT, PADDING = 12.0, 30.0, 14.0
WIDEST = 760.0  # canvas pixels of nodes side by side, about the width of a README
MOST_LABELS = 60  # edges, above which strengths are not printed
KINDS: dict[str, tuple[str, Any]] = {"correct": (BLUE, "-"), "missing": ("#8c959f", (0, (4, 3))), "wrong": (RED, "-"), "reversed": (ORANGE, "-")}
OPEN: tuple[str, Any] = (INK, (0, (3, 1.6)))  # a line without a head: which end is the cause cannot be told


@dataclass(frozen=True)
class Edge:
    """An arrow to draw: from variable `cause` to `effect`, of a kind in KINDS or "" where there is no truth to compare with."""

    cause: int
    effect: int
    kind: str
    weight: float
    label: str
    opacity: float
    directed: bool = True


def draw_graph(
    path: str | Path,
    graph: CausalGraph,
    *,
    true_graph: CausalGraph | None = None,
    confidence: Any = None,
    undirected: Collection[tuple[str, str]] = (),
    title: str = "",
) -> None:
    """Draw `graph`, causes above effects, the width of an arrow growing with its strength, which is printed on it.

    Arguments:
        true_graph: colours the arrows as correct, wrong (in neither direction true) or reversed, and adds the missing ones dashed.
            The drawing then follows the true order, so that graphs learned by several methods can be laid side by side.
        confidence: (n, n) in [0, 1], how sure the edge j -> i at [j, i] is; fades the arrows and is printed beside the strength.
        undirected: edges (cause, effect) whose direction cannot be told: dashed lines without a head.
    """
    known_suffix(path)
    graph_canvas(graph, true_graph, confidence, title, undirected).save(path)


def graph_canvas(
    graph: CausalGraph, true_graph: CausalGraph | None, confidence: Any, title: str, undirected: Collection[tuple[str, str]] = ()
) -> Canvas:
    if not len(graph):
        raise DataError("a graph without variables cannot be drawn.")
    edges = _edges(graph, _same_variables(graph, true_graph), _confidence(graph, confidence), undirected)
    names = [readable(name) for name in graph.names]
    widths = np.array([max(text_width(name, NAME) + 2 * PADDING, 44) for name in names])
    longest = max((text_width(edge.label, SMALL) for edge in edges if edge.label), default=0.0)
    gap, lane = (32 if len(graph) <= 8 else 16) + longest / 2, 12 + (longest / 2 if len(edges) <= MOST_LABELS / 2 else 0)  # room for the labels
    layout = arrange(widths, _downwards(graph, true_graph, edges), gap=gap, lane=lane, widest=WIDEST)
    level = NODE_HEIGHT + float(np.clip(0.1 * layout.width, 56, 90)) + (14 if longest else 0)  # steeper where edges have far to go sideways
    steps = [level if row < layout.loose else NODE_HEIGHT + (34 if row == layout.loose else 12) for row in range(1, layout.layer.max() + 1)]
    rows = np.concatenate([[0.0], np.cumsum(steps)])  # the top of each layer; nodes without edges stand close together

    notes = _notes(edges, true_graph is not None, confidence is not None)
    note_width = sum(text_width(words, SMALL) + 46 for _, words in notes)
    inner = max(layout.width, note_width, min(text_width(readable(title), TITLE, "bold"), 480))
    words, head = heading(title, inner)
    height = head + rows[-1] + NODE_HEIGHT
    canvas = Canvas(inner + 2 * MARGIN, MARGIN + height + (34 if notes else 0) + MARGIN)
    put_heading(canvas, words)
    left = (canvas.width - layout.width) / 2
    boxes = np.stack([layout.x + left - widths / 2, MARGIN + head + rows[layout.layer], widths, np.full(len(widths), NODE_HEIGHT)], axis=1)
    curves = route([(edge.cause, edge.effect) for edge in edges], layout, boxes, left, MARGIN + head + rows)
    for edge, curve in zip(edges, curves, strict=True):
        canvas.add(_arrow(edge, curve, max(abs(e.weight) for e in edges)))
    for k, (name, (x, y, w, h)) in enumerate(zip(names, boxes, strict=True)):
        canvas.add(FancyBboxPatch((x, y), w, h, boxstyle="round,pad=0,rounding_size=7", fc=PALE, ec=INK, linewidth=1.1, gid=f"node-{k}", zorder=3))
        canvas.text(x + w / 2, y + h / 2, name, size=NAME, ha="center", va="center_baseline", zorder=4)
    _put_strengths(canvas, edges, curves, boxes)
    _put_notes(canvas, notes, (canvas.width - note_width) / 2, MARGIN + height + 26)
    return canvas


# ---- what to draw ---------------------------------------------------------------------------------------------------
def _same_variables(graph: CausalGraph, true_graph: CausalGraph | None) -> CausalGraph | None:
    if true_graph is not None and set(true_graph.names) != set(graph.names):
        raise DataError(f"graphs over different variables cannot be compared: {sorted(set(graph.names) ^ set(true_graph.names))} are in one only.")
    return None if true_graph is None else true_graph.subgraph(graph.names)


def _confidence(graph: CausalGraph, confidence: Any) -> np.ndarray | None:
    if confidence is None:
        return None
    table = as_array(confidence).astype(float)
    if table.shape != graph.weights.shape or not ((table >= 0) & (table <= 1)).all():
        raise DataError(f"the confidence of this graph must be {graph.weights.shape} numbers in [0, 1], one for each pair of variables.")
    return table


def _edges(graph: CausalGraph, true: CausalGraph | None, confidence: np.ndarray | None, undirected: Collection[tuple[str, str]] = ()) -> list[Edge]:
    """The arrows of `graph`, and with a true graph those that are missing; a reversed one is drawn once, as it was found."""
    weights, edges = graph.weights, []
    plain = bool(np.isin(weights, (0, 1)).all())  # only that there is an edge is known, not its strength
    for j, i in np.argwhere(weights != 0):
        kind = ""
        if true is not None:
            backwards = true.weights[i, j] != 0 and weights[i, j] == 0
            kind = "correct" if true.weights[j, i] else "reversed" if backwards else "wrong"
        sure = None if confidence is None else confidence[j, i]
        words = [] if plain else [f"{weights[j, i]:.2f}".replace("-", "−")]
        words += [] if sure is None else [f"({sure:.0%})" if words else f"{sure:.0%}"]
        opacity, directed = 1.0 if sure is None else 0.25 + 0.75 * float(sure), (graph.names[j], graph.names[i]) not in undirected
        edges.append(Edge(int(j), int(i), kind, float(weights[j, i]), " ".join(words), opacity, directed))
    if true is not None:
        lost = (true.weights != 0) & (weights == 0) & (weights.T == 0)
        half = (true.weights != 0) & (weights == 0) & (weights.T != 0) & (true.weights.T != 0)  # truth runs both ways, one of them was found
        edges += [Edge(int(j), int(i), "missing", 0.0, "", 1.0) for j, i in np.argwhere(lost | half)]
    return edges


def _downwards(graph: CausalGraph, true: CausalGraph | None, edges: list[Edge]) -> list[tuple[int, int]]:
    """Every drawn pair as (upper, lower). True edges decide first, then strong ones; what would close a cycle points upwards."""
    rank = np.zeros_like(graph.weights)
    for edge in edges:
        rank[edge.cause, edge.effect] = 1e-3 + abs(edge.weight) / (1e-9 + np.abs(graph.weights).max(initial=0))
    if true is not None:
        rank[true.subgraph(graph.names).weights != 0] += 10
    kept = CausalGraph(graph.names, rank).to_acyclic().weights != 0
    drawn = (rank != 0) | (rank.T != 0)
    before = _reaches(kept)
    return [(int(a), int(b)) for a, b in np.argwhere(drawn & before)]


def _reaches(adjacency: np.ndarray) -> np.ndarray:
    reach = adjacency.copy()
    for k in range(len(reach)):
        reach |= np.outer(reach[:, k], reach[k])
    return reach


# ---- how to draw it -------------------------------------------------------------------------------------------------
def _arrow(edge: Edge, curve: Curve, strongest: float) -> FancyArrowPatch:
    color, dashes = KINDS.get(edge.kind, (INK, "-"))
    width = 1.2 if edge.kind == "missing" else 0.9 + 1.5 * abs(edge.weight) / strongest
    how: dict[str, Any] = {"color": color, "linewidth": width, "linestyle": dashes, "alpha": edge.opacity, "gid": f"edge-{edge.cause}-{edge.effect}"}
    if not edge.directed:
        return FancyArrowPatch(path=curve, arrowstyle="-", shrinkA=0, shrinkB=0, capstyle="butt", zorder=1, **{**how, "linestyle": OPEN[1]})
    how |= {"arrowstyle": "-|>,head_length=0.8,head_width=0.3", "mutation_scale": 7 + 2 * width, "shrinkA": 0, "shrinkB": 0}
    return FancyArrowPatch(path=curve, capstyle="butt", joinstyle="miter", zorder=1, **how)


def _put_strengths(canvas: Canvas, edges: list[Edge], curves: list[Curve], boxes: np.ndarray) -> None:
    """Print each label on its arrow, near the middle, where it hides neither a node nor another label; where there is no such place, not at all."""
    if len(edges) > MOST_LABELS:
        return
    trails = [trail(curve) for curve in curves]
    taken = np.stack([boxes[:, 0], boxes[:, 1], boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]], axis=1)  # left, top, right, bottom
    white = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    for k, edge in enumerate(edges):
        others = np.concatenate([points for other, points in enumerate(trails) if other != k] or [np.empty((0, 2))])
        half = np.array([text_width(edge.label or " ", SMALL) / 2 + 2, SMALL / 2 + 2])
        middle = _free_place(trails[k], others, taken, half)
        if not edge.label or middle is None:
            continue
        taken = np.vstack([taken, [*(middle - half), *(middle + half)]])
        color = INK if edge.kind in ("", "reversed") else KINDS[edge.kind][0]  # orange words on white are hard to read
        canvas.text(middle[0], middle[1], edge.label, size=SMALL, color=color, ha="center", bbox=white, zorder=2)


def _free_place(path: np.ndarray, others: np.ndarray, taken: np.ndarray, half: np.ndarray) -> np.ndarray | None:
    """The point of `path` (points, 2) for a label of half size (2,): on nothing taken, hiding little of other arrows, near the middle."""
    share = np.linspace(0.15, 0.85, 29)
    points = path[np.rint(share * (len(path) - 1)).astype(int)]  # (29, 2)
    low, high = (points - half)[:, None], (points + half)[:, None]
    free = ~((low < taken[:, 2:]) & (high > taken[:, :2])).all(2).any(1)
    hidden = (np.abs(others - points[:, None]) < half + 2).all(2).sum(1)
    cost = np.where(free, hidden + 6 * np.abs(share - 0.5), np.inf)
    return points[cost.argmin()] if free.any() else None


def _notes(edges: list[Edge], compared: bool, sure: bool) -> list[tuple[str, str]]:
    """The legend: (kind of arrow or "", words)."""
    counts = {kind: sum(edge.kind == kind for edge in edges) for kind in KINDS}
    notes = [(kind, f"{kind} ({count})") for kind, count in counts.items() if count and compared]
    loose = sum(not edge.directed for edge in edges)
    notes += [("open", f"no arrow head: direction cannot be told ({loose})")] if loose else []
    strengths = any(edge.label and "(" in edge.label for edge in edges)
    return [*notes, ("", "on the arrows: strength (confidence)" if strengths else "on the arrows: confidence")] if sure and edges else notes


def _put_notes(canvas: Canvas, notes: list[tuple[str, str]], x: float, y: float) -> None:
    for kind, words in notes:
        if kind:
            color, dashes = {**KINDS, "open": OPEN}[kind]
            canvas.axes.plot([x, x + 24], [y, y], color=color, linestyle=dashes, linewidth=2)
        canvas.text(x + 30 if kind else x, y, words, size=SMALL, color=FAINT)
        x += text_width(words, SMALL) + 46
