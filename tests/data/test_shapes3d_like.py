"""Simulated 3D Shapes: each factor changes its pixels only; painted splits match the renderer."""

from __future__ import annotations

import colorsys
import json

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import Shapes3d
from intervae.data.simulators.painted_split import SATURATION, PaintedSplit
from intervae.data.simulators.ray_casting import CAMERA, HALF_VIEW, LOOKS_AT, SPHERE, cast_view
from intervae.data.simulators.shapes3d import FACTOR_VALUES, SHAPES
from intervae.errors import UsageError

SIMULATOR = Shapes3d()
FLOOR, WALL, OBJECT, SCALE, SHAPE, ORIENTATION = range(6)
VALUES = SIMULATOR.sample_exogenous(12, np.random.default_rng(0))
SMALL = (3, 2, 2, 3, 4, 3)


def changed(values: np.ndarray, factor: int, to: float, size: int = 32) -> np.ndarray:
    """Return which pixels (N, size, size) change if a factor is set."""
    edited = values.copy()
    edited[:, factor] = to
    return (SIMULATOR.render(values, size=size) != SIMULATOR.render(edited, size=size)).any(1)


@pytest.mark.parametrize("surface", [FLOOR, WALL, OBJECT])
def test_a_hue_changes_the_pixels_of_its_surface_and_no_others(surface):
    values = VALUES.copy()
    values[:, surface] = 0.05
    layer = np.stack(
        [cast_view(scale, int(shape), turn, 32)[surface] for scale, shape, turn in values[:, 3:]]
    )
    different = changed(values, surface, 0.55)
    assert not different[layer == 0].any()
    assert different[layer > 0.02].all()
    assert 0.04 < different.mean() < 0.7


@pytest.mark.parametrize("turn", [-30.0, 0.0, 17.0])
@pytest.mark.parametrize("shape", range(4))
def test_every_pixel_shows_a_surface_and_the_object_is_centred(turn, shape):
    floor, wall, thing, white = cast_view(1.0, shape, turn, 48)
    assert ((floor + wall + thing) > 0.25).all()  # light in every pixel
    assert (floor[-1] > 0).all()
    assert not wall[-1].any()
    assert (wall[0] > 0).all()
    assert not thing[[0, -1]].any()
    assert not thing[:, [0, -1]].any()
    columns = np.flatnonzero((thing > 0).any(0))
    assert abs(columns.mean() - 23.5) < 2.0  # a cube turned aside is not symmetric
    assert not white[thing == 0].any()


def test_the_object_grows_with_the_scale_and_shapes_differ():
    pixels = [
        [(cast_view(scale, shape, 10.0, 64)[2] > 0).sum() for scale in FACTOR_VALUES[SCALE]]
        for shape in range(4)
    ]
    assert (np.diff(pixels, axis=1) > 10).all()
    ratio = np.array(pixels)[:, -1] / np.array(pixels)[:, 0]
    # an area; the larger object is also a little nearer
    np.testing.assert_allclose(ratio, (1.25 / 0.75) ** 2, rtol=0.15)
    shapes = [cast_view(1.0, shape, 10.0, 64)[2] > 0 for shape in range(4)]
    for i in range(4):
        for j in range(i):
            assert (shapes[i] != shapes[j]).mean() > 0.01


def test_the_silhouette_of_a_ball_has_the_projected_width():
    """A ball of radius r at distance d subtends the angle asin(r / d)."""
    size, up = 256, CAMERA[1] - LOOKS_AT
    thing = cast_view(1.0, SHAPES.index("sphere"), 0.0, size)[2] > 0
    offset = np.array([0.0, CAMERA[0], SPHERE - CAMERA[1]])
    distance = np.linalg.norm(offset)
    ahead = np.array([0.0, CAMERA[0], -up]) / np.hypot(CAMERA[0], up)
    depth = offset @ ahead
    # horizontal, where perspective does not stretch
    width = (
        2 * SPHERE / np.sqrt(distance**2 - SPHERE**2) * distance / depth / (2 * HALF_VIEW) * size
    )
    assert (thing.any(0)).sum() == pytest.approx(width, abs=3)


def test_the_camera_moves_around_the_object():
    """A cylinder looks the same from all sides, but room, light and shadow do not."""
    left, right = (cast_view(1.0, 1, turn, 64) for turn in (-20.0, 20.0))
    assert ((left[2] > 0) == (right[2] > 0)).mean() > 0.999
    assert (np.abs(left[1] - right[1]) > 0.05).mean() > 0.05
    cubes = [cast_view(1.0, 0, turn, 64)[2] > 0 for turn in (0.0, 20.0)]
    assert (cubes[0] != cubes[1]).sum() > 20
    mirrored = [(cast_view(1.0, 0, turn, 64)[:3] > 0) for turn in (-20.0, 20.0)]
    # the room and the cube are symmetric
    assert (mirrored[0] == mirrored[1][:, :, ::-1]).mean() > 0.99


def test_every_step_of_the_grid_is_visible():
    for factor, steps in enumerate(FACTOR_VALUES):
        values = np.repeat(
            [[0.3, 0.6, 0.0, steps[0] if factor == SCALE else 1.0, 2, 0.0]], len(steps), axis=0
        )
        values[:, factor] = steps
        images = SIMULATOR.render(values, size=64).astype(int)
        assert (np.abs(np.diff(images, axis=0)).max(1) > 8).sum((1, 2)).min() > 20, factor


def test_colours_match_the_hue():
    hues = np.linspace(0, 1, 7)
    values = np.column_stack([hues, np.zeros((7, 2)), np.ones(7), np.zeros((7, 2))])
    pixel = SIMULATOR.render(values, size=16)[:, :, -1, 0] / 255.0
    expected = np.array([colorsys.hsv_to_rgb(h % 1, SATURATION, 1.0) for h in hues])
    np.testing.assert_allclose(pixel / pixel.max(1, keepdims=True), expected, atol=0.02)


@pytest.mark.parametrize("size", [8, 20, 64])
def test_a_smaller_image_is_the_mean_of_a_larger_one(size):
    large = SIMULATOR.render(VALUES[:3], size=320).astype(float)
    small = SIMULATOR.render(VALUES[:3], size=size)
    assert small.shape == (3, 3, size, size)
    pooled = large.reshape(3, 3, size, 320 // size, size, 320 // size).mean((3, 5))
    assert np.abs(small - pooled).mean() < 2.0


def test_do_sets_one_variable_and_leaves_the_rest():
    images, values = SIMULATOR.counterfactual(
        VALUES, {"shape": 2.0, "wall_hue": lambda v: v + 0.1}, size=16
    )
    np.testing.assert_array_equal(
        values[:, [FLOOR, OBJECT, SCALE, ORIENTATION]],
        VALUES[:, [FLOOR, OBJECT, SCALE, ORIENTATION]],
    )
    np.testing.assert_allclose(values[:, WALL], VALUES[:, WALL] + 0.1)
    np.testing.assert_array_equal(images, SIMULATOR.render(values, size=16))
    assert not (cast_view(0.0, 0, 0.0, 16)[2]).any()
    assert np.isfinite(
        SIMULATOR.counterfactual(VALUES[:2], {"scale": 1e30, "orientation": -1e9}, size=8)[0]
    ).all()


# ---- data sets ------------------------------------------------------------------------------
def test_a_painted_split_matches_the_renderer():
    data = load_data("shapes3d-like", size=16, levels=SMALL, seed=3)
    assert sum(map(len, (data.train, data.validation, data.test))) == np.prod(SMALL)
    split = data.test
    expected = torch.as_tensor(SIMULATOR.render(split.fields["exogenous"].numpy(), size=16))
    assert torch.equal(split.images, expected)
    assert split.shape == tuple(expected.shape) == (len(split), 3, 16, 16)
    rows = torch.tensor([3, 0, 5])
    batch = split.batch(rows)
    assert set(batch) == {"images", "labels", "exogenous"}
    assert torch.equal((batch["images"] * 255).round().to(torch.uint8), expected[rows])
    assert torch.equal(split[rows].images, expected[rows])
    assert torch.equal(split.to("cpu").images, expected)
    chosen = data.select(["scale", "shape"])
    assert isinstance(chosen.test, PaintedSplit)
    assert chosen.test.labels.shape[1] == 2
    assert torch.equal(chosen.test.images, expected)


def test_the_same_seed_gives_the_same_data_also_by_reload():
    first, second = (
        load_data("shapes3d-like", size=8, levels=",".join(map(str, SMALL)), seed=s) for s in (1, 2)
    )
    again = reload(json.loads(json.dumps(dict(first.source))))
    assert torch.equal(first.train.images, again.train.images)
    assert not torch.equal(first.train.labels, second.train.labels)
    drawn = [load_data("shapes3d-like", size=8, samples=40, seed=s) for s in (1, 1, 2)]
    assert torch.equal(drawn[0].train.images, drawn[1].train.images)
    assert not torch.equal(drawn[0].train.labels, drawn[2].train.labels)
    assert len(np.unique(drawn[0].train.labels[:, 0])) == len(drawn[0].train)


def test_transitions_of_a_small_room():
    data = load_data("shapes3d-like", size=8, levels=SMALL, transitions={"cyclic": "floor_hue"})
    assert len(data.actions) == 12
    pairs, labels = data.transitions.train, data.train.labels
    assert ((labels[pairs.before] != labels[pairs.after]).sum(1) == 1).all()
    moved = load_data("shapes3d-like", size=8, levels=SMALL, transitions={"splits": "random"})
    assert isinstance(moved.train, PaintedSplit)


def test_the_grid_is_that_of_the_published_file():
    values, test = SIMULATOR.published_grid()
    assert values.shape == (480_000, 6)
    assert not test.any()
    np.testing.assert_allclose(
        values[[0, 1, 15, 479_999]][:, 3:],
        [[0.75, 0, -30], [0.75, 0, -30 + 60 / 14], [0.75, 1, -30], [1.25, 3, 30]],
    )


@pytest.mark.parametrize(
    "levels", [(3, 3), (1, 2, 2, 2, 2, 2), (11, 2, 2, 2, 2, 2), "a,b,c,d,e,f", 5]
)
def test_wrong_levels_are_an_error(levels):
    with pytest.raises(
        UsageError, match=r"levels=.* must be 6 whole numbers.*floor_hue 10.*orientation 15"
    ):
        SIMULATOR.dataset(size=8, levels=levels)


def test_wrong_samples_are_an_error():
    with pytest.raises(UsageError, match="samples=3 must be a whole number, 8 or more"):
        SIMULATOR.dataset(size=8, samples=3)
