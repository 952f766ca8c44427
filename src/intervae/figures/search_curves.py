"""Trials of a search of settings: the best number so far, and the number over each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.result_rows import axis_label_style, format_axis
from intervae.figures.style import BLUE, FAINT, MARGIN, ORANGE
from intervae.figures.text_layout import format_number, printable, wrap_title

LEFT, PANEL_WIDTH, PANEL_HEIGHT, ABOVE, BELOW = 56.0, 210.0, 150.0, 26.0, 40.0
COLUMNS = 3
DOTS: dict[str, Any] = {
    "linestyle": "",
    "marker": "o",
    "markersize": 5,
    "color": BLUE,
    "alpha": 0.7,
}
BEST: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 8, "color": ORANGE}
CHOICE_LENGTH = 12  # characters of a choice below the axis


def search_progress(
    path: str | Path,
    trials: Sequence[Mapping[str, Any]],
    search: Mapping[str, Mapping[str, Any]],
    objective: str,
    *,
    higher: bool = False,
) -> None:
    """Draw a panel of the trials in order, and one panel per setting; the best is orange.

    Arguments:
        trials: each with `settings` and `value`, None for one that failed.
        search: setting -> {"low", "high", "log"} or {"values"}.
        higher: whether higher numbers are better.
    """
    check_suffix(path)
    scored = [trial for trial in trials if trial["value"] is not None]
    if not scored:
        raise DataError("no trial has a number, so there is nothing to draw.")
    values = np.array([float(trial["value"]) for trial in scored])
    best = int(values.argmax() if higher else values.argmin())
    count = 1 + len(search)
    columns = min(COLUMNS, count)
    width = 2 * MARGIN + columns * (LEFT + PANEL_WIDTH)
    failed = len(trials) - len(scored)
    title = f"{objective}: {len(scored)} trials" + (f", {failed} more failed" if failed else "")
    title_text, head = wrap_title(printable(title), width - 2 * MARGIN)
    rows = -(-count // COLUMNS)
    canvas = Canvas(width, MARGIN + head + rows * (ABOVE + PANEL_HEIGHT + BELOW) + 4)
    canvas.title(title_text)
    for k, name in enumerate([None, *search]):
        x = MARGIN + LEFT + (k % columns) * (LEFT + PANEL_WIDTH)
        y = MARGIN + head + ABOVE + (k // columns) * (ABOVE + PANEL_HEIGHT + BELOW)
        axes = canvas.panel(x, y, PANEL_WIDTH - 10, PANEL_HEIGHT)
        if name is None:
            canvas.text(x, y - 12, "best so far", weight="bold")
            _draw_order(axes, values, best, higher)
        else:
            canvas.text(x, y - 12, printable(name), weight="bold")
            settings = [trial["settings"][name] for trial in scored]
            _draw_setting(axes, settings, values, best, search[name])
        format_axis(axes.yaxis)
    canvas.save(path)


def _draw_order(axes: Axes, values: np.ndarray, best: int, higher: bool) -> None:
    along = np.arange(1, len(values) + 1)
    running = (np.maximum if higher else np.minimum).accumulate(values)
    axes.plot(along, running, color=FAINT, linewidth=1.4, drawstyle="steps-post")
    axes.plot(along, values, **DOTS)
    axes.plot(along[best], values[best], **BEST)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    axes.set_xlim(0.5, len(values) + 0.5)
    axes.set_xlabel("trial", **axis_label_style())


def _draw_setting(
    axes: Axes, settings: Sequence[Any], values: np.ndarray, best: int, domain: Mapping[str, Any]
) -> None:
    if "values" in domain:
        choices = list(domain["values"])
        along = [float(choices.index(value)) for value in settings]
        texts = [_shortened(printable(choice)) for choice in choices]
        axes.set_xticks(np.arange(len(choices)), texts)
        axes.set_xlim(-0.5, len(choices) - 0.5)
    else:
        along = [float(value) for value in settings]
        margin = (domain["high"] / domain["low"]) ** 0.04 if domain["log"] else 0.0
        if domain["log"]:
            axes.set_xscale("log")
            axes.set_xlim(domain["low"] / margin, domain["high"] * margin)
            axes.xaxis.set_major_locator(LogLocator(numticks=5))
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            margin = 0.04 * (domain["high"] - domain["low"])
            axes.set_xlim(domain["low"] - margin, domain["high"] + margin)
            axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, 6)))
    axes.plot(along, values, **DOTS)
    axes.plot(along[best], values[best], **BEST)


def _shortened(text: str) -> str:
    return text if len(text) <= CHOICE_LENGTH else f"{text[: CHOICE_LENGTH - 1]}…"
