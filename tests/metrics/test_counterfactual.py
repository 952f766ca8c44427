"""Counterfactual metrics of queries with known errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable
from intervae.data.simulators import Pendulum
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual import counterfactual_errors, latent_movement
from intervae.metrics.image_regressor import ImageRegressor, simulator_regressor
from intervae.metrics.interventions import random_interventions

SIZE = 32


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Pendulum().dataset(size=SIZE, samples=512)


@pytest.fixture(scope="module")
def regressor() -> ImageRegressor:
    return simulator_regressor(Pendulum(), SIZE, images=1000, held_out=10)[0]


def measure(
    data: Dataset,
    query: Callable[..., Any],
    regressor: ImageRegressor | None = None,
    **options: Any,
) -> dict[str, Measurement]:
    split = data.test
    assert data.simulator is not None
    measurements = counterfactual_errors(
        query,
        data.simulator,
        split.images.numpy(),
        split.fields["exogenous"].numpy(),
        options.pop("variables", data.variables),
        regressor=regressor,
        **options,
    )
    return {m.metric: m for m in measurements}


def simulated(
    data: Dataset,
    also: dict[str, Any] | None = None,
    spoil: Callable[[np.ndarray], np.ndarray] = lambda x: x,
) -> Callable[..., Any]:
    """The simulator as a query: the true image of do() and `also`, after `spoil`."""
    exogenous, simulator = data.test.fields["exogenous"].numpy(), data.simulator
    assert simulator is not None
    return lambda images, do: spoil(
        simulator.counterfactual(exogenous, {**(also or {}), **do}, size=SIZE)[0].astype(np.float32)
        / 255
    )


def test_the_true_image_has_only_the_error_of_the_regressor(
    data: Dataset, regressor: ImageRegressor
) -> None:
    measurements = measure(data, simulated(data), regressor)
    assert measurements["counterfactual_pixel_mae"].value == 0
    assert measurements["counterfactual_psnr"].value == 100
    assert measurements["counterfactual_ssim"].value == pytest.approx(1, abs=1e-9)
    error = measurements["counterfactual_variable_error"]
    assert error.value == error.parameters["true_picture"]["value"] < 0.12
    assert error.value > 0.01  # it is measured against the true values
    assert error.parameters["doing_nothing"]["value"] > 0.5
    movement = measurements["nondescendant_movement"]
    assert {"value": movement.value, **movement.per_variable} == movement.parameters["true_picture"]
    assert movement.parameters["causes"]["value"] < 0.02
    assert movement.value < 0.05  # a shadow partly outside the image is harder to measure


def test_the_identity_scores_the_reported_doing_nothing_values(
    data: Dataset, regressor: ImageRegressor
) -> None:
    measurements = measure(data, lambda images, do: images, regressor)
    assert (
        measurements["counterfactual_pixel_mae"].per_variable
        == measurements["identity_pixel_mae"].per_variable
    )
    for metric in ("counterfactual_pixel_mae", "counterfactual_psnr", "counterfactual_ssim"):
        assert {
            "value": measurements[metric].value,
            **measurements[metric].per_variable,
        } == measurements[metric].parameters["doing_nothing"]
    error = measurements["counterfactual_variable_error"]
    assert error.value == error.parameters["doing_nothing"]["value"]
    movement = measurements["nondescendant_movement"]
    assert movement.value == movement.parameters["doing_nothing"]["value"] == 0
    for m in (error, movement, measurements["counterfactual_pixel_mae"]):
        for group in ("causes", "effects"):
            assert m.parameters[group]["value"] == m.parameters[group]["doing_nothing"]


def test_pixel_errors_match_the_formula_and_headline_is_over_all(
    data: Dataset,
) -> None:
    measurements = measure(data, simulated(data, spoil=lambda x: np.minimum(x, 0.9)))
    mae = measurements["counterfactual_pixel_mae"]
    assert set(mae.per_variable) == set(data.names)
    assert mae.value == pytest.approx(sum(mae.per_variable.values()) / 4)
    assert mae.parameters["headline"] == (
        "mean over do(pendulum), do(light), do(shadow_length), do(shadow_position)"
    )
    identity = measurements["identity_pixel_mae"]
    for group, members in (
        ("causes", ["pendulum", "light"]),
        ("effects", ["shadow_length", "shadow_position"]),
    ):
        assert mae.parameters[group] == {
            "value": pytest.approx(np.mean([mae.per_variable[name] for name in members])),
            "doing_nothing": identity.parameters[group]["value"],
            "variables": members,
        }
    assert mae.parameters["doing_nothing"] == {"value": identity.value, **identity.per_variable}
    draws = random_interventions(data.variables, len(data.test), seed=0)
    assert data.simulator is not None
    truth = (
        data.simulator.counterfactual(
            data.test.fields["exogenous"].numpy(), {"light": draws["light"]}, size=SIZE
        )[0]
        / 255.0
    )
    error = np.maximum(truth - 0.9, 0)
    assert mae.per_variable["light"] == pytest.approx(error.mean(), rel=1e-5)
    assert measurements["counterfactual_psnr"].per_variable["light"] == pytest.approx(
        -10 * np.log10((error**2).mean((1, 2, 3))).mean(), rel=1e-5
    )
    assert set(measurements) == {
        "counterfactual_pixel_mae",
        "identity_pixel_mae",
        "counterfactual_psnr",
        "counterfactual_ssim",
    }  # without a regressor


def test_pixels_leave_out_variables_without_a_true_image(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = measure(data, lambda images, do: images / 255)["counterfactual_pixel_mae"]
    monkeypatch.setattr(Pendulum, "without_true_image", ("light",))
    some = measure(data, lambda images, do: images / 255)["counterfactual_pixel_mae"]
    expected = {name: value for name, value in every.per_variable.items() if name != "light"}
    assert some.per_variable == expected
    assert some.value == pytest.approx(np.mean(list(expected.values())))
    assert some.value != every.value


def test_a_moved_non_descendant_is_measured_in_its_units(
    data: Dataset, regressor: ImageRegressor
) -> None:
    """do(light) also moves the pendulum, a non-descendant, by 10 degrees."""
    measurements = measure(data, simulated(data, also={"pendulum": lambda v: v + 10}), regressor)
    by = measurements["counterfactual_variable_error"].parameters["by_intervention"]
    assert by["light"]["pendulum"] == pytest.approx(10, abs=1)
    assert by["light"]["light"] < 1
    assert by["pendulum"]["pendulum"] < 1  # here the intended value was set
    std = data.test.labels[:, 0].numpy().std()
    assert measurements["nondescendant_movement"].per_variable["light"] == pytest.approx(
        10 / std, abs=0.05
    )
    assert measurements["nondescendant_movement"].parameters["true_picture"]["light"] < 0.02


def test_wrongly_set_values_are_measured_in_their_units(
    data: Dataset, regressor: ImageRegressor
) -> None:
    exogenous, simulator = data.test.fields["exogenous"].numpy(), data.simulator
    assert simulator is not None

    def query(images: np.ndarray, do: dict[str, np.ndarray]) -> np.ndarray:
        return simulator.counterfactual(
            exogenous, {name: value + 5 for name, value in do.items()}, size=SIZE
        )[0]

    by = measure(data, query, regressor)["counterfactual_variable_error"].parameters[
        "by_intervention"
    ]
    assert by["light"]["light"] == pytest.approx(5, abs=1)
    assert by["pendulum"]["pendulum"] == pytest.approx(5, abs=1)
    assert by["light"]["pendulum"] < 0.5


def test_a_subset_of_variables_or_only_effects(data: Dataset, regressor: ImageRegressor) -> None:
    chosen = data.select(["shadow_length", "light"])
    measurements = measure(data, simulated(data), regressor, variables=chosen.variables)
    assert list(measurements["counterfactual_pixel_mae"].per_variable) == ["shadow_length", "light"]
    chosen_error = measurements["counterfactual_pixel_mae"].parameters
    assert chosen_error["headline"] == "mean over do(shadow_length), do(light)"
    assert chosen_error["causes"]["variables"] == ["light"]
    only = measure(
        data, lambda images, do: images, variables=data.select(["shadow_length"]).variables
    )
    assert only["counterfactual_pixel_mae"].value == only["identity_pixel_mae"].value > 0
    assert "causes" not in only["counterfactual_pixel_mae"].parameters  # none among them


def test_variable_error_is_over_all_interventions_in_standard_deviations(
    data: Dataset, regressor: ImageRegressor
) -> None:
    """The light is off by 10 degrees under each do() but do(light)."""
    query = simulated(data, also={"light": lambda v: v + 10})
    error = measure(data, query, regressor)["counterfactual_variable_error"]
    by, scale = error.parameters["by_intervention"], data.test.labels.numpy().std(0)
    table = np.array([[by[do][w] for w in data.names] for do in data.names])
    assert table[:, 1] == pytest.approx([10, 0, 10, 10], abs=1)
    assert list(error.per_variable.values()) == pytest.approx(table.mean(0))
    assert error.value == pytest.approx((table / scale).mean(), rel=1e-4)
    assert error.parameters["causes"]["value"] == pytest.approx(
        (table / scale)[:2].mean(), rel=1e-4
    )
    assert error.parameters["effects"]["value"] == pytest.approx(
        (table / scale)[2:].mean(), rel=1e-4
    )


def test_an_answer_outside_0_to_1_raises(data: Dataset) -> None:
    with pytest.raises(DataError, match=r"answer to do\(pendulum\).*\[0, 1\]"):
        measure(data, lambda images, do: images * 255.0)


# ---- latents that must stay ----------------------------------------------------------------------
CHAIN = CausalGraph.from_edges("abc", [("a", "b")])
VARIABLES = [Variable(name, low=-1, high=1) for name in "abc"]


def test_latent_movement_counts_only_non_descendants() -> None:
    latents = np.random.default_rng(0).normal(size=(20, 3, 2))

    def good(z: np.ndarray, do: dict[str, np.ndarray]) -> np.ndarray:
        after = z.copy()
        (name,) = do
        after["abc".index(name) == np.arange(3)[None, :].repeat(len(z), 0)] = do[name][:, None]
        if name == "a":
            after[:, 1] += 7.0  # an effect may move
        return after

    def leaky(z: np.ndarray, do: dict[str, np.ndarray]) -> np.ndarray:
        after = good(z, do)
        if "b" in do:
            after[3, 2, 1] += 1e-3
        return after

    correct, wrong = (latent_movement(query, latents, VARIABLES, CHAIN) for query in (good, leaky))
    assert correct is not None
    assert wrong is not None
    assert correct.value == 0
    assert correct.per_variable == {"a": 0, "b": 0, "c": 0}
    assert wrong.per_variable == pytest.approx({"a": 0, "b": 1e-3, "c": 0})
    assert wrong.value == pytest.approx(1e-3)


def test_latent_movement_is_none_without_non_descendants() -> None:
    graph = CausalGraph.empty("a")
    assert latent_movement(lambda z, do: z, np.zeros((2, 1, 1)), VARIABLES[:1], graph) is None
    with pytest.raises(DataError, match="one block for each variable"):
        latent_movement(lambda z, do: z, np.zeros((2, 2)), VARIABLES, CHAIN)
