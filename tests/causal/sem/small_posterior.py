"""Small SEMs and Gaussian posteriors in double precision, and reference distributions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from intervae.causal.sem import SEM
from normal_draws import draw

D, B = 5, 6  # latents, batch
EYE = torch.eye(D, dtype=torch.float64)
FORMS = ("linear", "quadratic", "mlp")
PARABOLA = torch.tensor([[0, 1], [0, 0]])


def build(form: str = "linear", seed: int = 0) -> SEM:
    torch.manual_seed(seed)
    sem = SEM(torch.ones(D, D).triu(1), form=form).double()
    with torch.no_grad():
        sem.log_scales.copy_(0.3 * draw(D, seed=seed) - 0.7)
        if form == "linear":
            sem.weights.copy_(draw(D, D, seed=seed + 1) * sem.allowed)
    return sem


def posterior(batch: int = B, d: int = D, seed: int = 5) -> tuple[Tensor, Tensor]:
    factor = 0.4 * draw(batch, d, d, seed=seed).tril(-1) + torch.diag_embed(
        (0.5 * draw(batch, d, seed=seed + 1) - 0.5).exp()
    )
    return draw(batch, d, seed=seed + 2), factor


def edges_of(sem: SEM) -> Tensor:
    return sem.sample_edges(torch.Generator().manual_seed(8)).detach()


def prior_of_linear(sem: SEM, edges: Tensor | None = None) -> MultivariateNormal:
    """The distribution of a linear SEM, with an explicit inverse."""
    weights = sem.weights * (sem.allowed if edges is None else edges)
    root = torch.linalg.inv(EYE - weights.T) * sem.log_scales.exp()
    return MultivariateNormal(torch.zeros(D, dtype=torch.float64), root @ root.T)


def local_gaussian(
    sem: SEM, pivot: Tensor, edges: Tensor | None = None, tau: float = 1.0
) -> MultivariateNormal:
    root = torch.linalg.inv(EYE - sem.jacobian(pivot, edges)) * sem.log_scales.exp() * tau
    return MultivariateNormal(pivot, scale_tril=root.tril())
