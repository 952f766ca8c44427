"""The adjacency as matrices over training, beside the true one (CausalVAE, Fig. 5): rows are causes, columns their effects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.figures.pixels import as_array
from intervae.figures.style import (
    BODY,
    DIVERGING,
    FAINT,
    INK,
    MARGIN,
    RULE,
    SMALL,
    Canvas,
    heading,
    known_suffix,
    number,
    put_heading,
    readable,
    text_width,
)

MOST_NUMBERS = 8  # variables, up to which the strengths are printed in the cells
WIDEST = 960.0  # canvas pixels of panels side by side
BARE = LinearSegmentedColormap.from_list("no edge, edge", ["#ffffff", "#57606a"])


def adjacency_history(
    path: str | Path,
    history: Any,
    names: Sequence[str],
    *,
    true_graph: CausalGraph | None = None,
    panels: int = 5,
    epochs: Sequence[Any] | None = None,
    captions: Sequence[str] | None = None,
    title: str = "",
) -> None:
    """Draw `panels` of the matrices in `history` (T, n, n), evenly over training with the first and the last, then the true graph.

    Arguments:
        history: `history[t][j, i]` is the strength of j -> i after epoch t + 1, as the lines of metrics.jsonl hold it.
        epochs: (T,) what to call each matrix, where that is not 1, 2, ...
        captions: (T,) words over each, where these are no epochs at all.
    """
    known_suffix(path)
    names = [str(name) for name in names]
    matrices, captions = _select(history, names, panels, epochs, captions)
    if true_graph is not None:
        if set(true_graph.names) != set(names):
            raise DataError(f"graphs over different variables cannot be compared: {sorted(set(true_graph.names) ^ set(names))} are in one only.")
        matrices, captions = [*matrices, true_graph.subgraph(names).weights], [*captions, "true graph"]
    bare = true_graph is not None and bool(np.isin(true_graph.weights, (0, 1)).all())  # its edges are known, their strengths and signs are not
    largest = max(float(np.abs(matrix).max()) for matrix in (matrices[:-1] if bare else matrices)) or 1.0
    n, gap = len(names), 16.0
    cell = float(np.clip(round(136 / n), 24, 36)) if n <= MOST_NUMBERS else max(5.0, round(180 / n))
    side, label_size = n * cell, min(SMALL, 0.95 * cell)
    shown = [readable(name) for name in names]
    label = max(text_width(name, label_size) for name in shown)
    pitch = max(side, *(text_width(caption, BODY, "bold") for caption in captions)) + gap
    left = MARGIN + 16 + label + 8
    lines = -(-len(matrices) // max(1, int(WIDEST // pitch)))
    columns = -(-len(matrices) // lines)
    width = left + columns * pitch + 66
    words, head = heading(title, width - 2 * MARGIN)
    above, line = 22.0, 22 + side + 8 + label + 26
    canvas = Canvas(width, MARGIN + head + lines * line)
    put_heading(canvas, words)
    for k, (matrix, caption) in enumerate(zip(matrices, captions, strict=True)):
        x, y = left + (k % columns) * pitch, MARGIN + head + above + (k // columns) * line
        is_truth = true_graph is not None and k == len(matrices) - 1
        canvas.text(x + side / 2, y - 12, caption, ha="center", weight="bold" if is_truth else "normal")
        _put_matrix(canvas, matrix, BARE(matrix) if is_truth and bare else DIVERGING(0.5 + 0.5 * matrix / largest), x, y, cell, framed=is_truth)
        _put_names(canvas, shown, x, y, cell, label_size, causes=k % columns == 0)
        canvas.text(x + side / 2, y + side + 8 + label + 10, "effect", size=SMALL, ha="center")
        canvas.text(MARGIN + 5, y + side / 2, "cause" if k % columns == 0 else "", size=SMALL, ha="center", rotation=90)
    _put_scale(canvas, largest, left + columns * pitch - gap + 18, MARGIN + head + 22, side)
    canvas.save(path)


def _select(
    history: Any, names: list[str], panels: int, epochs: Sequence[Any] | None, captions: Sequence[str] | None
) -> tuple[list[np.ndarray], list[str]]:
    try:
        every = np.stack([as_array(matrix).astype(float) for matrix in history])
    except (TypeError, ValueError):
        raise DataError("the history of an adjacency must be a list of square matrices of numbers, all of one size.") from None
    n = len(names)
    if every.shape[1:] != (n, n) or not n:
        raise DataError(f"the history of an adjacency over {n} names must be (epochs, {n}, {n}), not {every.shape}.")
    if not np.isfinite(every).all():
        raise DataError("the history of an adjacency holds NaN or infinite strengths, which cannot be drawn.")
    if epochs is not None and len(epochs) != len(every):
        raise DataError(f"{len(epochs)} epochs were given for {len(every)} matrices; give one for each.")
    if captions is not None and len(captions) != len(every):
        raise DataError(f"{len(captions)} captions were given for {len(every)} matrices; give one for each.")
    chosen = np.unique(np.linspace(0, len(every) - 1, max(1, panels)).round().astype(int)) if panels > 1 else np.array([len(every) - 1])
    if captions is not None:
        return [every[t] for t in chosen], [str(captions[t]) for t in chosen]
    return [every[t] for t in chosen], [f"epoch {t + 1 if epochs is None else epochs[t]}" for t in chosen]


def _put_matrix(canvas: Canvas, matrix: np.ndarray, colors: np.ndarray, x: float, y: float, cell: float, *, framed: bool) -> None:
    """`matrix` (n, n) in its colours (n, n, 4), with the numbers where they can be read."""
    n = len(matrix)
    frame, frame_width = (INK, 1.5) if framed else (RULE, 1.0)
    canvas.image(np.rint(colors[..., :3] * 255).astype(np.uint8), x, y, n * cell, n * cell, frame=frame, frame_width=frame_width)
    if n > MOST_NUMBERS:
        return
    for k in np.flatnonzero(np.diagonal(matrix) == 0):  # nothing causes itself
        canvas.add(Rectangle((x + k * cell, y + k * cell), cell, cell, facecolor="#eef0f3", edgecolor="none"))
    decimals = 0 if (matrix == np.rint(matrix)).all() else 2
    for j, i in np.argwhere(np.abs(matrix) >= 0.005):  # what rounds to 0.00 is left blank
        color = "white" if colors[j, i, :3] @ (0.3, 0.6, 0.1) < 0.5 else INK
        middle = x + (i + 0.5) * cell, y + (j + 0.5) * cell
        words = f"{matrix[j, i]:.{decimals}f}".replace("-", "−")
        canvas.text(*middle, words, size=min(9.0, 0.34 * cell), color=color, ha="center", va="center_baseline")


def _put_names(canvas: Canvas, names: list[str], x: float, y: float, cell: float, size: float, *, causes: bool) -> None:
    """Effects below the columns, and causes at the left of the rows."""
    for k, name in enumerate(names):
        canvas.text(x + (k + 0.5) * cell, y + len(names) * cell + 6, name, size=size, color=FAINT, ha="center", va="top", rotation=90)
        canvas.text(x - 8, y + (k + 0.5) * cell, name if causes else "", size=size, color=FAINT, ha="right", va="center_baseline")


def _put_scale(canvas: Canvas, largest: float, x: float, y: float, height: float) -> None:
    """The colour bar, with what it means."""
    ramp = DIVERGING(np.linspace(1, 0, 101))[:, None, :3]
    canvas.image(np.rint(ramp * 255).astype(np.uint8), x, y, 10, height)
    for share, value in ((0.0, largest), (0.5, 0.0), (1.0, -largest)):
        canvas.text(x + 15, y + share * height, number(value, 2), size=SMALL, color=FAINT, va="center_baseline")
    canvas.text(x, y - 12, "strength", size=SMALL)
