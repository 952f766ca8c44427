"""Bars of the number of values of each factor of several data sets (CT-VAE, Fig. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.result_rows import Row
from intervae.figures.style import LINE, MARGIN, RULE, SERIES, SMALL
from intervae.figures.text_layout import font, format_number, printable, text_width, wrap_title

BAR_HEIGHT, PANEL_WIDTH, NUMBER_WIDTH, BETWEEN = 17.0, 330.0, 34.0, 30.0


def factor_bars(path: str | Path, rows: Sequence[Row], *, metric: str, title: str = "") -> None:
    """Draw a panel per data set with a horizontal bar per factor, the row's `part`.

    All panels have the same scale, so bars compare between data sets.
    """
    check_suffix(path)
    rows = [row for row in rows if row["metric"] == metric and row["part"]]
    data_sets = list(dict.fromkeys(row["data"] for row in rows))
    names = [printable(row["part"]) for row in rows]
    left = max(text_width(name, SMALL) for name in names) + 12
    largest = max(row["mean"] for row in rows)
    width = 2 * MARGIN + left + PANEL_WIDTH + NUMBER_WIDTH
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    top = MARGIN + head + SMALL * LINE
    canvas = Canvas(width, top + len(rows) * BAR_HEIGHT + len(data_sets) * BETWEEN)
    canvas.title(title_text)
    for data in data_sets:
        own = [row for row in rows if row["data"] == data]
        canvas.text(MARGIN, top, printable(data), weight="bold")
        top += SMALL * LINE
        axes = canvas.panel(MARGIN + left, top, PANEL_WIDTH, len(own) * BAR_HEIGHT)
        for k, row in enumerate(own):
            axes.barh(k, row["mean"], 0.74, color=SERIES[k % len(SERIES)])
            axes.text(
                row["mean"] + 5 * largest / PANEL_WIDTH,
                k,
                format_number(row["mean"], 6),
                va="center",
                fontproperties=font(SMALL),
            )
            y = top + (k + 0.5) * BAR_HEIGHT
            name = printable(row["part"])
            canvas.text(MARGIN + left - 6, y, name, size=SMALL, ha="right")
        axes.set(xlim=(0, largest), ylim=(len(own) - 0.5, -0.5), xticks=[], yticks=[])
        axes.spines["left"].set(color=RULE)
        axes.spines["bottom"].set_visible(False)
        top += len(own) * BAR_HEIGHT + BETWEEN - SMALL * LINE
    canvas.save(path)
