"""InfoGAN (Chen et al., NeurIPS 2016): a GAN that keeps mutual information between a few codes and the picture, so that the codes get meaning.

Read beside the paper: Eq. 1 the game, Eq. 3 information added to it, Eq. 5 the variational bound L_I with Q(c | x), Eq. 6 the whole. Shapes: B
images, n latents of one dim. Reduction: sum over codes, mean over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.data.base import Batch
from intervae.errors import QueryError, UsageError
from intervae.models.base import Model, in_batches
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.adversarial import SLOPE, PictureGenerator, Trunk, discriminator_loss, generator_loss, uniform
from intervae.nets.norm import update_statistics
from intervae.settings import at_least


@dataclass(frozen=True)
class InfoGANSettings:
    """Settings of InfoGAN; the paper's symbol, where there is one, in brackets. Numbers are those of the authors' MNIST run."""

    noise: int = 62  # incompressible inputs, uniform in (-1, 1) [z]
    categories: tuple[int, ...] = (10,)  # sizes of the categorical codes; may be empty [c]
    continuous: int = 2  # codes uniform in (-1, 1) [c]
    info_weight: float = 1.0  # of the bound on the information, in both players' objectives [lambda]
    channels: tuple[int, ...] = (64, 128)  # of the trunk; the generator mirrors them
    hidden: int = 1024  # of the dense layers of trunk and generator
    code_hidden: int = 128  # of the head that reads the codes [Q]
    epochs: int = 50
    batch_size: int = 128
    generator_rate: float = 1e-3
    discriminator_rate: float = 2e-4  # learning rate of the discriminator
    momentum: float = 0.5  # of Adam [beta_1]

    def __post_init__(self) -> None:
        at_least(self, noise=0, continuous=0, code_hidden=1)
        if any(size < 2 for size in self.categories):
            raise UsageError(f"categories={','.join(map(str, self.categories))}: a categorical code needs 2 categories or more.")
        if not self.categories and not self.continuous:
            raise UsageError("info-gan needs a code to inform about: set continuous= or categories=.")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum={self.momentum} must be at least 0 and below 1.")


class InfoGAN(Model):
    """InfoGAN; labels are not used.

    Arguments:
        spec: `data.spec`.
        settings: see `InfoGANSettings`.

    Latents (B, n, 1): first the continuous codes c0, c1, ..., each the mean of Q(c | x); then the categorical ones, d0_0 the probability of
    the first category of the first such code. `decode` takes them back, with the incompressible noise at its mean, 0.
    A picture's noise is never inferred, so a reconstruction shares the picture's codes and nothing else.
    """

    name = "info-gan"
    title = "InfoGAN (Chen et al. 2016): a GAN whose codes keep mutual information with the picture"
    Settings = InfoGANSettings
    settings: InfoGANSettings

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        codes = settings.continuous + sum(settings.categories)
        self.generator = PictureGenerator(settings.noise + codes, shape, settings.channels, settings.hidden)
        self.trunk = Trunk(shape, settings.channels, settings.hidden)
        self.discriminator = nn.Linear(settings.hidden, 1)
        hidden = settings.code_hidden
        self.code_reader = nn.Sequential(nn.Linear(settings.hidden, hidden), nn.LayerNorm(hidden), nn.LeakyReLU(SLOPE), nn.Linear(hidden, codes))
        self.eval()  # kept statistics in every query; only the training loop switches to those of a batch

    # ---- the model --------------------------------------------------------------------------------------------------
    def draw_codes(self, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """(n, codes): continuous ones from U(-1, 1), categorical ones as one-hot vectors of equally likely categories."""
        parts = [uniform(n, self.settings.continuous, like=like, generator=generator)]
        for size in self.settings.categories:
            chosen = (torch.rand(n, 1, device=like.device, generator=generator) * size).floor()
            parts.append((torch.arange(size, device=like.device) == chosen).to(like.dtype))
        return torch.cat(parts, dim=1)

    def draw_inputs(self, n: int, like: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """The generator's inputs (n, noise + codes) and the codes among them."""
        noise = uniform(n, self.settings.noise, like=like, generator=generator)
        codes = self.draw_codes(n, like, generator)
        return torch.cat([noise, codes], dim=1), codes

    def information(self, features: Tensor, codes: Tensor) -> Tensor:
        """L_I of Eq. 5, (B,), in nats: log Q(c | x) + H(c), Q a unit Gaussian around each continuous code, a softmax for each categorical one."""
        read, drawn = (self._split(part) for part in (self.code_reader(features), codes))
        bound = (log_normal(drawn[0], read[0], 0.0) + math.log(2)).sum(1)
        for logits, chosen, size in zip(read[1:], drawn[1:], self.settings.categories, strict=True):
            bound = bound + (functional.log_softmax(logits, dim=1) * chosen).sum(1) + math.log(size)
        return bound

    def _split(self, codes: Tensor) -> tuple[Tensor, ...]:
        """(B, codes) to the continuous ones and each categorical one."""
        return codes.split([self.settings.continuous, *self.settings.categories], dim=1)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The generator's side of Eq. 6: -log D(G(z, c)) - lambda L_I."""
        images = batch["images"]
        inputs, codes = self.draw_inputs(len(images), images, generator)
        features = self.trunk(self.generator(inputs))
        adversarial = generator_loss(self.discriminator(features)).mean()
        information = self.information(features, codes).mean()
        return {"loss": adversarial - self.settings.info_weight * information, "adversarial": adversarial, "information": information}

    def discriminator_objective(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The discriminator's side of Eq. 6: -log D(x) - log(1 - D(G(z, c))) - lambda L_I."""
        images = batch["images"]
        inputs, codes = self.draw_inputs(len(images), images, generator)
        with torch.no_grad():
            pictures = self.generator(inputs)
        features = self.trunk(pictures)
        adversarial = discriminator_loss(self.discriminator(self.trunk(images)), self.discriminator(features)).mean()
        information = self.information(features, codes).mean()
        return {"loss": adversarial - self.settings.info_weight * information, "adversarial": adversarial, "information": information}

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """Two players in turn; Q moves with both, as L_I is in both objectives."""
        settings, betas = self.settings, (self.settings.momentum, 0.999)
        against = Player(
            self.discriminator_objective,
            ("trunk.", "discriminator.", "code_reader."),
            "discriminator",
            learning_rate=settings.discriminator_rate,
            betas=betas,
        )
        for_it = Player(self.loss, ("generator.", "code_reader."), "generator", learning_rate=settings.generator_rate, betas=betas)
        return [
            Phase(
                "game",
                (against, for_it),
                epochs=settings.epochs,
                batch_size=settings.batch_size,
                after_step=lambda: update_statistics(self.generator),
            )
        ]

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        continuous = [f"c{i}" for i in range(self.settings.continuous)]
        return (*continuous, *(f"d{i}_{j}" for i, size in enumerate(self.settings.categories) for j in range(size)))

    def read_codes(self, images: Tensor) -> Tensor:
        """Q(c | x) of pictures (B, C, H, W): means and probabilities, (B, n)."""
        continuous, *categorical = self._split(self.code_reader(self.trunk(images)))
        return torch.cat([continuous, *(logits.softmax(1) for logits in categorical)], dim=1)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the means of Q(c | x), (B, n, 1); see the class for their order."""
        return in_batches(self.read_codes, self.as_images(images))[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Codes (B, n, 1) to pictures, with the incompressible noise at its mean."""
        codes = self.as_latents(latents)
        if codes.shape[2] != 1:
            raise QueryError(f"the codes of {self.name} have one dim each, these have {codes.shape[2]}; give them as (images, codes, 1).")
        noise = codes.new_zeros(len(codes), self.settings.noise)
        return in_batches(self.generator, torch.cat([noise, codes[..., 0]], dim=1))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W) from noise and codes drawn at random; it knows no causes, so `do` must be empty."""
        self.refuse_do(do)
        inputs, _ = self.draw_inputs(n, torch.zeros(()), self.sampling_generator(n, seed))
        return in_batches(self.generator, inputs.to(self.device))
