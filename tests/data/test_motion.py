"""A moving sprite against its laws in closed form and its centre of mass in the images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import Motion
from intervae.data.simulators.backgrounds import BRIGHTEST, draw_backgrounds
from intervae.errors import DataError, QueryError, UsageError

SIMULATOR = Motion()
NOISES = SIMULATOR.sample_exogenous(200, np.random.default_rng(7))
VALUES = SIMULATOR.simulate(NOISES)
X1, Y1, X2, Y2, X3, Y3 = range(6)


def centres(clips: np.ndarray) -> np.ndarray:
    """Centres of mass (N, 2 T) of sprites on black (N, T, 1, H, W)."""
    weight = clips[:, :, 0].astype(float)
    total, pixels = weight.sum((2, 3)), np.arange(clips.shape[-1])
    return np.stack(
        [weight.sum(2) @ pixels / total, weight.sum(3) @ pixels / total], axis=2
    ).reshape(len(clips), -1)


def unfolded(start: np.ndarray, second: np.ndarray, frame: int) -> np.ndarray:
    return start + (frame - 1) * (second - start)


def between_walls(position: np.ndarray, low: float, high: float) -> np.ndarray:
    """Position between walls from the unfolded one: a triangle wave."""
    return low + (high - low) * np.arccos(np.cos(np.pi * (position - low) / (high - low))) / np.pi


# ---- laws --------------------------------------------------------------------------------------
def test_default_is_the_three_frames_of_the_paper():
    assert SIMULATOR.graph.names == ("x1", "y1", "x2", "y2", "x3", "y3")
    assert {(a, b) for a, b, _ in SIMULATOR.graph.edges} == {
        ("x1", "x3"),
        ("x2", "x3"),
        ("y1", "y3"),
        ("y2", "y3"),
    }
    many = SIMULATOR.simulate(SIMULATOR.sample_exogenous(20_000, np.random.default_rng(0)))
    np.testing.assert_allclose(many[:, :4].min(0), 7.0, atol=0.01)
    np.testing.assert_allclose(many[:, :4].max(0), 12.0, atol=0.01)
    np.testing.assert_allclose(many[:, :4].var(0), 25 / 12, rtol=0.03)  # uniform
    np.testing.assert_allclose(np.corrcoef(many[:, :4].T), np.eye(4), atol=0.03)  # and independent
    np.testing.assert_allclose(many[:, 4:], 2 * many[:, 2:4] - many[:, :2])
    assert 2 <= many[:, 4:].min() < 2.3
    assert 16.7 < many[:, 4:].max() <= 17


@pytest.mark.parametrize("law", ["linear", "gravity", "bounce"])
@pytest.mark.parametrize(("frames", "size"), [(3, 20), (5, 20), (8, 48)])
def test_laws_have_their_closed_form_and_keep_the_sprite_inside(law, frames, size):
    simulator = Motion(frames=frames, law=law, size=size)
    noises = simulator.sample_exogenous(2000, np.random.default_rng(1))
    values = simulator.simulate(noises)
    assert values.shape == (2000, 2 * frames)
    for t in range(1, frames + 1):
        x, y = unfolded(noises[:, 0], noises[:, 2], t), unfolded(noises[:, 1], noises[:, 3], t)
        if law == "gravity":
            y = y + simulator.gravity * (t - 1) * (t - 2) / 2
        if law == "bounce":
            x, y = between_walls(x, 2, size - 3), between_walls(y, 2, size - 3)
        np.testing.assert_allclose(values[:, 2 * t - 2], x, atol=1e-6)
        np.testing.assert_allclose(values[:, 2 * t - 1], y, atol=1e-6)
    assert values.min() >= 2
    assert values.max() <= size - 3
    assert values.max() > size - 6  # the room is used
    assert values.min() < 5
    if law == "gravity":
        assert simulator.gravity > 0


def test_bounces_keep_the_speed():
    simulator = Motion(law="bounce", frames=7)
    values = simulator.simulate(simulator.sample_exogenous(500, np.random.default_rng(2)))
    speed = np.abs(np.diff(values[:, 0::2], axis=1))
    bounced = ~np.isclose(speed, speed[:, :1])
    assert bounced[:, 0].sum() == 0
    assert 0.1 < bounced[:, 1].mean() < 0.6
    free = ~bounced
    assert (free[:, 1:-1] & bounced[:, :-2]).any()  # the same speed after a bounce


def test_parents_are_two_frames_and_with_bounce_all_before():
    linear, bounce = Motion(frames=5).graph, Motion(frames=5, law="bounce").graph
    assert linear.parents("x5") == ["x3", "x4"]
    assert linear.parents("y4") == ["y2", "y3"]
    assert bounce.parents("y5") == ["y1", "y2", "y3", "y4"]
    assert Motion(law="bounce").graph == SIMULATOR.graph


# ---- images ------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [20, 40, 30])
def test_centre_of_mass_of_the_sprite_is_its_position(size):
    unit = size / 20
    clips = SIMULATOR.render(VALUES, size=size)
    assert clips.shape == (200, 3, 1, size, size)
    np.testing.assert_allclose((centres(clips) + 0.5) / unit - 0.5, VALUES, atol=0.02)
    brightness = clips.sum((2, 3, 4), dtype=float) / unit**2
    # 16 texels of the rim, 4 of the cross, the middle
    np.testing.assert_allclose(brightness, 16 * 250 + 4 * 140 + 60, rtol=0.01)


def test_sprite_at_a_whole_position_has_its_texels_as_pixels():
    image = SIMULATOR.render(np.array([[10.0, 5.0] * 3]))[0, 0, 0]
    assert image[5, 10] == 60
    assert image[4, 10] == image[5, 9] == 140
    assert image[3, 10] == image[5, 8] == image[4, 9] == 250
    assert image[3, 8] == 0
    assert np.count_nonzero(image) == 21


@pytest.mark.parametrize("channels", [1, 3])
def test_background_is_unchanged_outside_the_sprite(channels):
    simulator = Motion(channels=channels, backgrounds=20)
    noises = simulator.sample_exogenous(60, np.random.default_rng(3))
    values = simulator.simulate(noises)
    clips, background = simulator.render(values, noises), simulator.background(noises)
    assert clips.shape == (60, 3, channels, 20, 20)
    assert background.shape == (60, channels, 20, 20)
    column, row = np.arange(20)[None, None, None], np.arange(20)[None, None, :, None]
    away = (
        np.maximum(
            np.abs(column - values[:, 0::2, None, None]), np.abs(row - values[:, 1::2, None, None])
        )
        > 3
    )
    away = np.repeat(away[:, :, None], channels, axis=2)
    np.testing.assert_array_equal(
        clips[away], np.broadcast_to(background[:, None], clips.shape)[away]
    )
    brightest = clips.max(axis=2)[~away[:, :, 0]].max()
    assert brightest > 240 > BRIGHTEST >= background.max()


def test_backgrounds_are_distinct_and_reproducible():
    images = draw_backgrounds(50, 20, 1, 20)
    apart = np.abs(images[:, None].astype(int) - images[None]).mean((2, 3, 4))
    assert apart[~np.eye(50, dtype=bool)].min() > 1
    np.testing.assert_array_equal(draw_backgrounds(8, 20, 1, 20), images[:8])
    fine = draw_backgrounds(50, 40, 1, 20).reshape(50, 1, 20, 2, 20, 2).mean((3, 5))
    assert np.abs(fine - images).mean() < 3  # the same image at a higher resolution
    assert (
        np.abs(
            draw_backgrounds(50, 20, 3, 20).transpose(0, 2, 3, 1) @ [0.299, 0.587, 0.114]
            - images[:, 0]
        ).max()
        < 1
    )


# ---- interventions -----------------------------------------------------------------------------
def test_do_on_the_second_frame_changes_it_and_the_third():
    clips, values = SIMULATOR.counterfactual(NOISES, {"x2": 8.0})
    np.testing.assert_allclose(values[:, X3], 16.0 - VALUES[:, X1])
    np.testing.assert_array_equal(values[:, [X1, Y1, Y2, Y3]], VALUES[:, [X1, Y1, Y2, Y3]])
    factual = SIMULATOR.render(VALUES, NOISES)
    np.testing.assert_array_equal(clips[:, 0], factual[:, 0])
    assert (clips[:, 1:] != factual[:, 1:]).any(axis=(2, 3, 4)).all()
    on_black = SIMULATOR.render(SIMULATOR.simulate(NOISES, {"x2": 8.0}))
    np.testing.assert_allclose(centres(on_black), values, atol=0.02)


def test_do_on_the_last_frame_changes_nothing_else():
    clips, values = SIMULATOR.counterfactual(NOISES, {"y3": lambda v: v - 1.5})
    np.testing.assert_allclose(values[:, Y3], VALUES[:, Y3] - 1.5)
    np.testing.assert_array_equal(values[:, :Y3], VALUES[:, :Y3])
    np.testing.assert_array_equal(clips[:, :2], SIMULATOR.render(VALUES, NOISES)[:, :2])


def test_sprite_outside_the_image_leaves_the_background():
    clips, values = SIMULATOR.counterfactual(NOISES, {"x1": 1e30, "x3": 0.0, "y3": -40.0})
    np.testing.assert_array_equal(clips[:, 0], SIMULATOR.background(NOISES))
    np.testing.assert_array_equal(clips[:, 2], SIMULATOR.background(NOISES))
    assert np.isfinite(values).all()


def test_bouncing_sprite_continues_from_the_position_set_by_do():
    simulator = Motion(law="bounce", frames=5)
    noises = simulator.sample_exogenous(300, np.random.default_rng(4))
    # no bounce before the third frame
    free = np.abs(unfolded(noises[:, 0], noises[:, 2], 3) - 9.5) < 7.5
    assert 100 < free.sum() < 290
    values = simulator.simulate(noises[free], {"x3": 9.0})
    x2 = noises[free, 2]
    np.testing.assert_allclose(values[:, 6], between_walls(18.0 - x2, 2, 17), atol=1e-6)
    np.testing.assert_allclose(values[:, 8], between_walls(27.0 - 2 * x2, 2, 17), atol=1e-6)
    np.testing.assert_allclose(
        simulator.simulate(noises, {"x3": lambda v: v}), simulator.simulate(noises), atol=1e-9
    )


@pytest.mark.parametrize("law", ["linear", "gravity", "bounce"])
def test_extrapolation_follows_the_law(law):
    simulator = Motion(law=law, frames=4)
    noises = simulator.sample_exogenous(50, np.random.default_rng(5))
    values = simulator.simulate(noises)
    clips, positions = simulator.extrapolate(values, noises, 6)
    assert clips.shape == (50, 6, 1, 20, 20)
    assert positions.shape == (50, 12)
    for step in range(6):
        t = 5 + step
        y = unfolded(noises[:, 1], noises[:, 3], t) + simulator.gravity * (t - 1) * (t - 2) / 2
        np.testing.assert_allclose(
            positions[:, 2 * step + 1], between_walls(y, 2, 17) if law == "bounce" else y, atol=1e-6
        )
    flat = positions.reshape(300, 2)
    inside = (flat >= 2).all(1) & (flat <= 17).all(1)  # frames with the complete sprite
    assert inside.sum() > 20
    frames = simulator.extrapolate(values, None, 6)[0].reshape(300, 1, 1, 20, 20)
    np.testing.assert_allclose(centres(frames[inside]), flat[inside], atol=0.02)
    first, later = simulator.extrapolate(values[:, :4], noises, 2)
    np.testing.assert_allclose(later, values[:, 4:], atol=1e-9)  # two frames are enough
    np.testing.assert_array_equal(first, simulator.render(values, noises)[:, 2:])


# ---- data --------------------------------------------------------------------------------------
def test_batches_have_clips_and_their_backgrounds():
    data = load_data("motion", samples=100)
    assert data.spec.frames == 3
    assert data.spec.image_shape == (1, 20, 20)
    assert (len(data.train), len(data.validation), len(data.test)) == (72, 8, 20)
    batch = data.train.batch(torch.arange(5))
    assert batch["images"].shape == (5, 3, 1, 20, 20)
    assert batch["background"].shape == (5, 1, 20, 20)
    assert batch["background"].is_floating_point()
    assert data.train.fields["background"].dtype == torch.uint8
    corner = batch["background"][:, :, 0, 0]
    assert (batch["images"][:, 0, :, 0, 0] == corner).all()  # no sprite in this corner
    noises = data.test.fields["exogenous"]
    images, values = data.simulator.counterfactual(noises, {}, size=20)
    assert torch.equal(torch.as_tensor(images), data.test.images)
    torch.testing.assert_close(torch.as_tensor(values, dtype=torch.float32), data.test.labels)


def test_options_reach_the_simulator_and_reload():
    data = load_data(
        "motion", samples=60, frames=5, law="bounce", size=32, backgrounds=4, channels=3, seed=3
    )
    assert data.spec.frames == 5
    assert data.spec.image_shape == (3, 32, 32)
    assert data.names[-2:] == ("x5", "y5")
    assert data.simulator.law == "bounce"
    assert set(torch.unique(data.train.fields["exogenous"][:, -1]).tolist()) == {0.0, 1.0, 2.0, 3.0}
    reloaded = reload(json.loads(json.dumps(dict(data.source))))
    assert torch.equal(reloaded.test.images, data.test.images)
    assert torch.equal(reloaded.test.fields["background"], data.test.fields["background"])
    assert reloaded.source == data.source
    assert Motion(frames=4).dataset(samples=40).spec.frames == 4
    assert not torch.equal(
        load_data("motion", samples=60, seed=4).train.labels,
        load_data("motion", samples=60, seed=5).train.labels,
    )


def test_errors_of_motion_for_invalid_input():
    for option, value, least in (
        ("frames", 2, 3),
        ("frames", 3.0, 3),
        ("size", 6, 8),
        ("backgrounds", 0, 1),
        ("samples", 5, 8),
    ):
        with pytest.raises(
            UsageError, match=f"{option}={value} must be a whole number, {least} or more"
        ):
            SIMULATOR.dataset(**{option: value})
    with pytest.raises(UsageError, match="unknown law of motion 'bounces'; did you mean 'bounce'"):
        Motion(law="bounces")
    with pytest.raises(UsageError, match="channels=2 must be 1"):
        Motion(channels=2)
    with pytest.raises(QueryError, match="motion has no published grid"):
        SIMULATOR.published_grid()
    with pytest.raises(QueryError, match="unknown variable in do"):
        SIMULATOR.simulate(NOISES, {"x4": 3.0})
    with pytest.raises(DataError, match="'background' must be a whole number from 0 to 29"):
        SIMULATOR.render(VALUES, NOISES + 30)
    with pytest.raises(DataError, match="3 rows of noises do not match 200 clips"):
        SIMULATOR.render(VALUES, NOISES[:3])
    with pytest.raises(
        DataError,
        match=r"positions must be \(N, 2 k\), x, y of k frames.*not shape \(200, 3\)",
    ):
        SIMULATOR.extrapolate(VALUES[:, :3], None, 2)
    with pytest.raises(UsageError, match="steps=0 must be a whole number"):
        SIMULATOR.extrapolate(VALUES, None, 0)
