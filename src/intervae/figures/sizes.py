"""Lines of several methods over the size of a problem, a panel for each number (CMCL, Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from intervae.figures.results import Row
from intervae.figures.style import FAINT, LINE, MARGIN, SERIES, SMALL, Canvas, font, heading, known_suffix, number, put_heading, readable, text_width

DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.5)))  # of the second parts of methods: "model + learner"
WIDE, HIGH, LEFT, BETWEEN = 270.0, 150.0, 46.0, 62.0
COLOURS = 24  # and shades between them, so that a dozen lines stay a small file
RATES = ("shd", "tpr", "fpr", "fdr", "mic")
KEY = 30.0  # of a legend's entry


def lines_over_sizes(path: str | Path, rows: Sequence[Row], *, metrics: Sequence[str], across: str, title: str = "") -> None:
    """A panel for each metric, two in a row; a line for each method through its mean at every size.

    Methods that stand alone have bars for the standard deviation over seeds. A size is the number that a row's variant begins with ("8/16" is 8);
    methods "a + b" that share a have one colour, and b sets the dashes.
    """
    known_suffix(path)
    shown = [row for row in rows if row["metric"] in metrics and not row["part"]]
    methods = list(dict.fromkeys(row["model"] for row in shown))
    sizes = sorted({_size(row) for row in shown})
    width = 2 * MARGIN + min(2, len(metrics)) * (LEFT + WIDE)
    words, head = heading(title, width - 2 * MARGIN)
    places = _legend(methods, width - 2 * MARGIN)
    top = MARGIN + head + (places[-1][1] + 1) * SMALL * LINE * 1.4 + 24
    canvas = Canvas(width, top + -(-len(metrics) // 2) * (HIGH + BETWEEN))
    put_heading(canvas, words)
    for method, (x, line) in zip(methods, places, strict=True):
        at = MARGIN + x, MARGIN + head + SMALL * LINE / 2 + line * SMALL * LINE * 1.4
        canvas.axes.plot([at[0], at[0] + KEY - 8], [at[1], at[1]], **_look(method, methods))
        canvas.text(at[0] + KEY, at[1], readable(method), size=SMALL)
    for k, metric in enumerate(metrics):
        x, y = MARGIN + LEFT + (k % 2) * (LEFT + WIDE), top + (k // 2) * (HIGH + BETWEEN)
        axes = canvas.panel(x, y, WIDE - 10, HIGH)
        canvas.text(x, y - 12, " ".join(word.upper() if word in RATES else word for word in metric.split("_")), weight="bold")
        for method in methods:
            own = sorted((row for row in shown if row["metric"] == metric and row["model"] == method), key=_size)
            along, means = [sizes.index(_size(row)) for row in own], [row["mean"] for row in own]
            if " + " in method:
                axes.plot(along, means, **_look(method, methods))
            else:  # bars for those that stand alone only, as those of a dozen lines hide each other
                axes.errorbar(along, means, [row["std"] for row in own], elinewidth=0.8, marker="o", markersize=3.5, **_look(method, methods))
        axes.set_xticks(np.arange(len(sizes)), [str(size) for size in sizes])
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if any(row["mean"] < 0 for row in shown) else 0.0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 6)))
        axes.set_xlabel(across, color=FAINT, fontproperties=font(SMALL), labelpad=3)
    canvas.save(path, colours=COLOURS)


def _size(row: Row) -> int:
    return int(str(row["variant"]).partition("/")[0])


def _look(method: str, methods: Sequence[str]) -> dict[str, Any]:
    first = list(dict.fromkeys(name.partition(" + ")[0] for name in methods))
    second = list(dict.fromkeys(name.partition(" + ")[2] for name in methods if " + " in name))
    model, _, learner = method.partition(" + ")
    dashes = DASHES[second.index(learner) % len(DASHES)] if learner else "-"
    return {"color": SERIES[first.index(model) % len(SERIES)], "linestyle": dashes, "linewidth": 1.2 if learner else 2.4}


def _legend(names: Sequence[str], width: float) -> list[tuple[float, int]]:
    """x and line of each entry."""
    places, x, line = [], 0.0, 0
    for name in names:
        needed = KEY + text_width(readable(name), SMALL)
        if x and x + needed > width:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += needed + 16
    return places
