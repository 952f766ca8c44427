"""Heat maps over their pictures (CMCL, Mao et al. 2022, Fig. 5), and the true masks below where they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps

from intervae.errors import DataError
from intervae.figures.images import CELL, GAP, GROUP_GAP, put_row
from intervae.figures.pixels import as_array, as_images, as_rgb, cell_size
from intervae.figures.style import FAINT, INK, LINE, MARGIN, SMALL, Canvas, heading, known_suffix, put_heading, text_width, wrap

LABEL_WIDTH = 170.0  # at which labels at the left are broken into lines
STRONGEST = 0.65  # how much of a picture the hottest place hides
HEAT = colormaps["inferno"]


@dataclass(frozen=True)
class HeatMapRow:
    """The heat maps of one latent.

    Arguments:
        label: which latent, and what it goes with.
        images: (N, C, H, W).
        maps: (N, H, W) in [0, 1].
        masks: (N, H, W) bool, where the truth is known.
        heads: (N,) words above each picture.
    """

    label: str
    images: Any
    maps: Any
    masks: Any = None
    heads: Sequence[str] = ()


def blend(images: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Pictures (N, C, H, W) in [0, 1] under their maps (N, H, W), as (N, H, W, 3) uint8: a place without heat stays as it is."""
    heat = STRONGEST * maps[..., None]
    return np.rint((1 - heat) * as_rgb(images) + heat * 255 * HEAT(maps)[..., :3]).astype(np.uint8)


def heat_maps(path: str | Path, rows: Sequence[HeatMapRow], *, title: str = "") -> None:
    """For each row the pictures, below them the same under their heat maps, and the true masks where there are any."""
    known_suffix(path)
    if not rows:
        raise DataError("there is no heat map to show; give at least one HeatMapRow.")
    groups = [_group(row) for row in rows]
    width, height = cell_size(groups[0][0][1].shape[1:3], CELL)
    labels = [wrap(row.label, LABEL_WIDTH) for row in rows]
    left = MARGIN + max(map(text_width, labels)) + 12 + max(text_width(word, SMALL) for word in ("picture", "heat map", "true mask")) + 8
    right = left + max(len(group[0][1]) for group in groups) * (width + GAP) - GAP
    words, head = heading(title, right - MARGIN)
    above = [SMALL * LINE + 2 if row.heads else 0.0 for row in rows]
    tall = [len(group) * (height + GAP) - GAP for group in groups]
    canvas = Canvas(right + MARGIN, MARGIN + head + sum(above) + sum(tall) + GROUP_GAP * (len(rows) - 1) + MARGIN)
    put_heading(canvas, words)
    y = MARGIN + head
    for row, group, label, extra, space in zip(rows, groups, labels, above, tall, strict=True):
        for k, word in enumerate(row.heads):
            canvas.text(left + k * (width + GAP) + width / 2, y + extra - 2, word, size=SMALL, color=FAINT, ha="center", va="bottom")
        y += extra
        canvas.text(MARGIN, y + space / 2, label, linespacing=LINE)
        for k, (kind, pictures) in enumerate(group):
            top = y + k * (height + GAP)
            canvas.text(left - 8, top + height / 2, kind, size=SMALL, color=INK if kind == "heat map" else FAINT, ha="right")
            put_row(canvas, pictures, left, top, width, height)
        y += space + GROUP_GAP
    canvas.save(path)


def _group(row: HeatMapRow) -> list[tuple[str, np.ndarray]]:
    """The lines of one row, checked: what they show, and (N, H, W, 3) uint8."""
    images = as_images(row.images, f"the pictures of {row.label!r}")
    shape = (len(images), *images.shape[2:])
    maps = as_array(row.maps).astype(np.float64)
    if maps.shape != shape or not np.isfinite(maps).all() or maps.min() < 0 or maps.max() > 1:
        raise DataError(f"the heat maps of {row.label!r} must be {shape} and in [0, 1], not {maps.shape}.")
    found = [("picture", as_rgb(images)), ("heat map", blend(images, maps))]
    if row.masks is not None:
        masks = as_array(row.masks)
        if masks.shape != shape:
            raise DataError(f"the masks of {row.label!r} must be {shape}, not {masks.shape}.")
        found.append(("true mask", as_rgb(masks.astype(np.float32)[:, None])))
    return found
