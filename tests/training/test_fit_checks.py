"""Errors of `fit`: losses that are not finite, invalid options, seeds, data and devices."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.errors import DataError, TrainingError, UsageError
from intervae.models.phases import Phase, Player
from intervae.training.checkpoint import load_checkpoint
from intervae.training.validation import check_spec


def exploding_loss(m: Any, value: float, *, at_step: int, validation: bool = False) -> Any:
    def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
        terms = m.loss(batch, generator)
        here = (
            not m.training and m.count == 2
            if validation
            else m.training and batch["step"] == at_step
        )
        return {"loss": terms["loss"] * (value if here else 1.0), "other": torch.tensor(7.25)}

    return loss


def test_loss_that_is_not_finite_names_step_and_checkpoint(
    toy: Any, toy_data: Dataset, tmp_path: Any
) -> None:
    def plan(m: Any) -> list[Phase]:
        return [Phase("shaky", (Player(exploding_loss(m, math.nan, at_step=13)),), 5, 10)]

    model, path = toy(plan), tmp_path / "run" / "checkpoints" / "last.safetensors"
    with pytest.raises(
        TrainingError, match=r"phase 'shaky', epoch 3, step 4 \(loss=nan, other=7\.25\)"
    ) as caught:
        model.fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    progress, groups = load_checkpoint(path)
    assert progress.epoch == 2
    assert all(torch.isfinite(tensor).all() for tensor in groups["model"].values())
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    two = toy(epochs=2, player={"learning_rate": 1e-3})
    two.fit(toy_data)
    assert torch.equal(groups["model"]["first"], two.first)
    with pytest.raises(TrainingError, match="nothing was saved"):
        toy(plan).fit(toy_data)


def test_broken_weights_are_never_saved(toy: Any, toy_data: Dataset, tmp_path: Any) -> None:
    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
            loss = m.loss(batch, generator)["loss"]
            return {
                "loss": loss
                + (
                    torch.sqrt(m.second - m.second.detach())
                    if m.training and batch["step"] == 9
                    else 0.0
                )
            }  # sqrt'(0) is infinite

        return [Phase("main", (Player(loss),), 4, 10)]

    with pytest.raises(TrainingError, match="epoch 2, on the validation split"):
        toy(plan).fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0)
    progress, groups = load_checkpoint(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert progress.epoch == 1
    assert all(torch.isfinite(tensor).all() for tensor in groups["model"].values())


def test_second_fit_starts_from_the_trained_weights(toy: Any, toy_data: Dataset) -> None:
    model = toy(epochs=2)
    model.fit(toy_data)
    after_one = model.first.detach().clone()
    model.fit(toy_data)
    assert not torch.equal(model.first, after_one)
    fresh = toy(epochs=2)
    fresh.fit(toy_data)
    assert torch.equal(fresh.first, after_one)


def test_data_of_another_spec_are_refused(toy: Any, toy_data: Dataset, make_data: Any) -> None:
    with pytest.raises(DataError, match=r"image_shape was \(1, 4, 4\), now \(\d, \d+, \d+\)"):
        toy().fit(make_data())


def test_error_for_another_spec_names_the_field(toy_data: Dataset) -> None:
    spec = toy_data.spec
    wider = replace(spec.variables[0], high=9.0)
    for other, words in (
        (replace(spec, frames=3), "frames was None, now 3"),
        (replace(spec, actions=("up",)), r"actions was \(\), now \('up',\)"),
        (replace(spec, variables=()), "variables was a, now none"),
        (replace(spec, variables=(wider,)), "the variables have other kinds, ranges"),
    ):
        with pytest.raises(DataError, match=words):
            check_spec(spec, other)
    with pytest.raises(DataError, match="variables was none, now a"):
        check_spec(replace(spec, variables=()), spec)
    check_spec(spec, replace(spec))


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True, None])
def test_seed_must_be_a_whole_number(seed: Any, toy: Any, toy_data: Dataset) -> None:
    with pytest.raises(UsageError, match="seed"):
        toy().fit(toy_data, seed=seed)


def test_options_are_checked(toy: Any, toy_data: Dataset) -> None:
    for options, words in (
        ({"epochs": 3}, "epochs is a setting of the model"),
        ({"checkpoint_secods": 3}, "checkpoint_seconds"),
        ({"precision": "half"}, "float32, tf32, bf16"),
        ({"device": "gpu9000"}, "auto, cpu, cuda"),
    ):
        with pytest.raises(UsageError, match=words):
            toy().fit(toy_data, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_refused(toy: Any, toy_data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"finds no GPU here; use device='cpu' \(--device cpu\)"):
        toy().fit(toy_data, device="cuda")


def test_batch_larger_than_the_data_is_refused(toy: Any, toy_data: Dataset, tmp_path: Any) -> None:
    with pytest.raises(
        DataError, match=r"50 samples, fewer than one batch of 51; set batch_size=50"
    ):
        toy(batch_size=51).fit(toy_data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    toy(batch_size=50).fit(toy_data)

    def plan(m: Any) -> list[Phase]:
        return [
            Phase(
                "main",
                (Player(m.loss),),
                1,
                50,
                prepare=lambda data, _: replace(data, train=data.train[:9]),
            )
        ]

    with pytest.raises(DataError, match="9 samples"):
        toy(plan).fit(toy_data)


@pytest.mark.parametrize(
    ("options", "player", "words"),
    [
        ({"batch_size": 0}, {}, "batch_size=0"),
        ({"batch_size": -3}, {}, "batch_size=-3"),
        ({"epochs": -1}, {}, "epochs=-1"),
        ({"patience": 0}, {}, "patience=0"),
        ({}, {"learning_rate": 0.0}, "learning_rate=0.0"),
        ({}, {"parameters": ("third",)}, "no parameter of toy begins with third"),
    ],
)
def test_invalid_phase_options_are_refused(
    options: dict, player: dict, words: str, toy: Any, toy_data: Dataset
) -> None:
    with pytest.raises(UsageError, match=words):
        toy(player=player, **options).fit(toy_data)
