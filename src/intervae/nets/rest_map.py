"""Networks for what no label names: a map of latents beside the concepts, and its decoder.

    image -> MapEncoder -> rest (B, C, h, w); rest and concepts -> ConditionedDecoder -> image

Concepts enter the decoder at every resolution, as a scale and a shift of each channel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from intervae.nets.images import PadToEven, base_size, halvings

HALVINGS = 3  # of the image, to the map


class ChannelNorm(nn.Module):
    """Divide the channels of each pixel of maps (B, C, h, w) by their root mean square."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, maps: Tensor) -> Tensor:
        scale = torch.rsqrt(maps.square().mean(1, keepdim=True) + 1e-6)
        return maps * scale * self.gain


class MapBlock(nn.Module):
    """Maps (B, inputs, h, w) to (B, outputs, h, w): two normalised 3x3 convolutions and a skip."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        last = nn.Conv2d(outputs, outputs, 3, padding=1)
        last.weight.data.mul_(0.2)  # near the skip at the start
        self.layers = nn.Sequential(
            ChannelNorm(inputs),
            nn.SiLU(),
            nn.Conv2d(inputs, outputs, 3, padding=1),
            ChannelNorm(outputs),
            nn.SiLU(),
            last,
        )
        self.skip: nn.Module = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        return self.skip(maps) + self.layers(maps)


def map_shape(image_shape: tuple[int, int, int], channels: int) -> tuple[int, int, int]:
    """Return (channels, rows, columns) of the rest of an image (C, H, W)."""
    _, height, width = image_shape
    return channels, *base_size(height, width, halvings(height, width, HALVINGS))


class MapEncoder(nn.Module):
    """Images (B, C, H, W) in [0, 1] to maps (B, outputs, h, w), see `map_shape`.

    The first halving moves 2x2 pixels into channels; the others are average pooling.
    """

    def __init__(self, image_shape: tuple[int, int, int], outputs: int, width: int) -> None:
        super().__init__()
        colours, height, columns = image_shape
        layers: list[nn.Module] = [
            PadToEven(),
            nn.PixelUnshuffle(2),
            nn.Conv2d(4 * colours, width, 3, padding=1),
        ]
        for _ in range(halvings(height, columns, HALVINGS) - 1):
            layers += [MapBlock(width, 2 * width), PadToEven(), nn.AvgPool2d(2)]
            width *= 2
        layers += [
            MapBlock(width, width),
            ChannelNorm(width),
            nn.SiLU(),
            nn.Conv2d(width, outputs, 1),
        ]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images * 2 - 1)


class ConditionedDecoder(nn.Module):
    """Concepts (B, f), or None for f = 0, and the rest (B, C, h, w) to logits (B, C, H, W)."""

    def __init__(
        self, concepts: int, channels: int, image_shape: tuple[int, int, int], width: int
    ) -> None:
        super().__init__()
        colours, self.height, self.width = image_shape
        self.rest_shape = map_shape(image_shape, channels)
        times = halvings(self.height, self.width, HALVINGS) - 1
        widths = [width * 2**i for i in reversed(range(times + 1))]
        self.input = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList(
            MapBlock(wide, narrow)
            for wide, narrow in zip(widths, [*widths[1:], widths[-1]], strict=True)
        )
        self.conditions = nn.ModuleList(
            nn.Sequential(nn.Linear(concepts, 64), nn.SiLU(), nn.Linear(64, 2 * wide))
            for wide in (widths if concepts else ())
        )
        self.output = nn.Sequential(
            ChannelNorm(widths[-1]),
            nn.SiLU(),
            nn.Conv2d(widths[-1], 4 * colours, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, concepts: Tensor | None, rest: Tensor) -> Tensor:
        maps = self.input(rest)
        for i, block in enumerate(self.blocks):
            if i:
                maps = interpolate(maps, scale_factor=2, mode="nearest")
            if concepts is not None:
                scale, shift = self.conditions[i](concepts)[:, :, None, None].chunk(2, dim=1)
                maps = maps * (1 + scale) + shift
            maps = block(maps)
        return self.output(maps)[..., : self.height, : self.width]


def split_gaussian(features: Tensor) -> tuple[Tensor, Tensor]:
    """Maps (B, 2 C, h, w) to mean and log-variance, each (B, C, h, w)."""
    mean, log_variance = torch.chunk(features, 2, dim=1)
    return mean, log_variance.clamp(-12, 4)
