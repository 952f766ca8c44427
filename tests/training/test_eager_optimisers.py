"""Optimisers without torch.compile take the steps of torch's own, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.training import eager_optimisers

CASES: dict[str, dict[str, Any]] = {
    "Adam": {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1, "fused": True},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1, "fused": True},
    "Adagrad": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "weight_decay": 0.1},
    "SGD": {"lr": 0.01},
}


def train(optimiser: type[torch.optim.Optimizer], settings: dict[str, Any]) -> list[torch.Tensor]:
    """Return parameters and states after five steps, the third one with a changed rate."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
    groups = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.1}]
    steps = optimiser(groups, **settings)
    x = torch.randn(20, 5)
    for step in range(5):
        steps.zero_grad(set_to_none=True)
        (net(x) - x[:, :1]).square().mean().backward()
        if step == 2:
            steps.param_groups[0]["lr"] = 0.05
        steps.step()
    states = [t for state in steps.state.values() for t in state.values()]
    return [*(p.detach() for p in net.parameters()), *(torch.as_tensor(t) for t in states)]


@pytest.mark.parametrize("name", CASES)
def test_steps_and_states_are_those_of_torch(name: str) -> None:
    ours = train(getattr(eager_optimisers, name), CASES[name])
    theirs = train(getattr(torch.optim, name), CASES[name])
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_a_step_needs_no_graph_and_runs_a_closure(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    steps = getattr(eager_optimisers, name)([weight], **CASES[name])

    def loss() -> torch.Tensor:
        steps.zero_grad()
        value = weight.square().sum()
        value.backward()
        return value

    assert steps.step(loss).item() == 3.0
    assert float(weight.detach().sum()) < 3.0
    assert weight.is_leaf


def test_a_parameter_in_two_groups_is_refused_as_by_torch() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(ValueError, match="more than one parameter group"):
        eager_optimisers.Adam([{"params": [weight]}, {"params": [weight]}])
