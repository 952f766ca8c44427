"""Phases: epochs, early stopping, best weights, players, preparation, learning rates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.models.phases import Phase, Player
from intervae.training.checkpoint import load_checkpoint
from intervae.training.optimisers import FLOOR, WARM_UP, rate_factor


def scripted(model: Any, values: list[float]) -> Any:
    """A loss that moves `first` by the learning rate; its validation loss is values[epoch]."""

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
        Phase(
            "main",
            (Player(scripted(m, values), optimiser="sgd", learning_rate=0.01),),
            len(values),
            10,
            after_epoch=count_epochs(m),
            **options,
        )
    ]


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
def test_patience_stops_without_a_better_validation_loss(
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


def test_after_epoch_receives_mean_terms_and_may_end_the_phase(toy: Any, toy_data: Dataset) -> None:
    epoch_terms: list[Mapping[str, float]] = []
    per_step: list[float] = []

    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
            terms = {"loss": m.first.sum() + batch["index"].float().mean()}
            if m.training:
                per_step.append(terms["loss"].item())
            return terms

        def after_epoch(terms: Mapping[str, float]) -> bool:
            epoch_terms.append(terms)
            return len(epoch_terms) == 2

        return [Phase("main", (Player(loss),), 9, 10, after_epoch=after_epoch)]

    assert len(toy(plan).fit(toy_data).history) == len(epoch_terms) == 2
    assert epoch_terms[0]["loss"] == pytest.approx(sum(per_step[:5]) / 5)
    assert epoch_terms[1]["loss"] == pytest.approx(sum(per_step[5:]) / 5)


def test_zero_epochs_leave_the_weights_unchanged(toy: Any, toy_data: Dataset) -> None:
    model = toy(epochs=0, keep_best=True)
    assert model.fit(toy_data).history == []
    assert torch.equal(model.first, torch.zeros(2, 3))


def test_epoch_visits_each_sample_once_in_a_new_order(toy: Any, toy_data: Dataset) -> None:
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
        assert (
            len(order) == len(set(order.tolist())) == 48
        )  # 50 samples are four batches of 12, and two wait for another epoch
        assert set(order.tolist()) <= set(toy_data.train.fields["index"].tolist())
    assert first.tolist() != second.tolist() != sorted(second.tolist())
    assert steps[True] == list(range(8))
    assert torch.cat(orders[False]).tolist() == 2 * toy_data.validation.fields["index"].tolist()
    assert set(steps[False]) == {math.inf}


def test_prepare_replaces_the_data_of_its_phase_only(toy: Any, toy_data: Dataset) -> None:
    indices: dict[str, set[int]] = {"doubled": set(), "plain": set()}
    calls: list[int] = []

    def plan(m: Any) -> list[Phase]:
        def prepare(data: Dataset, seed: int) -> Dataset:
            calls.append(seed)
            return replace(data, train=data.train[:20])

        def loss(name: str) -> Any:
            def compute(batch: Batch, generator: Any) -> dict[str, Tensor]:
                if m.training:
                    indices[name] |= set(batch["index"].tolist())
                return m.loss(batch, generator)

            return compute

        return [
            Phase("doubled", (Player(loss("doubled")),), 2, 10, prepare=prepare),
            Phase("plain", (Player(loss("plain")),), 1, 10),
        ]

    toy(plan).fit(toy_data, seed=4)
    assert calls == [4]
    assert indices["doubled"] == set(toy_data.train.fields["index"][:20].tolist())
    assert indices["plain"] == set(toy_data.train.fields["index"].tolist())


def test_phase_without_players_only_prepares(toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        def prepare(data: Dataset, seed: int) -> None:
            m.count.fill_(len(data.train) + seed)

        return [Phase("count", prepare=prepare)]

    model = toy(plan)
    assert model.fit(toy_data, seed=3).history == []
    assert model.count.item() == 53
    assert model.trained


def test_players_take_turns_and_train_their_own_parameters(toy: Any, toy_data: Dataset) -> None:
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
    for call, expected_call in zip(calls, expected, strict=True):
        assert call[1:] == pytest.approx(expected_call[1:])
    assert (model.first[0, 0].item(), model.second.item()) == pytest.approx((first, second))
    assert set(history[0]["train"]) == {"critic.loss", "critic.gap", "maker.loss", "maker.gap"}
    assert set(history[0]["validation"]) == {"loss", "gap"}


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "muon", "adagrad", "rmsprop", "sgd"])
def test_every_optimiser_resumes_bit_for_bit(
    optimiser: str, toy: Any, toy_data: Dataset, tmp_path: Any
) -> None:
    def plan(m: Any) -> list[Phase]:
        players = (
            Player(m.loss, ("first",), "one", optimiser, 0.03),
            Player(m.loss, ("second",), "two", optimiser, 0.05),
        )
        return [
            Phase("main", players, 4, 10, schedule="cosine", after_epoch=stop_in_the_third_epoch)
        ]

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


def test_resume_at_every_checkpoint_gives_the_same_result(
    toy: Any, toy_data: Dataset, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import intervae.training.loop as loop

    values = [5.0, 2.0, 4.0, 3.0, 2.5, 1.0]

    def plan(m: Any) -> list[Phase]:
        def prepare(data: Dataset, seed: int) -> Dataset:
            m.second.data.add_(1)  # must not happen twice
            return replace(data, train=data.train[:30])

        return [
            replace(scripted_plan(values, patience=3, keep_best=True)(m)[0], prepare=prepare),
            Phase("after", (Player(m.loss),), 2, 10),
        ]

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
        lines = resumed.fit(
            toy_data, out=tmp_path / str(stop_at), checkpoint_seconds=0, resume=True
        ).history
        assert [(line["phase"], line["epoch"], line["train"]) for line in lines] == [
            (line["phase"], line["epoch"], line["train"]) for line in history
        ]
        for key, tensor in whole.state_dict().items():
            assert torch.equal(tensor, resumed.state_dict()[key]), (stop_at, key)


def test_cosine_schedule_warms_up_and_falls_to_its_floor() -> None:
    steps = 1000
    rates = [rate_factor("cosine", step, steps) for step in range(steps)]
    assert rates[0] == pytest.approx((1 / steps) / WARM_UP, rel=1e-3)
    assert rates.index(max(rates)) == steps * WARM_UP - 1
    assert max(rates) == pytest.approx(1, abs=2e-3)
    middle = steps // 2 - 1
    assert rates[middle] == pytest.approx((1 + FLOOR) / 2)
    assert rates[-1] == pytest.approx(FLOOR)
    assert all(
        a > b
        for a, b in zip(
            rates[int(steps * WARM_UP) :], rates[int(steps * WARM_UP) + 1 :], strict=False
        )
    )
    assert [rate_factor("constant", step, 10) for step in (0, 9)] == [1.0, 1.0]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_schedule_sets_the_learning_rate(schedule: Any, toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        return [
            Phase(
                "main",
                (Player(scripted(m, [1.0] * 4), optimiser="sgd", learning_rate=0.01),),
                4,
                10,
                schedule=schedule,
            )
        ]

    model = toy(plan)
    model.fit(toy_data)
    assert model.first[0, 0].item() == pytest.approx(
        0.01 * sum(rate_factor(schedule, step, 20) for step in range(20))
    )
