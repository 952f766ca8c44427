"""DIP-VAE I and II (Kumar et al. 2018): the VAE with a penalty that draws the covariance of the inferred latents towards the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from intervae.data.base import Batch
from intervae.errors import UsageError
from intervae.models.phases import Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.latents import covariance

WEIGHTS = {"i": (100.0, 10.0), "ii": (80.0, 80.0)}  # of the diagonal and of the rest


@dataclass(frozen=True)
class DIPVAESettings(VAESettings):
    """Settings of DIP-VAE; the paper's symbol in brackets."""

    kind: Literal["i", "ii"] = "ii"  # covariance of the posterior means (i), or of draws from the posteriors (ii)
    diagonal_weight: float | None = None  # of (variance - 1)^2 [lambda_d]; None is 100 (i) or 80 (ii)
    off_diagonal_weight: float | None = None  # of covariance^2 [lambda_od]; None is 10 (i) or 80 (ii)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("diagonal_weight", "off_diagonal_weight"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name}={getattr(self, name)} must be 0 or more.")


class DIPVAE(VAE):
    """-ELBO + lambda_d sum_i (C_ii - 1)^2 + lambda_od sum_i!=j C_ij^2, all n k dims taken as separate ones.

    I: C = Cov(mean) over the batch. II: C = Cov(mean) + diag(mean variance), the covariance of z itself. Type I asks that the mean of every dim
    varies as much as the prior, so that none may stay unused; type II lets an unused dim be noise.
    """

    name = "dip-vae"
    title = "DIP-VAE I and II (Kumar et al. 2018): a penalty on the covariance of the inferred latents"
    Settings = DIPVAESettings
    settings: DIPVAESettings

    def regularisation(self, mean: Tensor, log_variance: Tensor, z: Tensor, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Terms]:
        kl, terms = super().regularisation(mean, log_variance, z, batch, generator)
        settings = self.settings
        found = covariance(mean.flatten(1).float())
        if settings.kind == "ii":
            found = found + torch.diag(log_variance.flatten(1).float().exp().mean(0))
        diagonal = (found.diagonal() - 1).square().sum()
        off_diagonal = (found - torch.diag(found.diagonal())).square().sum()
        defaults = WEIGHTS[settings.kind]
        on = defaults[0] if settings.diagonal_weight is None else settings.diagonal_weight
        off = defaults[1] if settings.off_diagonal_weight is None else settings.off_diagonal_weight
        return kl + on * diagonal + off * off_diagonal, {**terms, "diagonal": diagonal, "off_diagonal": off_diagonal}
