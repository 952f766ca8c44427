"""The number of threads changes weights no more than a change of their last bit does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from intervae.models import MODELS
from intervae.testing import ModelCase
from intervae.training.stepper import Stepper
from intervae.training.validation import check_phase
from quick_settings import QUICK

LAST_BIT = 6e-8
LARGEST_RATIO = 30  # 1.6 was measured for info-gan, see research/2026-11-18-threads.md


def weights_after(name: str, threads: int, change: float = 0.0) -> Tensor:
    """Return all weights after some steps; `change` is a relative change of the initial ones."""
    case = ModelCase(MODELS[name], QUICK.get(name, lambda data: {}))
    data = case.data((1, 32, 32), samples=96)
    model = case.model(data, seed=0, batch_size=32).train()
    phase = next(phase for phase in model.phases() if phase.players)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.rand(parameter.shape, generator=generator) * 2 - 1
            parameter.mul_(1 + change * noise)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        stepper = Stepper(
            model, phase, data.train, check_phase(phase, data), cuda_graph=False, bf16=False
        )
        stepper.run_epoch(0, 1, seed=0)
    finally:
        torch.set_num_threads(before)
    return torch.cat([parameter.detach().flatten().double() for parameter in model.parameters()])


@pytest.mark.parametrize("name", ["vae", "ladder-vae", "info-gan"])
def test_threads_change_weights_like_rounding(name: str) -> None:
    one, two = weights_after(name, 1), weights_after(name, 2)
    rounded = weights_after(name, 1, LAST_BIT)
    assert torch.equal(one, weights_after(name, 1))
    by_threads, by_rounding = ((one - other).norm() / one.norm() for other in (two, rounded))
    assert by_threads <= LARGEST_RATIO * by_rounding
