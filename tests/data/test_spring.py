"""Two sprites on a spring against the normal modes in closed form, and the images of both."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import Motion, Spring
from intervae.errors import DataError, UsageError

SIMULATOR = Spring()
NOISES = SIMULATOR.sample_exogenous(200, np.random.default_rng(7))
VALUES = SIMULATOR.simulate(NOISES)


@pytest.mark.parametrize("stiffness", [0.1, 0.3, 1.5])
def test_modes_have_their_closed_form(stiffness: float) -> None:
    """The sum moves steadily, the difference swings with cos(angle) = 1 - stiffness."""
    simulator = Spring(frames=7, stiffness=stiffness, size=40)
    values = simulator.simulate(simulator.sample_exogenous(300, np.random.default_rng(1)))
    x, y, u, v = (values[:, i::4] for i in range(4))  # (300, 7) each
    angle, t = np.arccos(1 - stiffness), np.arange(7)
    for first, second, rest in ((x, u, simulator.rest), (y, v, 0.0)):
        total, gap = first + second, second - first - rest
        np.testing.assert_allclose(
            total, total[:, :1] + t * (total[:, 1:2] - total[:, :1]), atol=1e-9
        )
        swing = gap[:, 1:2] * np.sin(t * angle) - gap[:, :1] * np.sin((t - 1) * angle)
        np.testing.assert_allclose(gap, swing / np.sin(angle), atol=1e-9)


@pytest.mark.parametrize(("frames", "inside"), [(3, None), (6, None), (6, 4)])
def test_sprites_stay_inside_for_so_many_frames(frames: int, inside: int | None) -> None:
    simulator = Spring(frames=frames, inside=inside)
    values = simulator.simulate(simulator.sample_exogenous(20_000, np.random.default_rng(2)))
    low, high = simulator.walls
    guaranteed = values[:, : 4 * (inside or frames)]
    assert low <= guaranteed.min() < low + 2
    assert high - 2 < guaranteed.max() <= high
    if inside:
        assert values.min() < low - 1
        assert values.max() > high + 1


def test_graph_and_coefficients_are_those_of_the_law() -> None:
    graph, k = SIMULATOR.graph, SIMULATOR.stiffness
    assert graph.parents("x3") == ["x1", "x2", "u2"]
    assert graph.parents("v3") == ["v1", "y2", "v2"]
    assert len(graph.edges) == 12
    two_before, one_before = SIMULATOR.coefficients()
    moved = NOISES.copy()
    moved[:, 6] += 1.0  # u2
    change = (SIMULATOR.simulate(moved) - VALUES)[:, 8:]
    np.testing.assert_allclose(change, np.tile([k, 0, 2 - k, 0], (200, 1)), atol=1e-9)
    np.testing.assert_allclose(one_before[2], change[0], atol=1e-9)
    moved = NOISES.copy()
    moved[:, 1] += 1.0  # y1
    np.testing.assert_allclose(
        (SIMULATOR.simulate(moved) - VALUES)[:, 8:], np.tile(two_before[1], (200, 1)), atol=1e-9
    )
    modes = SIMULATOR.normal_modes()
    np.testing.assert_allclose(
        modes @ one_before @ modes.T, np.diag([2, 2, 2 - 2 * k, 2 - 2 * k]), atol=1e-12
    )


def test_do_on_one_sprite_moves_the_other() -> None:
    _, values = SIMULATOR.counterfactual(NOISES, {"x2": lambda x: x + 2.0})
    change = values - VALUES
    np.testing.assert_allclose(change[:, 4], 2.0)
    np.testing.assert_allclose(change[:, 8], 2 * (2 - SIMULATOR.stiffness))
    np.testing.assert_allclose(change[:, 10], 2 * SIMULATOR.stiffness)
    np.testing.assert_allclose(np.delete(change, [4, 8, 10], axis=1), 0.0, atol=1e-12)


def test_each_sprite_is_drawn_at_its_position() -> None:
    """Differences of clips with one sprite far away are the other one alone."""
    away = VALUES.copy()
    away[:, 2::4] = away[:, 3::4] = 1000.0
    coin = SIMULATOR.render(away)
    away = VALUES.copy()
    away[:, 0::4] = away[:, 1::4] = 1000.0
    stone = SIMULATOR.render(away)
    pixels = np.arange(SIMULATOR.size)
    for clips, first in ((coin, 0), (stone, 2)):
        weight = clips[:, :, 0].astype(float)
        total = weight.sum((2, 3))
        np.testing.assert_allclose(weight.sum(2) @ pixels / total, VALUES[:, first::4], atol=0.03)
        np.testing.assert_allclose(
            weight.sum(3) @ pixels / total, VALUES[:, first + 1 :: 4], atol=0.03
        )
    apart = (np.abs(VALUES[:, 0::4] - VALUES[:, 2::4]) > 5.5).all(1)
    assert apart.sum() > 30
    both = SIMULATOR.render(VALUES[apart])
    # where a pixel holds an edge of both, the stone is in front
    np.testing.assert_allclose(both, coin[apart].astype(int) + stone[apart], atol=16)


def test_extrapolation_and_reload() -> None:
    data = load_data("spring", samples=60, frames=5, stiffness=0.5, backgrounds=3, size=30, seed=2)
    assert data.spec.image_shape == (1, 30, 30)
    assert data.names[:5] == ("x1", "y1", "u1", "v1", "x2")
    noises, values = data.test.fields["exogenous"].numpy(), data.test.labels.numpy()
    frames, positions = data.simulator.extrapolate(values[:, :8], noises, 3)
    np.testing.assert_allclose(positions, values[:, 8:], atol=1e-4)
    np.testing.assert_allclose(frames, data.test.images[:, 2:], atol=1)
    reloaded = reload(json.loads(json.dumps(dict(data.source))))
    assert torch.equal(reloaded.test.images, data.test.images)
    assert reloaded.simulator.stiffness == 0.5


def test_motion_has_the_paper_s_start_when_later_frames_may_leave() -> None:
    simulator = Motion(frames=5, inside=3)
    assert simulator.ranges == Motion().ranges
    values = simulator.simulate(simulator.sample_exogenous(500, np.random.default_rng(0)))
    assert 2 <= values[:, :6].min() < values[:, :6].max() <= 17
    assert values.max() > 20


def test_errors_for_invalid_input() -> None:
    with pytest.raises(UsageError, match="stiffness=2 must be between 0 and 2"):
        Spring(stiffness=2)
    with pytest.raises(UsageError, match="inside=6 is more than the 5 frames"):
        Spring(frames=5, inside=6)
    with pytest.raises(UsageError, match="inside=2 must be a whole number, 3 or more"):
        Motion(inside=2)
    with pytest.raises(DataError, match=r"\(N, 4 k\), x, y, u, v of k frames"):
        SIMULATOR.extrapolate(VALUES[:, :6], None, 1)
