"""How actions work on codes (CT-VAE, Gendron et al. 2023, Fig. 6): for each action the intervention mask and the graph, bright where probable."""

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
MASK = 64.0  # height of a mask
GAP = 18.0
WIDEST = 960.0


@dataclass(frozen=True)
class MechanismPanel:
    """One action.

    Arguments:
        label: its name.
        edges: (n, n) probabilities of the edges, row i for the variable i after, column j for the variable j before.
        mask: (K, H, W) probabilities that the action intervenes, of each codebook.
    """

    label: str
    edges: Any
    mask: Any


def mechanisms(path: str | Path, panels: Sequence[MechanismPanel], *, title: str = "") -> None:
    """A panel for each action: the masks of the codebooks side by side, on the picture's grid, above the graph; black is 0, white is 1."""
    known_suffix(path)
    if not panels:
        raise DataError("there is no action to show; give at least one MechanismPanel.")
    masks = [_probabilities(panel.mask, 3, f"the mask of {panel.label!r}") for panel in panels]
    graphs = [_probabilities(panel.edges, 2, f"the graph of {panel.label!r}") for panel in panels]
    books, rows, columns = masks[0].shape
    across = min(MASK * columns / rows, 2 * SIDE / books)
    tall = across * rows / columns
    labels = [readable(panel.label) for panel in panels]
    pitch = max(SIDE, books * (across + 3) - 3, *(text_width(label) for label in labels)) + GAP
    left = MARGIN + text_width("after", SMALL) + 8
    lines = -(-len(panels) // max(1, int(WIDEST // pitch)))
    per_line = -(-len(panels) // lines)
    line = 22 + tall + 10 + SIDE + SMALL * LINE + GAP
    width = left + per_line * pitch - GAP + MARGIN
    words, head = heading(title, width - 2 * MARGIN)
    canvas = Canvas(width, 2 * MARGIN + head + lines * line - GAP)
    put_heading(canvas, words)
    for k, (label, mask, graph) in enumerate(zip(labels, masks, graphs, strict=True)):
        x, y = left + (k % per_line) * pitch, MARGIN + head + (k // per_line) * line
        canvas.text(x, y + 8, label)
        for book, one in enumerate(mask):
            canvas.image(_grey(one), x + book * (across + 3), y + 22, across, tall)
        canvas.image(_grey(graph), x, y + 22 + tall + 10, SIDE, SIDE)
        canvas.text(x + SIDE / 2, y + 22 + tall + 10 + SIDE + SMALL * LINE / 2, "before", size=SMALL, color=FAINT, ha="center")
        if k % per_line == 0:
            canvas.text(x - 8, y + 22 + tall / 2, "mask", size=SMALL, color=FAINT, ha="right")
            canvas.text(x - 8, y + 22 + tall + 10 + SIDE / 2, "after", size=SMALL, color=FAINT, ha="right")
    canvas.save(path)


def _probabilities(values: Any, axes: int, what: str) -> np.ndarray:
    array = as_array(values).astype(float)
    if array.ndim != axes or not array.size or not np.isfinite(array).all() or array.min() < -1e-6 or array.max() > 1 + 1e-6:
        raise DataError(f"{what} must be probabilities with {axes} axes, not shape {array.shape}.")
    return array.clip(0, 1)


def _grey(values: np.ndarray) -> np.ndarray:
    return np.rint(255 * np.repeat(values[..., None], 3, axis=-1)).astype(np.uint8)
