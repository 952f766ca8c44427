"""DIP-VAE I and II (Kumar et al. 2018): a penalty on the covariance of the inferred latents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from intervae.data import Batch
from intervae.errors import UsageError
from intervae.models import printed_vaes
from intervae.models.phases import Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.latents import covariance
from intervae.settings import setting

DEFAULT_WEIGHTS = {"i": (100.0, 10.0), "ii": (80.0, 80.0)}  # (diagonal, off-diagonal)


@dataclass(frozen=True)
class DIPVAESettings(VAESettings):
    """Settings of DIP-VAE; the paper's symbols in brackets."""

    kind: Literal["i", "ii"] = setting(
        "ii", "penalised covariance: of the posterior means (i), or of posterior samples (ii)"
    )
    diagonal_weight: float | None = setting(
        None, "weight of (variance - 1)^2; none: 100 (i) or 80 (ii) [lambda_d]"
    )
    off_diagonal_weight: float | None = setting(
        None, "weight of covariance^2; none: 10 (i) or 80 (ii) [lambda_od]"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("diagonal_weight", "off_diagonal_weight"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name}={getattr(self, name)} must be 0 or more.")


class DIPVAE(VAE):
    """DIP-VAE: -ELBO + lambda_d sum_i (C_ii - 1)^2 + lambda_od sum_i!=j C_ij^2.

    C is the covariance (n k, n k) of all dims. I: C = Cov(mean) over the batch. II:
    C = Cov(mean) + diag(mean variance), the covariance of z. Type I makes the mean of every dim
    vary; type II allows unused dims.
    """

    name = "dip-vae"
    title = (
        "DIP-VAE I and II (Kumar et al. 2018): a penalty on the covariance of the inferred latents"
    )
    Settings = DIPVAESettings
    presets = printed_vaes.DIP_VAE
    settings: DIPVAESettings

    def regularisation(
        self,
        mean: Tensor,
        log_variance: Tensor,
        z: Tensor,
        batch: Batch,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Terms]:
        kl, terms = super().regularisation(mean, log_variance, z, batch, generator)
        settings = self.settings
        matrix = covariance(mean.flatten(1).float())
        if settings.kind == "ii":
            matrix = matrix + torch.diag(log_variance.flatten(1).float().exp().mean(0))
        diagonal = (matrix.diagonal() - 1).square().sum()
        off_diagonal = (matrix - torch.diag(matrix.diagonal())).square().sum()
        diagonal_weight, off_diagonal_weight = DEFAULT_WEIGHTS[settings.kind]
        if settings.diagonal_weight is not None:
            diagonal_weight = settings.diagonal_weight
        if settings.off_diagonal_weight is not None:
            off_diagonal_weight = settings.off_diagonal_weight
        total = kl + diagonal_weight * diagonal + off_diagonal_weight * off_diagonal
        return total, {**terms, "diagonal": diagonal, "off_diagonal": off_diagonal}
