"""Heat maps over images: cold pixels stay unchanged, hot ones are coloured, masks are below."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.figures import HeatMapRow, heat_maps
from intervae.figures.overlays import HEAT, STRONGEST, blend

RNG = np.random.default_rng(0)


def test_no_heat_changes_nothing_and_full_heat_is_a_known_colour() -> None:
    images = RNG.integers(0, 256, (1, 1, 4, 4)).astype(np.float64) / 255
    maps = np.zeros((1, 4, 4))
    maps[0, 1, 2] = 1.0
    made = blend(images, maps)
    plain = np.rint(images[0, 0] * 255)
    cold = maps[0] == 0
    assert (made[0][cold] == plain[cold][:, None]).all()
    assert np.allclose(
        made[0, 1, 2],
        (1 - STRONGEST) * plain[1, 2] + STRONGEST * 255 * np.array(HEAT(1.0)[:3]),
        atol=0.51,
    )


def test_masks_stand_below_their_pictures(tmp_path, read_png, find):
    images, maps = RNG.integers(0, 256, (3, 1, 16, 16), dtype=np.uint8), RNG.random((3, 16, 16))
    masks = RNG.random((3, 16, 16)) > 0.5
    heat_maps(
        tmp_path / "h.png",
        [HeatMapRow("disease -> z0, map of z0", images, maps, masks)],
        title="Heat maps",
    )
    picture = read_png(tmp_path / "h.png")
    lines = [
        images[:, 0, ..., None].repeat(3, 3),
        blend(images / 255, maps),
        (255 * masks[..., None]).astype(np.uint8).repeat(3, 3),
    ]
    places = [[find(picture, tile.repeat(8, 0).repeat(8, 1)) for tile in line] for line in lines]
    assert all(len(matches) == 1 for line in places for matches in line)
    for above, below in pairwise(places):
        assert all(
            a[0][1] == b[0][1] and a[0][0] < b[0][0] for a, b in zip(above, below, strict=True)
        )


def test_words_do_not_overlap(drawn, assert_no_overlap):
    rows = [
        HeatMapRow(
            f"column {k} -> z{k}, map of -z{k}",
            RNG.random((6, 1, 16, 16)),
            RNG.random((6, 16, 16)),
            heads=["yes"] * 6,
        )
        for k in range(2)
    ]
    assert_no_overlap(drawn(heat_maps, rows, title="Where it is read off"))


def test_maps_of_another_shape_or_range_are_refused(tmp_path):
    images = RNG.random((2, 1, 8, 8))
    for row in (
        HeatMapRow("z0", images, np.zeros((2, 4, 4))),
        HeatMapRow("z0", images, 2 * np.ones((2, 8, 8))),
    ):
        with pytest.raises(DataError, match="heat maps of 'z0'"):
            heat_maps(tmp_path / "h.png", [row])
    with pytest.raises(DataError, match="masks"):
        heat_maps(
            tmp_path / "h.png", [HeatMapRow("z0", images, np.zeros((2, 8, 8)), np.zeros((2, 4, 4)))]
        )
    with pytest.raises(DataError, match="at least one"):
        heat_maps(tmp_path / "h.png", [])
