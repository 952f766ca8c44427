"""Picture mechanisms of a deep structural causal model by name: vae and hvae."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from intervae.errors import unknown
from intervae.nets.conditional_vae import ConditionalVAE
from intervae.nets.hierarchical_vae import HierarchicalVAE, LatentNoise
from intervae.nets.picture_mechanism import DEFAULT_PIXELS, PictureMechanism, PixelDistribution

Picture = Literal["vae", "hvae"]


def build_picture_mechanism(
    picture: Picture,
    image_shape: tuple[int, int, int],
    parents: int,
    pixels: PixelDistribution = DEFAULT_PIXELS,
    latents: int = 16,
    channels: Sequence[int] = (32, 32, 64, 64),
    hidden: int = 256,
    widths: Sequence[int] = (16, 32, 64, 160, 320),
    layers: Sequence[int] = (4,),
    encoder_blocks: Sequence[int] = (3,),
    latent_noise: LatentNoise = "standardised",
    patch: int = 1,
    parent_scales: bool = False,
    dense_coarsest: bool = False,
) -> PictureMechanism:
    """Return p(x | parents, noise) for pictures (C, H, W).

    Arguments:
        picture: "vae" (`ConditionalVAE`) or "hvae" (`HierarchicalVAE`).
        parents: f, features of the parents.
        latents: dims of z (vae), channels of z in every layer (hvae).
        channels, hidden: of the vae only.
        widths, layers, encoder_blocks: of the hvae only; per resolution, from the finest.
        latent_noise: of the hvae only; what do() keeps of a latent.
        patch: of the hvae only; side of the squares of pixels in the finest maps.
        parent_scales: of the hvae only; whether parents also scale the channels.
        dense_coarsest: of the hvae only; whether dense layers lead to and from the 1x1 maps.
    """
    if picture == "vae":
        return ConditionalVAE(image_shape, parents, pixels, latents, channels, hidden)
    if picture == "hvae":
        return HierarchicalVAE(
            image_shape,
            parents,
            pixels,
            widths,
            layers,
            encoder_blocks,
            latents,
            latent_noise,
            patch,
            parent_scales,
            dense_coarsest,
        )
    raise unknown("picture mechanism", picture, get_args(Picture))
