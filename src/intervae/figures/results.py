"""Figures of an experiment's numbers beside the paper's: bars for methods on several data sets, bars for a ranking, lines over depth.

A row is one number of a results file: `data`, `model`, `variant`, `part`, `metric`, `mean`, `std`, and the `paper`'s where it gives one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from intervae.errors import DataError
from intervae.figures.style import (
    BLUE,
    FAINT,
    INK,
    LINE,
    MARGIN,
    RULE,
    SERIES,
    SMALL,
    Canvas,
    font,
    heading,
    known_suffix,
    number,
    put_heading,
    readable,
    text_width,
    wrap,
)

Row = Mapping[str, Any]
PAPER: dict[str, Any] = {
    "marker": "D",
    "markersize": 5.0,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "linestyle": "none",
}
ERROR: dict[str, Any] = {"elinewidth": 1.2, "capsize": 2.5, "capthick": 1.2}


def grouped_bars(path: str | Path, rows: Sequence[Row], *, metrics: Sequence[str], title: str = "") -> None:
    """One panel for each metric, a group of bars for each data set and variant, a bar for each model; a diamond is the paper's number."""
    known_suffix(path)
    whole = _whole(rows, metrics)
    models = list(dict.fromkeys(row["model"] for row in whole))
    groups = list(dict.fromkeys((row["data"], row["variant"]) for row in whole))
    left, high, between = 40.0, 150.0, 42.0
    width = max(420.0, left + len(groups) * (20.0 * len(models) + 26) + 2 * MARGIN)
    words, head = heading(title, width - 2 * MARGIN)
    lines = _legend_lines(models, width - 2 * MARGIN)
    top = MARGIN + head + lines * SMALL * LINE * 1.4 + 2
    canvas = Canvas(width, top + len(metrics) * (high + between) - 6)
    put_heading(canvas, words)
    _put_legend(canvas, MARGIN + head + SMALL * LINE / 2, dict(zip(models, _colours(models), strict=True)))
    for k, metric in enumerate(metrics):
        y = top + k * (high + between) + 12
        axes = canvas.panel(MARGIN + left, y, width - left - 2 * MARGIN, high)
        canvas.text(MARGIN + left, y - 12, _words(metric), weight="bold")
        _draw_groups(axes, [row for row in whole if row["metric"] == metric], groups, models)
    canvas.save(path)


def ranking(path: str | Path, rows: Sequence[Row], *, metric: str, chance: float | None = None, title: str = "") -> None:
    """A horizontal bar for each model and variant, in the order of the rows; a diamond is the paper's number, a dotted line chance."""
    known_suffix(path)
    whole = _whole(rows, (metric,))
    names = [readable(f"{row['model']} {row['variant']}") for row in whole]
    left, wide, high = max(text_width(name, SMALL) for name in names) + 14, 400.0, 22.0 * len(names)
    width = 2 * MARGIN + left + wide
    words, head = heading(title, width - 2 * MARGIN)
    top = MARGIN + head + SMALL * LINE + 10
    canvas = Canvas(width, top + high + 48)
    put_heading(canvas, words)
    _put_legend(canvas, MARGIN + head + SMALL * LINE / 2, {"ours": BLUE})
    axes = canvas.panel(MARGIN + left, top, wide - 10, high)
    places = np.arange(len(whole))
    axes.barh(places, [row["mean"] for row in whole], 0.62, color=BLUE, xerr=[row["std"] for row in whole], error_kw=ERROR, ecolor=INK)
    known = [(row["paper"], k) for k, row in enumerate(whole) if "paper" in row]
    axes.plot([value for value, _ in known], [place for _, place in known], **PAPER)
    axes.set(ylim=(len(whole) - 0.4, -0.6), xlim=(0, None))
    axes.set_yticks(places, names)
    axes.grid(False, axis="y")
    if chance is not None:
        axes.axvline(chance, color=FAINT, linewidth=1.2, linestyle=(0, (1, 2)))
    _number_axis(axes.xaxis)
    axes.set_xlabel(_words(metric) + (f"; dotted: chance, {number(chance)}" if chance is not None else ""), **_label())
    canvas.save(path)


def depth_curves(path: str | Path, rows: Sequence[Row], *, metric: str, units: str, title: str = "") -> None:
    """Left: `metric` over the number of layers, one line for each variant, the paper's dashed. Right: `units` of each layer of the deepest.

    A variant is a name and its number of layers, "VAE+BN 3", and what else tells it apart after it; the layer is the `part` of `units`.
    """
    known_suffix(path)
    series = _by_depth(_whole(rows, (metric,)))
    colours = dict(zip(series, _colours(series), strict=True))
    left, wide, high, gap = 52.0, 270.0, 210.0, 46.0
    width = 2 * MARGIN + left + 2 * wide + gap
    words, head = heading(title, width - 2 * MARGIN)
    top = MARGIN + head + _legend_lines(list(series), width - 2 * MARGIN) * SMALL * LINE * 1.4 + 30
    canvas = Canvas(width, top + high + 42)
    put_heading(canvas, words)
    _put_legend(canvas, MARGIN + head + SMALL * LINE / 2, colours, paper="paper (dashed)")
    axes = canvas.panel(MARGIN + left, top, wide, high)
    canvas.text(MARGIN + left, top - 12, _words(metric), weight="bold")
    for name, points in series.items():
        _draw_depth(axes, points, colours[name])
    axes.set_xlabel("layers", **_label())
    x = MARGIN + left + wide + gap
    axes = canvas.panel(x, top, wide, high)
    canvas.text(x, top - 12, f"{_words(units)} in each layer of the deepest", weight="bold")
    _draw_units(axes, [row for row in rows if row["metric"] == units and row["part"]], series, colours)
    canvas.save(path)


def curves_over(path: str | Path, rows: Sequence[Row], *, panels: Mapping[str, Mapping[str, str]], across: str, title: str = "") -> None:
    """A panel for each entry of `panels`, its title -> {metric: name of the line}; `part` is the number along the logarithmic axis `across`, or, for
    rows without a part, the number at the end of the job's variant. Bars are the standard deviation over seeds."""
    known_suffix(path)
    shown = {row["metric"] for row in rows if _numbered(row)}
    names = list(dict.fromkeys(name for lines in panels.values() for metric, name in lines.items() if metric in shown))
    colours = dict(zip(names, _colours(names), strict=True))
    left, wide, high = 52.0, 290.0, 200.0
    width = 2 * MARGIN + len(panels) * (left + wide)
    words, head = heading(title, width - 2 * MARGIN)
    top = MARGIN + head + SMALL * LINE * 1.4 + 30
    canvas = Canvas(width, top + high + 42)
    put_heading(canvas, words)
    _put_legend(canvas, MARGIN + head + SMALL * LINE / 2, colours, paper="")
    for k, (heading_of_panel, lines) in enumerate(panels.items()):
        x = MARGIN + left + k * (left + wide)
        axes = canvas.panel(x, top, wide - 8, high)
        canvas.text(x, top - 12, heading_of_panel, weight="bold")
        for metric, name in lines.items():
            if metric not in shown:
                continue
            found = [(float(row["part"] or row["variant"].split()[-1]), row) for row in rows if row["metric"] == metric and _numbered(row)]
            points = sorted(found, key=lambda point: point[0])
            spread = [row["std"] for _, row in points]
            axes.errorbar([p for p, _ in points], [row["mean"] for _, row in points], spread, color=colours[name], marker="o", markersize=4, **ERROR)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 6)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(across, **_label())
        _number_axis(axes.yaxis)
    canvas.save(path)


def _numbered(row: Row) -> bool:
    """Whether the row says where along an axis it stands."""
    return re.fullmatch(r"[0-9.e+-]+", str(row["part"] or (row["variant"].split() or [""])[-1])) is not None


# ---- parts ----------------------------------------------------------------------------------------------------------
def _whole(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """The rows of these metrics that are about a whole job, not about a variable of it."""
    found = [row for row in rows if row["metric"] in metrics and not row["part"]]
    missing = [metric for metric in metrics if not any(row["metric"] == metric for row in found)]
    if missing:
        raise DataError(
            f"there are no numbers of {missing[0]!r} to draw; the results have {', '.join(sorted({str(row['metric']) for row in rows}))}."
        )
    return found


def _colours(names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [SERIES[k % len(SERIES)] for k in range(len(names))]


def _words(metric: str) -> str:
    return " ".join(word.upper() if word in ("mic", "tic", "mae", "kl") else word for word in readable(metric).split("_"))


def _label() -> dict[str, Any]:
    return {"color": FAINT, "fontproperties": font(SMALL), "labelpad": 3}


def _number_axis(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 6)))


def _legend_places(names: Sequence[str], width: float) -> list[tuple[float, int]]:
    """x and line of each entry of a legend that is as wide as `width`."""
    places, x, line = [], 0.0, 0
    for name in names:
        needed = 18 + text_width(name, SMALL) + 16
        if x and x + needed - 16 > width:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += needed
    return places


def _legend_lines(names: Sequence[str], width: float) -> int:
    return _legend_places([*names, "paper (dashed)"], width)[-1][1] + 1


def _put_legend(canvas: Canvas, y: float, colours: Mapping[str, str], paper: str = "paper") -> None:
    names = [*(readable(name) for name in colours), *([paper] if paper else [])]
    for (x, line), name, colour in zip(_legend_places(names, canvas.width - 2 * MARGIN), names, [*colours.values(), None][: len(names)], strict=True):
        at = MARGIN + x, y + line * SMALL * LINE * 1.4
        how = PAPER if colour is None else {"marker": "s", "markersize": 8, "color": colour, "linestyle": "none"}
        canvas.axes.plot([at[0] + 5], [at[1]], **how)
        canvas.text(at[0] + 18, at[1], name, size=SMALL)


def _draw_groups(axes: Axes, rows: Sequence[Row], groups: Sequence[tuple[str, str]], models: Sequence[str]) -> None:
    step = 0.86 / len(models)
    papers = []
    for k, (model, colour) in enumerate(zip(models, _colours(models), strict=True)):
        own = [(groups.index((row["data"], row["variant"])) + (k - (len(models) - 1) / 2) * step, row) for row in rows if row["model"] == model]
        places = [place for place, _ in own]
        spread = [row["std"] for _, row in own]
        axes.bar(places, [row["mean"] for _, row in own], 0.88 * step, color=colour, yerr=spread, error_kw=ERROR, ecolor=INK)
        papers += [(place, row["paper"]) for place, row in own if "paper" in row]
    axes.plot([place for place, _ in papers], [value for _, value in papers], **PAPER)
    low = min(0.0, *(row["mean"] - row["std"] for row in rows))
    axes.set(xlim=(-0.55, len(groups) - 0.45), ylim=(low * 1.08, None))
    one_data = len({data for data, _ in groups}) == 1 and all(variant for _, variant in groups)
    names = [variant if one_data else f"{data} {variant}".strip() for data, variant in groups]
    axes.set_xticks(range(len(groups)), [wrap(name, 110, SMALL) for name in names])
    axes.grid(False, axis="x")
    axes.axhline(0, color=RULE, linewidth=1)
    _number_axis(axes.yaxis)


def _by_depth(rows: Sequence[Row]) -> dict[str, list[tuple[int, Row]]]:
    """name -> (number of layers, row), by depth."""
    series: dict[str, list[tuple[int, Row]]] = {}
    for row in rows:
        parts = re.fullmatch(r"(.+?) (\d+)( .+)?", row["variant"])
        if parts is None:
            raise DataError(f"the variant {row['variant']!r} has no number of layers; it is a name and a number, such as 'VAE+BN 3'.")
        series.setdefault(f"{parts[1]}{parts[3] or ''}", []).append((int(parts[2]), row))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in series.items()}


def _draw_depth(axes: Axes, points: Sequence[tuple[int, Row]], colour: str) -> None:
    depths = [depth for depth, _ in points]
    spread = [row["std"] for _, row in points]
    axes.errorbar(depths, [row["mean"] for _, row in points], spread, color=colour, linewidth=1.8, marker="o", markersize=4.5, **ERROR)
    known = [(depth, row["paper"]) for depth, row in points if "paper" in row]
    axes.plot(
        [depth for depth, _ in known],
        [value for _, value in known],
        **{**PAPER, "markeredgecolor": colour, "color": colour, "linestyle": (0, (4, 2)), "linewidth": 1.2, "markersize": 4.0},
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _number_axis(axes.yaxis)


def _draw_units(axes: Axes, rows: Sequence[Row], series: Mapping[str, list[tuple[int, Row]]], colours: Mapping[str, str]) -> None:
    layers: dict[str, None] = {}
    for k, (name, points) in enumerate(series.items()):
        own = {row["part"]: row for row in rows if row["variant"] == points[-1][1]["variant"]}
        layers |= dict.fromkeys(own)
        step = 0.86 / len(series)
        places = [list(layers).index(layer) + (k - (len(series) - 1) / 2) * step for layer in own]
        spread = [row["std"] for row in own.values()]
        axes.bar(places, [row["mean"] for row in own.values()], 0.9 * step, color=colours[name], yerr=spread, error_kw=ERROR, ecolor=INK)
    axes.set_xticks(range(len(layers)), [readable(layer) for layer in layers])
    axes.set(xlim=(-0.6, max(len(layers), 1) - 0.4), ylim=(0, None))
    axes.grid(False, axis="x")
    _number_axis(axes.yaxis)
