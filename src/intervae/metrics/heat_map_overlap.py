"""Overlap of heat maps with true masks: fraction of heat inside the mask, and IoU."""

from __future__ import annotations

from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement


def heat_map_energy(maps: Any, masks: Any) -> Measurement:
    """Return the fraction of each map's sum that lies inside the mask, mean over images.

    Chance, a uniform map, is the mask's fraction of the image.

    Arguments:
        maps: (N, H, W), nonnegative. A map of zeros scores 0.
        masks: (N, H, W) bool, or 0 and 1. Images without a mask are left out.
    """
    heat, inside = _check(maps, masks)
    total = heat.sum((1, 2))
    fraction = (heat * inside).sum((1, 2)) / np.where(total > 0, total, 1.0)
    scores = np.where(total > 0, fraction, 0.0)
    return _measurement("heat_map_energy", scores, inside, {"empty_maps": int((total <= 0).sum())})


def heat_map_iou(maps: Any, masks: Any, *, threshold: float = 0.5) -> Measurement:
    """Return the intersection over union of mask and hot pixels, mean over images.

    A pixel is hot at `threshold` or more of the map's maximum. Chance, all pixels hot, is the
    mask's fraction of the image. Other arguments as in `heat_map_energy`.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold={threshold} must be above 0 and at most 1.")
    heat, inside = _check(maps, masks)
    largest = heat.max((1, 2), keepdims=True)
    hot = (heat >= threshold * largest) & (largest > 0)
    scores = (hot & inside).sum((1, 2)) / (hot | inside).sum((1, 2))
    return _measurement("heat_map_iou", scores, inside, {"threshold": threshold})


def _measurement(
    name: str, scores: np.ndarray, inside: np.ndarray, parameters: dict[str, Any]
) -> Measurement:
    chance = {"by_chance": {"value": float(inside.mean())}}
    return Measurement(
        name,
        float(scores.mean()),
        len(scores),
        spread=float(scores.std()),
        parameters={**parameters, **chance},
        higher_is_better=True,
    )


def _check(maps: Any, masks: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return maps as float64 and masks as bool, only of images with a mask."""
    heat, inside = np.asarray(maps, dtype=np.float64), np.asarray(masks)
    if heat.ndim != 3 or heat.shape != inside.shape:
        raise DataError(
            f"heat maps and masks must both be (N, H, W), not {heat.shape} and {inside.shape}."
        )
    if not np.isfinite(heat).all() or (heat < 0).any():
        raise DataError("heat maps must be finite and 0 or more.")
    if not np.isin(inside, (0, 1)).all():
        raise DataError("masks must be 0 or 1 everywhere.")
    inside = inside.astype(bool)
    marked = inside.any((1, 2))
    if not marked.any():
        raise DataError(
            "none of these images has a mask, so there is nothing to compare heat maps with."
        )
    return heat[marked], inside[marked]
