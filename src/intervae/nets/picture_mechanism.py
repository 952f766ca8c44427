"""Picture mechanism of a deep structural causal model: x = m(z, parents) + s(z, parents) u.

Pawlowski et al. 2020 and De Sousa Ribeiro et al. 2023. The noise of a picture is (z, u): latents z
of a conditional VAE and pixel noise u. A counterfactual abducts both, exchanges the parents and
predicts. Shapes: B pictures (C, H, W), f parent features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import reparametrise
from intervae.errors import UsageError
from intervae.nets.likelihood import LEVELS, PixelFamily, draw_standard, location_scale_loss

SMALLEST_SIDE = 8  # pixels
LOG_VARIANCES = (-12.0, 4.0)  # bounds of every latent's log-variance
LARGEST_LOG_SCALE = 1.0  # of the pixels


class PictureNoise(NamedTuple):
    """Noise of B pictures."""

    # z, or its noise under a learned prior; one (B, ...) per stochastic layer, as generated
    latents: tuple[Tensor, ...]
    pixels: Tensor  # u = (x - m) / s, (B, C, H, W)


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


def single_precision(tensor: Tensor) -> Tensor:
    """Return bfloat16 and half as float32: likelihoods and KLs need the digits."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


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


class PictureMechanism(nn.Module, ABC):
    """p(x | parents, noise) with abduction; every picture mechanism has this interface.

    Arguments:
        image_shape: (C, H, W), sides of at least 8 pixels.
        parents: f, features of the parents; standardised numbers and one-hot categories.
        pixels: distribution of the pixels.

    All methods are differentiable, take images (B, C, H, W) in [0, 1] and parents (B, f), and draw
    with a generator on their device.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        pixels: PixelDistribution = DEFAULT_PIXELS,
    ) -> None:
        super().__init__()
        colours, height, width = image_shape
        if min(height, width) < SMALLEST_SIDE:
            raise UsageError(
                f"pictures of {height} x {width} pixels are too small for a picture mechanism; "
                f"both sides need at least {SMALLEST_SIDE}."
            )
        if parents < 1:
            raise UsageError("a picture mechanism needs at least one parent feature.")
        self.image_shape, self.parents, self.family = image_shape, parents, pixels.family
        self.head = PixelHead(colours, pixels)

    # ---- what a subclass defines ---------------------------------------------------------------
    @property
    @abstractmethod
    def latent_shapes(self) -> list[tuple[int, ...]]:
        """Shape of each latent z_i without the batch axis, in order of generation."""

    @property
    def latent_fineness(self) -> list[float]:
        """Resolution of each latent z_i, from 0, the coarsest, to 1, the finest."""
        return [0.0] * len(self.latent_shapes)

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
    def loss_terms(
        self, images: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return -log p(x | z, parents) with z ~ q, and the KL to the prior; nats, each (B,)."""
        result = self.infer(images, parents, generator)
        return self.reconstruction_loss(images, result), result.layer_kl.sum(0)

    def reconstruction_loss(self, images: Tensor, result: PictureInference) -> Tensor:
        """Return -log p(x | z, parents) of an inference, in nats, (B,)."""
        return location_scale_loss(images, result.mean, result.scale, self.family)

    def abduct(
        self,
        images: Tensor,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 0.0,
    ) -> PictureNoise:
        """Infer the noise of pictures.

        Arguments:
            parents: the pictures' own.
            temperature: of z; 0 takes posterior means, 1 draws from the posterior.
        """
        result = self.infer(images, parents, generator, temperature)
        return PictureNoise(result.latents, (images - result.mean) / result.scale)

    def predict(
        self, noise: PictureNoise, parents: Tensor, pixel_temperature: float = 0.0
    ) -> Tensor:
        """Return the pictures of this noise under other parents, (B, C, H, W) in [0, 1].

        Arguments:
            pixel_temperature: t of m(z, parents) + t s(z, parents) u. With 1 and unchanged parents
                the abducted picture is returned exactly, whatever the weights; 0 is the mean.
        """
        mean, scale = self.mean_scale(noise.latents, parents)
        if pixel_temperature != 0:
            mean = mean + pixel_temperature * scale * noise.pixels
        return mean.clamp(0, 1)

    def sample(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        pixel_temperature: float = 0.0,
    ) -> Tensor:
        """Draw pictures given their parents, (B, C, H, W) in [0, 1]; temperatures of z and u."""
        _, mean, scale = self.generate(parents, generator, temperature)
        if pixel_temperature != 0:
            mean = mean + pixel_temperature * scale * draw_standard(mean, self.family, generator)
        return mean.clamp(0, 1)

    # ---- noise as a matrix ---------------------------------------------------------------------
    def pack(self, noise: PictureNoise) -> Tensor:
        """Return the noise as a matrix (B, D), latents before pixels."""
        return torch.cat([values.flatten(1) for values in (*noise.latents, noise.pixels)], dim=1)

    def unpack(self, matrix: Tensor) -> PictureNoise:
        """Return the noise of a matrix (B, D) from `pack`."""
        shapes = [*self.latent_shapes, self.image_shape]
        columns = matrix.split([math.prod(shape) for shape in shapes], dim=1)
        *latents, pixels = (
            values.unflatten(1, shape) for values, shape in zip(columns, shapes, strict=True)
        )
        return PictureNoise(tuple(latents), pixels)
