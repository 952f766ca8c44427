"""Cells of every do() on strokes with a known truth, and the networks that read their variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intervae.data import Variable
from intervae.data.simulators import MorphoMnist
from intervae.errors import DataError
from intervae.metrics.counterfactual_cells import (
    LEVELS,
    Answer,
    CellReader,
    TrueCounterfactuals,
    answers_to_all,
    cycle_errors,
    other_values,
    true_counterfactuals,
    true_picture_errors,
)
from intervae.metrics.digit_morphometry import MorphometryRegressor
from intervae.metrics.variable_networks import (
    build_variable_networks,
    fit_variable_networks,
    independent_draws,
)
from mnist_files import draw_strokes

IMAGES, DIGITS = draw_strokes()
SIMULATOR = MorphoMnist(IMAGES, DIGITS, np.arange(len(IMAGES)) >= 40)
NOISES = SIMULATOR.published_grid()[0][:24]
VALUES = SIMULATOR.simulate(NOISES)


@pytest.fixture(scope="module")
def truth() -> TrueCounterfactuals:
    pictures = SIMULATOR.render(VALUES, NOISES, size=28)
    scaled = [v.with_scale_of(c) for v, c in zip(SIMULATOR.variables, VALUES.T, strict=True)]
    return true_counterfactuals(SIMULATOR, pictures, VALUES, NOISES, variables=scaled)


@pytest.fixture(scope="module")
def morphometry(truth: TrueCounterfactuals) -> CellReader:
    return CellReader(MorphometryRegressor(truth.variables), truth, suffix="_morphometry")


def nothing(images: np.ndarray, labels: np.ndarray, do: dict[str, Any]) -> Answer:
    """A model that returns its input."""
    return Answer(images, labels)


def simulated(images: np.ndarray, labels: np.ndarray, do: dict[str, Any]) -> Answer:
    """A model that knows the simulator and the noises of its 24 images."""
    return Answer(*SIMULATOR.counterfactual(NOISES, do, size=28))


# ---- do() ----------------------------------------------------------------------------------------
def test_do_sets_the_value_of_another_row_and_every_value_once():
    table = np.arange(60.0).reshape(20, 3)
    draws = other_values([Variable(name) for name in "abc"], table)
    for column, values in zip(table.T, draws.values(), strict=True):
        assert sorted(values) == sorted(column)
        assert (values != column).all()


# ---- pixels --------------------------------------------------------------------------------------
def test_the_simulator_has_no_error_and_doing_nothing_that_of_the_true_change(
    truth: TrueCounterfactuals,
):
    exact = true_picture_errors(answers_to_all(simulated, truth), truth)
    assert set(exact.per_variable) == {"thickness", "intensity"}  # do(digit) has no true picture
    assert exact.value == 0
    unchanged = true_picture_errors(answers_to_all(nothing, truth), truth)
    assert unchanged.per_variable == {
        name: unchanged.parameters["doing_nothing"][name] for name in unchanged.per_variable
    }
    distance = np.abs(truth.pictures["thickness"].astype(float) - truth.images).mean()
    assert unchanged.per_variable["thickness"] == pytest.approx(distance, rel=1e-5)
    assert distance > 1


def test_composition_counts_the_error_of_every_cycle(truth: TrueCounterfactuals):
    def darker(images: np.ndarray, labels: np.ndarray, do: dict[str, Any]) -> Answer:
        floats = images / LEVELS if images.dtype == np.uint8 else images
        return Answer(floats * 0.9, labels)

    errors = {m.metric: m for m in cycle_errors(darker, truth, cycles=(1, 3))}
    mean = truth.images.mean()
    assert errors["composition_1_levels"].value == pytest.approx(0.1 * mean, rel=1e-4)
    assert errors["composition_3_levels"].value == pytest.approx((1 - 0.9**3) * mean, rel=1e-4)
    # do and undo are two steps
    assert errors["reversibility_1_levels"].value == pytest.approx((1 - 0.9**2) * mean, rel=1e-4)
    exact = {m.metric: m.value for m in cycle_errors(simulated, truth, cycles=(1,))}
    assert exact == {"composition_1_levels": 0.0, "reversibility_1_levels": 0.0}
    names = {m.metric for m in cycle_errors(simulated, truth, cycles=(1, 2), undo_cycles=(1,))}
    assert names == {"composition_1_levels", "composition_2_levels", "reversibility_1_levels"}


def test_labels_of_an_answer_belong_to_the_next_step(truth: TrueCounterfactuals):
    def counting(images: np.ndarray, labels: np.ndarray, do: dict[str, Any]) -> Answer:
        received.append(float(labels[0, 0]))
        return Answer(images, labels + 1)

    received: list[float] = []
    cycle_errors(counting, truth, cycles=(3,))
    first = truth.labels[0, 0]
    assert received[:3] == [first, first + 1, first + 2]


# ---- variables -----------------------------------------------------------------------------------
def test_the_simulator_reads_as_well_as_true_pictures_and_doing_nothing_does_not(
    truth: TrueCounterfactuals, morphometry: CellReader
):
    (exact,) = morphometry.effectiveness(answers_to_all(simulated, truth))
    assert exact.metric == "effectiveness_error_morphometry"
    floor = exact.parameters["true_picture"]
    assert exact.value == floor["value"] < 0.1
    assert set(exact.per_variable) == {
        f"do({do}) {variable}"
        for do in ("digit", "thickness", "intensity")
        for variable in ("thickness", "intensity")
    }
    assert all(exact.per_variable[cell] == floor[cell] for cell in exact.per_variable)
    (unchanged,) = morphometry.effectiveness(answers_to_all(nothing, truth))
    idle = unchanged.parameters["doing_nothing"]
    assert all(unchanged.per_variable[cell] == idle[cell] for cell in unchanged.per_variable)
    # what do(v) asks of v, and of its effect, is wrong by the distance to another digit's value
    asked = np.abs(truth.interventions["thickness"] - truth.labels[:, 1]).mean()
    assert idle["do(thickness) thickness"] == pytest.approx(asked, abs=0.1)
    effect = np.abs(truth.values["thickness"][:, 2] - truth.labels[:, 2]).mean()
    assert idle["do(thickness) intensity"] == pytest.approx(effect, rel=0.1)
    # do(intensity) leaves the thickness alone
    assert idle["do(intensity) thickness"] < 0.1


# ---- networks ------------------------------------------------------------------------------------
NETWORK_VARIABLES = (
    Variable("light"),
    Variable("side", "categorical", categories=("left", "right", "none")),
)


def lit_images(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, 16, 16): brightness of the whole, and a bright bar left, right or nowhere."""
    rng = np.random.default_rng(seed)
    light, side = rng.uniform(20, 100, n), rng.integers(0, 3, n)
    images = np.repeat(light, 256).reshape(n, 1, 16, 16)
    images[side == 0, :, :, 2:4] += 100
    images[side == 1, :, :, 12:14] += 100
    return images.astype(np.uint8), np.column_stack([light, side])


@pytest.fixture(scope="module")
def networks() -> Any:
    return fit_variable_networks(*lit_images(1024, 0), NETWORK_VARIABLES, epochs=30)


def test_networks_read_numbers_and_classes_of_new_images(networks: Any):
    images, labels = lit_images(200, 1)
    values = networks(images)
    assert np.abs(values[:, 0] - labels[:, 0]).mean() < 3  # of 20 to 100
    assert (values[:, 1] == labels[:, 1]).mean() > 0.98
    quality = {m.metric: m for m in networks.quality(images, labels, name="predictor")}
    error = quality["predictor_error"]
    assert error.per_variable == {"light": pytest.approx(np.abs(values - labels)[:, 0].mean())}
    assert error.value == pytest.approx(error.per_variable["light"] / networks.variables[0].std)
    assert quality["predictor_accuracy_min"].value == (values[:, 1] == labels[:, 1]).mean()


def test_networks_built_from_their_arrays_read_the_same(networks: Any):
    images, _ = lit_images(20, 1)
    copy = build_variable_networks(networks.arrays(), networks.variables, images.shape[1:], 1024)
    assert np.array_equal(copy(images), networks(images))
    assert copy.training_images == 1024


def test_networks_refuse_missing_labels():
    images, labels = lit_images(20, 0)
    labels[3, 0] = np.nan
    with pytest.raises(DataError, match="labels must be finite"):
        fit_variable_networks(images, labels, NETWORK_VARIABLES)


def test_independent_draws_break_the_dependence_and_show_their_values():
    """Thickness and intensity have a rank correlation of .9; the digit stays with its strokes."""
    images, values = independent_draws(SIMULATOR, 400, 28, seed=0)
    assert abs(np.corrcoef(values[:, 1], values[:, 2])[0, 1]) < 0.15
    read = MorphometryRegressor(SIMULATOR.variables)(images)
    assert np.abs(read[:, 0] - values[:, 1]).mean() < 0.1
    assert np.abs(read[:, 1] - values[:, 2]).mean() < 2
