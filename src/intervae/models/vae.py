"""VAE (Kingma and Welling 2014): Gaussian latents, N(0, I) prior. The base of the models that only change how the latents are regularised.

Shapes: B images, n latents called z0, z1, ..., k dims each (1 unless asked otherwise). Reduction: sum over pixels and latents, mean
over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from intervae.causal.gaussian import kl_standard_normal, reparametrise
from intervae.data.base import Batch
from intervae.errors import UsageError
from intervae.models.base import Model, in_batches
from intervae.models.phases import Optimiser, Phase, Player, Schedule, Terms
from intervae.nets.images import Network, build_decoder, build_encoder
from intervae.nets.latents import draw_with_log_ratio
from intervae.nets.likelihood import Likelihood, negative_log_likelihood


@dataclass(frozen=True)
class VAESettings:
    """Settings of a VAE, and of the models built on it."""

    latents: int = 10  # number of latent variables [n]
    dims: int = 1  # dims of each [k]
    network: Network = "conv"
    channels: tuple[int, ...] = (32, 32, 64, 64)
    hidden: int = 256
    likelihood: Likelihood = "bernoulli"
    scale: float = 0.1  # of a gaussian or laplace likelihood
    epochs: int = 60
    batch_size: int = 64
    optimiser: Optimiser = "adam"
    learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    decay: float = 1.0  # of the learning rate after every epoch, with schedule=exponential
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("latents", "dims", "scale"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


class VAE(Model):
    """VAE; a subclass changes `regularisation`.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `VAESettings`.
    """

    name = "vae"
    title = "VAE (Kingma and Welling 2014): Gaussian latents under a standard normal prior"
    Settings: ClassVar[type] = VAESettings
    settings: VAESettings

    def build(self) -> None:
        settings, size = self.settings, self.settings.latents * self.settings.dims
        self.encoder = build_encoder(settings.network, self.spec.image_shape, 2 * size, settings.channels, settings.hidden)
        self.decoder = build_decoder(settings.network, size, self.spec.image_shape, settings.channels, settings.hidden)

    # ---- the model --------------------------------------------------------------------------------------------------
    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(z | x): mean and log-variance, each (B, n, k)."""
        return self.as_gaussian(self.encoder(images))

    def as_gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, 2 n k) to mean and log-variance, each (B, n, k)."""
        mean, log_variance = features.unflatten(1, (2, self.settings.latents, self.settings.dims)).unbind(1)
        return mean, log_variance.clamp(-12, 8)

    def regularisation(self, mean: Tensor, log_variance: Tensor, z: Tensor, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Terms]:
        """What is added to the reconstruction, and its named terms: here KL(q(z | x) || N(0, I)). All latents are (B, n, k)."""
        kl = kl_standard_normal(mean, log_variance).mean()
        return kl, {"kl": kl}

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z) for a z drawn from q(z | x), plus `regularisation`."""
        mean, log_variance = self.posterior(batch["images"])
        z = reparametrise(mean, log_variance, generator)
        reconstruction = self.misfit(z, batch["images"]).mean()
        added, terms = self.regularisation(mean, log_variance, z, batch, generator)
        return {"loss": reconstruction + added, "reconstruction": reconstruction, **terms}

    def misfit(self, z: Tensor, images: Tensor) -> Tensor:
        """-log p(x | z), (B,)."""
        return negative_log_likelihood(self.decoder(z.flatten(1)), images, self.settings.likelihood, self.settings.scale)

    def phases(self) -> list[Phase]:
        return [self.phase((self.player(self.loss),))]

    def player(self, loss: Any, **changes: Any) -> Player:
        """Who minimises `loss` with this model's optimiser and rate."""
        return Player(loss, **{"optimiser": self.settings.optimiser, "learning_rate": self.settings.learning_rate, **changes})

    def phase(self, players: tuple[Player, ...], **changes: Any) -> Phase:
        settings = self.settings
        early = {"patience": settings.patience, "keep_best": settings.patience is not None}
        whole = {"epochs": settings.epochs, "batch_size": settings.batch_size, "schedule": settings.schedule, "decay": settings.decay, **early}
        return Phase("images", players, **{**whole, **changes})

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the latents' posterior means (B, n, k)."""
        return in_batches(lambda part: self.posterior(part)[0], self.as_images(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return in_batches(lambda part: torch.sigmoid(self.decoder(part.flatten(1))), self.as_latents(latents))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W) from latents drawn from the prior; it knows no causes, so `do` must be empty."""
        return self.decode(self.draw((n, self.settings.latents, self.settings.dims), do, seed))

    def draw(self, shape: tuple[int, ...], do: Any, seed: int | None) -> Tensor:
        """Standard normal noise for `sample`, drawn on the CPU so that a seed means the same everywhere."""
        self.refuse_do(do)
        return torch.randn(shape, generator=self.sampling_generator(shape[0], seed)).to(self.device)

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Likelihood p(x): log p(x | z) + log p(z) - log q(z | x), (samples, B), for z drawn from q(z | x); labels are not used."""
        x = self.as_images(images)
        return self.weigh(x, *draw_with_log_ratio(*self.posterior(x), 0.0, samples, generator))

    def weigh(self, x: Tensor, z: Tensor, log_ratio: Tensor) -> Tensor:
        """log p(x | z) of images (B, C, H, W) and draws (samples, B, n, k), plus log p(z) - log q(z), (samples, B)."""
        log_pixels = in_batches(lambda latents, truth: -self.misfit(latents, truth), z.flatten(0, 1), x.repeat(len(z), 1, 1, 1))
        return log_pixels.unflatten(0, z.shape[:2]) + log_ratio
