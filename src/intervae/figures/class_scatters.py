"""Scatter plots of points in two dimensions, coloured by class, one panel per cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_array
from intervae.figures.style import BODY, FAINT, INK, LINE, MARGIN, RED, SERIES, SMALL
from intervae.figures.text_layout import printable, text_width, wrap_title

COLOURS = (*SERIES[:-1], INK, RED, "#d9c400", FAINT)
SIDE, GAP, COLUMNS, POINTS = 150.0, 40.0, 5, 2000


def class_scatter(
    path: str | Path,
    panels: Mapping[str, Any],
    classes: Any,
    names: Sequence[str],
    *,
    title: str = "",
) -> None:
    """Draw clouds of points, each point in the colour of its class.

    Arguments:
        panels: label -> points (N, 2); each panel has its own axes.
        classes: (N,) numbers of the classes, the same for all panels.
        names: name of each class, at most as many as there are COLOURS.
    """
    check_suffix(path)
    codes = as_array(classes).astype(int)
    clouds = {label: as_array(points).astype(float) for label, points in panels.items()}
    for label, points in clouds.items():
        if points.shape != (len(codes), 2) or not len(codes) or not np.isfinite(points).all():
            raise DataError(
                f"the points of {label!r} must be finite and ({len(codes)}, 2), one for each "
                f"class, not of shape {points.shape}."
            )
    if not 1 <= len(names) <= len(COLOURS):
        raise DataError(f"{len(names)} classes cannot be drawn; give 1 to {len(COLOURS)}.")
    if codes.min() < 0 or codes.max() >= len(names):
        raise DataError(f"classes must be 0 to {len(names) - 1}, one for each name.")
    columns = min(COLUMNS, len(clouds))
    width = 2 * MARGIN + columns * (SIDE + GAP)
    words, head = wrap_title(title, width - 2 * MARGIN)
    top, above = MARGIN + head + SMALL * LINE + 6, BODY * LINE + 8
    rows = -(-len(clouds) // columns)
    canvas = Canvas(width, top + rows * (above + SIDE + GAP) + MARGIN)
    canvas.title(words)
    x = float(MARGIN)
    for name, colour in zip(names, COLOURS, strict=False):
        word = f"● {printable(name)}"
        canvas.text(x, MARGIN + head + SMALL * LINE / 2, word, size=SMALL, color=colour)
        x += text_width(word, SMALL) + 12
    shown = np.random.default_rng(0).permutation(len(codes))[:POINTS]
    colours = [COLOURS[code] for code in codes[shown]]
    for k, (label, points) in enumerate(clouds.items()):
        x = MARGIN + GAP / 2 + (k % columns) * (SIDE + GAP)
        y = top + (k // columns) * (above + SIDE + GAP) + above
        canvas.text(x, y - 8, printable(label), weight="bold")
        axes = canvas.panel(x, y, SIDE, SIDE)
        across, up = points[shown].T
        axes.scatter(across, up, s=5, c=colours, alpha=0.6, linewidths=0, rasterized=True)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(3))
    canvas.save(path)
