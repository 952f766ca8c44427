"""A tiny CMCL and its data, for its tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.models.cmcl import CMCL

SMALL: dict[str, Any] = {"latents": 4, "embedding": 3, "channels": (4, 4), "posterior_widths": (8,), "prior_widths": (8,), "graph_widths": (4,)}
QUICK: dict[str, Any] = {**SMALL, "epochs": 2, "batch_size": 16}
M = SMALL["latents"]


def mixed(samples: int = 60, size: int = 8) -> Dataset:
    """Random pictures with a continuous, a binary and a categorical column."""
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(5, 3, samples), rng.random(samples) < 0.3, rng.integers(3, size=samples)], axis=1)
    images = rng.integers(0, 256, (samples, 1, size, size), dtype=np.uint8)
    return build_dataset("mixed", images, table, [Variable("a"), Variable("b", "binary"), Variable("c", "categorical", categories=("x", "y", "z"))])


def batch_of(data: Dataset, n: int = 8, step: float = 1e9) -> dict[str, Tensor]:
    return {**data.train.batch(torch.arange(n)), "step": torch.tensor(step)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vivid(model: CMCL) -> CMCL:
    """Untrained networks hardly depend on what they see; let them."""
    with torch.no_grad():
        for nets in (model.posterior_nets, model.prior_nets, model.networks.networks):
            for weight in nets.layer_weights:
                weight.mul_(3)
    return model.eval()


def make(data: Dataset | None = None, **settings: Any) -> CMCL:
    return vivid(CMCL((data or mixed()).spec, **{**SMALL, **settings}))


def with_edges(model: CMCL, *edges: tuple[str, str]) -> CMCL:
    """Leave strengths on these edges only."""
    wanted = torch.zeros_like(model.edges)
    for cause, effect in edges:
        wanted[model.node_names.index(cause), model.node_names.index(effect)] = 1
    with torch.no_grad():
        first = model.networks.networks.layer_weights[0]
        first.copy_(first.sign() * first.abs().clamp(min=0.5) * model.networks.spread(wanted))
        model.edges.copy_(wanted)
        model.influence.copy_(wanted)
    return model
