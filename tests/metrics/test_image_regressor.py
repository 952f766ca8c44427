"""Image regressors on images with known values and on simulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intervae.data import Variable
from intervae.data.simulators import Flow, Pendulum
from intervae.errors import DataError
from intervae.metrics.image_regressor import (
    LARGEST_SIDE,
    MAX_IMAGES,
    fit_image_regressor,
    simulator_regressor,
)


def blobs(values: np.ndarray, side: int = 16) -> np.ndarray:
    """Images (N, 3, side, side) of values (N, 3): a blob at (x, y), in the colour of its class."""
    grid = (np.arange(side) + 0.5) / side
    x = np.exp(-np.square(grid[None, None, :] - values[:, 0, None, None]) / 0.02)
    y = np.exp(-np.square(grid[None, :, None] - values[:, 1, None, None]) / 0.02)
    colour = np.eye(3)[values[:, 2].astype(int)]
    return (x * y)[:, None] * colour[:, :, None, None]


def sample(n: int, seed: int, classes: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(0.2, 0.8, (n, 2)), rng.integers(0, classes, n)])


VARIABLES = (
    Variable("x"),
    Variable("y"),
    Variable("colour", "categorical", categories=("r", "g", "b")),
)


def test_positions_and_classes_are_predicted_in_their_units() -> None:
    scale = np.array([100.0, -3.0, 1.0])  # the units of the labels do not matter
    train, test = sample(400, 0), sample(200, 1)
    regressor = fit_image_regressor(blobs(train), train * scale + [5, 7, 0], VARIABLES)
    predicted = regressor(blobs(test))
    truth = test * scale + [5, 7, 0]
    assert np.abs(predicted - truth)[:, 0].max() < 10  # of a range of 60
    assert np.abs(predicted - truth)[:, 1].max() < 0.3  # of a range of 1.8
    assert (predicted[:, 2] == truth[:, 2]).all()
    r2, accuracy = regressor.quality(blobs(test), truth)
    assert (r2.metric, accuracy.metric) == ("reader_r2_min", "reader_accuracy_min")
    by_hand = 1 - np.square(predicted - truth).sum(0) / np.square(truth - truth.mean(0)).sum(0)
    assert r2.per_variable == pytest.approx({"x": by_hand[0], "y": by_hand[1]})
    assert r2.value == min(r2.per_variable.values()) > 0.99
    assert accuracy.value == 1
    assert (
        accuracy.parameters["majority"]["colour"] == np.bincount(test[:, 2].astype(int)).max() / 200
    )


def test_a_quadratic_function_of_the_pixels_is_exact() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.uniform(size=(300, 1, 2, 2))
    value = pixels[:, 0, 0, 0] * pixels[:, 0, 1, 1] - 2 * pixels[:, 0, 0, 1] ** 2
    regressor = fit_image_regressor(pixels[:200], value[:200, None], [Variable("v")])
    assert np.abs(regressor(pixels[200:])[:, 0] - value[200:]).max() < 0.02 * value.std()


def test_quality_is_low_on_noise() -> None:
    rng = np.random.default_rng(0)
    images, labels = (
        rng.uniform(size=(200, 1, 6, 6)),
        np.column_stack([rng.normal(size=200), rng.integers(0, 2, 200)]),
    )
    regressor = fit_image_regressor(
        images[:100], labels[:100], [Variable("noise"), Variable("coin", "binary")]
    )
    r2, accuracy = regressor.quality(images[100:], labels[100:], name="predictor")
    assert (r2.metric, accuracy.metric) == ("predictor_r2_min", "predictor_accuracy_min")
    assert r2.value < 0.2
    assert accuracy.value < 0.7


def test_large_images_are_averaged_and_many_are_subsampled() -> None:
    train = sample(MAX_IMAGES + 50, 0)
    regressor = fit_image_regressor(
        blobs(train[:300], side=2 * LARGEST_SIDE + 6), train[:300], VARIABLES
    )
    assert regressor.pixels.shape == (300, 3 * 24 * 24)  # 70 pixels in squares of 3
    assert (
        regressor.quality(blobs(sample(50, 1), side=2 * LARGEST_SIDE + 6), sample(50, 1))[0].value
        > 0.99
    )
    assert len(fit_image_regressor(blobs(train, side=4), train, VARIABLES).pixels) == MAX_IMAGES
    with pytest.raises(DataError, match="trained on images of"):
        regressor(blobs(train[:2], side=16))


def test_few_images_constants_and_single_classes_are_no_error() -> None:
    images = np.random.default_rng(0).uniform(size=(5, 1, 4, 4))
    labels = np.column_stack([np.full(5, 3.0), np.ones(5), np.arange(5.0)])
    regressor = fit_image_regressor(
        images, labels, [Variable("constant"), Variable("one", "binary"), Variable("v")]
    )
    np.testing.assert_allclose(regressor(images)[:, 0], 3.0, atol=1e-9)
    assert (regressor(images)[:, 1] == 1).all()
    (r2, _) = regressor.quality(images, labels)
    assert set(r2.per_variable) == {"v"}
    assert r2.parameters["constant"] == ["constant"]
    black = fit_image_regressor(
        np.zeros((5, 1, 4, 4)), labels, regressor.variables
    )  # pictures without any difference
    np.testing.assert_allclose(black(images)[:, 2], 2.0, atol=0.5)


def test_wrong_labels_raise() -> None:
    for bad in (np.zeros((3, 1)), np.zeros((2, 2)), np.full((2, 1), np.nan)):
        with pytest.raises(DataError, match="labels must be finite"):
            fit_image_regressor(np.zeros((2, 1, 4, 4)), bad, [Variable("v")])


@pytest.mark.parametrize(
    ("simulator", "worst", "rest"), [(Pendulum(), 0.85, 0.98), (Flow(), 0.99, 0.99)]
)
def test_a_simulator_regressor_measures_interventions_on_effects(
    simulator: Any, worst: float, rest: float
) -> None:
    regressor, (quality,) = simulator_regressor(simulator, 32, images=1000, held_out=200)
    scores = sorted(quality.per_variable.values())
    assert scores[0] > worst  # the length of a shadow that leaves the image is unknown
    assert scores[1] > rest
    exogenous = simulator.sample_exogenous(100, np.random.default_rng(5))
    for i, variable in enumerate(
        simulator.variables
    ):  # each set to a value that belongs to no cause, the others left as they are
        natural = simulator.simulate(exogenous)[:, i]
        values = np.random.default_rng(6).permutation(
            np.clip(natural, *np.quantile(natural, [0.2, 0.8]))
        )
        images, truth = simulator.counterfactual(exogenous, {variable.name: values}, size=32)
        error = np.abs(regressor(images) - truth)[:, i].mean() / natural.std()
        assert error < 0.25, variable.name
