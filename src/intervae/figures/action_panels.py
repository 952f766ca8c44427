"""Mechanisms of actions (CT-VAE, Gendron et al. 2023, Fig. 6): code changes, masks and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_array
from intervae.figures.style import FAINT, LINE, MARGIN, SMALL
from intervae.figures.text_layout import printable, text_width, wrap_title

GRAPH_SIDE = 128.0  # canvas pixels
MAP_HEIGHT = 64.0
GAP = 18.0  # between panels
WIDEST = 960.0


@dataclass(frozen=True)
class ActionPanel:
    """The panel of one action.

    Arguments:
        label: name of the action.
        edges: (n, n) probabilities of edges; rows are codes after, columns codes before.
        mask: (K, H, W) probabilities that the action intervenes, for each codebook.
        changes: (K, H, W) probabilities that a code changes.
    """

    label: str
    edges: Any
    mask: Any
    changes: Any


def action_mechanisms(path: str | Path, panels: Sequence[ActionPanel], *, title: str = "") -> None:
    """Draw a panel per action: changes, mask (codebooks side by side) and graph; white is 1."""
    check_suffix(path)
    if not panels:
        raise DataError("there is no action to show; give at least one ActionPanel.")
    maps_of_panels = [
        {
            "changes": _probabilities(panel.changes, 3, f"the changes of {panel.label!r}"),
            "mask": _probabilities(panel.mask, 3, f"the mask of {panel.label!r}"),
        }
        for panel in panels
    ]
    graphs = [_probabilities(panel.edges, 2, f"the graph of {panel.label!r}") for panel in panels]
    if len({array.shape for maps in maps_of_panels for array in maps.values()}) > 1:
        raise DataError(
            "masks and changes must have one shape (codebooks, rows, columns) for all actions."
        )
    books, rows, columns = maps_of_panels[0]["mask"].shape
    map_width = min(MAP_HEIGHT * columns / rows, 2 * GRAPH_SIDE / books)
    map_height = map_width * rows / columns
    labels = [printable(panel.label) for panel in panels]
    maps_width = books * (map_width + 3) - 3
    pitch = max(GRAPH_SIDE, maps_width, *(text_width(label) for label in labels)) + GAP
    left = MARGIN + text_width("changes", SMALL) + 8
    lines = -(-len(panels) // max(1, int(WIDEST // pitch)))
    per_line = -(-len(panels) // lines)
    graph_top = 22 + len(maps_of_panels[0]) * (map_height + 10)
    line_height = graph_top + GRAPH_SIDE + SMALL * LINE + GAP
    width = left + per_line * pitch - GAP + MARGIN
    heading, heading_height = wrap_title(title, width - 2 * MARGIN)
    canvas = Canvas(width, 2 * MARGIN + heading_height + lines * line_height - GAP)
    canvas.title(heading)
    small: dict[str, Any] = {"size": SMALL, "color": FAINT}
    for k, (label, maps, graph) in enumerate(zip(labels, maps_of_panels, graphs, strict=True)):
        x, y = (
            left + (k % per_line) * pitch,
            MARGIN + heading_height + (k // per_line) * line_height,
        )
        first = k % per_line == 0
        canvas.text(x, y + 8, label)
        for number, (name, of_books) in enumerate(maps.items()):
            top = y + 22 + number * (map_height + 10)
            for book, values in enumerate(of_books):
                map_left = x + book * (map_width + 3)
                canvas.image(_grey(values), map_left, top, map_width, map_height)
            if first:
                canvas.text(x - 8, top + map_height / 2, name, ha="right", **small)
        top, half_line = y + graph_top, SMALL * LINE / 2
        canvas.image(_grey(graph), x, top, GRAPH_SIDE, GRAPH_SIDE)
        below = top + GRAPH_SIDE + half_line
        canvas.text(x + GRAPH_SIDE / 2, below, "before", ha="center", **small)
        if first:
            middle = top + GRAPH_SIDE / 2
            canvas.text(x - 8, middle - half_line, "graph:", ha="right", **small)
            canvas.text(x - 8, middle + half_line, "after", ha="right", **small)
    canvas.save(path)


def _probabilities(values: Any, axes: int, name: str) -> np.ndarray:
    """Return an array of probabilities; an error if values are not."""
    array = as_array(values).astype(float)
    valid = array.ndim == axes and array.size and np.isfinite(array).all()
    if not valid or array.min() < -1e-6 or array.max() > 1 + 1e-6:
        raise DataError(f"{name} must be probabilities with {axes} axes, not shape {array.shape}.")
    return array.clip(0, 1)


def _grey(values: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.repeat(values[..., None], 3, axis=-1)).astype(np.uint8)
