"""Small structural equation models with random parameters, for tests."""

from __future__ import annotations

import torch
from torch import Tensor

from intervae.causal.sem import SEM

FORMS = ("linear", "quadratic", "mlp")
MAXIMAL = torch.ones(5, 5).triu(1)
# 0 -> 1, 2 -> 3; 4 alone
DIAMOND = torch.tensor(
    [[0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
)


def build(
    form: str = "linear",
    allowed: Tensor = MAXIMAL,
    seed: int = 0,
    strength: float = 1.0,
    **settings,
) -> SEM:
    """A SEM in double precision with random parameters."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    sem = SEM(allowed, form=form, **settings).double()
    with torch.no_grad():
        if form == "linear":
            sem.weights.copy_(
                strength * torch.randn(sem.weights.shape, generator=generator) * sem.allowed
            )
        if sem.learn_edges:
            sem.edge_logits.copy_(torch.randn(sem.allowed.shape, generator=generator) * sem.allowed)
        if isinstance(sem.log_scales, torch.nn.Parameter) and "scales" not in settings:
            sem.log_scales.copy_(0.4 * torch.randn(sem.d, generator=generator))
    return sem


def some_edges(sem: SEM, seed: int = 3) -> Tensor:
    return sem.sample_edges(torch.Generator().manual_seed(seed)).detach()
