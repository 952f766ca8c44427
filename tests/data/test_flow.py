"""Flow against its equations, its own pixels and the published images."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data.simulators import Flow
from intervae.data.simulators.flow import AXES
from intervae.errors import DataError

SIMULATOR = Flow()
NOISES = SIMULATOR.sample_exogenous(30, np.random.default_rng(7))
VALUES = SIMULATOR.simulate(NOISES)
BALL, WATER, FLOW, HOLE = range(4)


def published():
    folder = os.environ.get("INTERVAE_DATA")
    path = Path(folder or "") / "causalvae" / "flow_noise.npz"
    if not folder or not path.exists():
        pytest.skip("needs the published images: set INTERVAE_DATA to the folder with causalvae/")
    return np.load(path)


def test_mechanisms_are_those_of_the_paper():
    ball, raw_water, hole, _ = NOISES.T
    np.testing.assert_allclose(VALUES[:, WATER], ball**3 + raw_water)
    np.testing.assert_allclose(
        (VALUES[:, FLOW] - 8) ** 2, 1.96 * (ball**3 + raw_water) * (hole - 0.5)
    )
    assert SIMULATOR.graph.edges == [
        ("ball", "water", 1.0),
        ("water", "flow", 1.0),
        ("hole", "flow", 1.0),
    ]


def test_grid_has_8100_distinct_samples_of_which_1620_are_test():
    noises, test = SIMULATOR.published_grid()
    repeated, _ = SIMULATOR.published_grid()
    assert len(np.unique(SIMULATOR.simulate(noises)[:, [BALL, WATER, HOLE]], axis=0)) == 8100
    assert test.sum() == 1620
    np.testing.assert_array_equal(noises, repeated)
    for column in range(3):  # the test split has every level of every noise
        assert set(noises[test, column]) == set(noises[:, column])


def test_wobble_changes_the_jet_and_no_label():
    steady, wild = NOISES.copy(), NOISES.copy()
    steady[:, 3], wild[:, 3] = 0.0, 0.3
    np.testing.assert_array_equal(SIMULATOR.simulate(steady), SIMULATOR.simulate(wild))
    still, moved = (
        SIMULATOR.render(VALUES, steady, size=96),
        SIMULATOR.render(VALUES, wild, size=96),
    )
    np.testing.assert_array_equal(still, SIMULATOR.render(VALUES, size=96))
    assert (still != moved).any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(still[..., :41], moved[..., :41])


def jet_centre(images: np.ndarray, row: int) -> np.ndarray:
    """x of the jet in a row of pixels, right of the cup, in canvas units."""
    blue = 1 - images[:, 0, row, 48:] / 255.0
    return ((blue @ (np.arange(48, 96) + 0.5)) / blue.sum(1) - AXES.x(0)) / AXES.x_scale


@pytest.mark.parametrize("wobble", [0.0, 0.2])
def test_jet_is_the_parabola_of_the_authors(wobble):
    noises = NOISES[VALUES[:, FLOW] > 11]
    noises[:, 3] = wobble
    values = SIMULATOR.simulate(noises)
    images = SIMULATOR.render(values, noises, size=96)
    for row in (78, 80, 82):
        y = (AXES.box[3] - (row + 0.5)) / AXES.y_scale
        below = values[:, HOLE] - y > 1.0
        x = 8 + np.sqrt(2 * (0.98 + wobble) * values[:, WATER] * np.maximum(values[:, HOLE] - y, 0))
        assert below.sum() >= 3
        np.testing.assert_allclose(jet_centre(images, row)[below], x[below], atol=0.06)


@pytest.mark.parametrize("landing", [11.0, 13.0, 15.0])
def test_do_flow_changes_only_the_jet(landing):
    still = NOISES.copy()
    still[:, 3] = 0.0
    images, values = SIMULATOR.counterfactual(still, {"flow": landing}, size=96)
    np.testing.assert_array_equal(values[:, [BALL, WATER, HOLE]], VALUES[:, [BALL, WATER, HOLE]])
    y = (AXES.box[3] - 82.5) / AXES.y_scale  # centre of a row just above the ground
    x = 8 + (landing - 8) * np.sqrt((values[:, HOLE] - y) / (values[:, HOLE] - 0.5))
    np.testing.assert_allclose(jet_centre(images, 82), x, atol=0.1)
    factual = SIMULATOR.render(VALUES, still, size=96)
    np.testing.assert_array_equal(images[..., :41], factual[..., :41])


def test_water_and_ball_can_be_measured_from_the_pixels():
    images = SIMULATOR.render(VALUES, NOISES, size=96) / 255.0
    # a column of the cup, left of every ball
    dry = (images[:, 0, :85, 26] - 135 / 255) / (120 / 255)
    surface = dry[:, :84].sum(1)  # rows above the water
    top = (AXES.box[3] - (surface - 0.5 + 2 / 3)) / AXES.y_scale - 5
    np.testing.assert_allclose(top, VALUES[:, WATER], atol=0.02)
    red = (1 - images[:, 2] / (250 / 255))[:, 30:84, 26:40].clip(0, None).sum((1, 2)) / (
        1 - 34 / 250
    )
    area = (
        np.pi * (VALUES[:, BALL] * AXES.x_scale + 2 / 3) * (VALUES[:, BALL] * AXES.y_scale + 2 / 3)
    )
    high = VALUES[:, WATER] + 5 > 2 * VALUES[:, BALL] + 1
    np.testing.assert_allclose(red[high], area[high], rtol=0.06)


def test_empty_do_gives_the_factual_image():
    images, values = SIMULATOR.counterfactual(NOISES, {}, size=50)
    np.testing.assert_array_equal(values, VALUES)
    np.testing.assert_array_equal(images, SIMULATOR.render(VALUES, NOISES, size=50))


def test_do_ball_changes_water_and_flow_but_not_the_hole():
    values = SIMULATOR.simulate(NOISES, {"ball": 0.9})
    noises = NOISES.copy()
    noises[:, 0] = 0.9
    np.testing.assert_array_equal(values, SIMULATOR.simulate(noises))
    np.testing.assert_array_equal(values[:, HOLE], VALUES[:, HOLE])
    assert (values[:, [WATER, FLOW]] != VALUES[:, [WATER, FLOW]]).all()


def test_do_water_removes_the_effect_of_the_ball():
    values = SIMULATOR.simulate(NOISES, {"water": 2.5, "ball": 0.2})
    assert (values[:, WATER] == 2.5).all()
    np.testing.assert_allclose((values[:, FLOW] - 8) ** 2, 1.96 * 2.5 * (VALUES[:, HOLE] - 0.5))
    np.testing.assert_array_equal(values, SIMULATOR.simulate(NOISES, {"ball": 0.2, "water": 2.5}))


def test_soft_interventions_act_on_the_value_given_the_parents():
    values = SIMULATOR.simulate(NOISES, {"ball": 0.9, "water": lambda v: 2 * v})
    np.testing.assert_allclose(values[:, WATER], 2 * (0.9**3 + NOISES[:, 1]))


@pytest.mark.parametrize(
    "do",
    [
        {"ball": 0.0},
        {"ball": -2.0},
        {"ball": 50.0},
        {"water": -3.0},
        {"water": 1e6},
        {"hole": 0.0},
        {"hole": 30.0},
        {"flow": 8.0},
        {"flow": -1e9},
        {"flow": 1e9},
    ],
)
def test_interventions_outside_the_published_range_are_rendered(do):
    images, values = SIMULATOR.counterfactual(NOISES[:5], do, size=37)
    assert images.shape == (5, 3, 37, 37)
    assert np.isfinite(values).all()
    assert images.min() < 60  # the cup is always drawn


def test_ball_of_radius_zero_is_not_drawn():
    images = SIMULATOR.counterfactual(NOISES, {"ball": 0.0}, size=64)[0].astype(int)
    assert (images[:, 0] <= images[:, 2]).all()


def test_rows_of_noises_must_match_the_variables():
    with pytest.raises(DataError, match="30 rows of noises do not match 29 rows"):
        SIMULATOR.render(VALUES[1:], NOISES)


def test_dataset_is_the_full_grid_with_its_simulator():
    data = SIMULATOR.dataset(size=8)
    assert (len(data.train) + len(data.validation), len(data.test)) == (6480, 1620)
    images, _ = data.simulator.counterfactual(data.test.fields["exogenous"][:6], {}, size=8)
    assert torch.equal(torch.as_tensor(images), data.test.images[:6])


def published_rows(data) -> tuple[np.ndarray, np.ndarray]:
    """Our grid, and its row for each published image: the last one with the same file name."""
    noises, test = SIMULATOR.published_grid()
    values = SIMULATOR.simulate(noises)
    names = np.stack(
        [
            np.round(30 * noises[:, 0]),
            values[:, WATER].astype(int),
            (10 * (values[:, FLOW] - 8)).astype(int),
            np.round(3 * noises[:, 2]),
        ],
        axis=1,
    )
    last = {
        (bool(t), *map(int, name)): row
        for row, (t, name) in enumerate(zip(test, names, strict=True))
    }
    assert len(last) == len(data["factors"])
    return noises, np.array(
        [
            last[(bool(t), *map(int, name))]
            for t, name in zip(data["test"], data["factors"], strict=True)
        ]
    )


def test_split_and_images_equal_the_published_ones():
    data = published()
    noises, rows = published_rows(data)  # KeyError for a name in another split
    every_sixth = np.arange(0, len(rows), 6)
    ours = SIMULATOR.render(
        SIMULATOR.simulate(noises[rows[every_sixth]]), noises[rows[every_sixth]], size=96
    )
    error = (
        np.abs(ours.astype(np.int16) - data["images"][every_sixth].transpose(0, 3, 1, 2)).mean(
            axis=(1, 2, 3)
        )
        / 255
    )
    assert error.mean() < 0.0004
    assert error.max() < 0.0008
    np.testing.assert_array_equal(SIMULATOR.graph.adjacency, data["graph"])


def test_wobble_is_as_large_as_in_the_published_images():
    data = published()
    noises, rows = published_rows(data)
    long = np.flatnonzero(SIMULATOR.simulate(noises)[rows, FLOW] > 12)[::5]
    truth, noises = (
        data["images"][long].transpose(0, 3, 1, 2)[..., 46:].astype(np.float32),
        noises[rows[long]],
    )
    candidates = np.linspace(-0.02, 0.06, 9)
    errors = []
    for noises[:, 3] in candidates:
        errors.append(
            (
                (SIMULATOR.render(SIMULATOR.simulate(noises), noises, size=96)[..., 46:] - truth)
                ** 2
            ).mean()
        )
    curve = np.polynomial.Polynomial.fit(candidates[2:6], errors[2:6], 2)
    assert float(curve.deriv().roots()[0].real) == pytest.approx(0.012, abs=0.003)
    drawn = SIMULATOR.sample_exogenous(20000, np.random.default_rng(0))[:, 3]
    assert drawn.mean() == pytest.approx(0.012, abs=0.0005)
