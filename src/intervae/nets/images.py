"""Encoders and decoders between images of any size and vectors: convolutions and MLPs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from intervae.errors import UsageError

Activation = Callable[[], nn.Module]
Network = Literal["conv", "mlp", "mlp-1200"]
SMALLEST_MAP = 4  # pixels; the shorter side of a feature map is never smaller


def halvings(height: int, width: int, max_halvings: int) -> int:
    """Return how often an image is halved, 1 to `max_halvings`; not below SMALLEST_MAP."""
    side = max(min(height, width), 2 * SMALLEST_MAP)
    return max(1, min(max_halvings, int(math.log2(side / SMALLEST_MAP))))


def base_size(height: int, width: int, times: int) -> tuple[int, int]:
    """Return (rows, columns) of the smallest feature map.

    Each halving rounds up, so that a decoder covers the image and crops the rest.
    """
    for _ in range(times):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width


class ConvEncoder(nn.Module):
    """Images (B, C, H, W) in [0, 1] to features (B, outputs).

    4x4 convolutions of stride 2, then two dense layers.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        outputs: int,
        channels: Sequence[int] = (32, 32, 64, 64),
        hidden: int = 256,
    ) -> None:
        super().__init__()
        colours, height, width = image_shape
        channels = list(channels)[: halvings(height, width, len(channels))]
        layers: list[nn.Module] = []
        for narrow, wide in zip([colours, *channels], channels, strict=False):
            # a convolution rounds an odd side down; PadToEven makes it round up
            layers += [PadToEven(), nn.Conv2d(narrow, wide, 4, stride=2, padding=1), nn.SiLU()]
        self.convolutions = nn.Sequential(*layers)
        rows, columns = base_size(height, width, len(channels))
        self.dense = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels[-1] * rows * columns, hidden),
            nn.SiLU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.dense(self.convolutions(images * 2 - 1))

    def before_dense(self, images: Tensor) -> Tensor:
        """Return the flat features (B, f) that the dense layers `dense[1:]` read."""
        return self.convolutions(images * 2 - 1).flatten(1)


class PadToEven(nn.Module):
    """Repeat the last row or column of maps (B, C, H, W) with an odd side."""

    def forward(self, maps: Tensor) -> Tensor:
        bottom, right = maps.shape[-2] % 2, maps.shape[-1] % 2
        return (
            nn.functional.pad(maps, (0, right, 0, bottom), mode="replicate")
            if bottom or right
            else maps
        )


class ConvDecoder(nn.Module):
    """Vectors (B, inputs) to logits or means (B, C, H, W), the mirror of ConvEncoder.

    The output is cropped to the size of the image.
    """

    def __init__(
        self,
        inputs: int,
        image_shape: tuple[int, int, int],
        channels: Sequence[int] = (64, 64, 32, 32),
        hidden: int = 256,
    ) -> None:
        super().__init__()
        colours, self.height, self.width = image_shape
        channels = list(channels)[-halvings(self.height, self.width, len(channels)) :]
        rows, columns = base_size(self.height, self.width, len(channels))
        self.dense = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.SiLU(),
            nn.Linear(hidden, channels[0] * rows * columns),
            nn.SiLU(),
            nn.Unflatten(1, (channels[0], rows, columns)),
        )
        layers: list[nn.Module] = []
        for wide, narrow in zip(channels, [*channels[1:], colours], strict=True):
            layers += [nn.ConvTranspose2d(wide, narrow, 4, stride=2, padding=1), nn.SiLU()]
        self.convolutions = nn.Sequential(*layers[:-1])

    def forward(self, latents: Tensor) -> Tensor:
        return self.convolutions(self.dense(latents))[..., : self.height, : self.width]


class MLPEncoder(nn.Module):
    """Images (B, C, H, W) to features (B, outputs); by default the encoder of CausalVAE's code."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        outputs: int,
        hidden: Sequence[int] = (900, 300),
        activation: Activation = nn.ELU,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), *dense_layers([math.prod(image_shape), *hidden, outputs], activation)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class MLPDecoder(nn.Module):
    """Vectors (B, inputs) to images (B, C, H, W); by default the decoder of CausalVAE's code."""

    def __init__(
        self,
        inputs: int,
        image_shape: tuple[int, int, int],
        hidden: Sequence[int] = (300, 300, 1024),
        activation: Activation = nn.ELU,
    ) -> None:
        super().__init__()
        self.image_shape = tuple(image_shape)
        self.layers = nn.Sequential(
            *dense_layers([inputs, *hidden, math.prod(image_shape)], activation)
        )

    def forward(self, latents: Tensor) -> Tensor:
        return self.layers(latents).unflatten(1, self.image_shape)


class PerConceptDecoder(nn.Module):
    """One decoder per concept, outputs averaged: the alternative decoder of CausalVAE's code."""

    def __init__(self, decoders: Sequence[nn.Module]) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(decoders)

    def forward(self, latents: Tensor) -> Tensor:
        concepts = latents.chunk(len(self.decoders), dim=1)
        outputs = [decoder(z) for decoder, z in zip(self.decoders, concepts, strict=True)]
        return torch.stack(outputs).mean(0)


def dense_layers(sizes: Sequence[int], activation: Activation = nn.ELU) -> list[nn.Module]:
    """Return linear layers of these sizes with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    return layers[:-1]


def check_sizes(latents: int, channels: Sequence[int], hidden: int) -> None:
    """Raise a UsageError for layers without units."""
    for name, sizes in (("dims", (latents,)), ("channels", channels), ("hidden", (hidden,))):
        if not sizes or min(sizes) < 1:
            raise UsageError(
                f"{name}={','.join(map(str, sizes)) or '()'} leaves a network without units; "
                "use 1 or more."
            )


def build_encoder(
    network: Network,
    image_shape: tuple[int, int, int],
    outputs: int,
    channels: Sequence[int],
    hidden: int,
) -> nn.Module:
    """Return an encoder from images (B, C, H, W) to features (B, outputs).

    Arguments:
        network: "conv" (ConvEncoder), "mlp" (that of CausalVAE's code), or "mlp-1200" (two layers
            of 1200 units, as the beta-VAE papers use on dSprites).
        channels, hidden: of the conv network only.
    """
    check_sizes(outputs, channels, hidden)
    if network == "mlp-1200":
        return MLPEncoder(image_shape, outputs, (1200, 1200), nn.ReLU)
    return (
        MLPEncoder(image_shape, outputs)
        if network == "mlp"
        else ConvEncoder(image_shape, outputs, channels, hidden)
    )


def build_decoder(
    network: Network,
    inputs: int,
    image_shape: tuple[int, int, int],
    channels: Sequence[int],
    hidden: int,
) -> nn.Module:
    """Return the mirror of `build_encoder`; the "mlp-1200" decoder has three tanh layers."""
    check_sizes(inputs, channels, hidden)
    if network == "mlp-1200":
        return MLPDecoder(inputs, image_shape, (1200, 1200, 1200), nn.Tanh)
    return (
        MLPDecoder(inputs, image_shape)
        if network == "mlp"
        else ConvDecoder(inputs, image_shape, tuple(reversed(channels)), hidden)
    )
