"""Grids of coloured numbers, such as a metric over two settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import Rectangle

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.style import BLUE, FAINT, INK, LINE, MARGIN, PALE, SMALL
from intervae.figures.text_layout import format_number, printable, text_width, wrap, wrap_title

CELL_HEIGHT, CELL_WIDTH, HEAD_WIDTH = 22.0, 58.0, 74.0
SHADES = LinearSegmentedColormap.from_list("low, high", ["#ffffff", BLUE])
COLOURS = 64  # of the file
DARK = 0.6  # fraction of the range above which numbers are white


@dataclass(frozen=True)
class NumberGrid:
    """Numbers by row and column.

    Arguments:
        title: above the grid.
        rows, columns: labels.
        values: a number for each row and column; None where there is none.
        down, across: what rows and columns are; "" for nothing.
        high_is_dark: whether the largest number has the darkest colour, or the smallest.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    down: str = ""
    across: str = ""
    high_is_dark: bool = True


def number_grids(path: str | Path, grids: Sequence[NumberGrid], *, title: str = "") -> None:
    """Draw grids side by side, each coloured from its smallest to its largest number."""
    check_suffix(path)
    if not grids or not all(grid.rows and grid.columns for grid in grids):
        raise DataError("there is no number to draw; give at least one grid with a number.")
    widths = [_left(grid) + _column(grid) * len(grid.columns) for grid in grids]
    heads = [_head_lines(grid) for grid in grids]
    width = 2 * MARGIN + sum(widths) + 24 * (len(grids) - 1)
    words, head = wrap_title(title, width - 2 * MARGIN)
    top = MARGIN + head + SMALL * LINE * (1.6 + max(heads)) + 10
    deepest = max(len(grid.rows) for grid in grids)
    below = SMALL * LINE + 6 if any(grid.across for grid in grids) else 0
    canvas = Canvas(width, top + CELL_HEIGHT * deepest + below + MARGIN)
    canvas.title(words)
    x = float(MARGIN)
    for grid, grid_width in zip(grids, widths, strict=True):
        canvas.text(x, MARGIN + head + SMALL * LINE / 2, printable(grid.title), weight="bold")
        _draw(canvas, grid, x + _left(grid), top)
        x += grid_width + 24
    canvas.save(path, colours=COLOURS)


def _left(grid: NumberGrid) -> float:
    return max(text_width(printable(name), SMALL) for name in [*grid.rows, grid.down]) + 10


def _column(grid: NumberGrid) -> float:
    return CELL_WIDTH if max(map(len, grid.columns)) <= 8 else HEAD_WIDTH


def _wrapped(grid: NumberGrid) -> list[str]:
    return [wrap(printable(name), _column(grid) - 4, SMALL) for name in grid.columns]


def _head_lines(grid: NumberGrid) -> int:
    return max(name.count("\n") + 1 for name in _wrapped(grid))


def _draw(canvas: Canvas, grid: NumberGrid, x: float, y: float) -> None:
    """Draw a grid whose first cell has its top left corner at (x, y)."""
    column = _column(grid)
    present = [value for line in grid.values for value in line if value is not None]
    if not present or not np.isfinite(present).all():
        raise DataError(f"the numbers of {grid.title!r} must be finite, at least one of them.")
    low, high = min(present), max(present)
    small: dict[str, Any] = {"size": SMALL, "linespacing": LINE}
    for k, name in enumerate(_wrapped(grid)):
        middle = x + (k + 0.5) * column
        canvas.text(middle, y - 5, name, ha="center", va="bottom", color=FAINT, **small)
    canvas.text(x - 8, y - 5, grid.down, ha="right", va="bottom", color=FAINT, **small)
    for i, (name, line) in enumerate(zip(grid.rows, grid.values, strict=True)):
        top = y + i * CELL_HEIGHT
        canvas.text(x - 8, top + CELL_HEIGHT / 2, printable(name), ha="right", **small)
        for k, value in enumerate(line):
            left = x + k * column
            share = 0.0 if value is None or high == low else (value - low) / (high - low)
            share = share if grid.high_is_dark else 1 - share
            colour = PALE if value is None else to_hex(SHADES(share))
            corner, size = (left + 0.5, top + 0.5), (column - 1, CELL_HEIGHT - 1)
            canvas.add(Rectangle(corner, *size, facecolor=colour, linewidth=0))
            if value is not None:
                canvas.text(
                    left + column / 2,
                    top + CELL_HEIGHT / 2,
                    format_number(value, 3),
                    size=SMALL,
                    ha="center",
                    color="white" if share > DARK else INK,
                )
    if grid.across:
        bottom = y + len(grid.rows) * CELL_HEIGHT + 5
        canvas.text(x, bottom, grid.across, va="top", color=FAINT, **small)
