"""beta-VAE (Higgins et al. 2017), optionally with a rising capacity (Burgess et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from intervae.data import Batch
from intervae.models import printed_vaes
from intervae.models.phases import Terms
from intervae.models.vae import VAE, VAESettings
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class BetaVAESettings(VAESettings):
    """Settings of beta-VAE; the papers' symbols in brackets."""

    beta: float = setting(4.0, "weight of the KL, or of |KL - capacity| [beta, gamma]")
    capacity: float = setting(0.0, "final capacity of the latents in nats; 0: plain beta-VAE [C]")
    capacity_steps: int = setting(20_000, "steps over which the capacity rises from 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, beta=0, capacity=0, capacity_steps=1)


class BetaVAE(VAE):
    """beta-VAE: -log p(x | z) + beta KL(q(z | x) || N(0, I)).

    With a capacity, -log p(x | z) + beta |KL - C_t|, where C_t rises linearly from 0 to `capacity`.
    beta = 1 is the VAE. Weights of models of different sizes compare by beta * latents / pixels.
    """

    name = "beta-vae"
    title = (
        "beta-VAE (Higgins et al. 2017), with capacity annealing (Burgess et al. 2018) as an option"
    )
    Settings = BetaVAESettings
    presets = printed_vaes.BETA_VAE
    settings: BetaVAESettings

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
        if not settings.capacity:
            return settings.beta * kl, terms
        capacity = settings.capacity * (batch["step"] / settings.capacity_steps).clamp(max=1.0)
        return settings.beta * (kl - capacity).abs(), {**terms, "capacity": capacity}
