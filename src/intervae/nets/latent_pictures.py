"""Picture mechanisms with latents, x = m(z, parents) + s(z, parents) u: conditional VAEs.

Pawlowski et al. 2020 and De Sousa Ribeiro et al. 2023. The noise of a picture is (z, u): latents z
of a conditional VAE and pixel noise u. Shapes: B pictures (C, H, W), f parent features.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import reparametrise
from intervae.errors import UsageError
from intervae.nets.likelihood import LEVELS, PixelFamily, draw_standard, location_scale_loss
from intervae.nets.picture_mechanism import (
    PictureLoss,
    PictureMechanism,
    PictureNoise,
    single_precision,
)

LOG_VARIANCES = (-12.0, 4.0)  # bounds of every latent's log-variance
LARGEST_LOG_SCALE = 1.0  # of the pixels


class PictureInference(NamedTuple):
    """Result of an encoder and decoder pass over B pictures."""

    latents: tuple[Tensor, ...]
    layer_kl: Tensor  # KL(q(z_i | ...) || p(z_i | ...)) in nats, (layers, B)
    mean: Tensor  # m, (B, C, H, W), not limited to [0, 1]
    scale: Tensor  # s, (B, C, H, W)


class DiagonalGaussian(NamedTuple):
    """Mean and log-variance, each (B, ...)."""

    mean: Tensor
    log_variance: Tensor

    def draw(self, temperature: float, generator: torch.Generator | None) -> Tensor:
        """Draw with the standard deviation times `temperature`; 0 is the mean."""
        if temperature == 0:
            return self.mean
        log_variance = self.log_variance
        if temperature != 1:
            log_variance = log_variance + 2 * math.log(temperature)
        return reparametrise(self.mean, log_variance, generator)

    def standardise(self, values: Tensor) -> Tensor:
        """Return the noise of values: (values - mean) / standard deviation."""
        return (values - self.mean) * torch.exp(-0.5 * self.log_variance)

    def shift(self, noise: Tensor) -> Tensor:
        """Return the values of noise: the inverse of `standardise`."""
        return self.mean + noise * torch.exp(0.5 * self.log_variance)


def as_gaussian(features: Tensor) -> DiagonalGaussian:
    """Split features (B, 2 k, ...) into a Gaussian of (B, k, ...) with bounded log-variances."""
    mean, log_variance = single_precision(features).chunk(2, dim=1)
    # a clamp; that of torch has a slow gradient
    return DiagonalGaussian(mean, functional.hardtanh(log_variance, *LOG_VARIANCES))


@dataclass(frozen=True)
class PixelDistribution:
    """Distribution of x = m + s u.

    A small first scale keeps the latents in use: a large one, or one per pixel, explains the
    pictures as noise before the decoder has learned them.
    """

    family: PixelFamily = "logistic"  # of u; logistic and gaussian are discretised to 256 levels
    scale: Literal["channel", "pixel"] = "channel"  # s: a parameter per channel, or of the decoder
    first_scale: float = 0.02  # s before training
    smallest_scale: float = 0.1 / (LEVELS - 1)  # lower bound of s, a tenth of a level


DEFAULT_PIXELS = PixelDistribution()


class PixelHead(nn.Module):
    """Outputs of a decoder (B, `outputs`, H, W) to mean and scale of the pixels (B, C, H, W)."""

    def __init__(self, colours: int, pixels: PixelDistribution) -> None:
        super().__init__()
        if not 0 < pixels.smallest_scale < pixels.first_scale:
            raise UsageError(
                f"smallest_scale={pixels.smallest_scale:g} must be above 0 and below "
                f"first_scale={pixels.first_scale:g}."
            )
        per_channel = pixels.scale == "channel"
        self.outputs = colours if per_channel else 2 * colours
        self.smallest_scale = pixels.smallest_scale
        self.first_log_scale = math.log(pixels.first_scale - pixels.smallest_scale)
        self.log_scale = nn.Parameter(torch.zeros(colours, 1, 1)) if per_channel else None

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = single_precision(outputs)
        if self.log_scale is None:
            mean, log_scale = outputs.chunk(2, dim=1)
        else:
            mean, log_scale = outputs, self.log_scale
        # a sum, not a maximum: a scale at its bound still has a gradient
        scale = self.smallest_scale + torch.exp(
            (log_scale + self.first_log_scale).clamp(max=LARGEST_LOG_SCALE)
        )
        return 0.5 + 0.5 * mean, scale.expand_as(mean)


class LatentPictureMechanism(PictureMechanism):
    """p(x | parents, z, u) with amortised abduction q(z | x, parents).

    Arguments:
        image_shape, parents: see `PictureMechanism`.
        pixels: distribution of the pixels.
    """

    has_pixel_noise = True

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        pixels: PixelDistribution = DEFAULT_PIXELS,
    ) -> None:
        super().__init__(image_shape, parents)
        self.family = pixels.family
        self.head = PixelHead(image_shape[0], pixels)

    # ---- what a subclass defines ---------------------------------------------------------------
    @abstractmethod
    def infer(
        self,
        images: Tensor,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> PictureInference:
        """Draw z from q(z | x, parents), its standard deviation times `temperature`, and decode."""

    @abstractmethod
    def mean_scale(self, latents: tuple[Tensor, ...], parents: Tensor) -> tuple[Tensor, Tensor]:
        """Return m(z, parents) and s(z, parents), each (B, C, H, W); m is not clipped to [0, 1]."""

    @abstractmethod
    def generate(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """Draw z from its prior, its standard deviation times `temperature`; return z, m and s."""

    # ---- the interface -------------------------------------------------------------------------
    def loss(
        self, images: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> PictureLoss:
        """Return -log p(x | z, parents) with z ~ q, and the KLs to the prior, in nats."""
        result = self.infer(images, parents, generator)
        error = location_scale_loss(images, result.mean, result.scale, self.family)
        return PictureLoss(error, result.layer_kl, result.latents)

    def abduct(
        self,
        images: Tensor,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 0.0,
    ) -> PictureNoise:
        """Infer z and u = (x - m) / s; `temperature` is that of z."""
        if temperature == 0:  # nothing is drawn
            *latents, pixels = self.replays(self, "abduct", self._infer_means, images, parents)
            return PictureNoise(tuple(latents), pixels)
        result = self.infer(images, parents, generator, temperature)
        return PictureNoise(result.latents, (images - result.mean) / result.scale)

    def _infer_means(self, images: Tensor, parents: Tensor) -> tuple[Tensor, ...]:
        """Return the posterior means of z, and u with them."""
        result = self.infer(images, parents, None, 0.0)
        return *result.latents, (images - result.mean) / result.scale

    def predict(
        self,
        noise: PictureNoise,
        parents: Tensor,
        pixel_temperature: float = 0.0,
        factual: Tensor | None = None,
    ) -> Tensor:
        """Return m(z, parents) + t s(z, parents) u with t = `pixel_temperature`.

        With t = 1 and unchanged parents the abducted picture is returned exactly, whatever the
        weights; 0 is the mean.
        """
        mean, scale = self.replays(self, "predict", self._mean_scale, parents, *noise.latents)
        if pixel_temperature != 0:
            mean = mean + pixel_temperature * scale * noise.pixels
        return mean.clamp(0, 1)

    def _mean_scale(self, parents: Tensor, *latents: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean_scale(latents, parents)

    def sample(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        pixel_temperature: float = 0.0,
    ) -> Tensor:
        _, mean, scale = self.generate(parents, generator, temperature)
        if pixel_temperature != 0:
            mean = mean + pixel_temperature * scale * draw_standard(mean, self.family, generator)
        return mean.clamp(0, 1)
