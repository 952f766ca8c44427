"""Options of players and phases (clip, decay, after_step); splits of transitions and codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import Dataset, Split
from intervae.errors import DataError
from intervae.models.phases import Phase, Player

STEPS = 5  # 50 samples in batches of 10


def pull(m: Any, strength: float) -> Any:
    """A loss whose gradient is `strength` on `second`, and nothing else."""
    return lambda batch, generator: {"loss": -strength * m.second + 0 * m.first.sum()}


def trained(
    toy: Any,
    data: Dataset,
    *,
    epochs: int = 1,
    strength: float = 1.0,
    player: dict[str, Any] | None = None,
    **phase: Any,
) -> Any:
    def plan(m: Any) -> list[Phase]:
        return [
            Phase(
                "main",
                (Player(pull(m, strength), optimiser="sgd", learning_rate=0.1, **(player or {})),),
                epochs,
                10,
                **phase,
            )
        ]

    model = toy(plan)
    model.fit(data)
    return model


def test_clip_limits_the_step(toy: Any, toy_data: Dataset) -> None:
    assert trained(
        toy, toy_data, strength=100.0, player={"clip": 0.5}
    ).second.item() == pytest.approx(STEPS * 0.1 * 0.5, rel=1e-5)
    assert trained(
        toy, toy_data, strength=0.2, player={"clip": 0.5}
    ).second.item() == pytest.approx(STEPS * 0.1 * 0.2, rel=1e-5)


def test_exponential_schedule_decays_per_epoch(toy: Any, toy_data: Dataset) -> None:
    model = trained(toy, toy_data, epochs=3, schedule="exponential", decay=0.5)
    assert model.second.item() == pytest.approx(STEPS * 0.1 * (1 + 0.5 + 0.25), rel=1e-5)


def test_weight_decay_pulls_towards_zero(toy: Any, toy_data: Dataset) -> None:
    expected = 0.0
    for _ in range(STEPS):
        expected += 0.1 * (1.0 - 0.3 * expected)
    assert trained(toy, toy_data, player={"weight_decay": 0.3}).second.item() == pytest.approx(
        expected, rel=1e-5
    )


def test_after_step_updates_a_buffer(toy: Any, toy_data: Dataset) -> None:
    def plan(m: Any) -> list[Phase]:
        def average() -> None:
            m.count.mul_(0.9).add_(0.1 * m.second)

        return [
            Phase(
                "main",
                (Player(pull(m, 1.0), optimiser="sgd", learning_rate=0.1),),
                1,
                10,
                after_step=average,
            )
        ]

    model = toy(plan)
    model.fit(toy_data)
    mean, weight = 0.0, 0.0
    for _ in range(STEPS):
        weight += 0.1
        mean = 0.9 * mean + 0.1 * weight
    assert model.count.item() == pytest.approx(mean, rel=1e-5)


def test_batch_of_transitions_has_both_images_and_the_action() -> None:
    before, after = (
        torch.from_numpy(np.random.default_rng(i).integers(0, 256, (6, 3, 4, 4), dtype=np.uint8))
        for i in range(2)
    )
    split = Split(images=before, after=after, action=torch.arange(6))
    batch = split[2:].batch(torch.tensor([0, 3]))
    torch.testing.assert_close(batch["after"], after[[2, 5]].float() / 255)
    assert batch["action"].tolist() == [2, 5]
    assert batch["labels"].shape == (2, 0)


def test_split_of_codes_needs_no_images() -> None:
    split = Split(codes=torch.arange(12, dtype=torch.uint8).reshape(4, 3))
    assert len(split) == 4
    assert split.batch(torch.tensor([1]))["codes"].tolist() == [
        [3, 4, 5]
    ]  # small integers are codes, not pixels
    with pytest.raises(DataError, match="needs images or another field"):
        Split()
    with pytest.raises(DataError, match="'action' has 3 rows, but there are 4 codes"):
        Split(codes=torch.zeros(4, 3), action=torch.zeros(3))
