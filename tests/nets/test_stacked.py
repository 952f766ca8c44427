"""Stacked networks give the outputs and the training of single ones."""

from __future__ import annotations

import torch
from torch import nn

from intervae.nets.stacked import Stacked


def networks(count: int) -> list[nn.Sequential]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)) for _ in range(count)]


def test_outputs_equal_those_of_single_networks() -> None:
    singles = networks(3)
    stacked, shared, own = Stacked(singles), torch.randn(5, 4), torch.randn(3, 5, 4)
    assert len(stacked) == 3
    assert torch.allclose(
        stacked(shared), torch.stack([network(shared) for network in singles]), atol=1e-6
    )
    assert torch.allclose(
        stacked(own, own=True),
        torch.stack([network(x) for network, x in zip(singles, own, strict=True)]),
        atol=1e-6,
    )


def test_the_sum_of_losses_trains_each_network_alone() -> None:
    singles, x, y = networks(3), torch.randn(16, 4), torch.randn(16, 2)
    stacked = Stacked(singles)
    optimiser_of_all = torch.optim.Adam(stacked.parameters(), lr=0.05)
    for _ in range(10):
        optimiser_of_all.zero_grad()
        (stacked(x) - y).square().mean((1, 2)).sum().backward()
        optimiser_of_all.step()
    for index, network in enumerate(singles):
        optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
        for _ in range(10):
            optimiser.zero_grad()
            (network(x) - y).square().mean().backward()
            optimiser.step()
        copy = networks(1)[0]
        copy.load_state_dict(stacked.network_state(index))
        assert torch.allclose(copy(x), network(x), atol=1e-4)


def test_selected_networks_keep_their_weights_and_order() -> None:
    singles, x = networks(4), torch.randn(5, 4)
    stacked = Stacked(singles)
    stacked.select([2, 0])
    assert torch.allclose(stacked(x), torch.stack([singles[2](x), singles[0](x)]), atol=1e-6)
    stacked.set_network(1, singles[3])
    assert torch.allclose(stacked(x)[1], singles[3](x), atol=1e-6)
    stacked.select([])
    assert len(stacked) == 0
    assert not any(parameter.numel() for parameter in stacked.parameters())


def test_buffers_are_stacked_and_not_trained() -> None:
    class Shifted(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("shift", torch.full((2,), by))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.get_buffer("shift")

    singles, x = [Shifted(by) for by in (1.0, 5.0)], torch.randn(3, 4)
    stacked = Stacked(singles)
    assert torch.allclose(stacked(x), torch.stack([network(x) for network in singles]), atol=1e-6)
    assert sum(parameter.numel() for parameter in stacked.parameters()) == 2 * 10
    singles[0].load_state_dict(stacked.network_state(1))
    assert singles[0].get_buffer("shift").tolist() == [5.0, 5.0]
