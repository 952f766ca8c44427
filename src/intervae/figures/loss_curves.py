"""Terms of the loss over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.style import BLUE, FAINT, INK, LINE, MARGIN, ORANGE, SMALL
from intervae.figures.text_layout import (
    font,
    format_number,
    printable,
    text_width,
    wrap,
    wrap_title,
)

SPLITS = {"train": ("training", BLUE), "validation": ("validation", ORANGE)}
LOG_RANGE = 8  # ratio of values above which a term has a logarithmic scale


def training_curves(
    path: str | Path, lines: Sequence[Mapping[str, Any]], *, title: str = ""
) -> None:
    """Draw every term of the loss over the epochs; dotted lines separate phases.

    Arguments:
        lines: of the metrics.jsonl of a run.
    """
    check_suffix(path)
    terms = _terms(lines)
    starts = [
        k for k in range(len(lines)) if k == 0 or lines[k].get("phase") != lines[k - 1].get("phase")
    ]
    columns = len(terms) if len(terms) < 4 else 3 if len(terms) in (5, 6, 9) else 4
    left, panel_height, between, below = 48.0, 124.0, 32.0, 26.0
    panel_width = 330.0 if columns == 1 else 250.0 if columns == 2 else 800 / columns - left
    width = 2 * MARGIN + columns * (panel_width + left)
    title_text, head = wrap_title(title, width - 2 * MARGIN)
    phases = wrap(_describe_phases(lines, starts), width - 2 * MARGIN - 190, SMALL)
    top = MARGIN + head + max(1, phases.count("\n") + 1) * SMALL * LINE + 12
    rows = -(-len(terms) // columns)
    canvas = Canvas(width, top + rows * (panel_height + between + below) + 12)
    canvas.title(title_text)
    _draw_legend(canvas, MARGIN + head + SMALL * LINE / 2, terms)
    canvas.text(
        canvas.width - MARGIN,
        MARGIN + head,
        phases,
        size=SMALL,
        color=FAINT,
        ha="right",
        va="top",
        linespacing=LINE,
    )
    for k, (term, splits) in enumerate(terms.items()):
        x = MARGIN + left + (k % columns) * (panel_width + left)
        y = top + (k // columns) * (panel_height + between + below) + between - 8
        axes = canvas.panel(x, y, panel_width - 6, panel_height)
        canvas.text(x, y - 12, _term_label(term), weight="bold")
        _draw_term(axes, splits, starts[1:])
        if k + columns >= len(terms):
            axes.set_xlabel("epoch", color=FAINT, fontproperties=font(SMALL), labelpad=2)
    canvas.save(path)


def _terms(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """Return term -> split -> values (epochs,), NaN in phases without the term; `loss` is first."""
    if not len(lines):
        raise DataError(
            "there are no epochs to plot; give the lines of metrics.jsonl of a trained run."
        )
    for line in lines:
        if not isinstance(line, Mapping) or not isinstance(line.get("train"), Mapping):
            raise DataError(
                'a line of metrics.jsonl holds "phase", "epoch", "train" and "validation", '
                f"not {str(line)[:80]}."
            )
    names = dict.fromkeys(
        name for line in lines for split in SPLITS for name in line.get(split) or {}
    )
    if not names:
        raise DataError("the lines of metrics.jsonl hold no term of a loss to plot.")
    ordered = sorted(names, key=lambda name: name != "loss")
    every = {
        name: {
            split: np.array([_float((line.get(split) or {}).get(name)) for line in lines])
            for split in SPLITS
        }
        for name in ordered
    }
    return {
        name: {split: values for split, values in splits.items() if np.isfinite(values).any()}
        for name, splits in every.items()
    }


def _float(value: Any) -> float:
    return float("nan") if value is None or not np.isfinite(value) else float(value)


def _describe_phases(lines: Sequence[Mapping[str, Any]], starts: list[int]) -> str:
    if len(starts) == 1:
        return f"phase: {printable(lines[0].get('phase', ''))}" if lines[0].get("phase") else ""
    ends = [*starts[1:], len(lines)]
    return "phases: " + ", ".join(
        f"{printable(lines[a].get('phase', ''))} ({a + 1}–{b})"
        for a, b in zip(starts, ends, strict=True)
    )


def _term_label(term: str) -> str:
    label = printable(term).replace("_", " ")
    if label != label.lower():
        return label
    return " ".join("KL" if word == "kl" else word for word in label.split(" "))


def _draw_legend(canvas: Canvas, y: float, terms: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    x = float(MARGIN)
    for split, (name, color) in SPLITS.items():
        if any(split in splits for splits in terms.values()):
            canvas.axes.plot([x, x + 20], [y, y], color=color, linewidth=2)
            canvas.text(x + 26, y, name, size=SMALL, color=INK)
            x += text_width(name, SMALL) + 44


def _draw_term(axes: Axes, splits: Mapping[str, np.ndarray], ends: list[int]) -> None:
    values = np.concatenate(list(splits.values())) if splits else np.zeros(0)
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if (
        len(positive) > len(values) / 2
        and values.min() >= 0
        and positive.max() > LOG_RANGE * positive.min()
    ):
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(positive.min() / 1.3, positive.max() * 1.3)
        decades = np.log10(positive.max() / positive.min())
        axes.yaxis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.5 else (1.0,), numticks=6)
        )
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, 6)))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, 6)))
    for split, series in splits.items():
        epochs = np.arange(1, len(series) + 1)
        few = np.isfinite(series).sum() <= 3
        # phases have different losses, so no line joins them
        for first, last in zip([0, *ends], [*ends, len(series)], strict=True):
            axes.plot(
                epochs[first:last],
                series[first:last],
                color=SPLITS[split][1],
                linewidth=1.6,
                marker="o" if few else None,
                markersize=4,
            )
    total = max(len(series) for series in splits.values()) if splits else 1
    axes.set_xlim(0.5 if total < 20 else 0, total + (0.5 if total < 20 else 0.01 * total))
    for end in ends:
        axes.axvline(end + 0.5, color=FAINT, linewidth=1, linestyle=(0, (1, 2)))
