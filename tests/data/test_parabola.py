"""Ovals on a parabola against the equation, area and centre of an ellipse; pooled images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.simulators import Parabola
from intervae.errors import DataError, QueryError, UsageError

SIMULATOR = Parabola()
GRID = SIMULATOR.published_grid()[0]
NOISES = SIMULATOR.sample_exogenous(60, np.random.default_rng(7))
VALUES = SIMULATOR.simulate(NOISES)
X, Y, SCALE, ROTATION = range(4)


def test_grid_has_every_combination_once():
    x, noise, scale, rotation = GRID.T
    assert len(GRID) == 6 * 40 * 32 * 10 == 76_800
    assert len(np.unique(GRID.round(9), axis=0)) == 76_800
    np.testing.assert_allclose(np.unique(x), np.linspace(-1, 1, 32))
    np.testing.assert_allclose(np.unique(noise), np.linspace(-0.25, 0.25, 10))
    np.testing.assert_allclose(np.unique(scale), [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    np.testing.assert_allclose(np.unique(rotation), np.arange(40) * 2 * np.pi / 40)
    values = SIMULATOR.simulate(GRID)
    np.testing.assert_array_equal(values[:, Y], x**2 + noise)
    assert (values[:, Y].min(), values[:, Y].max()) == pytest.approx((-0.25 + (1 / 31) ** 2, 1.25))


def test_pixel_is_white_if_its_centre_is_inside_the_ellipse():
    values = SIMULATOR.simulate(GRID[:: len(GRID) // 150])
    row, column = np.mgrid[:64, :64]
    for (x, y, scale, rotation), image in zip(values, SIMULATOR.render(values)[:, 0], strict=True):
        right, up = column - (31.5 + 18 * x), (46 - 24 * y) - row
        along = (right * np.cos(rotation) + up * np.sin(rotation)) / (12 * scale)
        across = (up * np.cos(rotation) - right * np.sin(rotation)) / (7 * scale)
        np.testing.assert_array_equal(image, np.where(along**2 + across**2 <= 1, 255, 0))


@pytest.mark.parametrize("size", [16, 64, 96])
def test_areas_and_centres_are_those_of_the_ellipses(size):
    unit = size / 64
    values = VALUES[VALUES[:, Y] > 0]  # an upright oval further down is cut by the edge
    images = SIMULATOR.render(values, size=size)[:, 0] / 255.0
    area = np.pi * 12 * 7 * (values[:, SCALE] * unit) ** 2
    white = images.sum((1, 2))
    np.testing.assert_allclose(white.sum(), area.sum(), rtol=0.005)
    large = values[:, SCALE] > 0.8
    np.testing.assert_allclose(white[large], area[large], rtol=0.03)
    pixels = np.arange(size)
    middle_x, middle_y = images.sum(1) @ pixels / white, images.sum(2) @ pixels / white
    error = (
        (np.stack([middle_x, middle_y], 1) + 0.5) / unit
        - 0.5
        - (np.array([31.5, 46]) + values[:, [X, Y]] * [18, -24])
    )
    assert np.abs(error).max() < 0.3
    np.testing.assert_allclose(error.mean(0), 0.0, atol=0.03)


def test_rotation_is_anticlockwise_and_half_a_turn_changes_nothing():
    level = np.array([[0.0, 0.5, 1.0, 0.0]])
    quarter, tilted, half = (
        level + np.array([0, 0, 0, angle]) for angle in (np.pi / 2, np.pi / 4, np.pi)
    )
    horizontal = SIMULATOR.render(level)[0, 0] > 0
    assert np.ptp(np.flatnonzero(horizontal.any(0))) > np.ptp(np.flatnonzero(horizontal.any(1)))
    upright = SIMULATOR.render(quarter)[0, 0] > 0
    assert np.ptp(np.flatnonzero(upright.any(0))) < np.ptp(np.flatnonzero(upright.any(1)))
    row, column = np.nonzero(SIMULATOR.render(tilted)[0, 0])
    assert np.corrcoef(row, column)[0, 1] < -0.3  # further right is further up
    different = SIMULATOR.render(half) != SIMULATOR.render(level)
    assert different.sum() <= 2  # pixels exactly on the edge may round either way


@pytest.mark.parametrize("size", [32, 16, 8])
def test_small_images_are_average_pooled_large_ones(size):
    large = SIMULATOR.render(VALUES)
    assert set(np.unique(large)) == {0, 255}
    pooled = large.reshape(len(VALUES), 1, size, 64 // size, size, 64 // size).mean((3, 5))
    np.testing.assert_allclose(SIMULATOR.render(VALUES, size=size), pooled, atol=0.5)


def test_size_that_does_not_divide_64_keeps_the_fraction_of_white():
    fraction = SIMULATOR.render(VALUES).mean() / 255
    for size in (20, 48, 100):
        images = SIMULATOR.render(VALUES, size=size)
        assert images.shape == (60, 1, size, size)
        assert images.mean() / 255 == pytest.approx(fraction, rel=0.01)
        assert (len(np.unique(images)) > 2) == (size < 64)


def test_do_x_changes_y_along_the_parabola_with_the_same_noise():
    images, values = SIMULATOR.counterfactual(NOISES, {"x": 0.5})
    np.testing.assert_allclose(values[:, Y], 0.25 + NOISES[:, 1])
    np.testing.assert_array_equal(values[:, [SCALE, ROTATION]], VALUES[:, [SCALE, ROTATION]])
    moved = NOISES.copy()
    moved[:, 0] = 0.5
    np.testing.assert_array_equal(images, SIMULATOR.render(SIMULATOR.simulate(moved)))


def test_do_y_does_not_change_x():
    images, values = SIMULATOR.counterfactual(NOISES, {"y": lambda v: 1.0 - v})
    np.testing.assert_array_equal(values[:, [X, SCALE, ROTATION]], VALUES[:, [X, SCALE, ROTATION]])
    np.testing.assert_allclose(values[:, Y], 1.0 - VALUES[:, Y])
    factual = SIMULATOR.render(VALUES)
    # the width is unchanged
    np.testing.assert_allclose((images > 0).any(2).sum(2), (factual > 0).any(2).sum(2), atol=1)


@pytest.mark.parametrize("do", [{"scale": 0.0}, {"scale": -1.0}, {"x": 1e30}, {"y": -50.0}])
def test_image_is_black_if_the_oval_is_outside(do):
    images, values = SIMULATOR.counterfactual(NOISES[:5], do, size=24)
    assert np.isfinite(values).all()
    assert not images.any()


def test_oval_larger_than_the_image_fills_it():
    assert (SIMULATOR.counterfactual(NOISES[:3], {"scale": 1e5}, size=24)[0] == 255).all()


def test_dataset_of_the_grid_has_its_splits_and_simulator():
    data = SIMULATOR.dataset(size=8, seed=1)
    assert (len(data.train), len(data.validation), len(data.test)) == (55_296, 6_144, 15_360)
    assert data.spec.image_shape == (1, 8, 8)
    assert data.graph.edges == [("x", "y", 1.0)]
    noises_of_splits = [
        s.fields["exogenous"].numpy() for s in (data.train, data.validation, data.test)
    ]
    distinct = [
        {tuple(row) for row in (noises % [9, 9, 9, np.pi - 1e-9]).round(6)}
        for noises in noises_of_splits
    ]
    # each image occurs twice: half a turn changes nothing
    assert [len(rows) for rows in distinct] == [27_648, 3_072, 7_680]
    assert not distinct[0] & distinct[2]
    assert not distinct[1] & distinct[2]
    images, values = data.simulator.counterfactual(data.test.fields["exogenous"][:6], {}, size=8)
    assert torch.equal(torch.as_tensor(images), data.test.images[:6])
    torch.testing.assert_close(torch.as_tensor(values, dtype=torch.float32), data.test.labels[:6])


def test_random_draws_are_reproducible_and_reload():
    first, same_seed, other_seed = (
        load_data("parabola", size=16, samples=200, seed=s) for s in (5, 5, 6)
    )
    assert torch.equal(first.train.images, same_seed.train.images)
    assert not torch.equal(first.train.labels, other_seed.train.labels)
    assert (len(first.train), len(first.validation), len(first.test)) == (144, 16, 40)
    exogenous = torch.cat(
        [s.fields["exogenous"] for s in (first.train, first.validation, first.test)]
    )
    assert (exogenous >= torch.tensor([-1, -0.25, 0.5, 0])).all()
    assert (exogenous <= torch.tensor([1, 0.25, 1, 2 * torch.pi])).all()
    source = json.loads(json.dumps(dict(first.source)))
    assert torch.equal(reload(source).test.images, first.test.images)
    assert len(load_data("parabola", size=16, samples=200, test=0.5).test) == 100


def test_errors_of_parabola_for_invalid_input():
    with pytest.raises(UsageError, match="size=4 is too small"):
        SIMULATOR.render(VALUES, size=4)
    for samples in (3, True, 10.5):
        with pytest.raises(
            UsageError, match=f"samples={samples} must be a whole number, 8 or more"
        ):
            SIMULATOR.dataset(samples=samples)
    with pytest.raises(
        DataError, match=r"noises must be \(N, 4\), one column each for x, noise, scale, rotation"
    ):
        SIMULATOR.simulate(VALUES[:, :3])
    with pytest.raises(QueryError, match="unknown variable in do"):
        SIMULATOR.simulate(NOISES, {"noise": 3.0})
