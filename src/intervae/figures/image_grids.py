"""Grids of images: reconstructions, and interventions with true images (CausalVAE, Fig. 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_images, as_rgb, cell_size, check_shape, shrink
from intervae.figures.style import BODY, FAINT, INK, LINE, MARGIN, RULE, SMALL
from intervae.figures.text_layout import text_width, wrap, wrap_title

CELL = 128  # pixels of the file along an image's longer side
GAP = 3.0  # between neighbouring images
GROUP_GAP = 14.0  # between groups of rows
LABEL_WIDTH = 160.0  # of wrapped labels at the left
ERROR_WIDTH = 74.0


@dataclass(frozen=True)
class InterventionRow:
    """One intervention on every original.

    Arguments:
        label: the intervention, such as "do(light = 100 degrees)".
        generated: (N, C, H, W) counterfactuals of the model.
        truth: (N, C, H, W) counterfactuals of the simulator, if known.
    """

    label: str
    generated: Any
    truth: Any = None


def reconstructions(
    path: str | Path, images: Any, reconstructions: Any, *, columns: int = 8
) -> None:
    """Draw originals above reconstructions, `columns` to a line.

    Both are (N, C, H, W), uint8 or in [0, 1].
    """
    check_suffix(path)
    originals = as_images(images, "the original images")
    pairs = (
        as_rgb(originals),
        as_rgb(check_shape(reconstructions, originals.shape, "the reconstructions")),
    )
    columns = min(max(1, columns), len(originals))
    width, height = cell_size(originals.shape, CELL)
    left = MARGIN + text_width("original", SMALL) + 8
    lines = -(-len(originals) // columns)
    block = 2 * height + GAP
    canvas = Canvas(
        left + columns * (width + GAP) - GAP + MARGIN,
        2 * MARGIN + lines * (block + GROUP_GAP) - GROUP_GAP,
    )
    for line in range(lines):
        columns_of_line = slice(line * columns, (line + 1) * columns)
        top = MARGIN + line * (block + GROUP_GAP)
        for row, (pixels, label, color) in enumerate(
            zip(pairs, ("original", "model"), (FAINT, INK), strict=True)
        ):
            y = top + row * (height + GAP)
            canvas.text(left - 8, y + height / 2, label, size=SMALL, color=color, ha="right")
            draw_row(canvas, pixels[columns_of_line], left, y, width, height)
    canvas.save(path)


def interventions(
    path: str | Path,
    rows: Sequence[InterventionRow],
    originals: Any,
    *,
    title: str = "",
    errors: bool = True,
) -> None:
    """Draw a row for each intervention, the true counterfactuals below it (CausalVAE, Fig. 3).

    Arguments:
        originals: (N, C, H, W), at the bottom.
        errors: whether rows with truth end in the mean absolute pixel error, and that of the
            unchanged originals.
    """
    check_suffix(path)
    if not rows:
        raise DataError("there is no intervention to show; give at least one InterventionRow.")
    base = as_images(originals, "the original images")
    groups = [_group(row, base) for row in rows]
    labels = [wrap(row.label, LABEL_WIDTH) for row in rows]
    compare = any(len(group) > 1 for group in groups)
    width, height = cell_size(base.shape, CELL)

    left = (
        MARGIN
        + max(text_width(label) for label in [*labels, "original"])
        + 12
        + (text_width("model", SMALL) + 8 if compare else 0)
    )
    right = left + len(base) * (width + GAP)
    title_text, head = wrap_title(title, right - MARGIN)
    heights = [
        max(len(group) * (height + GAP) - GAP, BODY * LINE * len(label.split("\n")))
        for group, label in zip(groups, labels, strict=True)
    ]
    bottom = MARGIN + head + sum(heights) + GROUP_GAP * len(rows) + 8
    canvas = Canvas(
        right + MARGIN + (ERROR_WIDTH if compare and errors else 0), bottom + height + MARGIN
    )
    canvas.title(title_text)
    y = MARGIN + head
    for label, group, space in zip(labels, groups, heights, strict=True):
        canvas.text(MARGIN, y + space / 2, label, linespacing=LINE)
        top = y + (space - len(group) * (height + GAP) + GAP) / 2
        for k, (images, kind, color) in enumerate(
            zip(group, ("model", "truth"), (INK, FAINT), strict=False)
        ):
            row = top + k * (height + GAP)
            draw_row(canvas, as_rgb(images), left, row, width, height)
            canvas.text(
                left - 8,
                row + height / 2,
                kind if compare else "",
                size=SMALL,
                color=color,
                ha="right",
            )
        if errors and len(group) > 1:
            _draw_error(
                canvas,
                right + 10,
                top + height / 2,
                "pixel error",
                np.abs(group[0] - group[1]).mean(),
                INK,
            )
            _draw_error(
                canvas,
                right + 10,
                top + 1.5 * height + GAP,
                "if unchanged",
                np.abs(base - group[1]).mean(),
                FAINT,
            )
        y += space + GROUP_GAP
    canvas.axes.plot([MARGIN, right - GAP], [bottom - 11, bottom - 11], color=RULE, linewidth=1)
    canvas.text(MARGIN, bottom + height / 2, "original")
    draw_row(canvas, as_rgb(base), left, bottom, width, height)
    canvas.save(path)


def _group(row: InterventionRow, originals: np.ndarray) -> list[np.ndarray]:
    """Return the checked images of one intervention: the model's, and the true ones if known."""
    generated = check_shape(row.generated, originals.shape, f"the images of {row.label!r}")
    if row.truth is None:
        return [generated]
    truth = check_shape(row.truth, originals.shape, f"the true images of {row.label!r}")
    return [generated, truth]


def _draw_error(canvas: Canvas, x: float, y: float, label: str, error: float, color: str) -> None:
    canvas.text(x, y - 7, label, size=SMALL, color=FAINT)
    canvas.text(x, y + 7, f"{error:.2g}", color=color, weight="bold" if color == INK else "normal")


def draw_row(
    canvas: Canvas, images: np.ndarray, x: float, y: float, width: float, height: float
) -> None:
    """Draw images (N, h, w, 3) uint8 side by side."""
    for k, pixels in enumerate(images):
        canvas.image(shrink(pixels, width, height), x + k * (width + GAP), y, width, height)
