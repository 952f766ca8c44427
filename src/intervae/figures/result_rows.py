"""Rows of a results file, and what the figures drawn from them share: legends, labels, markers.

A row is one number: `data`, `model`, `variant`, `part`, `metric`, `mean`, `std`, and the `paper`'s
number where it has one. Bars accept rows of the paper's number alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import FuncFormatter, MaxNLocator

from intervae.errors import DataError
from intervae.figures.canvas import Canvas
from intervae.figures.style import FAINT, INK, LINE, MARGIN, SERIES, SMALL
from intervae.figures.text_layout import font, format_number, printable, text_width

Row = Mapping[str, Any]
PAPER: dict[str, Any] = {
    "marker": "D",
    "markersize": 5.0,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "linestyle": "none",
}
ERROR_BAR: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "capthick": 1.2}
ACRONYMS = ("mic", "tic", "mae", "kl")
LEGEND_LINE = SMALL * LINE * 1.4  # height of a line of a legend


def job_rows(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """Return the rows of these metrics that belong to a job as a whole, not to a part of it."""
    selected = [row for row in rows if row["metric"] in metrics and not row["part"]]
    missing = [metric for metric in metrics if not any(row["metric"] == metric for row in selected)]
    if missing:
        names = ", ".join(sorted({str(row["metric"]) for row in rows}))
        raise DataError(
            f"there are no numbers of {missing[0]!r} to draw; the results have {names}."
        )
    return selected


def series_colours(names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [SERIES[k % len(SERIES)] for k in range(len(names))]


def metric_label(metric: str, acronyms: Sequence[str] = ACRONYMS) -> str:
    return " ".join(
        word.upper() if word in acronyms else word for word in printable(metric).split("_")
    )


def axis_label_style() -> dict[str, Any]:
    return {"color": FAINT, "fontproperties": font(SMALL), "labelpad": 3}


def format_axis(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, 6)))


def legend_positions(
    names: Sequence[str], width: float, symbol: float = 18.0
) -> list[tuple[float, int]]:
    """Return x and line of each entry of a legend of `width`, with symbols of width `symbol`."""
    positions, x, line = [], 0.0, 0
    for name in names:
        needed = symbol + text_width(name, SMALL)
        if x and x + needed > width:
            x, line = 0.0, line + 1
        positions.append((x, line))
        x += needed + 16
    return positions


def legend_height(names: Sequence[str], width: float) -> float:
    return (legend_positions([*names, "paper (dashed)"], width)[-1][1] + 1) * LEGEND_LINE


def draw_legend(canvas: Canvas, y: float, colours: Mapping[str, str], paper: str = "paper") -> None:
    """Draw an entry for each name in `colours`, and one for the paper's numbers unless empty."""
    names = [*(printable(name) for name in colours), *([paper] if paper else [])]
    symbols = [
        {"marker": "s", "markersize": 8, "color": colour, "linestyle": "none"}
        for colour in colours.values()
    ]
    for (x, line), name, symbol in zip(
        legend_positions(names, canvas.width - 2 * MARGIN),
        names,
        [*symbols, PAPER][: len(names)],
        strict=True,
    ):
        left, middle = MARGIN + x, y + line * LEGEND_LINE
        canvas.axes.plot([left + 5], [middle], **symbol)
        canvas.text(left + 18, middle, name, size=SMALL)
