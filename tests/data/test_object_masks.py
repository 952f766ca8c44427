"""Masks of the objects that simulators draw: closed forms, and agreement with the images."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.data.simulators import Flow, Garden, Pendulum, raster
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.pendulum import AXES, OUTLINE, SUN_RADIUS, SUN_Y
from intervae.data.simulators.raster import Raster

SIMULATORS = (Pendulum(), Flow(), Garden())
PAINTED = [
    (simulator, name)
    for simulator in SIMULATORS
    for name in simulator.objects
    if name != "gap"  # which is the lack of a wall
]


def draw_only(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let simulators draw the fixed background and the object `name` alone."""

    class OneObject(Raster):
        def _paint(self, coverage: np.ndarray, *where: object) -> None:
            if self.object_name in ("", name):
                super()._paint(coverage, *where)  # type: ignore[arg-type]

    monkeypatch.setattr(raster, "Raster", OneObject)


def random_values(simulator: Simulator, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Noises, and variables of which each is drawn independently, also far from its range."""
    rng = np.random.default_rng(0)
    exogenous = simulator.sample_exogenous(n, rng)
    observed = simulator.simulate(exogenous)
    spread = observed.max(0) - observed.min(0)
    low, high = observed.min(0) - spread / 2, observed.max(0) + spread / 2
    return exogenous, rng.uniform(low, high, observed.shape)


@pytest.mark.parametrize("size", [16, 33, 96])
@pytest.mark.parametrize(("simulator", "name"), PAINTED, ids=lambda x: getattr(x, "name", x))
def test_one_object_alone_differs_from_the_background_inside_its_mask(
    simulator: Simulator, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exogenous, values = random_values(simulator)
    mask = simulator.object_masks(values, exogenous, size=size)[name]
    assert mask.shape == (len(values), size, size)
    assert mask.dtype == bool
    draw_only(monkeypatch, name)
    alone = simulator.render(values, exogenous, size=size)
    draw_only(monkeypatch, "nothing")
    background = simulator.render(values, exogenous, size=size)
    different = (alone != background).any(1)
    assert different.any()
    assert not (different & ~mask).any()
    if simulator.name == "pendulum":  # in others a fixed object or the like colour hides parts
        assert (mask & ~different).sum() < 0.02 * mask.sum()  # coverage below half a grey level


@pytest.mark.parametrize("size", [16, 33, 96])
@pytest.mark.parametrize("simulator", SIMULATORS, ids=lambda s: s.name)
def test_union_of_the_masks_covers_every_pixel_that_is_not_background(
    simulator: Simulator, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exogenous, values = random_values(simulator)
    masks = simulator.object_masks(values, exogenous, size=size)
    assert list(masks) == list(simulator.objects)
    images = simulator.render(values, exogenous, size=size)
    draw_only(monkeypatch, "nothing")
    background = simulator.render(values, exogenous, size=size)
    assert not ((images != background).any(1) & ~np.any(list(masks.values()), axis=0)).any()


@pytest.mark.parametrize("size", [16, 33, 96])
@pytest.mark.parametrize("simulator", SIMULATORS, ids=lambda s: s.name)
def test_a_variable_changes_only_pixels_of_the_objects_it_draws(
    simulator: Simulator, size: int
) -> None:
    exogenous, values = random_values(simulator)
    assert {v for drawn_by in simulator.objects.values() for v in drawn_by} == set(
        simulator.graph.names
    )
    before, masks = (
        simulator.render(values, exogenous, size=size),
        simulator.object_masks(values, exogenous, size=size),
    )
    for i, variable in enumerate(simulator.graph.names):
        changed = values.copy()
        changed[:, i] = np.roll(values[:, i], 1)
        after, masks_after = (
            simulator.render(changed, exogenous, size=size),
            simulator.object_masks(changed, exogenous, size=size),
        )
        different = (before != after).any(1)
        assert different.any()
        for name, drawn_by in simulator.objects.items():
            if variable in drawn_by:
                different &= ~(masks[name] | masks_after[name])
            else:
                assert (masks[name] == masks_after[name]).all()
        assert not different.any()


def test_shadow_covers_the_pixels_between_its_ends() -> None:
    length, position = np.array([4.0, 7.3, 60.0, 5.0]), np.array([10.0, 12.2, 10.0, 80.0])
    values = np.stack([np.zeros(4), np.full(4, 90.0), length, position], axis=1)
    mask = Pendulum().object_masks(values, size=96)["shadow"]
    left, right = AXES.x(position - length / 2), AXES.x(position + length / 2)
    column, row = np.arange(96), np.arange(96)
    across = (column + 1 > left[:, None]) & (column < right[:, None]) & (column >= 12)
    across &= column < 86
    expected = across[:, None, :] & ((row >= 82) & (row < 85))[None, :, None]
    assert (mask == expected).all()
    assert not mask[3].any()  # outside the frame


def test_sun_covers_an_ellipse() -> None:
    mask = Pendulum().object_masks(np.array([[0.0, 90.0, 5.0, 10.0]]), size=96)["sun"][0]
    centres = np.arange(96) + 0.5
    rx, ry = SUN_RADIUS * AXES.x_scale + OUTLINE, SUN_RADIUS * AXES.y_scale + OUTLINE
    x, y = (centres - AXES.x(10.0))[None, :], (centres - AXES.y(SUN_Y))[:, None]
    visible = ((centres > 12) & (centres < 85))[:, None]  # the axes clip the upper part
    assert mask[((x / rx) ** 2 + (y / ry) ** 2 <= 1) & visible].all()
    assert not mask[((x / (rx + 1)) ** 2 + (y / (ry + 1)) ** 2 > 1) | ~visible].any()


def test_gap_covers_the_missing_part_of_the_wall() -> None:
    hole = np.array([2.0, 3.1, 4.6])
    values = np.stack([np.ones(3), np.ones(3), np.full(3, 12.0), hole], axis=1)
    mask = Flow().object_masks(values, size=96)["gap"]
    top, bottom = (85.44 - (hole + height) * 73.92 / 20 + 0.5 for height in (0.4, 0.0))
    row, column = np.arange(96), np.arange(96)
    down = (row + 1 > top[:, None]) & (row < bottom[:, None])
    across = (column + 1 > 42.5 - 4 / 3) & (column < 42.5 + 4 / 3)
    assert (mask == down[:, :, None] & across).all()


def test_a_hole_above_the_wall_has_no_gap() -> None:
    assert not Flow().object_masks(np.array([[1.0, 1.0, 12.0, 30.0]]), size=64)["gap"].any()
