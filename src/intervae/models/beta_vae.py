"""beta-VAE (Higgins et al. 2017), and its form with a rising capacity (Burgess et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from intervae.data.base import Batch
from intervae.models.phases import Terms
from intervae.models.vae import VAE, VAESettings
from intervae.settings import at_least


@dataclass(frozen=True)
class BetaVAESettings(VAESettings):
    """Settings of beta-VAE."""

    beta: float = 4.0  # weight of the KL; with a capacity, of the distance to it [gamma]
    capacity: float = 0.0  # nats that the latents may hold in the end [C]; 0 is the plain beta-VAE
    capacity_steps: int = 20_000  # steps over which the capacity rises from 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, beta=0, capacity=0, capacity_steps=1)


class BetaVAE(VAE):
    """-log p(x | z) + beta KL(q(z | x) || N(0, I)), or beta |KL - C_t| with C_t rising linearly from 0 to `capacity`.

    beta = 1 is the VAE. To compare sizes of latents and images: beta * latents / pixels (`normalised_beta`).
    """

    name = "beta-vae"
    title = "beta-VAE (Higgins et al. 2017), with capacity annealing (Burgess et al. 2018) as an option"
    Settings = BetaVAESettings
    settings: BetaVAESettings

    @property
    def normalised_beta(self) -> float:
        """beta M / N, for M latent dims and N pixel values."""
        channels, height, width = self.spec.image_shape
        return self.settings.beta * self.settings.latents * self.settings.dims / (channels * height * width)

    def regularisation(self, mean: Tensor, log_variance: Tensor, z: Tensor, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Terms]:
        kl, terms = super().regularisation(mean, log_variance, z, batch, generator)
        settings = self.settings
        if not settings.capacity:
            return settings.beta * kl, terms
        capacity = settings.capacity * (batch["step"] / settings.capacity_steps).clamp(max=1.0)
        return settings.beta * (kl - capacity).abs(), {**terms, "capacity": capacity}
