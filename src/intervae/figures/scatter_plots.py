"""Scatter plots of measured values against labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_array
from intervae.figures.style import BLUE, FAINT, MARGIN, RULE, SMALL
from intervae.figures.text_layout import font, format_number, printable

MAX_POINTS = 4000  # of a plot


def scatter(
    path: str | Path,
    measured: Any,
    labels: Any,
    names: Sequence[str],
    units: Sequence[str] | None = None,
    r2: Mapping[str, float] | Sequence[float] | None = None,
) -> None:
    """Draw measured values against labels, a panel for each variable, with the diagonal.

    Arguments:
        measured, labels: (N, n) in the variables' own units.
        units: of each variable, "" where it has none.
        r2: of each variable, by name or in order; by default computed from these values.
    """
    check_suffix(path)
    values, true = as_array(measured).astype(float), as_array(labels).astype(float)
    names = [str(name) for name in names]
    if (
        values.ndim != 2
        or values.shape != true.shape
        or values.shape[1] != len(names)
        or not values.size
    ):
        raise DataError(
            f"measured values {values.shape} and labels {true.shape} must both be "
            f"(samples, {len(names)}), a column for each name."
        )
    if not (np.isfinite(values).all() and np.isfinite(true).all()):
        raise DataError("measured values and labels must be finite, but some are NaN or infinite.")
    units = [""] * len(names) if units is None else [printable(unit) for unit in units]
    scores = _r2(values, true) if r2 is None else _check_r2(r2, names)
    if len(units) != len(names):
        raise DataError(
            f"{len(units)} units were given for {len(names)} variables; "
            'give one for each, "" where there is none.'
        )
    rows = np.random.default_rng(0).permutation(len(true))[:MAX_POINTS]
    columns = min(4, len(names))
    side, left, above, below = 142.0, 52.0, 44.0, 34.0
    lines = -(-len(names) // columns)
    canvas = Canvas(
        MARGIN + columns * (side + left) + MARGIN, lines * (side + above + below) + MARGIN
    )
    for k, (name, unit) in enumerate(zip(names, units, strict=True)):
        x = MARGIN + left + (k % columns) * (side + left) - 4
        y = (k // columns) * (side + above + below) + above
        canvas.text(x, y - 24, printable(name), weight="bold")
        canvas.text(
            x,
            y - 9,
            f"R² = {scores[k]:.3f}".replace("-", "−") if np.isfinite(scores[k]) else "",
            size=SMALL,
        )
        _draw_scatter(
            canvas.panel(x, y, side, side),
            true[rows, k],
            values[rows, k],
            f" ({unit})" if unit else "",
        )
    canvas.save(path)


def _r2(values: np.ndarray, true: np.ndarray) -> list[float]:
    """Return 1 - squared error / variance of each column; NaN for a constant label."""
    spread = ((true - true.mean(0)) ** 2).sum(0)
    error = ((values - true) ** 2).sum(0)
    return [1 - e / s if s > 0 else float("nan") for e, s in zip(error, spread, strict=True)]


def _check_r2(r2: Any, names: Sequence[str]) -> list[float]:
    if isinstance(r2, Mapping):
        missing = [name for name in names if name not in r2]
        if missing:
            raise DataError(
                f"R^2 is missing for {', '.join(map(repr, missing))}; give one for each variable."
            )
        return [float(r2[name]) for name in names]
    scores = [float(value) for value in np.ravel(as_array(r2))]
    if len(scores) != len(names):
        raise DataError(
            f"{len(scores)} values of R^2 were given for {len(names)} variables; give one for each."
        )
    return scores


def _draw_scatter(axes: Axes, true: np.ndarray, values: np.ndarray, unit: str) -> None:
    low, high = min(true.min(), values.min()), max(true.max(), values.max())
    pad = 0.06 * (high - low) or 1.0
    axes.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
    axes.plot([low - pad, high + pad], [low - pad, high + pad], color=RULE, linewidth=1.2, zorder=1)
    axes.scatter(
        true,
        values,
        s=7,
        color=BLUE,
        alpha=float(np.clip(400 / len(true), 0.15, 0.8)),
        linewidths=0,
        rasterized=True,
        zorder=2,
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value, 6)))
    axes.set_xlabel(f"true{unit}", color=FAINT, fontproperties=font(SMALL), labelpad=3)
    axes.set_ylabel(f"measured{unit}", color=FAINT, fontproperties=font(SMALL), labelpad=3)
