"""Steps of a phase: order and noise, terms, optimiser state, streams of captures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.errors import UsageError
from intervae.models.phases import Phase, Player
from intervae.training.optimisers import make_optimiser
from intervae.training.stepper import Stepper


def stepper_of(model: Any, data: Dataset, phase: Phase | None = None) -> Stepper:
    phase = phase or model.phases()[0]
    return Stepper(model, phase, data.train, phase.batch_size or 10, cuda_graph=True, bf16=False)


def test_order_and_noise_of_an_epoch_depend_on_its_seed_only(toy: Any, toy_data: Dataset) -> None:
    batches: list[tuple[list[int], float, float]] = []

    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: torch.Generator | None) -> dict[str, Tensor]:
            batches.append(
                (
                    batch["index"].tolist(),
                    torch.randn((), generator=generator).item(),
                    batch["step"].item(),
                )
            )
            return {"loss": m.first.sum() + m.second}

        return [Phase("main", (Player(loss),), 4, 15)]

    stepper = stepper_of(toy(plan), toy_data)
    assert stepper.run_epoch(0, 4, seed=5).shape == (
        3,
        1,
    )  # 50 samples in batches of 15: the last 5 are left out
    torch.manual_seed(123)  # the global generator plays no part
    stepper.run_epoch(2, 4, seed=5)
    stepper.run_epoch(2, 4, seed=6)
    first, same, different = batches[:3], batches[3:6], batches[6:]
    assert [step[:2] for step in first] == [step[:2] for step in same]
    assert [step[2] for step in first + same] == [0, 1, 2, 6, 7, 8]
    assert [step[0] for step in same] != [step[0] for step in different]
    assert not {step[1] for step in same} & {step[1] for step in different}
    assert len({row for step in first for row in step[0]}) == 45


def test_terms_of_every_step_are_returned(toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        def loss(batch: Batch, generator: Any) -> dict[str, Tensor]:
            return {"loss": (m.second - 1).square(), "mean": batch["index"].float().mean()}

        return [
            Phase("main", (Player(loss, ("second",), optimiser="sgd", learning_rate=0.25),), 1, 10)
        ]

    stepper = stepper_of(toy(plan), toy_data)
    terms = stepper.run_epoch(0, 1, seed=0)
    assert stepper.names == ["loss", "mean"]
    expected = [0.25**step for step in range(5)]  # the distance halves in every step
    assert terms[:, 0].tolist() == pytest.approx(expected)
    assert terms[:, 1].mean().item() == pytest.approx(sum(range(50)) / 50)


def test_player_may_take_several_steps_per_batch(toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        return [
            Phase(
                "main",
                (
                    Player(
                        lambda batch, generator: {"loss": -m.second},
                        ("second",),
                        optimiser="sgd",
                        learning_rate=0.1,
                        steps=3,
                    ),
                ),
                1,
                10,
            )
        ]

    model = toy(plan)
    stepper_of(model, toy_data).run_epoch(0, 1, seed=0)
    assert model.second.item() == pytest.approx(0.1 * 3 * 5)
    assert not model.first.any()


def test_prefix_rates_form_groups_clipped_separately(toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        both = Player(
            lambda batch, generator: {"loss": -3 * m.second - 100 * m.first.sum()},
            optimiser="sgd", learning_rate=0.1, prefix_rates=(("second", 0.01),), clip=2.0,
        )  # fmt: skip
        return [Phase("main", (both,), 1, 10, schedule="exponential", decay=0.5)]

    model = toy(plan)
    stepper = stepper_of(model, toy_data)
    stepper.run_epoch(1, 2, seed=0)
    assert model.second.item() == pytest.approx(0.01 * 0.5 * 2 * 5)
    assert model.first.norm().item() == pytest.approx(0.1 * 0.5 * 2 * 5)


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "muon", "adagrad", "rmsprop", "sgd"])
def test_saved_optimiser_state_is_sufficient_and_needed(
    optimiser: Any, toy: Any, toy_data: Dataset
) -> None:
    first, second = (
        toy(player={"optimiser": optimiser, "prefix_rates": (("second", 0.02),)}) for _ in range(2)
    )
    stepper = stepper_of(first, toy_data)
    stepper.run_epoch(0, 3, seed=0)
    state = {name: tensor.clone() for name, tensor in stepper.state().items()}
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    fresh = stepper_of(second, toy_data)
    fresh.load_state(state)
    assert state.keys() == fresh.state().keys()
    assert torch.equal(stepper.run_epoch(1, 3, seed=1), fresh.run_epoch(1, 3, seed=1))
    assert torch.equal(first.first, second.first)
    assert (state != {}) == (optimiser != "sgd")
    if optimiser != "sgd":  # and it is needed
        second.load_state_dict(first.state_dict())
        assert not torch.equal(
            stepper.run_epoch(2, 3, seed=2), stepper_of(second, toy_data).run_epoch(2, 3, seed=2)
        )


def test_player_without_parameters_is_refused(toy: Any) -> None:
    model = toy()
    with pytest.raises(UsageError, match="no parameter of toy begins with third or fourth"):
        make_optimiser(model, Player(model.loss, ("third", "fourth")), on_gpu=False)
