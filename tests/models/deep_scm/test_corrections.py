"""Pictures under do() that are made again until the predictor reads the numbers asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import intervae
from intervae.causal.variable_types import VariableType
from intervae.data import Dataset, Variable
from intervae.errors import UsageError
from intervae.models.deep_scm import DeepSCM
from intervae.models.deep_scm.predicted_pictures import (
    LARGEST,
    USUAL_NOISE,
    can_be_corrected,
    predict_corrected,
)
from intervae.models.deep_scm.predictor import MOST_PIXELS, PixelQuantiles, VariablePredictor
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


def test_corrections_lower_the_error_where_the_reader_errs_too() -> None:
    """Errors and readings are Gaussian; without the reader's spread a correction would harm."""
    generator = torch.Generator().manual_seed(0)
    for error, reading, share in ((0.1, 0.02, 1.1), (0.1, 0.1, 0.95), (0.02, 0.1, 0.7)):
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
        careful, trusting = (float(each.square().mean().sqrt()) for each in results)
        assert trusting == pytest.approx(reading, rel=0.1)
        assert careful < share * trusting


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


def test_corrections_bring_numbers_closer_and_keep_an_empty_do_exact(
    trained: DeepSCM, data: Dataset
) -> None:
    again = DeepSCM(data.spec, graph=GRAPH, **TINY, epochs=15, corrections=3)
    again.load_state_dict(trained.state_dict())
    torch.nn.init.constant_(again.predictor.log_std, -5.0)  # it is trusted
    images, labels = data.test.images, data.test.labels
    assert torch.equal(again.reconstruct(images, labels), trained.reconstruct(images, labels))
    old = trained.encode(images, labels)
    new = trained.intervene(old, {"side": 6.5})
    rows = can_be_corrected(trained, old[..., 0], new[..., 0])
    errors = []
    for model in (trained, again):
        pictures = model.counterfactual(images, {"side": 6.5}, labels)
        errors.append((trained.encode(pictures) - new)[rows, 0].abs().mean())
    assert errors[1] < 0.7 * errors[0]
    asked = trained.counterfactual(images, {"side": 6.5}, labels, corrections=0)
    assert torch.equal(asked, again.counterfactual(images, {"side": 6.5}, labels, corrections=0))


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


def test_runs_without_quantiles_are_read(trained: DeepSCM) -> None:
    names = [name for name in trained.state_dict() if name.startswith("predictor.quantiles.")]
    assert names
    assert set(names) <= trained.optional_tensors
