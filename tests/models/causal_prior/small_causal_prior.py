"""Small causal-prior VAEs for tests, with perturbed weights."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import MultivariateNormal

from intervae.data import Dataset
from intervae.models import CausalPriorVAE
from intervae.models.causal_prior.curriculum import stacked_starts
from intervae.models.causal_prior.posterior import Posterior

SMALL: dict[str, Any] = {
    "latents": 4,
    "widths": (16, 12),
    "epochs": 1,
    "first_epochs": 1,
    "restarts": 2,
    "trial_epochs": 1,
    "batch_size": 16,
    "gate_steps": 8,
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(data: Dataset, **settings: Any) -> CausalPriorVAE:
    """A model with perturbed weights, so that posteriors differ and have full covariances."""
    model, generator = CausalPriorVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for network in (model.encoder, model.decoder):
            for parameter in network.parameters():
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
        for name in model.starts:  # the model is the first start
            stacked_starts(model, name).set_network(0, getattr(model, name))
    return model


def align_at_random(model: CausalPriorVAE, seed: int = 0) -> None:
    """Set an alignment that mixes all latents, so that the posterior's factor is not triangular."""
    d = model.settings.latents
    model.encoder.alignment.copy_(torch.eye(d) + 0.4 * torch.randn(d, d, generator=seeded(seed)))
    model.encoder.offset.copy_(torch.randn(d, generator=seeded(seed + 1)))
    model.encoder.log_det.copy_(torch.linalg.slogdet(model.encoder.alignment)[1])


def distribution(posterior: Posterior) -> MultivariateNormal:
    return MultivariateNormal(
        posterior.mean.double(),
        (posterior.factor @ posterior.factor.mT).double()
        + 1e-9 * torch.eye(posterior.mean.shape[1]),
    )


def standard(d: int) -> MultivariateNormal:
    return MultivariateNormal(torch.zeros(d).double(), torch.eye(d).double())
