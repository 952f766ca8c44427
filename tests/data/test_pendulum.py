"""Pendulum against ray geometry, its own pixels and the published images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data.simulators import Pendulum
from intervae.data.simulators.pendulum import AXES
from intervae.errors import DataError, QueryError, UsageError

SIMULATOR = Pendulum()
NOISES = SIMULATOR.sample_exogenous(40, np.random.default_rng(7))
VALUES = SIMULATOR.simulate(NOISES)
PENDULUM, LIGHT, LENGTH, POSITION = range(4)


def published(name: str):
    folder = os.environ.get("INTERVAE_DATA")
    path = Path(folder or "") / "causalvae" / f"{name}.npz"
    if not folder or not path.exists():
        pytest.skip(
            f"needs the published images: set INTERVAE_DATA to a folder with causalvae/{name}.npz"
        )
    return np.load(path)


def test_shadow_ends_where_the_rays_meet_the_ground():
    theta, phi = np.radians(VALUES[:, PENDULUM]), np.radians(VALUES[:, LIGHT])

    def on_the_ground(x, y):  # follow a ray of direction (cos, sin) from (x, y) down to y = -0.5
        return x - (y + 0.5) * np.cos(phi) / np.sin(phi)

    ends = np.stack(
        [
            on_the_ground(10.0, 10.5),
            on_the_ground(10 + 9.5 * np.sin(theta), 10.5 - 9.5 * np.cos(theta)),
        ]
    )
    np.testing.assert_allclose(VALUES[:, POSITION], ends.mean(0), atol=1e-9)
    np.testing.assert_allclose(
        VALUES[:, LENGTH], np.maximum(3, np.abs(ends[1] - ends[0])), atol=1e-9
    )
    assert 0.2 < (VALUES[:, LENGTH] == 3).mean() < 0.6


def test_grid_has_7308_images_of_which_1826_are_test():
    noises, test = SIMULATOR.published_grid()
    assert noises.shape == (7308, 2)
    assert len(np.unique(noises, axis=0)) == 7308
    assert test.sum() == 1826
    assert (
        noises[:, 0].min(),
        noises[:, 0].max(),
        noises[:, 1].min(),
        noises[:, 1].max(),
    ) == pytest.approx((-36, 38.7, 54, 132.3))
    assert np.abs(noises[:, 1] - 90).min() > 0.8


def test_every_variable_can_be_measured_from_the_pixels():
    inside = (np.abs(VALUES[:, POSITION] - 10) + VALUES[:, LENGTH] / 2 < 9.8) & (
        np.abs(VALUES[:, LIGHT] - 90) < 30
    )
    assert inside.sum() > 10
    size, scale = 192, 2.0
    images = SIMULATOR.render(VALUES[inside], size=size) / 255.0
    truth = VALUES[inside]
    columns = (np.arange(size) + 0.5) / scale

    shadow = 1 - images[:, 0, int(83 * scale)]  # (N, size)
    length = shadow.sum(1) / scale / AXES.x_scale
    middle = (shadow @ columns / shadow.sum(1) - AXES.x(0)) / AXES.x_scale
    np.testing.assert_allclose(length, truth[:, LENGTH], atol=0.01)
    np.testing.assert_allclose(middle, truth[:, POSITION], atol=0.01)

    # red but not white, below the sun
    ball = np.clip(images[:, 0] - images[:, 1], 0, None)[:, 24 * 2 :].sum(1)
    ball_x = (ball @ columns / ball.sum(1) - AXES.x(10.0)) / AXES.x_scale
    np.testing.assert_allclose(ball_x, 8 * np.sin(np.radians(truth[:, PENDULUM])), atol=0.05)

    sun = (images[:, 1] - images[:, 2])[:, : 24 * 2].sum(1)  # yellow
    sun_x = (sun @ columns / sun.sum(1) - AXES.x(10.0)) / AXES.x_scale
    np.testing.assert_allclose(sun_x, 10 / np.tan(np.radians(truth[:, LIGHT])), atol=0.02)


def test_empty_do_gives_the_factual_image():
    images, values = SIMULATOR.counterfactual(NOISES, {}, size=48)
    np.testing.assert_array_equal(values, VALUES)
    np.testing.assert_array_equal(images, SIMULATOR.render(VALUES, NOISES, size=48))


def test_do_light_keeps_the_pendulum():
    images, values = SIMULATOR.counterfactual(NOISES, {"light": 75.0}, size=48)
    relit = NOISES.copy()
    relit[:, 1] = 75.0
    np.testing.assert_array_equal(values, SIMULATOR.simulate(relit))
    np.testing.assert_array_equal(images, SIMULATOR.render(SIMULATOR.simulate(relit), size=48))
    np.testing.assert_array_equal(values[:, PENDULUM], VALUES[:, PENDULUM])
    assert (values[:, POSITION] != VALUES[:, POSITION]).all()


def test_do_shadow_changes_only_the_shadow():
    images, values = SIMULATOR.counterfactual(NOISES, {"shadow_length": 6.5}, size=96)
    assert (values[:, LENGTH] == 6.5).all()
    np.testing.assert_array_equal(
        values[:, [PENDULUM, LIGHT, POSITION]], VALUES[:, [PENDULUM, LIGHT, POSITION]]
    )
    factual = SIMULATOR.render(VALUES, size=96)
    np.testing.assert_array_equal(images[:, :, :82], factual[:, :, :82])
    assert (images[:, :, 82:85] != factual[:, :, 82:85]).any(axis=(1, 2, 3)).all()


def test_several_interventions_commute_and_a_callable_is_soft():
    values = SIMULATOR.simulate(
        NOISES, {"light": lambda v: v + 5, "pendulum": -10.0, "shadow_length": 4.0}
    )
    reordered = SIMULATOR.simulate(
        NOISES, {"shadow_length": 4.0, "pendulum": -10.0, "light": lambda v: v + 5}
    )
    np.testing.assert_array_equal(values, reordered)
    by_hand = SIMULATOR.simulate(np.stack([np.full(40, -10.0), NOISES[:, 1] + 5], axis=1))
    np.testing.assert_array_equal(
        values[:, [PENDULUM, LIGHT, POSITION]], by_hand[:, [PENDULUM, LIGHT, POSITION]]
    )
    assert (values[:, LENGTH] == 4.0).all()
    lengthened = SIMULATOR.simulate(NOISES, {"light": 70.0, "shadow_length": lambda v: v + 1})
    np.testing.assert_allclose(
        lengthened[:, LENGTH], SIMULATOR.simulate(NOISES, {"light": 70.0})[:, LENGTH] + 1
    )


def test_do_takes_one_value_per_sample():
    angles = np.linspace(-30, 30, 40)
    np.testing.assert_array_equal(
        SIMULATOR.simulate(NOISES, {"pendulum": angles})[:, PENDULUM], angles
    )


@pytest.mark.parametrize(
    "do",
    [
        {"light": 0.0},
        {"light": 180.0},
        {"light": 270.0},
        {"pendulum": 5000.0},
        {"shadow_length": -4.0},
        {"shadow_length": 1e30},
    ],
)
def test_interventions_outside_the_published_range_are_rendered(do):
    images, values = SIMULATOR.counterfactual(NOISES[:5], do, size=37)
    assert images.shape == (5, 3, 37, 37)
    assert np.isfinite(values).all()


def test_shadow_of_length_zero_is_not_drawn():
    images = SIMULATOR.counterfactual(NOISES, {"shadow_length": 0.0}, size=64)[0]
    assert (images[:, :, 54:] == 255).all()


def test_labels_of_the_authors_are_truncated_and_keep_their_units():
    exact = SIMULATOR.dataset(size=8, samples=80, seed=3)
    truncated = SIMULATOR.dataset(size=8, samples=80, seed=3, labels="authors")
    assert torch.equal(truncated.train.labels[:, :2], exact.train.labels[:, :2])
    assert torch.equal(truncated.train.labels[:, 2:], exact.train.labels[:, 2:].trunc())
    assert torch.equal(truncated.train.images, exact.train.images)
    assert truncated.variables[LENGTH].mean == pytest.approx(
        float(truncated.train.labels[:, LENGTH].double().mean())
    )
    assert truncated.source["options"]["labels"] == "authors"
    assert set(exact.source["options"]) == set(truncated.source["options"])


def test_dataset_has_the_published_test_split_and_its_simulator():
    data = SIMULATOR.dataset(size=8, seed=1)
    assert (len(data.train) + len(data.validation), len(data.test)) == (5482, 1826)
    images, values = data.simulator.counterfactual(data.test.fields["exogenous"][:6], {}, size=8)
    assert torch.equal(torch.as_tensor(images), data.test.images[:6])
    torch.testing.assert_close(torch.as_tensor(values, dtype=torch.float32), data.test.labels[:6])
    assert len(data.graph.edges) == 4


def test_random_data_is_reproducible_and_within_the_ranges():
    first, same_seed, other_seed = (
        SIMULATOR.dataset(size=8, samples=60, seed=s) for s in (5, 5, 6)
    )
    assert torch.equal(first.train.images, same_seed.train.images)
    assert not torch.equal(first.train.labels, other_seed.train.labels)
    assert len(first.test) == 15
    light = torch.cat([first.train.labels[:, 1], first.test.labels[:, 1]])
    assert light.min() >= 54
    assert light.max() <= 132.3


def test_errors_of_pendulum_for_invalid_input():
    with pytest.raises(UsageError, match="size=4 is too small"):
        SIMULATOR.render(VALUES, size=4)
    with pytest.raises(UsageError, match="samples=3 is too few"):
        SIMULATOR.dataset(samples=3)
    with pytest.raises(
        UsageError, match="unknown labels of pendulum 'author'; did you mean 'authors'"
    ):
        SIMULATOR.dataset(samples=40, labels="author")
    with pytest.raises(
        DataError, match=r"noises must be \(N, 2\), one column each for pendulum, light"
    ):
        SIMULATOR.simulate(VALUES)
    with pytest.raises(DataError, match="'light' of sample 1 is nan"):
        SIMULATOR.render(np.array([[0, 60, 3, 5], [0, np.nan, 3, 5]]))
    with pytest.raises(QueryError, match="unknown variable in do"):
        SIMULATOR.simulate(NOISES, {"lights": 3.0})


def test_labels_and_split_equal_the_published_ones():
    data = published("pendulum")
    noises, test = SIMULATOR.published_grid()
    values = SIMULATOR.simulate(noises)
    np.testing.assert_array_equal(test, data["test"])
    np.testing.assert_allclose(values[:, :2] / 0.9, data["factors"][:, :2], atol=1e-9)
    np.testing.assert_allclose(values[:, 2:], data["factors"][:, 2:], atol=1e-9)
    np.testing.assert_array_equal(np.trunc(values[:, 2:]), np.trunc(data["factors"][:, 2:]))
    np.testing.assert_array_equal(SIMULATOR.graph.adjacency, data["graph"])


def test_images_equal_the_published_ones():
    data = published("pendulum")
    rows = np.arange(0, 7308, 5)
    ours = SIMULATOR.render(SIMULATOR.simulate(SIMULATOR.published_grid()[0][rows]), size=96)
    error = (
        np.abs(ours.astype(np.int16) - data["images"][rows].transpose(0, 3, 1, 2)).mean(
            axis=(1, 2, 3)
        )
        / 255
    )
    assert error.mean() < 0.0006
    assert error.max() < 0.002
