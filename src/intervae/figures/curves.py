"""Plots of numbers: the loss over training, and what a model measures against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from intervae.errors import DataError
from intervae.figures.pixels import as_array
from intervae.figures.style import (
    BLUE,
    FAINT,
    INK,
    LINE,
    MARGIN,
    ORANGE,
    RULE,
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

SPLITS = {"train": ("training", BLUE), "validation": ("validation", ORANGE)}
LOG_RANGE = 8  # a term that changes by more than this factor is shown on a logarithmic scale
MOST_POINTS = 4000  # of a scatter plot; more would only print over each other


def training_curves(path: str | Path, lines: Sequence[Mapping[str, Any]], *, title: str = "") -> None:
    """Every term of the loss over the epochs of all phases, from the lines of a run's metrics.jsonl; where a phase ends, a dotted line."""
    known_suffix(path)
    terms = _terms(lines)
    starts = [k for k in range(len(lines)) if k == 0 or lines[k].get("phase") != lines[k - 1].get("phase")]
    columns = len(terms) if len(terms) < 4 else 3 if len(terms) in (5, 6, 9) else 4
    left, high, between, below = 48.0, 124.0, 32.0, 26.0
    wide = 330.0 if columns == 1 else 250.0 if columns == 2 else 800 / columns - left
    width = 2 * MARGIN + columns * (wide + left)
    words, head = heading(title, width - 2 * MARGIN)
    note = wrap(_phases(lines, starts), width - 2 * MARGIN - 190, SMALL)
    top = MARGIN + head + max(1, note.count("\n") + 1) * SMALL * LINE + 12
    rows = -(-len(terms) // columns)
    canvas = Canvas(width, top + rows * (high + between + below) + 12)
    put_heading(canvas, words)
    _put_legend(canvas, MARGIN + head + SMALL * LINE / 2, terms)
    canvas.text(canvas.width - MARGIN, MARGIN + head, note, size=SMALL, color=FAINT, ha="right", va="top", linespacing=LINE)
    for k, (term, splits) in enumerate(terms.items()):
        x, y = MARGIN + left + (k % columns) * (wide + left), top + (k // columns) * (high + between + below) + between - 8
        axes = canvas.panel(x, y, wide - 6, high)
        canvas.text(x, y - 12, _in_words(term), weight="bold")
        _draw_term(axes, splits, starts[1:])
        if k + columns >= len(terms):
            axes.set_xlabel("epoch", color=FAINT, fontproperties=font(SMALL), labelpad=2)
    canvas.save(path)


def _terms(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """term -> split -> (epochs,) values, NaN where a phase does not have the term; the whole loss comes first."""
    if not len(lines):
        raise DataError("there are no epochs to plot; give the lines of metrics.jsonl of a run that has trained.")
    for line in lines:
        if not isinstance(line, Mapping) or not isinstance(line.get("train"), Mapping):
            raise DataError(f'a line of metrics.jsonl holds "phase", "epoch", "train" and "validation", not {str(line)[:80]}.')
    names = dict.fromkeys(name for line in lines for split in SPLITS for name in line.get(split) or {})
    if not names:
        raise DataError("the lines of metrics.jsonl hold no term of a loss to plot.")
    ordered = sorted(names, key=lambda name: name != "loss")
    every = {name: {split: np.array([_float((line.get(split) or {}).get(name)) for line in lines]) for split in SPLITS} for name in ordered}
    return {name: {split: values for split, values in splits.items() if np.isfinite(values).any()} for name, splits in every.items()}


def _float(value: Any) -> float:
    return float("nan") if value is None or not np.isfinite(value) else float(value)


def _phases(lines: Sequence[Mapping[str, Any]], starts: list[int]) -> str:
    if len(starts) == 1:
        return f"phase: {readable(lines[0].get('phase', ''))}" if lines[0].get("phase") else ""
    ends = [*starts[1:], len(lines)]
    return "phases: " + ", ".join(f"{readable(lines[a].get('phase', ''))} ({a + 1}–{b})" for a, b in zip(starts, ends, strict=True))


def _in_words(term: str) -> str:
    words = readable(term).replace("_", " ")
    return words if words != words.lower() else " ".join("KL" if word == "kl" else word for word in words.split(" "))


def _put_legend(canvas: Canvas, y: float, terms: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    x = float(MARGIN)
    for split, (words, color) in SPLITS.items():
        if any(split in splits for splits in terms.values()):
            canvas.axes.plot([x, x + 20], [y, y], color=color, linewidth=2)
            canvas.text(x + 26, y, words, size=SMALL, color=INK)
            x += text_width(words, SMALL) + 44


def _draw_term(axes: Axes, splits: Mapping[str, np.ndarray], ends: list[int]) -> None:
    values = np.concatenate(list(splits.values())) if splits else np.zeros(0)
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if len(positive) > len(values) / 2 and values.min() >= 0 and positive.max() > LOG_RANGE * positive.min():
        axes.set_yscale("log", nonpositive="clip")
        axes.set_ylim(positive.min() / 1.3, positive.max() * 1.3)
        decades = np.log10(positive.max() / positive.min())
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.5 else (1.0,), numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 6)))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 6)))
    for split, series in splits.items():
        epochs = np.arange(1, len(series) + 1)
        few = np.isfinite(series).sum() <= 3
        for first, last in zip([0, *ends], [*ends, len(series)], strict=True):  # a phase has its own loss: no line joins two
            axes.plot(epochs[first:last], series[first:last], color=SPLITS[split][1], linewidth=1.6, marker="o" if few else None, markersize=4)
    total = max(len(series) for series in splits.values()) if splits else 1
    axes.set_xlim(0.5 if total < 20 else 0, total + (0.5 if total < 20 else 0.01 * total))
    for end in ends:
        axes.axvline(end + 0.5, color=FAINT, linewidth=1, linestyle=(0, (1, 2)))


def scatter(
    path: str | Path,
    measured: Any,
    labels: Any,
    names: Sequence[str],
    units: Sequence[str] | None = None,
    r2: Mapping[str, float] | Sequence[float] | None = None,
) -> None:
    """What the model reads off the images against the true label, a panel for each variable; on the diagonal the two agree.

    Arguments:
        measured, labels: (N, n) in the variables' own units.
        units: of each variable, "" where it has none.
        r2: of each variable, by name or in order; without, that of what is given here.
    """
    known_suffix(path)
    found, true = as_array(measured).astype(float), as_array(labels).astype(float)
    names = [str(name) for name in names]
    if found.ndim != 2 or found.shape != true.shape or found.shape[1] != len(names) or not found.size:
        raise DataError(f"measured values {found.shape} and labels {true.shape} must both be (samples, {len(names)}), a column for each name.")
    if not (np.isfinite(found).all() and np.isfinite(true).all()):
        raise DataError("measured values and labels must be finite to be plotted, but some are NaN or infinite.")
    units = [""] * len(names) if units is None else [readable(unit) for unit in units]
    scores = _r2(found, true) if r2 is None else _scores(r2, names)
    if len(units) != len(names):
        raise DataError(f'{len(units)} units were given for {len(names)} variables; give one for each, "" where there is none.')
    rows = np.random.default_rng(0).permutation(len(true))[:MOST_POINTS]
    columns = min(4, len(names))
    side, left, above, below = 142.0, 52.0, 44.0, 34.0
    lines = -(-len(names) // columns)
    canvas = Canvas(MARGIN + columns * (side + left) + MARGIN, lines * (side + above + below) + MARGIN)
    for k, (name, unit) in enumerate(zip(names, units, strict=True)):
        x, y = MARGIN + left + (k % columns) * (side + left) - 4, (k // columns) * (side + above + below) + above
        canvas.text(x, y - 24, readable(name), weight="bold")
        canvas.text(x, y - 9, f"R² = {scores[k]:.3f}".replace("-", "−") if np.isfinite(scores[k]) else "", size=SMALL)
        _draw_scatter(canvas.panel(x, y, side, side), true[rows, k], found[rows, k], f" ({unit})" if unit else "", k % columns == 0)
    canvas.save(path)


def _r2(found: np.ndarray, true: np.ndarray) -> list[float]:
    """1 - squared error / variance of each column, as `metrics.r2`; NaN for a constant label."""
    spread = ((true - true.mean(0)) ** 2).sum(0)
    error = ((found - true) ** 2).sum(0)
    return [1 - e / s if s > 0 else float("nan") for e, s in zip(error, spread, strict=True)]


def _scores(r2: Any, names: Sequence[str]) -> list[float]:
    if isinstance(r2, Mapping):
        missing = [name for name in names if name not in r2]
        if missing:
            raise DataError(f"R^2 is missing for {', '.join(map(repr, missing))}; give one for each variable.")
        return [float(r2[name]) for name in names]
    scores = [float(value) for value in np.ravel(as_array(r2))]
    if len(scores) != len(names):
        raise DataError(f"{len(scores)} values of R^2 were given for {len(names)} variables; give one for each.")
    return scores


def _draw_scatter(axes: Axes, true: np.ndarray, found: np.ndarray, unit: str, first: bool) -> None:
    low, high = min(true.min(), found.min()), max(true.max(), found.max())
    pad = 0.06 * (high - low) or 1.0
    axes.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
    axes.plot([low - pad, high + pad], [low - pad, high + pad], color=RULE, linewidth=1.2, zorder=1)
    axes.scatter(true, found, s=7, color=BLUE, alpha=float(np.clip(400 / len(true), 0.15, 0.8)), linewidths=0, rasterized=True, zorder=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 6)))
    axes.set_xlabel(f"true{unit}", color=FAINT, fontproperties=font(SMALL), labelpad=3)
    axes.set_ylabel(f"measured{unit}", color=FAINT, fontproperties=font(SMALL), labelpad=3)
