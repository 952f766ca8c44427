"""Counterfactuals of one image: side by side, and over the values of each variable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import (
    as_images,
    as_rgb,
    cell_size,
    check_shape,
    shrink,
    signed_change,
)
from intervae.figures.image_grids import CELL, GAP
from intervae.figures.style import BODY, FAINT, INK, LINE, MARGIN, ORANGE, RULE, SMALL
from intervae.figures.text_layout import format_number, printable, text_width, wrap, wrap_title

LARGE_CELL = 256  # pixels of the file along an image's longer side, for few images
STRIP_GAP, ARROW = 12.0, 26.0  # between images of a strip, and for the arrow after the original


@dataclass(frozen=True)
class SweepRow:
    """Counterfactuals for a range of values of one variable.

    Arguments:
        name: the variable.
        values: (K,) in its own units.
        pictures: (K, C, H, W), one for each value.
        unit: of the values, such as "degrees".
        current: the variable's value in the original image; the nearest image is marked.
        words: (K,) what is written for the values, such as names of classes; else the numbers.
    """

    name: str
    values: Sequence[float]
    pictures: Any
    unit: str = ""
    current: float | None = None
    words: Sequence[str] = ()

    @property
    def texts(self) -> list[str]:
        """Text (K,) of each value."""
        return [printable(word) for word in self.words] or _format_values(self.values)


def counterfactual_strip(
    path: str | Path, image: Any, pictures: Any, labels: Sequence[str], *, difference: bool = False
) -> None:
    """Draw an image (C, H, W) and its counterfactuals (K, C, H, W) side by side.

    Arguments:
        labels: (K,) drawn above the counterfactuals.
        difference: whether to draw the change of each counterfactual below it.
    """
    check_suffix(path)
    original = _check_single(image)
    after = as_images(pictures, "the counterfactual images")
    check_shape(after[:1], original.shape, "each counterfactual image")
    if len(labels) != len(after):
        raise DataError(
            f"{len(labels)} labels were given for {len(after)} images; give one for each."
        )
    width, height = cell_size(original.shape, LARGE_CELL if len(after) <= 5 else CELL)
    pitch = max(width, 96.0) + STRIP_GAP  # room for a caption above a narrow image
    captions = [wrap(label, pitch - 4) for label in ["original", *labels]]
    y = MARGIN + BODY * LINE * max(len(caption.split("\n")) for caption in captions) + 6
    middles = [
        MARGIN + (pitch - STRIP_GAP) / 2 + k * pitch + (ARROW if k else 0)
        for k in range(len(captions))
    ]
    below, legend = y + height + GAP, 24.0
    canvas = Canvas(
        middles[-1] + (pitch - STRIP_GAP) / 2 + MARGIN,
        (below + height + legend if difference else y + height) + MARGIN,
    )
    for k, (x, caption, pixels) in enumerate(
        zip(middles, captions, as_rgb(np.concatenate([original, after])), strict=True)
    ):
        canvas.text(
            x, y - 6, caption, ha="center", va="bottom", color=INK if k else FAINT, linespacing=LINE
        )
        canvas.image(shrink(pixels, width, height), x - width / 2, y, width, height)
    tail = middles[0] + (pitch - STRIP_GAP) / 2 + 7
    arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    canvas.axes.annotate(
        "",
        (tail + ARROW + STRIP_GAP - 14, y + height / 2),
        (tail, y + height / 2),
        arrowprops=arrow,
    )
    if difference:
        for x, pixels in zip(middles[1:], signed_change(after, original), strict=True):
            canvas.image(shrink(pixels, width, height), x - width / 2, below, width, height)
        canvas.text(
            middles[0] + width / 2,
            below + height / 2,
            "change",
            size=SMALL,
            color=FAINT,
            ha="right",
        )
        canvas.text(
            middles[1] - width / 2,
            below + height + legend / 2 + 2,
            "blue: darker, red: brighter",
            size=SMALL,
            color=FAINT,
        )
    canvas.save(path)


def intervention_sweep(
    path: str | Path, image: Any, rows: Sequence[SweepRow], *, title: str = ""
) -> None:
    """Draw an image (C, H, W) and a row of counterfactuals over values for each variable."""
    check_suffix(path)
    original = _check_single(image)
    if not rows:
        raise DataError("there is no variable to sweep; give at least one SweepRow.")
    images_of_rows = [_check_row(row, original) for row in rows]
    width, height = cell_size(original.shape, CELL)
    labels = [f"do({printable(row.name)} = …)" for row in rows]
    widest = max(text_width(text, SMALL, "bold") for row in rows for text in row.texts)
    gap = max(GAP, widest + 6 - width)
    first = max(width, text_width("original", SMALL))  # the column of the original
    label_x = MARGIN + first + 26
    left = (
        label_x
        + max(text_width(text) for text in [*labels, *(printable(row.unit) for row in rows)])
        + 14
    )
    right = left + max(map(len, images_of_rows)) * (width + gap) - gap
    title_text, head = wrap_title(title, right - MARGIN)
    above = SMALL * LINE + 3  # for the values
    pitch = above + height + 8
    bottom = MARGIN + head + len(rows) * pitch - 8
    note = SMALL * LINE + 6 if any(row.current is not None for row in rows) else 0
    canvas = Canvas(right + MARGIN, bottom + note + MARGIN)
    canvas.title(title_text)
    middle = (MARGIN + head + bottom + above - height) / 2
    canvas.text(
        MARGIN + first / 2,
        middle - 4,
        "original",
        size=SMALL,
        color=FAINT,
        ha="center",
        va="bottom",
    )
    canvas.image(
        shrink(as_rgb(original)[0], width, height),
        MARGIN + (first - width) / 2,
        middle,
        width,
        height,
    )
    for k, (row, label, images) in enumerate(zip(rows, labels, images_of_rows, strict=True)):
        y = MARGIN + head + k * pitch + above
        canvas.text(label_x, y + height / 2 - (BODY * LINE / 2 if row.unit else 0), label)
        canvas.text(
            label_x, y + height / 2 + BODY * LINE / 2, printable(row.unit), size=SMALL, color=FAINT
        )
        _draw_sweep_row(canvas, row, as_rgb(images), left, y, width, height, gap)
    if note:
        canvas.text(
            left,
            bottom + note,
            "framed: nearest to the original's own value",
            size=SMALL,
            color=FAINT,
            va="bottom",
        )
    canvas.save(path)


def _draw_sweep_row(
    canvas: Canvas,
    row: SweepRow,
    images: np.ndarray,
    left: float,
    y: float,
    width: float,
    height: float,
    gap: float,
) -> None:
    """Draw images (K, h, w, 3) below their values; frame the one nearest to `row.current`."""
    nearest = (
        None
        if row.current is None
        else int(np.argmin(np.abs(np.asarray(row.values, dtype=float) - row.current)))
    )
    for k, (pixels, value) in enumerate(zip(images, row.texts, strict=True)):
        x = left + k * (width + gap)
        color, weight = (INK, "bold") if k == nearest else (FAINT, "normal")
        canvas.text(
            x + width / 2,
            y - 3,
            value,
            size=SMALL,
            color=color,
            ha="center",
            va="bottom",
            weight=weight,
        )
        frame, frame_width = (ORANGE, 1.5) if k == nearest else (RULE, 0.5)
        canvas.image(
            shrink(pixels, width, height), x, y, width, height, frame=frame, frame_width=frame_width
        )


def _check_row(row: SweepRow, original: np.ndarray) -> np.ndarray:
    images = as_images(row.pictures, f"the images of {row.name!r}")
    check_shape(images[:1], original.shape, f"each image of {row.name!r}")
    if (
        np.ndim(row.values) != 1
        or len(row.values) != len(images)
        or not np.isfinite(np.asarray(row.values, dtype=float)).all()
    ):
        raise DataError(
            f"the sweep of {row.name!r} needs one finite value for each of its {len(images)} "
            f"images, not {np.shape(row.values)}."
        )
    return images


def _check_single(image: Any) -> np.ndarray:
    """Return one image (C, H, W) or (1, C, H, W) as (1, C, H, W)."""
    original = as_images(image, "the original image")
    if len(original) != 1:
        raise DataError(
            f"one original image is shown at a time, but {len(original)} were given; pick one."
        )
    return original


def _format_values(values: Sequence[float]) -> list[str]:
    """Format values with as many decimals as distinguish neighbours."""
    step = np.ptp(np.asarray(values, dtype=float)) / max(1, len(values) - 1)
    decimals = int(np.clip(1 - np.floor(np.log10(step)), 0, 4)) if step else None
    return [
        format_number(value) if decimals is None else f"{value:.{decimals}f}".replace("-", "−")
        for value in values
    ]
