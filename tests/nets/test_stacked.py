"""Networks in a stack answer and learn as they would one by one."""

from __future__ import annotations

import torch
from torch import nn

from intervae.nets.stacked import Stacked


def networks(count: int) -> list[nn.Sequential]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)) for _ in range(count)]


def test_each_network_answers_as_it_would_alone() -> None:
    alone = networks(3)
    stacked, shared, own = Stacked(alone), torch.randn(5, 4), torch.randn(3, 5, 4)
    assert len(stacked) == 3
    assert torch.allclose(stacked(shared), torch.stack([network(shared) for network in alone]), atol=1e-6)
    assert torch.allclose(stacked(own, own=True), torch.stack([network(x) for network, x in zip(alone, own, strict=True)]), atol=1e-6)


def test_the_sum_of_their_losses_trains_each_as_if_it_were_alone() -> None:
    alone, x, y = networks(3), torch.randn(16, 4), torch.randn(16, 2)
    stacked = Stacked(alone)
    together = torch.optim.Adam(stacked.parameters(), lr=0.05)
    for _ in range(10):
        together.zero_grad()
        (stacked(x) - y).square().mean((1, 2)).sum().backward()
        together.step()
    for index, network in enumerate(alone):
        optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
        for _ in range(10):
            optimiser.zero_grad()
            (network(x) - y).square().mean().backward()
            optimiser.step()
        taken = networks(1)[0]
        taken.load_state_dict(stacked.network(index))
        assert torch.allclose(taken(x), network(x), atol=1e-4)


def test_what_is_kept_are_the_same_networks_in_the_order_asked_for() -> None:
    alone, x = networks(4), torch.randn(5, 4)
    stacked = Stacked(alone)
    stacked.keep([2, 0])
    assert torch.allclose(stacked(x), torch.stack([alone[2](x), alone[0](x)]), atol=1e-6)
    stacked.put(1, alone[3])
    assert torch.allclose(stacked(x)[1], alone[3](x), atol=1e-6)
    stacked.keep([])
    assert len(stacked) == 0
    assert not any(parameter.numel() for parameter in stacked.parameters())


def test_buffers_belong_to_each_network_and_are_not_learned() -> None:
    class Shifted(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("shift", torch.full((2,), by))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.get_buffer("shift")

    alone, x = [Shifted(by) for by in (1.0, 5.0)], torch.randn(3, 4)
    stacked = Stacked(alone)
    assert torch.allclose(stacked(x), torch.stack([network(x) for network in alone]), atol=1e-6)
    assert sum(parameter.numel() for parameter in stacked.parameters()) == 2 * 10
    alone[0].load_state_dict(stacked.network(1))
    assert alone[0].get_buffer("shift").tolist() == [5.0, 5.0]
