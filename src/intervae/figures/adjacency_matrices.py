"""Adjacency matrices over training, next to the true one (CausalVAE, Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_array
from intervae.figures.style import BODY, DIVERGING, FAINT, INK, MARGIN, RULE, SMALL
from intervae.figures.text_layout import format_number, printable, text_width, wrap_title

MAX_LABELLED_VARIABLES = 8  # variables up to which strengths are printed in the cells
WIDEST = 960.0  # canvas pixels of panels side by side
UNSIGNED = LinearSegmentedColormap.from_list("no edge, edge", ["#ffffff", "#57606a"])


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
    """Draw matrices from first to last epoch, then the true graph; rows are causes.

    Arguments:
        history: (T, n, n); `history[t][j, i]` is the strength of j -> i after epoch t + 1, as in
            metrics.jsonl.
        panels: number of matrices, evenly spaced in `history`.
        epochs: (T,) epoch numbers, by default 1, 2, ...
        captions: (T,) captions that replace the epochs.
    """
    check_suffix(path)
    names = [str(name) for name in names]
    matrices, captions = _select(history, names, panels, epochs, captions)
    if true_graph is not None:
        if set(true_graph.names) != set(names):
            different = sorted(set(true_graph.names) ^ set(names))
            raise DataError(
                f"graphs over different variables cannot be compared: {different} are in one only."
            )
        matrices = [*matrices, true_graph.subgraph(names).weights]
        captions = [*captions, "true graph"]
    # a true graph of 0 and 1 has no strengths and signs
    unsigned = true_graph is not None and bool(np.isin(true_graph.weights, (0, 1)).all())
    signed = matrices[:-1] if unsigned else matrices
    largest = max(float(np.abs(matrix).max()) for matrix in signed) or 1.0
    n, gap = len(names), 16.0
    cell = (
        float(np.clip(round(136 / n), 24, 36))
        if n <= MAX_LABELLED_VARIABLES
        else max(5.0, round(180 / n))
    )
    side, label_size = n * cell, min(SMALL, 0.95 * cell)
    printed = [printable(name) for name in names]
    label = max(text_width(name, label_size) for name in printed)
    pitch = max(side, *(text_width(caption, BODY, "bold") for caption in captions)) + gap
    left = MARGIN + 16 + label + 8
    lines = -(-len(matrices) // max(1, int(WIDEST // pitch)))
    columns = -(-len(matrices) // lines)
    width = left + columns * pitch + 66
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    above, line = 22.0, 22 + side + 8 + label + 26
    canvas = Canvas(width, MARGIN + head + lines * line)
    canvas.title(title_text)
    for k, (matrix, caption) in enumerate(zip(matrices, captions, strict=True)):
        x, y = left + (k % columns) * pitch, MARGIN + head + above + (k // columns) * line
        is_truth = true_graph is not None and k == len(matrices) - 1
        canvas.text(
            x + side / 2, y - 12, caption, ha="center", weight="bold" if is_truth else "normal"
        )
        _draw_matrix(
            canvas,
            matrix,
            UNSIGNED(matrix) if is_truth and unsigned else DIVERGING(0.5 + 0.5 * matrix / largest),
            x,
            y,
            cell,
            framed=is_truth,
        )
        _draw_names(canvas, printed, x, y, cell, label_size, causes=k % columns == 0)
        canvas.text(x + side / 2, y + side + 8 + label + 10, "effect", size=SMALL, ha="center")
        canvas.text(
            MARGIN + 5,
            y + side / 2,
            "cause" if k % columns == 0 else "",
            size=SMALL,
            ha="center",
            rotation=90,
        )
    _draw_colour_bar(canvas, largest, left + columns * pitch - gap + 18, MARGIN + head + 22, side)
    canvas.save(path)


def _select(
    history: Any,
    names: list[str],
    panels: int,
    epochs: Sequence[Any] | None,
    captions: Sequence[str] | None,
) -> tuple[list[np.ndarray], list[str]]:
    try:
        every = np.stack([as_array(matrix).astype(float) for matrix in history])
    except (TypeError, ValueError):
        raise DataError(
            "the history of an adjacency must be a list of square matrices of numbers, "
            "all of one size."
        ) from None
    n = len(names)
    if every.shape[1:] != (n, n) or not n:
        raise DataError(
            f"the history of an adjacency over {n} names must be (epochs, {n}, {n}), "
            f"not {every.shape}."
        )
    if not np.isfinite(every).all():
        raise DataError(
            "the history of an adjacency holds NaN or infinite strengths, which cannot be drawn."
        )
    if epochs is not None and len(epochs) != len(every):
        raise DataError(
            f"{len(epochs)} epochs were given for {len(every)} matrices; give one for each."
        )
    if captions is not None and len(captions) != len(every):
        raise DataError(
            f"{len(captions)} captions were given for {len(every)} matrices; give one for each."
        )
    last = len(every) - 1
    steps = np.unique(np.linspace(0, last, panels).round().astype(int)) if panels > 1 else [last]
    if captions is None:
        captions = [f"epoch {t + 1 if epochs is None else epochs[t]}" for t in range(len(every))]
    return [every[t] for t in steps], [str(captions[t]) for t in steps]


def _draw_matrix(
    canvas: Canvas,
    matrix: np.ndarray,
    colors: np.ndarray,
    x: float,
    y: float,
    cell: float,
    *,
    framed: bool,
) -> None:
    """Draw `matrix` (n, n) in colours (n, n, 4), with numbers where there is room."""
    n = len(matrix)
    frame, frame_width = (INK, 1.5) if framed else (RULE, 1.0)
    canvas.image(
        np.rint(colors[..., :3] * 255).astype(np.uint8),
        x,
        y,
        n * cell,
        n * cell,
        frame=frame,
        frame_width=frame_width,
    )
    if n > MAX_LABELLED_VARIABLES:
        return
    for k in np.flatnonzero(np.diagonal(matrix) == 0):  # no variable causes itself
        canvas.add(
            Rectangle(
                (x + k * cell, y + k * cell), cell, cell, facecolor="#eef0f3", edgecolor="none"
            )
        )
    decimals = 0 if (matrix == np.rint(matrix)).all() else 2
    for j, i in np.argwhere(np.abs(matrix) >= 0.005):  # 0.00 is left blank
        color = "white" if colors[j, i, :3] @ (0.3, 0.6, 0.1) < 0.5 else INK
        middle = x + (i + 0.5) * cell, y + (j + 0.5) * cell
        text = f"{matrix[j, i]:.{decimals}f}".replace("-", "−")
        canvas.text(
            *middle,
            text,
            size=min(9.0, 0.34 * cell),
            color=color,
            ha="center",
            va="center_baseline",
        )


def _draw_names(
    canvas: Canvas, names: list[str], x: float, y: float, cell: float, size: float, *, causes: bool
) -> None:
    """Draw effects below the columns, and causes to the left of the rows."""
    for k, name in enumerate(names):
        canvas.text(
            x + (k + 0.5) * cell,
            y + len(names) * cell + 6,
            name,
            size=size,
            color=FAINT,
            ha="center",
            va="top",
            rotation=90,
        )
        canvas.text(
            x - 8,
            y + (k + 0.5) * cell,
            name if causes else "",
            size=size,
            color=FAINT,
            ha="right",
            va="center_baseline",
        )


def _draw_colour_bar(canvas: Canvas, largest: float, x: float, y: float, height: float) -> None:
    """Draw the colour bar of strengths."""
    ramp = DIVERGING(np.linspace(1, 0, 101))[:, None, :3]
    canvas.image(np.rint(ramp * 255).astype(np.uint8), x, y, 10, height)
    for share, value in ((0.0, largest), (0.5, 0.0), (1.0, -largest)):
        canvas.text(
            x + 15,
            y + share * height,
            format_number(value, 2),
            size=SMALL,
            color=FAINT,
            va="center_baseline",
        )
    canvas.text(x, y - 12, "strength", size=SMALL)
