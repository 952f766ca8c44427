"""Picture mechanisms of a deep structural causal model by name: vae, hvae and flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from intervae.errors import unknown
from intervae.nets.conditional_vae import ConditionalVAE
from intervae.nets.flow_picture import FlowPicture
from intervae.nets.hierarchical_vae import HierarchicalVAE, LatentNoise
from intervae.nets.latent_pictures import DEFAULT_PIXELS, PixelDistribution
from intervae.nets.picture_mechanism import PictureMechanism

Picture = Literal["vae", "hvae", "flow"]
HVAE_PATCH, FLOW_PATCH = 1, 2


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
    patch: int | None = None,
    parent_scales: bool = False,
    dense_coarsest: bool = False,
    flow_widths: Sequence[int] = (32, 64, 128),
    flow_steps: int = 20,
    flow_noise_share: float = 0.02,
    flow_guidance: float = 1.0,
    flow_hidden_classes: float = 0.0,
    classes: Sequence[slice] = (),
) -> PictureMechanism:
    """Return p(x | parents, noise) for pictures (C, H, W).

    Arguments:
        picture: "vae" (`ConditionalVAE`), "hvae" (`HierarchicalVAE`) or "flow" (`FlowPicture`).
        parents: f, features of the parents.
        latents: dims of z (vae), channels of z in every layer (hvae).
        pixels: of the vae and the hvae.
        channels, hidden: of the vae only.
        widths, layers, encoder_blocks: of the hvae only; per resolution, from the finest.
        latent_noise: of the hvae only; what do() keeps of a latent.
        patch: side of the squares of pixels in the finest maps; by default 1 in the hvae and 2 in
            the flow.
        parent_scales: of the hvae only; whether parents also scale the channels.
        dense_coarsest: of the hvae only; whether dense layers lead to and from the 1x1 maps.
        flow_widths, flow_steps, flow_noise_share, flow_guidance, flow_hidden_classes, classes: of
            the flow only, see `FlowPicture`.
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
            HVAE_PATCH if patch is None else patch,
            parent_scales,
            dense_coarsest,
        )
    if picture == "flow":
        return FlowPicture(
            image_shape,
            parents,
            flow_widths,
            FLOW_PATCH if patch is None else patch,
            steps=flow_steps,
            noise_share=flow_noise_share,
            classes=classes,
            guidance=flow_guidance,
            hidden_classes=flow_hidden_classes,
        )
    raise unknown("picture mechanism", picture, get_args(Picture))
