"""Energy and IoU of heat maps with known scores."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError, UsageError
from intervae.metrics import heat_map_energy, heat_map_iou

MASK = np.zeros((4, 8, 8), bool)
MASK[:3, 2:4, 2:6] = True  # 8 of 64 pixels; the last picture has none


def test_a_uniform_map_scores_chance() -> None:
    for score in (
        heat_map_energy(np.ones((4, 8, 8)), MASK),
        heat_map_iou(np.ones((4, 8, 8)), MASK),
    ):
        assert score.value == pytest.approx(8 / 64)
        assert score.parameters["by_chance"]["value"] == pytest.approx(8 / 64)
        assert score.n == 3


def test_perfect_empty_and_partial_maps() -> None:
    maps = np.zeros((4, 8, 8))
    maps[0][MASK[0]] = 0.7
    maps[2, 2, 2:4], maps[2, 7, :3] = (
        1.0,
        0.4,
    )  # 2 of 3.2 inside; 2 of 8 pixels above half of the largest
    energy, overlap = heat_map_energy(maps, MASK), heat_map_iou(maps, MASK)
    assert energy.value == pytest.approx((1 + 0 + 2 / 3.2) / 3)
    assert energy.parameters["empty_maps"] == 1
    assert overlap.value == pytest.approx((1 + 0 + 2 / 8) / 3)
    assert heat_map_iou(maps, MASK, threshold=0.3).value == pytest.approx((1 + 0 + 2 / 11) / 3)
    assert heat_map_energy(5 * maps, MASK).value == pytest.approx(energy.value)


def test_wrong_maps_and_masks_raise() -> None:
    with pytest.raises(DataError, match="none of these images has a mask"):
        heat_map_energy(np.ones((4, 8, 8)), np.zeros((4, 8, 8), bool))
    with pytest.raises(DataError, match=r"\(N, H, W\)"):
        heat_map_energy(np.ones((4, 8, 8)), MASK[:, :4])
    with pytest.raises(DataError, match="0 or more"):
        heat_map_iou(-np.ones((4, 8, 8)), MASK)
    with pytest.raises(DataError, match="0 or 1"):
        heat_map_energy(np.ones((4, 8, 8)), 2.0 * MASK)
    with pytest.raises(UsageError, match="threshold"):
        heat_map_iou(np.ones((4, 8, 8)), MASK, threshold=0.0)
