"""Heat maps over images, with true masks where known (CMCL, Mao et al. 2022, Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps

from intervae.errors import DataError
from intervae.figures.canvas import Canvas, check_suffix
from intervae.figures.image_arrays import as_array, as_images, as_rgb, cell_size
from intervae.figures.image_grids import CELL, GAP, GROUP_GAP, draw_row
from intervae.figures.style import FAINT, INK, LINE, MARGIN, SMALL
from intervae.figures.text_layout import text_width, wrap, wrap_title

LABEL_WIDTH = 170.0  # at which labels on the left are wrapped
STRONGEST = 0.65  # opacity of the hottest place
HEAT = colormaps["inferno"]


@dataclass(frozen=True)
class HeatMapRow:
    """Heat maps of one latent.

    Arguments:
        label: the latent and its link.
        images: (N, C, H, W).
        maps: (N, H, W) in [0, 1].
        masks: (N, H, W) bool, true masks if known.
        heads: (N,) captions above the images.
    """

    label: str
    images: Any
    maps: Any
    masks: Any = None
    heads: Sequence[str] = ()


def blend(images: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Blend images (N, C, H, W) in [0, 1] with maps (N, H, W) to (N, H, W, 3) uint8."""
    heat = STRONGEST * maps[..., None]
    return np.rint((1 - heat) * as_rgb(images) + heat * 255 * HEAT(maps)[..., :3]).astype(np.uint8)


def heat_maps(path: str | Path, rows: Sequence[HeatMapRow], *, title: str = "") -> None:
    """Draw for each row its images, the same with heat maps, and true masks if there are any."""
    check_suffix(path)
    if not rows:
        raise DataError("there is no heat map to show; give at least one HeatMapRow.")
    groups = [_group(row) for row in rows]
    width, height = cell_size(groups[0][0][1].shape[1:3], CELL)
    labels = [wrap(row.label, LABEL_WIDTH) for row in rows]
    line_label_width = max(text_width(text, SMALL) for text in ("image", "heat map", "true mask"))
    left = MARGIN + max(map(text_width, labels)) + 12 + line_label_width + 8
    right = left + max(len(group[0][1]) for group in groups) * (width + GAP) - GAP
    title_text, title_height = wrap_title(title, right - MARGIN)
    head_heights = [SMALL * LINE + 2 if row.heads else 0.0 for row in rows]
    group_heights = [len(group) * (height + GAP) - GAP for group in groups]
    total = sum(head_heights) + sum(group_heights) + GROUP_GAP * (len(rows) - 1)
    canvas = Canvas(right + MARGIN, MARGIN + title_height + total + MARGIN)
    canvas.title(title_text)
    y = MARGIN + title_height
    for row, group, label, head_height, group_height in zip(
        rows, groups, labels, head_heights, group_heights, strict=True
    ):
        for k, text in enumerate(row.heads):
            canvas.text(
                left + k * (width + GAP) + width / 2,
                y + head_height - 2,
                text,
                size=SMALL,
                color=FAINT,
                ha="center",
                va="bottom",
            )
        y += head_height
        canvas.text(MARGIN, y + group_height / 2, label, linespacing=LINE)
        for k, (kind, images) in enumerate(group):
            top = y + k * (height + GAP)
            canvas.text(
                left - 8,
                top + height / 2,
                kind,
                size=SMALL,
                color=INK if kind == "heat map" else FAINT,
                ha="right",
            )
            draw_row(canvas, images, left, top, width, height)
        y += group_height + GROUP_GAP
    canvas.save(path)


def _group(row: HeatMapRow) -> list[tuple[str, np.ndarray]]:
    """Check one row and return its lines: kind, and images (N, H, W, 3) uint8."""
    images = as_images(row.images, f"the images of {row.label!r}")
    shape = (len(images), *images.shape[2:])
    maps = as_array(row.maps).astype(np.float64)
    if maps.shape != shape or not np.isfinite(maps).all() or maps.min() < 0 or maps.max() > 1:
        raise DataError(
            f"the heat maps of {row.label!r} must be {shape} and in [0, 1], not {maps.shape}."
        )
    lines = [("image", as_rgb(images)), ("heat map", blend(images, maps))]
    if row.masks is not None:
        masks = as_array(row.masks)
        if masks.shape != shape:
            raise DataError(f"the masks of {row.label!r} must be {shape}, not {masks.shape}.")
        lines.append(("true mask", as_rgb(masks.astype(np.float32)[:, None])))
    return lines
