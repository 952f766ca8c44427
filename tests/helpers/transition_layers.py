"""Small causal transition layers and random codes, for tests of CT-VAE."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.transition import CausalTransition

POSITIONS, CODES, ACTIONS, BATCH = 6, 5, 3, 4
ACTION = torch.tensor([0, 2, 1, NO_ACTION])  # (B,)


def layer(seed: int = 0, **options: Any) -> CausalTransition:
    """Return a layer without zero weights, so that independence comes from its structure."""
    sizes = {"codebooks": 1, "width": 16, "heads": 2, "edge_width": 4, **options}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = CausalTransition(POSITIONS, sizes.pop("codebooks"), CODES, ACTIONS, **sizes)
        for parameter in network.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return network


def codes(seed: int = 0, batch: int = BATCH) -> Tensor:
    return torch.randint(CODES, (batch, POSITIONS), generator=generator(seed))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
