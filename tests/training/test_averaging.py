"""Averaged weights of a phase: closed form, validation, best and last weights, resuming."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.errors import UsageError
from intervae.models.phases import Phase, Player
from intervae.training import checkpoint, loop
from intervae.training.stepper import Stepper

RATE, STEPS = 0.01, 5  # learning rate of SGD, steps per epoch


def rising_plan(**options: Any) -> Callable[[Any], list[Phase]]:
    """Phases in which SGD adds RATE to `first` in every step; the validation loss is `first`."""

    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: torch.Generator | None) -> dict[str, Tensor]:
            return {"loss": -m.first.sum() if m.training else m.first[0, 0] * 1.0}

        player = Player(loss, ("first",), optimiser="sgd", learning_rate=RATE)
        return [Phase("main", (player,), **{"epochs": 3, "batch_size": 10, **options})]

    return plan


def average_of(values: list[float], start: float, decay: float) -> float:
    """Return the average that starts at `start` and is updated with each of `values`."""
    average = start
    for t, value in enumerate(values):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * value
    return average


def stepper_of(model: Any, data: Dataset) -> Stepper:
    (phase,) = model.phases()
    model.train()
    return Stepper(model, phase, data.train, 10, cuda_graph=True, bf16=False)


@pytest.mark.parametrize("decay", [0.05, 0.3, 0.999])
def test_averages_of_steps_have_the_closed_form(decay: float, toy: Any, toy_data: Dataset) -> None:
    model = toy(rising_plan(averaging=decay))
    stepper = stepper_of(model, toy_data)
    assert stepper.average is not None
    assert stepper.average.names == ["first"]  # neither `second`, not trained, nor buffers
    for epoch in range(2):
        stepper.run_epoch(epoch, 2, seed=0)
    raw = [RATE * (step + 1) for step in range(2 * STEPS)]
    assert model.first[0, 0].item() == pytest.approx(raw[-1])
    expected = average_of(raw, 0.0, decay)
    assert stepper.average.averages[0][1, 2].item() == pytest.approx(expected, rel=1e-5)


def test_average_of_a_player_with_noise_is_that_of_its_steps(toy: Any, toy_data: Dataset) -> None:
    """Steps one at a time: batches of 10 from 50 samples, in an epoch of 5 steps."""
    weights: list[Tensor] = []

    def plan(m: Any) -> list[Phase]:
        player = Player(m.loss, learning_rate=0.05)
        record = lambda: weights.append(m.first.detach().clone())  # noqa: E731
        return [Phase("main", (player,), 4, 10, after_step=record, averaging=0.4)]

    stepper = stepper_of(toy(plan), toy_data)
    for epoch in range(4):
        stepper.run_epoch(epoch, 4, seed=epoch)
    expected = average_of([weight[0, 0].item() for weight in weights], 0.0, 0.4)
    assert stepper.average is not None
    assert stepper.average.averages[0][0, 0].item() == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(weights[-1][0, 0].item(), rel=1e-3)


def test_training_validates_and_ends_with_the_averaged_weights(toy: Any, toy_data: Dataset) -> None:
    model = toy(rising_plan(averaging=0.5))
    history = model.fit(toy_data).history
    raw = [RATE * (step + 1) for step in range(3 * STEPS)]
    expected = [average_of(raw[: STEPS * (epoch + 1)], 0.0, 0.5) for epoch in range(3)]
    assert [line["validation"]["loss"] for line in history] == pytest.approx(expected, rel=1e-5)
    assert [line["first"] for line in history] == pytest.approx(raw[4::5])  # these go on training
    assert model.first[0, 0].item() == pytest.approx(expected[-1], rel=1e-5)
    assert not model.second


def test_keep_best_keeps_the_averaged_weights_of_its_epoch(toy: Any, toy_data: Dataset) -> None:
    """The validation loss rises, so the first epoch is the best one."""
    model = toy(rising_plan(averaging=0.5, keep_best=True))
    model.fit(toy_data)
    raw = [RATE * (step + 1) for step in range(STEPS)]
    assert model.first[0, 0].item() == pytest.approx(average_of(raw, 0.0, 0.5), rel=1e-5)


def test_raw_weights_do_not_depend_on_averaging(toy: Any, toy_data: Dataset) -> None:
    histories = [
        toy(epochs=4, averaging=decay).fit(toy_data, device="cpu").history for decay in (0.0, 0.9)
    ]
    for key in ("train", "first", "second"):
        plain, averaged = ([line[key] for line in history] for history in histories)
        assert plain == averaged
    assert histories[0][-1]["validation"] != histories[1][-1]["validation"]


def test_without_averaging_nothing_is_kept_or_stored(toy: Any, toy_data: Dataset) -> None:
    model = toy()
    stepper = stepper_of(model, toy_data)
    before = model.first.detach().clone()
    with stepper.averaged_weights():
        assert torch.equal(model.first, before)
    stepper.run_epoch(0, 3, seed=0)
    after = model.first.detach().clone()
    stepper.end_with_average()
    assert torch.equal(model.first, after)
    assert stepper.average is None
    assert not [name for name in stepper.state() if name.startswith("average")]


def test_training_without_averaging_is_as_before(toy: Any, toy_data: Dataset) -> None:
    """The numbers are from the version before the first one with averages."""
    model = toy()
    model.fit(toy_data, seed=0, device="cpu")
    expected = float.fromhex("-0x1.f46bcp-5")
    assert model.first[0, 0].item() == pytest.approx(expected, rel=1e-6)
    assert model.second.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("keep_best", [False, True])
def test_averages_resume_bit_for_bit_at_every_checkpoint(
    keep_best: bool, toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    def plan(m: Any) -> list[Phase]:
        main = Phase(
            "main", (Player(m.loss, learning_rate=0.05),), 4, 10, averaging=0.8, keep_best=keep_best
        )
        return [main, replace(main, name="after", epochs=2, averaging=0.3)]

    options: dict[str, Any] = {"checkpoint_seconds": 0, "tensorboard": False, "device": "cpu"}
    whole = toy(plan)
    history = whole.fit(toy_data, **options).history
    for number in range(2, 10):
        out = tmp_path / str(number)
        interrupt(number)
        with pytest.raises(KeyboardInterrupt):
            toy(plan).fit(toy_data, out=out, **options)
        resumed = toy(plan)
        lines = resumed.fit(toy_data, out=out, resume=True, **options).history
        assert [line["validation"] for line in lines] == [line["validation"] for line in history]
        assert torch.equal(whole.first, resumed.first)
        assert torch.equal(whole.second, resumed.second)


def test_checkpoint_without_averages_resumes_from_its_weights(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    """A run that an earlier version began: the averages start at the resumed epoch."""
    options: dict[str, Any] = {"out": tmp_path / "run", "checkpoint_seconds": 0}
    interrupt(3)  # the run has one checkpoint before the first epoch and one after it
    with pytest.raises(KeyboardInterrupt):
        toy(rising_plan()).fit(toy_data, **options)
    path = tmp_path / "run" / "checkpoints" / "last.safetensors"
    progress, groups = checkpoint.load_checkpoint(path)
    assert progress.epoch == 1
    assert not [name for name in groups["optimiser"] if name.startswith("average")]
    model = toy(rising_plan(averaging=0.5))
    model.fit(toy_data, resume=True, **options)
    raw = [RATE * (step + 1) for step in range(3 * STEPS)]
    expected = average_of(raw[STEPS:], raw[STEPS - 1], 0.5)
    assert model.first[0, 0].item() == pytest.approx(expected, rel=1e-5)


def test_checkpoint_holds_averages_and_their_number_of_updates(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    interrupt(4)
    with pytest.raises(KeyboardInterrupt):
        toy(rising_plan(averaging=0.5)).fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0)
    path = tmp_path / "run" / "checkpoints" / "last.safetensors"
    _, groups = loop.load_checkpoint(path)
    stored = {n: t for n, t in groups["optimiser"].items() if n.startswith("average")}
    assert set(stored) == {"average.updates", "average.weight.first"}
    assert stored["average.updates"] == 2 * STEPS
    raw = [RATE * (step + 1) for step in range(2 * STEPS)]
    expected = average_of(raw, 0.0, 0.5)
    assert stored["average.weight.first"][0, 0].item() == pytest.approx(expected, rel=1e-5)
    assert groups["model"]["first"][0, 0].item() == pytest.approx(raw[-1])


def test_short_training_is_not_held_back_by_its_first_weights() -> None:
    """The average of a ramp lags by a tenth of its steps while the decay rises."""
    for steps in (20, 100, 300, 1000):
        ramp = [float(step + 1) for step in range(steps)]
        assert average_of(ramp, 0.0, 0.999) == pytest.approx(0.9 * steps, abs=1)
        first_weights = average_of([0.0] * steps, 1.0, 0.999)
        assert first_weights < 1e-6


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5, float("nan")])
def test_decay_outside_its_range_is_refused(decay: float, toy: Any, toy_data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"averaging=.* in phase 'main' must be at least 0"):
        toy(averaging=decay).fit(toy_data)
