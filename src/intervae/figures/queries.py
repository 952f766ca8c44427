"""One image and what it would have been: its counterfactuals side by side, and a sweep of each variable by do()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError
from intervae.figures.images import CELL, GAP
from intervae.figures.pixels import as_images, as_rgb, cell_size, like, shrink, signed_change
from intervae.figures.style import (
    BODY,
    FAINT,
    INK,
    LINE,
    MARGIN,
    ORANGE,
    RULE,
    SMALL,
    Canvas,
    heading,
    known_suffix,
    number,
    put_heading,
    readable,
    text_width,
    wrap,
)

LARGE_CELL = 256  # pixels of the file along an image's longer side, where there are few
STRIP_GAP, ARROW = 12.0, 26.0  # between the pictures of a strip, and for the arrow after the original


@dataclass(frozen=True)
class SweepRow:
    """One variable moved over its range.

    Arguments:
        name: the variable.
        values: (K,) what it was set to, in its own units.
        pictures: (K, C, H, W), one for each value.
        unit: of the values, such as "degrees".
        current: the variable's value in the original image; the nearest picture is then marked.
    """

    name: str
    values: Sequence[float]
    pictures: Any
    unit: str = ""
    current: float | None = None


def strip(path: str | Path, image: Any, pictures: Any, labels: Sequence[str], *, difference: bool = False) -> None:
    """One image (C, H, W) and beside it its counterfactuals (K, C, H, W), each under its label; with `difference`, below each what changed."""
    known_suffix(path)
    original = _one(image)
    after = as_images(pictures, "the counterfactual pictures")
    like(after[:1], original.shape, "each counterfactual picture")
    if len(labels) != len(after):
        raise DataError(f"{len(labels)} labels were given for {len(after)} pictures; give one for each.")
    width, height = cell_size(original.shape, LARGE_CELL if len(after) <= 5 else CELL)
    pitch = max(width, 96.0) + STRIP_GAP  # room for a caption above a narrow picture
    captions = [wrap(label, pitch - 4) for label in ["original", *labels]]
    y = MARGIN + BODY * LINE * max(len(caption.split("\n")) for caption in captions) + 6
    middles = [MARGIN + (pitch - STRIP_GAP) / 2 + k * pitch + (ARROW if k else 0) for k in range(len(captions))]
    below, legend = y + height + GAP, 24.0
    canvas = Canvas(middles[-1] + (pitch - STRIP_GAP) / 2 + MARGIN, (below + height + legend if difference else y + height) + MARGIN)
    for k, (x, caption, pixels) in enumerate(zip(middles, captions, as_rgb(np.concatenate([original, after])), strict=True)):
        canvas.text(x, y - 6, caption, ha="center", va="bottom", color=INK if k else FAINT, linespacing=LINE)
        canvas.image(shrink(pixels, width, height), x - width / 2, y, width, height)
    tail = middles[0] + (pitch - STRIP_GAP) / 2 + 7
    arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    canvas.axes.annotate("", (tail + ARROW + STRIP_GAP - 14, y + height / 2), (tail, y + height / 2), arrowprops=arrow)
    if difference:
        for x, pixels in zip(middles[1:], signed_change(after, original), strict=True):
            canvas.image(shrink(pixels, width, height), x - width / 2, below, width, height)
        canvas.text(middles[0] + width / 2, below + height / 2, "change", size=SMALL, color=FAINT, ha="right")
        canvas.text(middles[1] - width / 2, below + height + legend / 2 + 2, "blue: darker, red: brighter", size=SMALL, color=FAINT)
    canvas.save(path)


def sweep(path: str | Path, image: Any, rows: Sequence[SweepRow], *, title: str = "") -> None:
    """One image (C, H, W) and, a row for each variable, what it would be with that variable at the values printed above."""
    known_suffix(path)
    original = _one(image)
    if not rows:
        raise DataError("there is no variable to sweep; give at least one SweepRow.")
    pictures = [_swept(row, original) for row in rows]
    width, height = cell_size(original.shape, CELL)
    labels = [f"do({readable(row.name)} = …)" for row in rows]
    widest = max(text_width(text, SMALL, "bold") for row in rows for text in _values(row.values))
    gap = max(GAP, widest + 6 - width)
    first = max(width, text_width("original", SMALL))  # the column of the original
    label_x = MARGIN + first + 26
    left = label_x + max(text_width(text) for text in [*labels, *(readable(row.unit) for row in rows)]) + 14
    right = left + max(map(len, pictures)) * (width + gap) - gap
    words, head = heading(title, right - MARGIN)
    above = SMALL * LINE + 3  # for the values
    pitch = above + height + 8
    bottom = MARGIN + head + len(rows) * pitch - 8
    note = SMALL * LINE + 6 if any(row.current is not None for row in rows) else 0
    canvas = Canvas(right + MARGIN, bottom + note + MARGIN)
    put_heading(canvas, words)
    middle = (MARGIN + head + bottom + above - height) / 2
    canvas.text(MARGIN + first / 2, middle - 4, "original", size=SMALL, color=FAINT, ha="center", va="bottom")
    canvas.image(shrink(as_rgb(original)[0], width, height), MARGIN + (first - width) / 2, middle, width, height)
    for k, (row, label, images) in enumerate(zip(rows, labels, pictures, strict=True)):
        y = MARGIN + head + k * pitch + above
        canvas.text(label_x, y + height / 2 - (BODY * LINE / 2 if row.unit else 0), label)
        canvas.text(label_x, y + height / 2 + BODY * LINE / 2, readable(row.unit), size=SMALL, color=FAINT)
        _put_sweep(canvas, row, as_rgb(images), left, y, width, height, gap)
    if note:
        canvas.text(left, bottom + note, "framed: nearest to the original's own value", size=SMALL, color=FAINT, va="bottom")
    canvas.save(path)


def _put_sweep(canvas: Canvas, row: SweepRow, images: np.ndarray, left: float, y: float, width: float, height: float, gap: float) -> None:
    """The pictures (K, h, w, 3) of one variable, each under its value; the one nearest to the original's own is framed."""
    nearest = None if row.current is None else int(np.argmin(np.abs(np.asarray(row.values, dtype=float) - row.current)))
    for k, (pixels, value) in enumerate(zip(images, _values(row.values), strict=True)):
        x, color, weight = left + k * (width + gap), INK if k == nearest else FAINT, "bold" if k == nearest else "normal"
        canvas.text(x + width / 2, y - 3, value, size=SMALL, color=color, ha="center", va="bottom", weight=weight)
        frame, frame_width = (ORANGE, 1.5) if k == nearest else (RULE, 0.5)
        canvas.image(shrink(pixels, width, height), x, y, width, height, frame=frame, frame_width=frame_width)


def _swept(row: SweepRow, original: np.ndarray) -> np.ndarray:
    pictures = as_images(row.pictures, f"the pictures of {row.name!r}")
    like(pictures[:1], original.shape, f"each picture of {row.name!r}")
    if np.ndim(row.values) != 1 or len(row.values) != len(pictures) or not np.isfinite(np.asarray(row.values, dtype=float)).all():
        raise DataError(f"the sweep of {row.name!r} needs one finite value for each of its {len(pictures)} pictures, not {np.shape(row.values)}.")
    return pictures


def _one(image: Any) -> np.ndarray:
    """One image (C, H, W) or (1, C, H, W) as (1, C, H, W)."""
    original = as_images(image, "the original image")
    if len(original) != 1:
        raise DataError(f"one original image is shown at a time, but {len(original)} were given; pick one.")
    return original


def _values(values: Sequence[float]) -> list[str]:
    """The values of a sweep with as many decimals as tell neighbours apart."""
    step = np.ptp(np.asarray(values, dtype=float)) / max(1, len(values) - 1)
    decimals = int(np.clip(1 - np.floor(np.log10(step)), 0, 4)) if step else None
    return [number(value) if decimals is None else f"{value:.{decimals}f}".replace("-", "−") for value in values]
