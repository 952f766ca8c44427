"""Readers measure what pictures show: on made pictures with known answers, and on simulators whose variables are cut loose from one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intervae.data.base import Variable
from intervae.data.simulators import Flow, Pendulum
from intervae.errors import DataError
from intervae.metrics.reader import FINEST, MOST, fit_reader, simulator_reader


def blobs(values: np.ndarray, side: int = 16) -> np.ndarray:
    """(N, 3) of x, y and a class 0, 1, 2 to (N, 3, side, side): a blob at (x, y) in [0, 1], in the colour of its class."""
    grid = (np.arange(side) + 0.5) / side
    x = np.exp(-np.square(grid[None, None, :] - values[:, 0, None, None]) / 0.02)
    y = np.exp(-np.square(grid[None, :, None] - values[:, 1, None, None]) / 0.02)
    colour = np.eye(3)[values[:, 2].astype(int)]
    return (x * y)[:, None] * colour[:, :, None, None]


def sample(n: int, seed: int, classes: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(0.2, 0.8, (n, 2)), rng.integers(0, classes, n)])


VARIABLES = (Variable("x"), Variable("y"), Variable("colour", "categorical", categories=("r", "g", "b")))


def test_positions_and_classes_are_read_in_their_own_units() -> None:
    scale = np.array([100.0, -3.0, 1.0])  # the units of the labels do not matter
    train, test = sample(400, 0), sample(200, 1)
    reader = fit_reader(blobs(train), train * scale + [5, 7, 0], VARIABLES)
    read = reader(blobs(test))
    truth = test * scale + [5, 7, 0]
    assert np.abs(read - truth)[:, 0].max() < 10  # of a range of 60
    assert np.abs(read - truth)[:, 1].max() < 0.3  # of a range of 1.8
    assert (read[:, 2] == truth[:, 2]).all()
    r2, accuracy = reader.quality(blobs(test), truth)
    assert (r2.metric, accuracy.metric) == ("reader_r2_min", "reader_accuracy_min")
    by_hand = 1 - np.square(read - truth).sum(0) / np.square(truth - truth.mean(0)).sum(0)
    assert r2.per_variable == pytest.approx({"x": by_hand[0], "y": by_hand[1]})
    assert r2.value == min(r2.per_variable.values()) > 0.99
    assert accuracy.value == 1
    assert accuracy.parameters["majority"]["colour"] == np.bincount(test[:, 2].astype(int)).max() / 200


def test_a_quadratic_of_the_pixels_is_read_exactly() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.uniform(size=(300, 1, 2, 2))
    value = pixels[:, 0, 0, 0] * pixels[:, 0, 1, 1] - 2 * pixels[:, 0, 0, 1] ** 2
    reader = fit_reader(pixels[:200], value[:200, None], [Variable("v")])
    assert np.abs(reader(pixels[200:])[:, 0] - value[200:]).max() < 0.02 * value.std()


def test_noise_cannot_be_read_and_the_quality_says_so() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.uniform(size=(200, 1, 6, 6)), np.column_stack([rng.normal(size=200), rng.integers(0, 2, 200)])
    reader = fit_reader(images[:100], labels[:100], [Variable("noise"), Variable("coin", "binary")])
    r2, accuracy = reader.quality(images[100:], labels[100:], name="predictor")
    assert (r2.metric, accuracy.metric) == ("predictor_r2_min", "predictor_accuracy_min")
    assert r2.value < 0.2
    assert accuracy.value < 0.7


def test_large_pictures_are_averaged_down_and_many_are_sampled() -> None:
    train = sample(MOST + 50, 0)
    reader = fit_reader(blobs(train[:300], side=2 * FINEST + 6), train[:300], VARIABLES)
    assert reader.pixels.shape == (300, 3 * 24 * 24)  # 70 pixels in squares of 3
    assert reader.quality(blobs(sample(50, 1), side=2 * FINEST + 6), sample(50, 1))[0].value > 0.99
    assert len(fit_reader(blobs(train, side=4), train, VARIABLES).pixels) == MOST
    with pytest.raises(DataError, match="trained on pictures of"):
        reader(blobs(train[:2], side=16))


def test_few_pictures_constants_and_one_class_are_no_error() -> None:
    images = np.random.default_rng(0).uniform(size=(5, 1, 4, 4))
    labels = np.column_stack([np.full(5, 3.0), np.ones(5), np.arange(5.0)])
    reader = fit_reader(images, labels, [Variable("constant"), Variable("one", "binary"), Variable("v")])
    np.testing.assert_allclose(reader(images)[:, 0], 3.0, atol=1e-9)
    assert (reader(images)[:, 1] == 1).all()
    (r2, _) = reader.quality(images, labels)
    assert set(r2.per_variable) == {"v"}
    assert r2.parameters["constant"] == ["constant"]
    black = fit_reader(np.zeros((5, 1, 4, 4)), labels, reader.variables)  # pictures without any difference
    np.testing.assert_allclose(black(images)[:, 2], 2.0, atol=0.5)


def test_wrong_labels_are_refused() -> None:
    for bad in (np.zeros((3, 1)), np.zeros((2, 2)), np.full((2, 1), np.nan)):
        with pytest.raises(DataError, match="labels must be finite"):
            fit_reader(np.zeros((2, 1, 4, 4)), bad, [Variable("v")])


@pytest.mark.parametrize(("simulator", "worst", "rest"), [(Pendulum(), 0.85, 0.98), (Flow(), 0.99, 0.99)])
def test_a_simulators_reader_knows_a_shadow_from_a_light(simulator: Any, worst: float, rest: float) -> None:
    reader, (quality,) = simulator_reader(simulator, 32, pictures=1000, held_out=200)
    scores = sorted(quality.per_variable.values())
    assert scores[0] > worst  # a shadow that leaves the canvas does not show its length
    assert scores[1] > rest
    exogenous = simulator.sample_exogenous(100, np.random.default_rng(5))
    for i, variable in enumerate(simulator.variables):  # each set to a value that belongs to no cause, the others left as they are
        natural = simulator.simulate(exogenous)[:, i]
        values = np.random.default_rng(6).permutation(np.clip(natural, *np.quantile(natural, [0.2, 0.8])))
        images, truth = simulator.counterfactual(exogenous, {variable.name: values}, size=32)
        error = np.abs(reader(images) - truth)[:, i].mean() / natural.std()
        assert error < 0.25, variable.name
