"""Curves of several methods over the size of a problem (CMCL, Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.result_rows import (
    LEGEND_LINE,
    Row,
    axis_label_style,
    format_axis,
    legend_positions,
    metric_label,
)
from intervae.figures.style import LINE, MARGIN, SERIES, SMALL
from intervae.figures.text_layout import printable, wrap_title

DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.5)))  # of the learners of methods "model + learner"
PANEL_WIDTH, PANEL_HEIGHT, LEFT, BETWEEN = 270.0, 150.0, 46.0, 62.0
COLOURS = 24  # of the PNG, for a small file
ACRONYMS = ("shd", "tpr", "fpr", "fdr", "mic")
SYMBOL = 30.0  # width of the line of a legend's entry


def curves_over_size(
    path: str | Path, rows: Sequence[Row], *, metrics: Sequence[str], across: str, title: str = ""
) -> None:
    """Draw a panel per metric, two in a row, with a line per method through its mean at each size.

    A size is the number at the start of a row's variant ("8/16" is 8). Methods "model + learner"
    share the colour of their model, and the dashes of their learner; other methods have error bars
    over seeds.
    """
    check_suffix(path)
    rows = [row for row in rows if row["metric"] in metrics and not row["part"]]
    methods = list(dict.fromkeys(row["model"] for row in rows))
    sizes = sorted({_size(row) for row in rows})
    width = 2 * MARGIN + min(2, len(metrics)) * (LEFT + PANEL_WIDTH)
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    positions = legend_positions(
        [printable(method) for method in methods], width - 2 * MARGIN, SYMBOL
    )
    top = MARGIN + head + (positions[-1][1] + 1) * LEGEND_LINE + 24
    canvas = Canvas(width, top + -(-len(metrics) // 2) * (PANEL_HEIGHT + BETWEEN))
    canvas.title(title_text)
    for method, (x, line) in zip(methods, positions, strict=True):
        left, y = MARGIN + x, MARGIN + head + SMALL * LINE / 2 + line * LEGEND_LINE
        canvas.axes.plot([left, left + SYMBOL - 8], [y, y], **_line_style(method, methods))
        canvas.text(left + SYMBOL, y, printable(method), size=SMALL)
    for k, metric in enumerate(metrics):
        x = MARGIN + LEFT + (k % 2) * (LEFT + PANEL_WIDTH)
        y = top + (k // 2) * (PANEL_HEIGHT + BETWEEN)
        axes = canvas.panel(x, y, PANEL_WIDTH - 10, PANEL_HEIGHT)
        canvas.text(x, y - 12, metric_label(metric, ACRONYMS), weight="bold")
        for method in methods:
            points = sorted(
                (row for row in rows if row["metric"] == metric and row["model"] == method),
                key=_size,
            )
            along = [sizes.index(_size(row)) for row in points]
            means = [row["mean"] for row in points]
            if split_method(method)[1]:
                axes.plot(along, means, **_line_style(method, methods))
            else:  # error bars of few lines only, as many would hide each other
                axes.errorbar(
                    along,
                    means,
                    [row["std"] for row in points],
                    elinewidth=0.8,
                    marker="o",
                    markersize=3.5,
                    **_line_style(method, methods),
                )
        axes.set_xticks(np.arange(len(sizes)), [str(size) for size in sizes])
        negative = any(row["mean"] < 0 for row in rows)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if negative else 0.0)
        format_axis(axes.yaxis)
        axes.set_xlabel(across, **axis_label_style())
    canvas.save(path, colours=COLOURS)


def split_method(method: str) -> tuple[str, str]:
    """Return ("beta-vae", "ges") of "beta-vae + ges", and ("cmcl", "") of "cmcl".

    Results store a model and the graph learner applied to its latents under one name.
    """
    model, _, learner = method.partition(" + ")
    return model, learner


def _size(row: Row) -> int:
    """Return the size at the start of a stored variant: 8 of "8/16"."""
    return int(str(row["variant"]).partition("/")[0])


def _line_style(method: str, methods: Sequence[str]) -> dict[str, Any]:
    pairs = [split_method(name) for name in methods]
    models = list(dict.fromkeys(model for model, _ in pairs))
    learners = list(dict.fromkeys(learner for _, learner in pairs if learner))
    model, learner = split_method(method)
    dashes = DASHES[learners.index(learner) % len(DASHES)] if learner else "-"
    return {
        "color": SERIES[models.index(model) % len(SERIES)],
        "linestyle": dashes,
        "linewidth": 1.2 if learner else 2.4,
    }
