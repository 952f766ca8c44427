"""VAE (Kingma and Welling 2014), and the base of models that only change the regularisation.

Shapes: B images, n latents called z0, z1, ..., k dims each (1 by default). Reduction: sum over
pixels and latents, mean over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from intervae.causal.gaussian import kl_standard_normal, reparametrise
from intervae.data import Batch
from intervae.errors import UsageError
from intervae.models import printed_vaes
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.phases import Optimiser, Phase, Player, Schedule, Terms
from intervae.nets.images import Network, build_decoder, build_encoder
from intervae.nets.latents import draw_with_log_ratio
from intervae.nets.likelihood import Likelihood, negative_log_likelihood
from intervae.settings import setting


@dataclass(frozen=True)
class VAESettings:
    """Settings of a VAE and of the models built on it."""

    latents: int = setting(10, "number of latent variables [n]")
    dims: int = setting(1, "dims per latent variable [k]")
    network: Network = setting(
        "conv", "encoder and decoder: convolutions, the MLP of CausalVAE, or 1200-unit layers"
    )
    channels: tuple[int, ...] = setting(
        (32, 32, 64, 64), "channels of the convolutions; each layer halves the image"
    )
    hidden: int = setting(256, "units of the dense layers of the conv network")
    likelihood: Likelihood = setting("bernoulli", "pixel likelihood")
    scale: float = setting(0.1, "scale of a gaussian or laplace likelihood")
    epochs: int = setting(60, "maximum number of epochs")
    batch_size: int = setting(64, "images per step")
    optimiser: Optimiser = setting(
        "adam", "optimiser; adam, adamw and muon run as CUDA graphs", advanced=True
    )
    learning_rate: float = setting(1e-3, "learning rate")
    schedule: Schedule = setting("cosine", "learning rate schedule", advanced=True)
    decay: float = setting(
        1.0, "learning rate factor per epoch with schedule=exponential", advanced=True
    )
    patience: int | None = setting(
        None,
        "epochs without a lower validation loss before stopping; none disables",
        advanced=True,
    )

    def __post_init__(self) -> None:
        for name in ("latents", "dims", "scale"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


class VAE(Model):
    """VAE with Gaussian latents under an N(0, I) prior; subclasses override `regularisation`.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `VAESettings`.
    """

    name = "vae"
    title = "VAE (Kingma and Welling 2014): Gaussian latents under a standard normal prior"
    Settings: ClassVar[type] = VAESettings
    search_space: ClassVar[Mapping[str, str]] = {
        "learning_rate": "log:1e-4:1e-2",
        "batch_size": "32|64|128",
        "hidden": "128|256|512",
    }
    presets = printed_vaes.VAE
    settings: VAESettings
    likelihood_description = "Likelihood p(x): log p(x | z) + log p(z) - log q(z | x)"

    def build(self) -> None:
        settings, size = self.settings, self.settings.latents * self.settings.dims
        self.encoder = build_encoder(
            settings.network, self.spec.image_shape, 2 * size, settings.channels, settings.hidden
        )
        self.decoder = build_decoder(
            settings.network, size, self.spec.image_shape, settings.channels, settings.hidden
        )

    # ---- model -----------------------------------------------------------------------------
    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x), each (B, n, k)."""
        return self.as_gaussian(self.encoder(images))

    def as_gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Split features (B, 2 n k) into mean and log-variance, each (B, n, k)."""
        shape = (2, self.settings.latents, self.settings.dims)
        mean, log_variance = features.unflatten(1, shape).unbind(1)
        return mean, log_variance.clamp(-12, 8)

    def regularisation(
        self,
        mean: Tensor,
        log_variance: Tensor,
        z: Tensor,
        batch: Batch,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Terms]:
        """Return what is added to the reconstruction loss, and its named terms.

        Here KL(q(z | x) || N(0, I)). `mean`, `log_variance` and `z` are (B, n, k).
        """
        kl = kl_standard_normal(mean, log_variance).mean()
        return kl, {"kl": kl}

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return -log p(x | z) + `regularisation` for one z drawn from q(z | x)."""
        mean, log_variance = self.posterior(batch["images"])
        z = reparametrise(mean, log_variance, generator)
        reconstruction = self.reconstruction_loss(z, batch["images"]).mean()
        regularisation, terms = self.regularisation(mean, log_variance, z, batch, generator)
        return {"loss": reconstruction + regularisation, "reconstruction": reconstruction, **terms}

    def reconstruction_loss(self, z: Tensor, images: Tensor) -> Tensor:
        """Return -log p(x | z), (B,)."""
        return negative_log_likelihood(
            self.decoder(z.flatten(1)), images, self.settings.likelihood, self.settings.scale
        )

    # ---- training --------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        return [self.make_phase((self.make_player(self.loss),))]

    def make_player(self, loss: Any, **changes: Any) -> Player:
        """Return a player that minimises `loss` with the optimiser of the settings."""
        defaults = {
            "optimiser": self.settings.optimiser,
            "learning_rate": self.settings.learning_rate,
        }
        return Player(loss, **{**defaults, **changes})

    def make_phase(self, players: tuple[Player, ...], **changes: Any) -> Phase:
        """Return the phase over the images with the schedule of the settings."""
        settings = self.settings
        defaults = {
            "epochs": settings.epochs,
            "batch_size": settings.batch_size,
            "schedule": settings.schedule,
            "decay": settings.decay,
            "patience": settings.patience,
            "keep_best": settings.patience is not None,
        }
        return Phase("images", players, **{**defaults, **changes})

    # ---- queries ---------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the latents' posterior means (B, n, k)."""
        return in_batches(lambda chunk: self.posterior(chunk)[0], self.as_images(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, n, k) to images (B, C, H, W) in [0, 1]."""
        return in_batches(
            lambda chunk: torch.sigmoid(self.decoder(chunk.flatten(1))), self.as_latents(latents)
        )

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W) of latents from the prior; `do` must be empty."""
        self.check_no_do(do)
        shape = (n, self.settings.latents, self.settings.dims)
        # drawn on the CPU, so that a seed gives the same noise on every device
        noise = torch.randn(shape, generator=self.sampling_generator(n, seed))
        return self.decode(noise.to(self.device))

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return log p(x | z) + log p(z) - log q(z | x), (samples, B), for z from q(z | x).

        Labels are not used.
        """
        x = self.as_images(images)
        z, log_ratio = draw_with_log_ratio(*self.posterior(x), 0.0, samples, generator)
        return self.importance_log_weights(x, z, log_ratio)

    def importance_log_weights(self, x: Tensor, z: Tensor, log_ratio: Tensor) -> Tensor:
        """Return log p(x | z) + `log_ratio`, (samples, B).

        Arguments:
            x: images (B, C, H, W).
            z: (samples, B, n, k).
            log_ratio: log p(z) - log q(z), (samples, B).
        """
        log_likelihood = in_batches(
            lambda latents, images: -self.reconstruction_loss(latents, images),
            z.flatten(0, 1),
            x.repeat(len(z), 1, 1, 1),
        )
        return log_likelihood.unflatten(0, z.shape[:2]) + log_ratio
