"""How well heat maps show where a thing is: the share of their heat inside the true mask, and the overlap with it above a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement


def heat_map_energy(maps: Any, masks: Any) -> Measurement:
    """Mean over pictures of the share of a map's sum that lies inside the mask; by chance, an even map, it is the mask's share of the picture.

    Arguments:
        maps: (N, H, W), 0 or more. A map that is 0 everywhere scores 0.
        masks: (N, H, W) bool, or 0 and 1. Pictures without a mask are left out.
    """
    heat, inside = _pair(maps, masks)
    total = heat.sum((1, 2))
    share = np.where(total > 0, (heat * inside).sum((1, 2)) / np.where(total > 0, total, 1.0), 0.0)
    return _measurement("heat_map_energy", share, inside, {"empty_maps": int((total <= 0).sum())})


def heat_map_iou(maps: Any, masks: Any, *, threshold: float = 0.5) -> Measurement:
    """Mean over pictures of the intersection over union of the mask and the pixels whose heat is `threshold` or more of the map's largest.

    By chance, the whole picture, it is the mask's share of the picture. Arguments as for `heat_map_energy`.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold={threshold} must be above 0 and at most 1.")
    heat, inside = _pair(maps, masks)
    largest = heat.max((1, 2), keepdims=True)
    hot = (heat >= threshold * largest) & (largest > 0)
    score = (hot & inside).sum((1, 2)) / (hot | inside).sum((1, 2))
    return _measurement("heat_map_iou", score, inside, {"threshold": threshold})


def _measurement(name: str, scores: np.ndarray, inside: np.ndarray, parameters: dict[str, Any]) -> Measurement:
    chance = {"by_chance": {"value": float(inside.mean())}}
    return Measurement(
        name, float(scores.mean()), len(scores), spread=float(scores.std()), parameters={**parameters, **chance}, higher_is_better=True
    )


def _pair(maps: Any, masks: Any) -> tuple[np.ndarray, np.ndarray]:
    """Maps as float64 and masks as bool, those of the pictures that have a mask."""
    heat, inside = np.asarray(maps, dtype=np.float64), np.asarray(masks)
    if heat.ndim != 3 or heat.shape != inside.shape:
        raise DataError(f"heat maps and masks must both be (N, H, W), not {heat.shape} and {inside.shape}.")
    if not np.isfinite(heat).all() or (heat < 0).any():
        raise DataError("heat maps must be finite and 0 or more.")
    if not np.isin(inside, (0, 1)).all():
        raise DataError("masks must be 0 or 1 everywhere.")
    inside = inside.astype(bool)
    marked = inside.any((1, 2))
    if not marked.any():
        raise DataError("none of these pictures has a mask, so there is nothing to compare heat maps with.")
    return heat[marked], inside[marked]
