"""InfoGAN (Chen et al., NeurIPS 2016): a GAN that maximises information between codes and image.

Eq. 1 the game, Eq. 3 the added information, Eq. 5 its variational bound L_I with Q(c | x), Eq. 6
the objective. Shapes: B images, n latents of one dim. Reduction: sum over codes, mean over the
batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.data import Batch
from intervae.errors import QueryError, UsageError
from intervae.models import printed_vaes
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.adversarial import (
    SLOPE,
    DiscriminatorTrunk,
    ImageGenerator,
    discriminator_loss,
    generator_loss,
    uniform_noise,
)
from intervae.nets.norm import update_statistics
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class InfoGANSettings:
    """Settings of InfoGAN, by default those of the authors' MNIST run; symbols in brackets."""

    noise: int = setting(62, "incompressible noise inputs, uniform in (-1, 1) [z]")
    categories: tuple[int, ...] = setting((10,), "sizes of the categorical codes; may be empty [c]")
    continuous: int = setting(2, "number of continuous codes, uniform in (-1, 1) [c]")
    info_weight: float = setting(1.0, "weight of the information bound in both objectives [lambda]")
    channels: tuple[int, ...] = setting(
        (64, 128), "channels of the discriminator; the generator mirrors them"
    )
    hidden: int = setting(1024, "units of the dense layers of discriminator and generator")
    code_hidden: int = setting(128, "units of the head that predicts the codes [Q]", advanced=True)
    epochs: int = setting(50, "maximum number of epochs")
    batch_size: int = setting(128, "images per step")
    generator_rate: float = setting(1e-3, "learning rate of the generator")
    discriminator_rate: float = setting(2e-4, "learning rate of the discriminator")
    momentum: float = setting(0.5, "beta_1 of Adam", advanced=True)

    def __post_init__(self) -> None:
        check_minimum(self, noise=0, continuous=0, code_hidden=1)
        if any(size < 2 for size in self.categories):
            categories = ",".join(map(str, self.categories))
            raise UsageError(
                f"categories={categories}: a categorical code needs 2 categories or more."
            )
        if not self.categories and not self.continuous:
            raise UsageError("info-gan needs at least one code; set continuous= or categories=.")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum={self.momentum} must be at least 0 and below 1.")


class InfoGAN(Model):
    """InfoGAN; labels are not used.

    Arguments:
        spec: `data.spec`.
        settings: see `InfoGANSettings`.

    Latents (B, n, 1): first the continuous codes c0, c1, ... as means of Q(c | x), then the
    categorical ones, d0_0 being the probability of the first category of the first code. `decode`
    sets the incompressible noise to its mean, 0. The noise of an image is not inferred, so a
    reconstruction shares only the codes of the image.
    """

    name = "info-gan"
    title = "InfoGAN (Chen et al. 2016): a GAN whose codes keep mutual information with the image"
    Settings = InfoGANSettings
    presets = printed_vaes.INFO_GAN
    settings: InfoGANSettings

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        codes = settings.continuous + sum(settings.categories)
        self.generator = ImageGenerator(
            settings.noise + codes, shape, settings.channels, settings.hidden
        )
        self.trunk = DiscriminatorTrunk(shape, settings.channels, settings.hidden)
        self.discriminator = nn.Linear(settings.hidden, 1)
        hidden = settings.code_hidden
        self.code_reader = nn.Sequential(
            nn.Linear(settings.hidden, hidden),
            nn.LayerNorm(hidden),
            nn.LeakyReLU(SLOPE),
            nn.Linear(hidden, codes),
        )
        self.eval()  # queries use running statistics; only training uses those of a batch

    # ---- model -----------------------------------------------------------------------------
    def draw_codes(self, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return (n, codes): continuous codes from U(-1, 1), categorical ones uniform one-hot."""
        codes = [uniform_noise(n, self.settings.continuous, like=like, generator=generator)]
        for size in self.settings.categories:
            category = (torch.rand(n, 1, device=like.device, generator=generator) * size).floor()
            codes.append((torch.arange(size, device=like.device) == category).to(like.dtype))
        return torch.cat(codes, dim=1)

    def draw_inputs(
        self, n: int, like: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Return inputs of the generator (n, noise + codes), and the codes alone."""
        noise = uniform_noise(n, self.settings.noise, like=like, generator=generator)
        codes = self.draw_codes(n, like, generator)
        return torch.cat([noise, codes], dim=1), codes

    def information(self, features: Tensor, codes: Tensor) -> Tensor:
        """Return the bound L_I = log Q(c | x) + H(c) of Eq. 5 in nats, (B,).

        Q is a unit Gaussian for each continuous code and a softmax for each categorical one.
        """
        means, *logits = self._split_codes(self.code_reader(features))
        continuous, *categorical = self._split_codes(codes)
        bound = (log_normal(continuous, means, 0.0) + math.log(2)).sum(1)
        for scores, one_hot, size in zip(
            logits, categorical, self.settings.categories, strict=True
        ):
            log_probability = (functional.log_softmax(scores, dim=1) * one_hot).sum(1)
            bound = bound + log_probability + math.log(size)
        return bound

    def _split_codes(self, codes: Tensor) -> tuple[Tensor, ...]:
        """Split (B, codes) into the continuous codes and each categorical one."""
        return codes.split([self.settings.continuous, *self.settings.categories], dim=1)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the generator's side of Eq. 6: -log D(G(z, c)) - lambda L_I."""
        images = batch["images"]
        inputs, codes = self.draw_inputs(len(images), images, generator)
        features = self.trunk(self.generator(inputs))
        adversarial = generator_loss(self.discriminator(features)).mean()
        return self._objective(adversarial, features, codes)

    def discriminator_objective(
        self, batch: Batch, generator: torch.Generator | None = None
    ) -> Terms:
        """Return the other side of Eq. 6: -log D(x) - log(1 - D(G(z, c))) - lambda L_I."""
        images = batch["images"]
        inputs, codes = self.draw_inputs(len(images), images, generator)
        with torch.no_grad():
            generated = self.generator(inputs)
        features = self.trunk(generated)
        adversarial = discriminator_loss(
            self.discriminator(self.trunk(images)), self.discriminator(features)
        ).mean()
        return self._objective(adversarial, features, codes)

    def _objective(self, adversarial: Tensor, features: Tensor, codes: Tensor) -> Terms:
        information = self.information(features, codes).mean()
        return {
            "loss": adversarial - self.settings.info_weight * information,
            "adversarial": adversarial,
            "information": information,
        }

    # ---- training --------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """Discriminator and generator in turn; both train Q, as L_I is in both objectives."""
        settings, betas = self.settings, (self.settings.momentum, 0.999)
        discriminator = Player(
            self.discriminator_objective,
            ("trunk.", "discriminator.", "code_reader."),
            "discriminator",
            learning_rate=settings.discriminator_rate,
            betas=betas,
        )
        generator = Player(
            self.loss,
            ("generator.", "code_reader."),
            "generator",
            learning_rate=settings.generator_rate,
            betas=betas,
        )
        return [
            Phase(
                "game",
                (discriminator, generator),
                epochs=settings.epochs,
                batch_size=settings.batch_size,
                after_step=lambda: update_statistics(self.generator),
            )
        ]

    # ---- queries ---------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        continuous = [f"c{i}" for i in range(self.settings.continuous)]
        categorical = [
            f"d{i}_{j}" for i, size in enumerate(self.settings.categories) for j in range(size)
        ]
        return (*continuous, *categorical)

    def predict_codes(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to means and probabilities of Q(c | x), (B, n)."""
        continuous, *categorical = self._split_codes(self.code_reader(self.trunk(images)))
        return torch.cat([continuous, *(logits.softmax(1) for logits in categorical)], dim=1)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to codes (B, n, 1); see the class for their order."""
        return in_batches(self.predict_codes, self.as_images(images))[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Codes (B, n, 1) to images (B, C, H, W), with the incompressible noise at its mean."""
        codes = self.as_latents(latents)
        if codes.shape[2] != 1:
            raise QueryError(
                f"the codes of {self.name} have one dim each, not {codes.shape[2]}; "
                "give them as (images, codes, 1)."
            )
        noise = codes.new_zeros(codes.shape[0], self.settings.noise)
        return in_batches(self.generator, torch.cat([noise, codes[..., 0]], dim=1))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W) of random noise and codes; `do` must be empty."""
        self.check_no_do(do)
        inputs, _ = self.draw_inputs(n, torch.zeros(()), self.sampling_generator(n, seed))
        return in_batches(self.generator, inputs.to(self.device))
