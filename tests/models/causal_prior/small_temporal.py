"""Small temporal causal-prior VAEs for tests, with perturbed weights and fixed graphs."""

from __future__ import annotations

from typing import Any

import torch

from intervae.data import Dataset
from intervae.models import TemporalCausalPriorVAE

SMALL: dict[str, Any] = {
    "latents": 2,
    "widths": (16,),
    "background_size": 3,
    "epochs": 1,
    "refit_epochs": 1,
    "batch_size": 16,
    "warm_up": 8,
}
STEADY = {  # constant velocity
    ("z1_0", "z3_0"): -1.0,
    ("z2_0", "z3_0"): 2.0,
    ("z1_1", "z3_1"): -1.0,
    ("z2_1", "z3_1"): 2.0,
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(
    data: Dataset, edges: dict[tuple[str, str], float] | None = None, **settings: Any
) -> TemporalCausalPriorVAE:
    """A model with perturbed weights; with `edges` the graph is fixed to these coefficients."""
    model, generator = TemporalCausalPriorVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for network in (model.frame_encoder, model.background_encoder, model.decoder):
            for parameter in network.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        model.bank.copy_(torch.randn(model.bank.shape, generator=generator))
        if edges is not None:
            model.is_fixed.fill_(1.0)
            for (cause, effect), weight in edges.items():
                edge = model.latent_names.index(cause), model.latent_names.index(effect)
                model.fixed[edge], model.sem.weights[edge] = 1.0, weight
    return model
