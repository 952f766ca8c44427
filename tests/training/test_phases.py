"""What a phase promises: epochs, stopping, the best weights, players that keep to their own parameters, preparation, learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data.base import Batch, Dataset
from intervae.errors import DataError, TrainingError, UsageError
from intervae.models.phases import Phase, Player
from intervae.training.checkpoint import load_checkpoint
from intervae.training.stepper import FLOOR, WARM_UP, rate_factor


def scripted(model: Any, values: list[float]) -> Any:
    """A loss that moves `first` by its learning rate in each step, and whose validation is `values[epoch]`; `count` counts the epochs."""

    def loss(batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        if not model.training:
            return {"loss": torch.tensor(values[int(model.count)])}
        return {"loss": -model.first.sum()}

    return loss


def count_epochs(model: Any) -> Any:
    def after_epoch(_: Mapping[str, float]) -> None:
        model.count += 1

    return after_epoch


def scripted_plan(values: list[float], **options: Any) -> Any:
    return lambda m: [
        Phase("main", (Player(scripted(m, values), optimiser="sgd", learning_rate=0.01),), len(values), 10, after_epoch=count_epochs(m), **options)
    ]


# ---- when it ends, and with which weights ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "patience", "epochs"),
    [
        ([5.0, 4.0, 4.5, 4.25, 3.0], 2, 4),
        ([5.0, 4.0, 4.5, 3.5, 4.25, 4.0, 0.0], 2, 6),
        ([5.0, 4.0, 3.0], 1, 3),
        ([1.0, 1.0, 0.0], 1, 2),
        ([5.0, 6.0, 7.0, 8.0], None, 4),
    ],
)
def test_it_stops_after_so_many_epochs_without_a_better_validation_loss(
    values: list[float], patience: int | None, epochs: int, toy: Any, toy_data: Dataset
) -> None:
    history = toy(scripted_plan(values, patience=patience)).fit(toy_data).history
    assert [line["validation"]["loss"] for line in history] == values[:epochs]


def test_keep_best_ends_with_the_weights_of_the_best_epoch(toy: Any, toy_data: Dataset) -> None:
    for keep_best, epoch in ((True, 2), (False, 4)):
        model = toy(scripted_plan([5.0, 2.0, 4.0, 3.0], keep_best=keep_best))
        history = model.fit(toy_data).history
        assert len(history) == 4
        assert model.first[0, 0].item() == pytest.approx(0.05 * epoch)
        assert model.first[0, 0].item() == history[epoch - 1]["first"]


def test_after_epoch_sees_the_mean_terms_and_may_end_the_phase(toy: Any, toy_data: Dataset) -> None:
    seen: list[Mapping[str, float]] = []
    per_step: list[float] = []

    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
            found = {"loss": m.first.sum() + batch["index"].float().mean()}
            if m.training:
                per_step.append(found["loss"].item())
            return found

        def after_epoch(terms: Mapping[str, float]) -> bool:
            seen.append(terms)
            return len(seen) == 2

        return [Phase("main", (Player(loss),), 9, 10, after_epoch=after_epoch)]

    assert len(toy(plan).fit(toy_data).history) == len(seen) == 2
    assert seen[0]["loss"] == pytest.approx(sum(per_step[:5]) / 5)
    assert seen[1]["loss"] == pytest.approx(sum(per_step[5:]) / 5)


def test_no_epochs_leave_the_weights_alone(toy: Any, toy_data: Dataset) -> None:
    model = toy(epochs=0, keep_best=True)
    assert model.fit(toy_data).history == []
    assert torch.equal(model.first, torch.zeros(2, 3))


# ---- what it learns from --------------------------------------------------------------------------------------------
def test_an_epoch_goes_through_the_training_split_once_in_a_new_order_and_counts_its_steps(toy: Any, toy_data: Dataset) -> None:
    orders: dict[bool, list[Tensor]] = {True: [], False: []}
    steps: dict[bool, list[float]] = {True: [], False: []}

    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
            orders[m.training].append(batch["index"].clone())
            steps[m.training].append(batch["step"].item())
            return m.loss(batch, generator)

        return [Phase("main", (Player(loss),), 2, 12)]

    toy(plan).fit(toy_data)
    first, second = torch.cat(orders[True][:4]), torch.cat(orders[True][4:])
    for order in (first, second):
        assert len(order) == len(set(order.tolist())) == 48  # 50 samples are four batches of 12, and two wait for another epoch
        assert set(order.tolist()) <= set(toy_data.train.fields["index"].tolist())
    assert first.tolist() != second.tolist() != sorted(second.tolist())
    assert steps[True] == list(range(8))
    assert torch.cat(orders[False]).tolist() == 2 * toy_data.validation.fields["index"].tolist()
    assert set(steps[False]) == {math.inf}


def test_prepare_may_give_the_data_of_its_own_phase_only(toy: Any, toy_data: Dataset) -> None:
    seen: dict[str, set[int]] = {"doubled": set(), "plain": set()}
    calls: list[int] = []

    def plan(m: Any) -> list[Phase]:
        def prepare(data: Dataset, seed: int) -> Dataset:
            calls.append(seed)
            return replace(data, train=data.train[:20])

        def loss(name: str) -> Any:
            def compute(batch: Batch, generator: Any) -> dict[str, Tensor]:
                if m.training:
                    seen[name] |= set(batch["index"].tolist())
                return m.loss(batch, generator)

            return compute

        return [Phase("doubled", (Player(loss("doubled")),), 2, 10, prepare=prepare), Phase("plain", (Player(loss("plain")),), 1, 10)]

    toy(plan).fit(toy_data, seed=4)
    assert calls == [4]
    assert seen["doubled"] == set(toy_data.train.fields["index"][:20].tolist())
    assert seen["plain"] == set(toy_data.train.fields["index"].tolist())


def test_a_phase_without_players_only_prepares(toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        def prepare(data: Dataset, seed: int) -> None:
            m.count.fill_(len(data.train) + seed)

        return [Phase("count", prepare=prepare)]

    model = toy(plan)
    assert model.fit(toy_data, seed=3).history == []
    assert model.count.item() == 53
    assert model.trained


def test_a_batch_larger_than_the_data_is_refused_before_anything_is_written(toy: Any, toy_data: Dataset, tmp_path: Any) -> None:
    with pytest.raises(DataError, match=r"50 samples, fewer than one batch of 51; set batch_size=50"):
        toy(batch_size=51).fit(toy_data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    toy(batch_size=50).fit(toy_data)

    def plan(m: Any) -> list[Phase]:
        return [Phase("main", (Player(m.loss),), 1, 50, prepare=lambda data, _: replace(data, train=data.train[:9]))]

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
def test_numbers_and_names_that_make_no_sense_are_refused(options: dict, player: dict, words: str, toy: Any, toy_data: Dataset) -> None:
    with pytest.raises(UsageError, match=words):
        toy(player=player, **options).fit(toy_data)


# ---- players --------------------------------------------------------------------------------------------------------
def test_two_players_take_turns_and_each_moves_its_own_parameters_only(toy: Any, toy_data: Dataset) -> None:
    calls: list[tuple[str, float, float]] = []

    def plan(m: Any) -> list[Phase]:
        def player(name: str, sign: float) -> Any:
            def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
                if m.training:
                    calls.append((name, m.first[0, 0].item(), m.second.item()))
                return {
                    "loss": sign * (m.first[0, 0] - 1) * (m.second + 2),
                    "gap": batch["index"].float().mean(),
                }  # a saddle: both have gradients for both

            return loss

        return [
            Phase(
                "game",
                (
                    Player(player("critic", -1), ("second",), "critic", "sgd", 0.1, steps=2),
                    Player(player("maker", 1), ("first",), "maker", "sgd", 0.01),
                ),
                1,
                25,
            )
        ]

    model = toy(plan)
    history = model.fit(toy_data).history
    first, second, expected = 0.0, 0.0, []
    for _ in range(2):
        for _ in range(2):
            expected.append(("critic", first, second))
            second += 0.1 * (first - 1)
        expected.append(("maker", first, second))
        first -= 0.01 * (second + 2)
    assert [call[0] for call in calls] == [call[0] for call in expected]
    for found, hoped in zip(calls, expected, strict=True):
        assert found[1:] == pytest.approx(hoped[1:])
    assert (model.first[0, 0].item(), model.second.item()) == pytest.approx((first, second))
    assert set(history[0]["train"]) == {"critic.loss", "critic.gap", "maker.loss", "maker.gap"}
    assert set(history[0]["validation"]) == {"loss", "gap"}


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "muon", "adagrad", "rmsprop", "sgd"])
def test_every_optimiser_resumes_bit_for_bit(optimiser: str, toy: Any, toy_data: Dataset, tmp_path: Any) -> None:
    def plan(m: Any) -> list[Phase]:
        players = (Player(m.loss, ("first",), "one", optimiser, 0.03), Player(m.loss, ("second",), "two", optimiser, 0.05))
        return [Phase("main", players, 4, 10, schedule="cosine", after_epoch=stop_in_the_third_epoch)]

    epochs = 0

    def stop_in_the_third_epoch(_: Any) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 3:
            raise KeyboardInterrupt

    whole = toy(lambda m: [replace(plan(m)[0], after_epoch=None)])
    whole.fit(toy_data)
    assert whole.first.abs().min() > 0
    with pytest.raises(KeyboardInterrupt):
        toy(plan).fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0)
    assert load_checkpoint(tmp_path / "run" / "checkpoints" / "last.safetensors")[0].epoch == 2
    resumed = toy(plan)
    resumed.fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0, resume=True)
    assert torch.equal(whole.first, resumed.first)
    assert torch.equal(whole.second, resumed.second)


def test_early_stopping_keep_best_and_preparation_survive_a_resume_at_every_checkpoint(
    toy: Any, toy_data: Dataset, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import intervae.training.loop as loop

    values = [5.0, 2.0, 4.0, 3.0, 2.5, 1.0]

    def plan(m: Any) -> list[Phase]:
        def prepare(data: Dataset, seed: int) -> Dataset:
            m.second.data.add_(1)  # must not happen twice
            return replace(data, train=data.train[:30])

        return [replace(scripted_plan(values, patience=3, keep_best=True)(m)[0], prepare=prepare), Phase("after", (Player(m.loss),), 2, 10)]

    write, calls, stop_at = loop.save_checkpoint, 0, 0

    def stop(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        write(*arguments)
        if calls == stop_at:
            raise KeyboardInterrupt  # just after this checkpoint

    monkeypatch.setattr(loop, "save_checkpoint", stop)
    whole = toy(plan)
    history = whole.fit(toy_data, out=tmp_path / "whole", checkpoint_seconds=0).history
    assert [line["phase"] for line in history] == ["main"] * 5 + ["after"] * 2
    for stop_at in range(1, calls + 1):
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            toy(plan).fit(toy_data, out=tmp_path / str(stop_at), checkpoint_seconds=0)
        resumed = toy(plan)
        found = resumed.fit(toy_data, out=tmp_path / str(stop_at), checkpoint_seconds=0, resume=True).history
        assert [(line["phase"], line["epoch"], line["train"]) for line in found] == [
            (line["phase"], line["epoch"], line["train"]) for line in history
        ]
        for key, tensor in whole.state_dict().items():
            assert torch.equal(tensor, resumed.state_dict()[key]), (stop_at, key)


# ---- learning rates -------------------------------------------------------------------------------------------------
def test_the_cosine_schedule_rises_briefly_and_falls_to_its_floor() -> None:
    steps = 1000
    rates = [rate_factor("cosine", step, steps) for step in range(steps)]
    assert rates[0] == pytest.approx((1 / steps) / WARM_UP, rel=1e-3)
    assert rates.index(max(rates)) == steps * WARM_UP - 1
    assert max(rates) == pytest.approx(1, abs=2e-3)
    middle = steps // 2 - 1
    assert rates[middle] == pytest.approx((1 + FLOOR) / 2)
    assert rates[-1] == pytest.approx(FLOOR)
    assert all(a > b for a, b in zip(rates[int(steps * WARM_UP) :], rates[int(steps * WARM_UP) + 1 :], strict=False))
    assert [rate_factor("constant", step, 10) for step in (0, 9)] == [1.0, 1.0]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_schedule_reaches_the_optimiser(schedule: Any, toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        return [Phase("main", (Player(scripted(m, [1.0] * 4), optimiser="sgd", learning_rate=0.01),), 4, 10, schedule=schedule)]

    model = toy(plan)
    model.fit(toy_data)
    assert model.first[0, 0].item() == pytest.approx(0.01 * sum(rate_factor(schedule, step, 20) for step in range(20)))


# ---- a loss that breaks ---------------------------------------------------------------------------------------------
def exploding(m: Any, value: float, *, at_step: int, validation: bool = False) -> Any:
    def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
        found = m.loss(batch, generator)
        here = not m.training and m.count == 2 if validation else m.training and batch["step"] == at_step
        return {"loss": found["loss"] * (value if here else 1.0), "other": torch.tensor(7.25)}

    return loss


def test_a_loss_that_is_not_finite_names_where_it_broke_and_the_last_good_checkpoint(toy: Any, toy_data: Dataset, tmp_path: Any) -> None:
    def plan(m: Any) -> list[Phase]:
        return [Phase("shaky", (Player(exploding(m, math.nan, at_step=13)),), 5, 10)]

    model, path = toy(plan), tmp_path / "run" / "checkpoints" / "last.safetensors"
    with pytest.raises(TrainingError, match=r"phase 'shaky', epoch 3, step 4 \(loss=nan, other=7\.25\)") as caught:
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


def test_weights_that_break_in_the_last_step_never_become_a_checkpoint(toy: Any, toy_data: Dataset, tmp_path: Any) -> None:
    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
            found = m.loss(batch, generator)["loss"]
            return {"loss": found + (torch.sqrt(m.second - m.second.detach()) if m.training and batch["step"] == 9 else 0.0)}  # sqrt'(0) is infinite

        return [Phase("main", (Player(loss),), 4, 10)]

    with pytest.raises(TrainingError, match="epoch 2, on the validation split"):
        toy(plan).fit(toy_data, out=tmp_path / "run", checkpoint_seconds=0)
    progress, groups = load_checkpoint(tmp_path / "run" / "checkpoints" / "last.safetensors")
    assert progress.epoch == 1
    assert all(torch.isfinite(tensor).all() for tensor in groups["model"].values())


# ---- one call, many mistakes ----------------------------------------------------------------------------------------
def test_training_again_goes_on_from_the_weights_it_has(toy: Any, toy_data: Dataset) -> None:
    model = toy(epochs=2)
    model.fit(toy_data)
    after_one = model.first.detach().clone()
    model.fit(toy_data)
    assert not torch.equal(model.first, after_one)
    fresh = toy(epochs=2)
    fresh.fit(toy_data)
    assert torch.equal(fresh.first, after_one)


def test_data_of_another_shape_or_scale_is_refused(toy: Any, toy_data: Dataset, make_data: Any) -> None:
    with pytest.raises(DataError, match=r"made for \(1, 4, 4\) images with a"):
        toy().fit(make_data())


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True, None])
def test_a_seed_is_a_whole_number(seed: Any, toy: Any, toy_data: Dataset) -> None:
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
def test_a_gpu_that_is_not_there_is_refused(toy: Any, toy_data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"finds no GPU here; use device='cpu' \(--device cpu\)"):
        toy().fit(toy_data, device="cuda")
