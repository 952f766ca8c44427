"""Pictures under do() that are made again until the predictor reads the numbers asked for."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import intervae
from intervae.causal.variable_types import VariableType
from intervae.data import Dataset, Variable
from intervae.errors import QueryError, UsageError
from intervae.models.deep_scm import DeepSCM
from intervae.models.deep_scm.predicted_pictures import (
    LARGEST,
    USUAL_NOISE,
    can_be_corrected,
    predict_corrected,
)
from intervae.models.deep_scm.predictor import MOST_PIXELS, PixelQuantiles, VariablePredictor
from intervae.models.storage import load_tensors
from lit_squares import GRAPH, lit_squares

TINY = {"channels": (16, 32), "hidden": 64, "latents": 4, "batch_size": 32, "learning_rate": 3e-3}


def dim(values: Tensor) -> Tensor:
    """Pictures that show 80 % of each value, and a little less of the first."""
    return 0.8 * values - torch.tensor([0.1, 0.0])


def test_corrections_converge_to_what_is_asked_for() -> None:
    """The error of v + target - read(v) shrinks to a fifth each time: .2 target + .1 at first."""
    target, where = torch.tensor([[1.0, 1.0], [0.5, -1.0]]), torch.tensor([[True, True]] * 2)
    for times in range(4):
        after = predict_corrected(dim, lambda shown: shown, target, where, times, torch.zeros(2))
        expected = 0.2**times * (0.2 * target + torch.tensor([0.1, 0.0]))
        torch.testing.assert_close(target - after, expected)


def test_corrections_are_limited_and_leave_other_values() -> None:
    target, where = torch.tensor([[1.0, 1.0]]), torch.tensor([[True, False]])
    far = torch.full_like(target, -9.0)
    after = predict_corrected(lambda v: v, lambda shown: far, target, where, 3, torch.zeros(2))
    assert after.tolist() == [[1.0 + LARGEST, 1.0]]


def expected_error(error: float, reading: float) -> float:
    """Return the root mean square error after a weighted correction, by an integral over m.

    With Gaussian errors m ~ N(0, v), v = error^2 + reading^2. Given m, the picture's error is
    N(-g m, g reading^2) with g = error^2 / v, and share(m) m is added.
    """
    variance = error**2 + reading**2
    gain = error**2 / variance
    m = torch.linspace(-8, 8, 100_001, dtype=torch.float64) * variance**0.5
    density = torch.exp(-0.5 * m**2 / variance) / (2 * torch.pi * variance) ** 0.5
    share = (1 - reading**2 / m**2.0).clamp(min=0)
    rest = torch.trapezoid(density * ((share - gain) * m) ** 2, m)
    return float((gain * reading**2 + rest) ** 0.5)


def test_weighted_corrections_between_errors_of_picture_and_reader() -> None:
    """Gaussian errors: close to the smaller of the two, not always below it.

    Where the reader errs more than the picture a correction harms, less than an unweighted one.
    """
    generator = torch.Generator().manual_seed(0)
    for error, reading in ((0.1, 0.02), (0.1, 0.1), (0.02, 0.1)):
        errors = error * torch.randn(4000, 1, generator=generator)
        noise = reading * torch.randn(4000, 1, generator=generator)
        results = [
            predict_corrected(
                lambda v: v + errors,  # noqa: B023
                lambda shown: shown + noise,  # noqa: B023
                torch.zeros(4000, 1),
                torch.ones(4000, 1, dtype=torch.bool),
                1,
                torch.tensor([spread]),
            )
            for spread in (reading, 0.0)
        ]
        weighted, full = (float(each.square().mean().sqrt()) for each in results)
        assert full == pytest.approx(reading, rel=0.1)
        assert weighted == pytest.approx(expected_error(error, reading), rel=0.05)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return lit_squares()


@pytest.fixture(scope="module")
def trained(data: Dataset) -> DeepSCM:
    model = DeepSCM(data.spec, graph=GRAPH, **TINY, epochs=15)
    model.fit(data, seed=0)
    return model


def test_only_rows_that_changed_and_agree_with_their_causes_are_corrected(
    trained: DeepSCM, data: Dataset
) -> None:
    old = trained.encode(data.test.images, data.test.labels)
    far = torch.where(old[:, 1] > 0, -3.0, 3.0)
    cases = {
        "nothing": (old, 0.0, 0.0),
        "a root within its range, and its effect": (
            trained.intervene(old, {"side": 6.5}),
            0.9,
            1.0,
        ),
        "an effect far from its cause": (torch.stack([old[:, 0], far, old[:, 2]], 1), 0.0, 0.1),
    }
    for case, (new, least, most) in cases.items():
        rows = can_be_corrected(trained, old[..., 0], new[..., 0])
        assert least <= float(rows.float().mean()) <= most, case
    noise = trained.variables.abduct(old[..., 0], names=["light"])
    assert list(noise) == ["light"]
    assert (noise["light"].abs() < USUAL_NOISE).float().mean() > 0.9
    moved = trained.intervene(old, {"light": lambda value: value + 8})  # a usual value, but set
    assert not can_be_corrected(trained, old[..., 0], moved[..., 0]).any()


def brightness(images: Tensor) -> Tensor:
    """Mean grey level of the 12 brightest pixels; those of a simulated square have its light."""
    return 255 * images.flatten(1).sort(dim=1).values[:, -12:].mean(1)


@pytest.mark.parametrize("side", [4.5, 6.5])
def test_with_a_reader_of_pixels_pictures_have_the_light_asked_for(
    trained: DeepSCM, data: Dataset, side: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader measures the light as on simulated squares, and finds every side right."""
    images, labels, do = data.test.images, data.test.labels, {"side": side}
    torch.testing.assert_close(
        brightness(images.float() / 255), labels[:, 1].float(), atol=1.0, rtol=0
    )
    model = copy.deepcopy(trained)
    predict, light = model.predictor.forward, model.spec.variables[1]
    target = model.intervene(model.encode(images, labels), do)
    rows = can_be_corrected(model, model.encode(images, labels)[..., 0], target[..., 0])
    assert rows.float().mean() > 0.8

    def read(images: Tensor) -> Tensor:
        outputs = predict(images)
        outputs[:, 0] = target[0, 0, 0]
        outputs[:, 1] = (brightness(images) - light.mean) / light.std
        return outputs

    torch.nn.init.constant_(model.predictor.log_std, -5.0)
    monkeypatch.setattr(model.predictor, "forward", read)
    errors = []
    for times in (0, 3):
        pictures = model.counterfactual(images, do, labels, corrections=times)
        missing = brightness(pictures) - model.to_units(1, target[:, 1])
        errors.append(missing[rows].abs().mean())
    assert errors[1] < 0.7 * errors[0]  # corrections are limited


def test_corrections_keep_an_empty_do_exact(trained: DeepSCM, data: Dataset) -> None:
    images, labels = data.test.images, data.test.labels
    again = trained.counterfactual(images, {}, labels, corrections=2)
    assert torch.equal(again, trained.reconstruct(images, labels))
    model = DeepSCM(data.spec, graph=GRAPH, **TINY, corrections=1)
    model.load_state_dict(trained.state_dict())
    asked = trained.counterfactual(images, {"side": 6.5}, labels, corrections=1)
    assert torch.equal(model.counterfactual(images, {"side": 6.5}, labels), asked)
    plain = trained.counterfactual(images, {"side": 6.5}, labels)
    assert not torch.equal(asked, plain)


def test_negative_corrections_are_an_error(data: Dataset) -> None:
    with pytest.raises(UsageError, match="corrections"):
        intervae.create("deep-scm", data, corrections=-1)


def test_quantiles_do_not_depend_on_where_pixels_are_and_start_at_zero() -> None:
    module = PixelQuantiles(2, 8, 3)
    images = torch.rand(4, 2, 9, 9)
    assert torch.equal(module(images), torch.zeros(4, 3))
    torch.nn.init.normal_(module.dense[-1].weight)  # type: ignore[arg-type]
    shuffled = images.flatten(2)[:, :, torch.randperm(81)].unflatten(2, (9, 9))
    torch.testing.assert_close(module(shuffled), module(images))
    assert not torch.allclose(module(images.square()), module(images))
    side = 2 * int(MOST_PIXELS**0.5)
    assert module(torch.rand(1, 2, side, side)).shape == (1, 3)


def test_classes_alone_are_not_read_off_quantiles() -> None:
    kinds = {"number": Variable("size"), "class": Variable("lit", kind="binary")}
    for name, variable in kinds.items():
        predictor = VariablePredictor((1, 8, 8), [VariableType.of(variable)], (4,), 8)
        assert (predictor.quantiles is None) == (name == "class")


def test_runs_without_quantiles_are_read(data: Dataset) -> None:
    """As they were stored before the predictor had any: the answers are those without."""
    model = DeepSCM(data.spec, graph=GRAPH, **TINY)
    tensors = {k: v for k, v in model.state_dict().items() if ".quantiles." not in k}
    assert len(tensors) < len(model.state_dict())
    before = model.encode(data.test.images)
    other = DeepSCM(data.spec, graph=GRAPH, seed=1, **TINY)
    load_tensors(other, tensors, Path("model.safetensors"))
    torch.testing.assert_close(other.encode(data.test.images), before)


def test_quantiles_of_large_pictures_take_pixels_of_all_columns() -> None:
    module = PixelQuantiles(1, 8, 3)
    torch.nn.init.normal_(module.dense[-1].weight)  # type: ignore[arg-type]
    stripes = torch.zeros(1, 1, 128, 128)
    stripes[..., 1::4] = 1  # columns that a stride of 4 from the first would leave out
    assert not torch.allclose(module(stripes), module(torch.zeros_like(stripes)))
    torch.testing.assert_close(module(stripes.mT), module(stripes), rtol=0.05, atol=0.02)


def test_pictures_that_do_not_depend_on_what_changed_are_not_corrected(data: Dataset) -> None:
    model = DeepSCM(data.spec, graph="empty", picture_parents=("side",), corrections=1, **TINY)
    images, labels = data.test.images, data.test.labels
    after = model.counterfactual(images, {"light": 100.0}, labels)
    torch.testing.assert_close(after, model.reconstruct(images, labels))
    old = model.encode(images, labels)[..., 0]
    new = old.clone()
    new[:, 0], new[:, 1] = 0.5, 9.0  # the picture shows the side alone
    assert can_be_corrected(model, old, new).float().mean() > 0.9


@pytest.mark.parametrize("times", [-1, True, 1.5, "2"])
def test_numbers_of_corrections_are_checked(trained: DeepSCM, data: Dataset, times: Any) -> None:
    with pytest.raises(QueryError, match="corrections"):
        trained.counterfactual(data.test.images, {}, data.test.labels, corrections=times)


def test_corrections_of_classes_alone_are_an_error(data: Dataset) -> None:
    with pytest.raises(UsageError, match="corrections need a number"):
        DeepSCM(data.spec, graph="empty", picture_parents=("ground",), corrections=1, **TINY)
