"""Conditional VAE as a picture mechanism: one vector latent (Pawlowski et al. 2020).

Parents are concatenated to the features of the encoder and to the latents of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import kl_standard_normal
from intervae.nets.images import build_decoder, build_encoder
from intervae.nets.latent_pictures import (
    DEFAULT_PIXELS,
    DiagonalGaussian,
    LatentPictureMechanism,
    PictureInference,
    PixelDistribution,
    as_gaussian,
)


class ConditionalVAE(LatentPictureMechanism):
    """q(z | x, parents) and p(x | z, parents) with p(z) = N(0, I).

    Arguments:
        image_shape, parents, pixels: see `LatentPictureMechanism`.
        latents: dims of z.
        channels, hidden: of `ConvEncoder` and its mirror.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        pixels: PixelDistribution = DEFAULT_PIXELS,
        latents: int = 16,
        channels: Sequence[int] = (32, 32, 64, 64),
        hidden: int = 256,
    ) -> None:
        super().__init__(image_shape, parents, pixels)
        self.latents = latents
        self.encoder = build_encoder("conv", image_shape, hidden, channels, hidden)
        self.posterior = nn.Sequential(
            nn.Linear(hidden + parents, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latents)
        )
        self.decoder = build_decoder(
            "conv", latents + parents, (self.head.outputs, *image_shape[1:]), channels, hidden
        )

    @property
    def latent_shapes(self) -> list[tuple[int, ...]]:
        return [(self.latents,)]

    def infer(
        self,
        images: Tensor,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> PictureInference:
        features = nn.functional.silu(self.encoder(images))
        posterior = as_gaussian(self.posterior(torch.cat([features, parents], dim=1)))
        latents = (posterior.draw(temperature, generator),)
        layer_kl = kl_standard_normal(*posterior)[None]
        return PictureInference(latents, layer_kl, *self.mean_scale(latents, parents))

    def mean_scale(self, latents: tuple[Tensor, ...], parents: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.decoder(torch.cat([*latents, parents], dim=1)))

    def generate(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        zeros = parents.new_zeros(parents.shape[0], self.latents)
        latents = (DiagonalGaussian(zeros, zeros).draw(temperature, generator),)
        return latents, *self.mean_scale(latents, parents)
