"""Picture mechanism of a deep structural causal model: x = m(parents, noise), with abduction.

A counterfactual abducts the noise of a picture, exchanges the parents and predicts. Every picture
mechanism has this interface: conditional VAEs (`latent_pictures.py`) and flows (`flow_picture.py`).
Shapes: B pictures (C, H, W), f parent features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from intervae.cuda_graphs import Replays
from intervae.errors import UsageError

SMALLEST_SIDE = 8  # pixels


class PictureNoise(NamedTuple):
    """Noise of B pictures."""

    # z, or its noise under a learned prior; one (B, ...) per stochastic layer, as generated
    latents: tuple[Tensor, ...]
    # u = (x - m) / s, (B, C, H, W); (B, 0, H, W) of a mechanism without pixel noise
    pixels: Tensor


class PictureLoss(NamedTuple):
    """Loss of B pictures."""

    error: Tensor  # what `error_name` names, (B,)
    layer_kl: Tensor  # KL(q(z_i | ...) || p(z_i | ...)) in nats, (layers, B)
    latents: tuple[Tensor, ...]  # drawn for this loss, as in `PictureNoise`


def single_precision(tensor: Tensor) -> Tensor:
    """Return bfloat16 and half as float32: losses need the digits."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


class PictureMechanism(nn.Module, ABC):
    """p(x | parents, noise) with abduction; every picture mechanism has this interface.

    Arguments:
        image_shape: (C, H, W), sides of at least 8 pixels.
        parents: f, features of the parents; standardised numbers and one-hot categories.

    All methods are differentiable and take images (B, C, H, W) in [0, 1] and parents (B, f). Noise
    is drawn on the generator's device.
    """

    error_name = "reconstruction"  # of the error in `PictureLoss`
    has_pixel_noise = False

    def __init__(self, image_shape: tuple[int, int, int], parents: int) -> None:
        super().__init__()
        _, height, width = image_shape
        if min(height, width) < SMALLEST_SIDE:
            raise UsageError(
                f"pictures of {height} x {width} pixels are too small for a picture mechanism; "
                f"both sides need at least {SMALLEST_SIDE}."
            )
        if parents < 1:
            raise UsageError("a picture mechanism needs at least one parent feature.")
        self.image_shape, self.parents = image_shape, parents
        self.replays = Replays()  # of calls without gradients on a GPU

    # ---- what a subclass defines ---------------------------------------------------------------
    @property
    @abstractmethod
    def latent_shapes(self) -> list[tuple[int, ...]]:
        """Shape of each latent of `PictureNoise` without the batch axis, in order of generation."""

    @property
    def latent_fineness(self) -> list[float]:
        """Resolution of each latent with a KL, from 0, the coarsest, to 1, the finest."""
        return [0.0] * len(self.latent_shapes)

    @abstractmethod
    def loss(
        self, images: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> PictureLoss:
        """Return the terms to minimise."""

    @abstractmethod
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
            temperature: of latents that the picture does not determine; 0 takes posterior means, 1
                draws from the posterior.
        """

    @abstractmethod
    def predict(
        self,
        noise: PictureNoise,
        parents: Tensor,
        pixel_temperature: float = 0.0,
        factual: Tensor | None = None,
    ) -> Tensor:
        """Return the pictures of this noise under other parents, (B, C, H, W) in [0, 1].

        Arguments:
            pixel_temperature: share of the pixel noise that is added, if there is any.
            factual: parents (B, f) of the abduction, for mechanisms that need to know what changed.
        """

    @abstractmethod
    def sample(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        pixel_temperature: float = 0.0,
    ) -> Tensor:
        """Draw pictures given their parents, (B, C, H, W) in [0, 1].

        Arguments:
            temperature: factor of the standard deviation of the latents; 0 takes their mean.
        """

    @property
    def pixel_noise_shape(self) -> tuple[int, ...]:
        channels, *sides = self.image_shape
        return (channels if self.has_pixel_noise else 0, *sides)

    @property
    def noise_size(self) -> int:
        """D, the number of columns of `pack`."""
        return sum(math.prod(shape) for shape in (*self.latent_shapes, self.pixel_noise_shape))

    # ---- noise as a matrix ---------------------------------------------------------------------
    def pack(self, noise: PictureNoise) -> Tensor:
        """Return the noise as a matrix (B, D), latents before pixels."""
        return torch.cat([values.flatten(1) for values in (*noise.latents, noise.pixels)], dim=1)

    def unpack(self, matrix: Tensor) -> PictureNoise:
        """Return the noise of a matrix (B, D) from `pack`."""
        shapes = [*self.latent_shapes, self.pixel_noise_shape]
        columns = matrix.split([math.prod(shape) for shape in shapes], dim=1)
        *latents, pixels = (
            values.unflatten(1, shape) for values, shape in zip(columns, shapes, strict=True)
        )
        return PictureNoise(tuple(latents), pixels)
