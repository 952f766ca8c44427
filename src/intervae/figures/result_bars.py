"""Bars of an experiment's numbers next to the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.result_rows import (
    ERROR_BAR,
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
from intervae.figures.style import BLUE, FAINT, INK, LINE, MARGIN, RULE, SMALL
from intervae.figures.text_layout import format_number, printable, text_width, wrap, wrap_title


def grouped_bars(
    path: str | Path, rows: Sequence[Row], *, metrics: Sequence[str], title: str = ""
) -> None:
    """Draw a panel per metric, a group of bars per data set and variant, a bar per model.

    Diamonds are the paper's numbers. A row without a `mean` has a diamond and no bar.
    """
    check_suffix(path)
    rows = job_rows(rows, metrics)
    models = list(dict.fromkeys(row["model"] for row in rows))
    groups = list(dict.fromkeys((row["data"], row["variant"]) for row in rows))
    left, panel_height, between = 40.0, 150.0, 42.0
    width = max(420.0, left + len(groups) * (20.0 * len(models) + 26) + 2 * MARGIN)
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    top = MARGIN + head + legend_height(models, width - 2 * MARGIN) + 2
    canvas = Canvas(width, top + len(metrics) * (panel_height + between) - 6)
    canvas.title(title_text)
    colours = dict(zip(models, series_colours(models), strict=True))
    draw_legend(canvas, MARGIN + head + SMALL * LINE / 2, colours)
    for k, metric in enumerate(metrics):
        y = top + k * (panel_height + between) + 12
        axes = canvas.panel(MARGIN + left, y, width - left - 2 * MARGIN, panel_height)
        canvas.text(MARGIN + left, y - 12, metric_label(metric), weight="bold")
        _draw_groups(axes, [row for row in rows if row["metric"] == metric], groups, colours)
    canvas.save(path)


def horizontal_bars(
    path: str | Path,
    rows: Sequence[Row],
    *,
    metric: str,
    chance: float | None = None,
    title: str = "",
) -> None:
    """Draw a horizontal bar per model and variant, in the order of the rows.

    Diamonds are the paper's numbers, a dotted line is chance.
    """
    check_suffix(path)
    rows = job_rows(rows, (metric,))
    names = [printable(f"{row['model']} {row['variant']}") for row in rows]
    left = max(text_width(name, SMALL) for name in names) + 14
    panel_width, panel_height = 400.0, 22.0 * len(names)
    width = 2 * MARGIN + left + panel_width
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    top = MARGIN + head + SMALL * LINE + 10
    canvas = Canvas(width, top + panel_height + 48)
    canvas.title(title_text)
    draw_legend(canvas, MARGIN + head + SMALL * LINE / 2, {"ours": BLUE})
    axes = canvas.panel(MARGIN + left, top, panel_width - 10, panel_height)
    positions = np.arange(len(rows))
    axes.barh(
        positions,
        [row["mean"] for row in rows],
        0.62,
        color=BLUE,
        xerr=[row["std"] for row in rows],
        error_kw=ERROR_BAR,
        ecolor=INK,
    )
    paper = [(row["paper"], k) for k, row in enumerate(rows) if "paper" in row]
    axes.plot([value for value, _ in paper], [position for _, position in paper], **PAPER)
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(0, None))
    axes.set_yticks(positions, names)
    axes.grid(False, axis="y")
    label = metric_label(metric)
    if chance is not None:
        axes.axvline(chance, color=FAINT, linewidth=1.2, linestyle=(0, (1, 2)))
        label += f"; dotted: chance, {format_number(chance)}"
    format_axis(axes.xaxis)
    axes.set_xlabel(label, **axis_label_style())
    canvas.save(path)


def _draw_groups(
    axes: Axes, rows: Sequence[Row], groups: Sequence[tuple[str, str]], colours: dict[str, str]
) -> None:
    step = 0.86 / len(colours)
    paper = []
    for k, (model, colour) in enumerate(colours.items()):
        shift = (k - (len(colours) - 1) / 2) * step
        places = [
            (groups.index((row["data"], row["variant"])) + shift, row)
            for row in rows
            if row["model"] == model
        ]
        paper += [(position, row["paper"]) for position, row in places if "paper" in row]
        bars = [(position, row) for position, row in places if "mean" in row]
        axes.bar(
            [position for position, _ in bars],
            [row["mean"] for _, row in bars],
            0.88 * step,
            color=colour,
            yerr=[row["std"] for _, row in bars],
            error_kw=ERROR_BAR,
            ecolor=INK,
        )
    axes.plot([position for position, _ in paper], [value for _, value in paper], **PAPER)
    low = min(0.0, *(row["mean"] - row["std"] for row in rows if "mean" in row))
    axes.set(xlim=(-0.55, len(groups) - 0.45), ylim=(low * 1.08, None))
    one_data_set = len({data for data, _ in groups}) == 1 and all(variant for _, variant in groups)
    names = [variant if one_data_set else f"{data} {variant}".strip() for data, variant in groups]
    axes.set_xticks(range(len(groups)), [wrap(name, 110, SMALL) for name in names])
    axes.grid(False, axis="x")
    axes.axhline(0, color=RULE, linewidth=1)
    format_axis(axes.yaxis)
