"""Curves of an experiment's numbers over depth, a parameter, or the size of a problem."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.result_rows import (
    ERROR_BAR,
    LEGEND_LINE,
    PAPER,
    Row,
    axis_label_style,
    draw_legend,
    format_axis,
    job_rows,
    legend_height,
    metric_label,
    series_colours,
)
from intervae.figures.style import INK, LINE, MARGIN, SMALL
from intervae.figures.text_layout import format_number, printable, wrap_title


# ---- over depth ----------------------------------------------------------------------------------
def curves_over_depth(
    path: str | Path, rows: Sequence[Row], *, metric: str, layers: Sequence[str], title: str = ""
) -> None:
    """Draw `metric` over the number of layers, and the metrics `layers` of the deepest models.

    The left panel has a line per variant, the paper's dashed; the others have a bar per variant in
    each layer. A variant is a name and a number of layers, such as "VAE+BN 3", perhaps followed by
    more words; the layer is the `part` of a row.
    """
    check_suffix(path)
    series = _by_depth(job_rows(rows, (metric,)))
    colours = dict(zip(series, series_colours(series), strict=True))
    layers = [name for name in layers if any(r["metric"] == name and r["part"] for r in rows)]
    left, panel_width, panel_height, gap = 52.0, 270.0, 210.0, 46.0
    width = 2 * MARGIN + left + panel_width + len(layers) * (gap + panel_width)
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    top = MARGIN + head + legend_height(list(series), width - 2 * MARGIN) + 30
    canvas = Canvas(width, top + panel_height + 42)
    canvas.title(title_text)
    draw_legend(canvas, MARGIN + head + SMALL * LINE / 2, colours, paper="paper (dashed)")
    axes = canvas.panel(MARGIN + left, top, panel_width, panel_height)
    canvas.text(MARGIN + left, top - 12, metric_label(metric), weight="bold")
    for name, points in series.items():
        _draw_depth(axes, points, colours[name])
    axes.set_xlabel("layers", **axis_label_style())
    for k, name in enumerate(layers, 1):
        x = MARGIN + left + k * (panel_width + gap)
        axes = canvas.panel(x, top, panel_width, panel_height)
        canvas.text(
            x, top - 12, f"{metric_label(name)} in each layer of the deepest", weight="bold"
        )
        shown = [row for row in rows if row["metric"] == name and row["part"]]
        _draw_layers(axes, shown, series, colours)
    canvas.save(path)


def _by_depth(rows: Sequence[Row]) -> dict[str, list[tuple[int, Row]]]:
    """Return name -> (number of layers, row), sorted by depth."""
    series: dict[str, list[tuple[int, Row]]] = {}
    for row in rows:
        match = re.fullmatch(r"(.+?) (\d+)( .+)?", row["variant"])
        if match is None:
            raise DataError(
                f"the variant {row['variant']!r} has no number of layers; "
                "it is a name and a number, such as 'VAE+BN 3'."
            )
        series.setdefault(f"{match[1]}{match[3] or ''}", []).append((int(match[2]), row))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in series.items()}


def _draw_depth(axes: Axes, points: Sequence[tuple[int, Row]], colour: str) -> None:
    axes.errorbar(
        [depth for depth, _ in points],
        [row["mean"] for _, row in points],
        [row["std"] for _, row in points],
        color=colour,
        linewidth=1.8,
        marker="o",
        markersize=4.5,
        **ERROR_BAR,
    )
    paper = [(depth, row["paper"]) for depth, row in points if "paper" in row]
    dashed = {
        **PAPER,
        "markeredgecolor": colour,
        "color": colour,
        "linestyle": (0, (4, 2)),
        "linewidth": 1.2,
        "markersize": 4.0,
    }
    axes.plot([depth for depth, _ in paper], [value for _, value in paper], **dashed)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    format_axis(axes.yaxis)


def _draw_layers(
    axes: Axes,
    rows: Sequence[Row],
    series: Mapping[str, list[tuple[int, Row]]],
    colours: Mapping[str, str],
) -> None:
    layers: dict[str, None] = {}
    for k, (name, points) in enumerate(series.items()):
        deepest = points[-1][1]["variant"]
        by_layer = {row["part"]: row for row in rows if row["variant"] == deepest}
        layers |= dict.fromkeys(by_layer)
        step = 0.86 / len(series)
        shift = (k - (len(series) - 1) / 2) * step
        axes.bar(
            [list(layers).index(layer) + shift for layer in by_layer],
            [row["mean"] for row in by_layer.values()],
            0.9 * step,
            color=colours[name],
            yerr=[row["std"] for row in by_layer.values()],
            error_kw=ERROR_BAR,
            ecolor=INK,
        )
    axes.set_xticks(range(len(layers)), [printable(layer) for layer in layers])
    axes.set(xlim=(-0.6, max(len(layers), 1) - 0.4), ylim=(0, None))
    axes.grid(False, axis="x")
    format_axis(axes.yaxis)


# ---- over a parameter ----------------------------------------------------------------------------
def curves_over_parameter(
    path: str | Path,
    rows: Sequence[Row],
    *,
    panels: Mapping[str, Mapping[str, str]],
    across: str,
    title: str = "",
) -> None:
    """Draw a panel for each entry of `panels`, with error bars over seeds.

    Arguments:
        panels: title of a panel -> {metric: name of its line}.
        across: label of the logarithmic axis. The value of a row is its `part` or, without one,
            the number at the end of its variant; rows without a number are left out.
    """
    check_suffix(path)
    metrics = {metric for lines in panels.values() for metric in lines}
    points = [
        (value, row)
        for row in rows
        if row["metric"] in metrics and (value := _parameter(row)) is not None
    ]
    shown = {row["metric"] for _, row in points}
    names = list(
        dict.fromkeys(
            name for lines in panels.values() for metric, name in lines.items() if metric in shown
        )
    )
    colours = dict(zip(names, series_colours(names), strict=True))
    left, panel_width, panel_height = 52.0, 290.0, 200.0
    width = 2 * MARGIN + len(panels) * (left + panel_width)
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    top = MARGIN + head + LEGEND_LINE + 30
    canvas = Canvas(width, top + panel_height + 42)
    canvas.title(title_text)
    draw_legend(canvas, MARGIN + head + SMALL * LINE / 2, colours, paper="")
    for k, (panel_title, lines) in enumerate(panels.items()):
        x = MARGIN + left + k * (left + panel_width)
        axes = canvas.panel(x, top, panel_width - 8, panel_height)
        canvas.text(x, top - 12, panel_title, weight="bold")
        for metric, name in lines.items():
            if metric in shown:
                line = [(value, row) for value, row in points if row["metric"] == metric]
                _draw_line(axes, sorted(line, key=lambda point: point[0]), colours[name])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, 6)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(across, **axis_label_style())
        format_axis(axes.yaxis)
    canvas.save(path)


def _parameter(row: Row) -> float | None:
    """Return the value of a row on the parameter axis, None where it has none."""
    text = str(row["part"] or (row["variant"].split() or [""])[-1])
    return float(text) if re.fullmatch(r"[0-9.e+-]+", text) else None


def _draw_line(axes: Axes, points: Sequence[tuple[float, Row]], colour: str) -> None:
    axes.errorbar(
        [value for value, _ in points],
        [row["mean"] for _, row in points],
        [row["std"] for _, row in points],
        color=colour,
        marker="o",
        markersize=4,
        **ERROR_BAR,
    )
