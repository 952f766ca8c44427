"""FactorVAE (Kim and Mnih 2018): a VAE with a penalty on the total correlation of its latents.

A discriminator estimates the total correlation by the density ratio between latents and latents
whose dims are permuted over the batch (Eq. 2 and 3, Alg. 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import reparametrise
from intervae.data import Batch
from intervae.models import printed_vaes
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.images import dense_layers
from intervae.nets.latents import permute_dims
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class FactorVAESettings(VAESettings):
    """Settings of FactorVAE; the paper's symbol in brackets."""

    gamma: float = setting(10.0, "weight of the total correlation [gamma]")
    discriminator_layers: int = setting(
        6, "linear layers of the discriminator, with the output layer", advanced=True
    )
    discriminator_width: int = setting(
        1000, "units of each hidden layer of the discriminator", advanced=True
    )
    discriminator_rate: float = setting(1e-4, "learning rate of the discriminator")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, gamma=0, discriminator_layers=1, discriminator_width=1, batch_size=2)


class FactorVAE(VAE):
    """FactorVAE: -log p(x | z) + KL(q(z | x) || N(0, I)) + gamma TC(z).

    TC(z) is the mean log-odds of the discriminator that z is not permuted. Two players share each
    batch. The VAE uses all of it. The discriminator sees the latents of the first half unchanged
    and those of the second half permuted: the paper's two batches, of half the size.
    """

    name = "factor-vae"
    title = (
        "FactorVAE (Kim and Mnih 2018): total correlation measured by a discriminator, and "
        "penalised"
    )
    Settings = FactorVAESettings
    presets = printed_vaes.FACTOR_VAE
    settings: FactorVAESettings

    def build(self) -> None:
        super().build()
        settings = self.settings
        hidden = [settings.discriminator_width] * (settings.discriminator_layers - 1)
        sizes = [settings.latents * settings.dims, *hidden, 2]
        self.discriminator = nn.Sequential(*dense_layers(sizes, partial(nn.LeakyReLU, 0.2)))

    def regularisation(
        self,
        mean: Tensor,
        log_variance: Tensor,
        z: Tensor,
        batch: Batch,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Terms]:
        kl, terms = super().regularisation(mean, log_variance, z, batch, generator)
        correlation = self.log_odds(z.flatten(1)).mean()
        return kl + self.settings.gamma * correlation, {**terms, "total_correlation": correlation}

    def log_odds(self, z: Tensor) -> Tensor:
        """Return log D(z) - log(1 - D(z)), (B,).

        D(z) is the probability that z (B, n k) comes from q(z) and not from prod_d q(z_d).
        """
        logits = self.discriminator(z)
        return logits[:, 0] - logits[:, 1]

    def discriminator_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return half the sum of the cross-entropies on joint and on permuted latents."""
        with torch.no_grad():
            z = reparametrise(*self.posterior(batch["images"]), generator).flatten(1)
        first_half, second_half = z.tensor_split(2)
        joint = self.log_odds(first_half)
        permuted = self.log_odds(permute_dims(second_half, generator))
        loss = 0.5 * (functional.softplus(-joint).mean() + functional.softplus(permuted).mean())
        accuracy = 0.5 * ((joint > 0).float().mean() + (permuted <= 0).float().mean())
        return {"loss": loss, "accuracy": accuracy}

    def phases(self) -> list[Phase]:
        vae = self.make_player(self.loss, parameters=("encoder", "decoder"))
        discriminator = self.make_player(
            self.discriminator_loss,
            parameters=("discriminator",),
            name="discriminator",
            optimiser="adam",
            learning_rate=self.settings.discriminator_rate,
            betas=(0.5, 0.9),
        )
        return [self.make_phase((vae, discriminator))]
