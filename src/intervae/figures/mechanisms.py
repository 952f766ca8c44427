"""How actions work on codes (CT-VAE, Gendron et al. 2023, Fig. 6): for each action where codes change, the intervention mask and the graph, bright
where probable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.figures.pixels import as_array
from intervae.figures.style import FAINT, LINE, MARGIN, SMALL, Canvas, heading, known_suffix, put_heading, readable, text_width

SIDE = 128.0  # of a graph, in canvas pixels
MASK = 64.0  # height of a mask, and of what changes
GAP = 18.0
WIDEST = 960.0


@dataclass(frozen=True)
class MechanismPanel:
    """One action.

    Arguments:
        label: its name.
        edges: (n, n) probabilities of the edges, row i for the variable i after, column j for the variable j before.
        mask: (K, H, W) probabilities that the action intervenes, of each codebook.
        changes: (K, H, W) probabilities that a code is another one after the action.
    """

    label: str
    edges: Any
    mask: Any
    changes: Any


def mechanisms(path: str | Path, panels: Sequence[MechanismPanel], *, title: str = "") -> None:
    """A panel for each action: what changes and the masks, of the codebooks side by side on the picture's grid, and the graph; black is 0."""
    known_suffix(path)
    if not panels:
        raise DataError("there is no action to show; give at least one MechanismPanel.")
    grids = [
        {
            "changes": _probabilities(panel.changes, 3, f"what changes by {panel.label!r}"),
            "mask": _probabilities(panel.mask, 3, f"the mask of {panel.label!r}"),
        }
        for panel in panels
    ]
    graphs = [_probabilities(panel.edges, 2, f"the graph of {panel.label!r}") for panel in panels]
    if len({array.shape for maps in grids for array in maps.values()}) > 1:
        raise DataError("the masks and what changes must have one shape (codebooks, rows, columns) for all actions.")
    books, rows, columns = grids[0]["mask"].shape
    across = min(MASK * columns / rows, 2 * SIDE / books)
    tall = across * rows / columns
    labels = [readable(panel.label) for panel in panels]
    pitch = max(SIDE, books * (across + 3) - 3, *(text_width(label) for label in labels)) + GAP
    left = MARGIN + text_width("changes", SMALL) + 8
    lines = -(-len(panels) // max(1, int(WIDEST // pitch)))
    per_line = -(-len(panels) // lines)
    graph_top = 22 + len(grids[0]) * (tall + 10)
    line = graph_top + SIDE + SMALL * LINE + GAP
    width = left + per_line * pitch - GAP + MARGIN
    words, head = heading(title, width - 2 * MARGIN)
    canvas = Canvas(width, 2 * MARGIN + head + lines * line - GAP)
    put_heading(canvas, words)
    for k, (label, maps, graph) in enumerate(zip(labels, grids, graphs, strict=True)):
        x, y = left + (k % per_line) * pitch, MARGIN + head + (k // per_line) * line
        first = k % per_line == 0
        canvas.text(x, y + 8, label)
        for number, (name, of_books) in enumerate(maps.items()):
            top = y + 22 + number * (tall + 10)
            for book, one in enumerate(of_books):
                canvas.image(_grey(one), x + book * (across + 3), top, across, tall)
            if first:
                canvas.text(x - 8, top + tall / 2, name, size=SMALL, color=FAINT, ha="right")
        canvas.image(_grey(graph), x, y + graph_top, SIDE, SIDE)
        canvas.text(x + SIDE / 2, y + graph_top + SIDE + SMALL * LINE / 2, "before", size=SMALL, color=FAINT, ha="center")
        if first:
            canvas.text(x - 8, y + graph_top + SIDE / 2 - SMALL * LINE / 2, "graph:", size=SMALL, color=FAINT, ha="right")
            canvas.text(x - 8, y + graph_top + SIDE / 2 + SMALL * LINE / 2, "after", size=SMALL, color=FAINT, ha="right")
    canvas.save(path)


def _probabilities(values: Any, axes: int, what: str) -> np.ndarray:
    array = as_array(values).astype(float)
    if array.ndim != axes or not array.size or not np.isfinite(array).all() or array.min() < -1e-6 or array.max() > 1 + 1e-6:
        raise DataError(f"{what} must be probabilities with {axes} axes, not shape {array.shape}.")
    return array.clip(0, 1)


def _grey(values: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.repeat(values[..., None], 3, axis=-1)).astype(np.uint8)
