"""FactorVAE (Kim and Mnih 2018): the VAE with a penalty on the total correlation of its latents, measured by a discriminator that tells
them from latents whose dims were shuffled (Eq. 2 and 3, Alg. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import reparametrise
from intervae.data.base import Batch
from intervae.errors import UsageError
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.images import dense_layers
from intervae.nets.latents import permute_dims


@dataclass(frozen=True)
class FactorVAESettings(VAESettings):
    """Settings of FactorVAE."""

    gamma: float = 10.0  # weight of the total correlation
    discriminator_layers: int = 6  # linear layers, the one to the two logits included
    discriminator_width: int = 1000  # units of each of them
    discriminator_rate: float = 1e-4  # its learning rate, with Adam's betas (0.5, 0.9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma < 0:
            raise UsageError(f"gamma={self.gamma} must be 0 or more.")
        for name, least in (("discriminator_layers", 1), ("discriminator_width", 1), ("batch_size", 2)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)} must be at least {least}.")


class FactorVAE(VAE):
    """-log p(x | z) + KL(q(z | x) || N(0, I)) + gamma TC(z), where TC(z) is the mean of the discriminator's log-odds that z is no shuffled one.

    Two players on each batch. The VAE learns from all of it. The discriminator learns on the latents of the first half as they are and on those
    of the second half with every dim in an order of its own, so that no image is on both sides: the paper's two batches, of half the size.
    """

    name = "factor-vae"
    title = "FactorVAE (Kim and Mnih 2018): total correlation measured by a discriminator, and penalised"
    Settings = FactorVAESettings
    settings: FactorVAESettings

    def build(self) -> None:
        super().build()
        settings = self.settings
        hidden = [settings.discriminator_width] * (settings.discriminator_layers - 1)
        self.discriminator = nn.Sequential(*dense_layers([settings.latents * settings.dims, *hidden, 2], partial(nn.LeakyReLU, 0.2)))

    def regularisation(self, mean: Tensor, log_variance: Tensor, z: Tensor, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Terms]:
        kl, terms = super().regularisation(mean, log_variance, z, batch, generator)
        correlation = self.log_odds(z.flatten(1)).mean()
        return kl + self.settings.gamma * correlation, {**terms, "total_correlation": correlation}

    def log_odds(self, z: Tensor) -> Tensor:
        """log D(z) - log(1 - D(z)) that z (B, n k) comes from q(z) and not from the product of its marginals, (B,)."""
        logits = self.discriminator(z)
        return logits[:, 0] - logits[:, 1]

    def discriminate(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The discriminator's loss: half the sum of its cross-entropies on latents as they are, and on shuffled ones."""
        with torch.no_grad():
            z = reparametrise(*self.posterior(batch["images"]), generator).flatten(1)
        joint, other = z.tensor_split(2)
        as_they_are, shuffled = self.log_odds(joint), self.log_odds(permute_dims(other, generator))
        loss = 0.5 * (functional.softplus(-as_they_are).mean() + functional.softplus(shuffled).mean())
        accuracy = 0.5 * ((as_they_are > 0).float().mean() + (shuffled <= 0).float().mean())
        return {"loss": loss, "accuracy": accuracy}

    def phases(self) -> list[Phase]:
        rate = self.settings.discriminator_rate
        own = {"parameters": ("discriminator",), "name": "discriminator", "optimiser": "adam", "learning_rate": rate, "betas": (0.5, 0.9)}
        return [self.phase((self.player(self.loss, parameters=("encoder", "decoder")), self.player(self.discriminate, **own)))]
