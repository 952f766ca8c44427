"""Encoder and decoder of MCQ-VAE: convolutions over a grid of image patches, or of stride 2."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

SLOPE = 0.01  # negative slope of the leaky ReLUs
KERNELS = {"local": (1, 1), "near": (3, 1), "wide": (3, 3)}  # first convolution, residual blocks


class ResidualBlock(nn.Module):
    """x + Conv1x1(leaky(Conv(leaky(x)))); the first convolution has the given kernel size."""

    def __init__(self, channels: int, size: int = 3) -> None:
        super().__init__()
        self.spread = nn.Conv2d(channels, channels, size, padding=size // 2)
        self.mix = nn.Conv2d(channels, channels, 1)

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.mix(leaky_relu(self.spread(leaky_relu(maps))))


def leaky_relu(maps: Tensor) -> Tensor:
    return functional.leaky_relu(maps, SLOPE)


class GridEncoder(nn.Module):
    """Encoder of images (B, C, H, W) in [0, 1] to features (B, outputs, rows, columns).

    Arguments:
        patch: pixels per row and column of the grid.
        reach: receptive field of a position: `local` its own patch, `near` also the adjacent ones
            (a first convolution of 3 x 3), `wide` 3 x 3 convolutions throughout.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        outputs: int,
        patch: int,
        filters: int,
        blocks: int,
        reach: str,
    ) -> None:
        super().__init__()
        channels, height, width = image_shape
        self.border = (0, -width % patch, 0, -height % patch)  # left, right, top, bottom
        first, size = KERNELS[reach]
        self.layers = nn.Sequential(
            nn.PixelUnshuffle(patch),
            nn.Conv2d(channels * patch**2, filters, first, padding=first // 2),
            *(ResidualBlock(filters, size) for _ in range(blocks)),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(filters, outputs, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(functional.pad(images * 2 - 1, self.border, mode="replicate"))


class GridDecoder(nn.Module):
    """Decoder of features (B, inputs, rows, columns) to pixel logits (B, C, H, W).

    Its 3 x 3 convolutions let a patch depend on the adjacent ones. The output is cropped to the
    image size.
    """

    def __init__(
        self, inputs: int, image_shape: tuple[int, int, int], patch: int, filters: int, blocks: int
    ) -> None:
        super().__init__()
        channels, self.height, self.width = image_shape
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, filters, 3, padding=1),
            *(ResidualBlock(filters) for _ in range(blocks)),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(filters, channels * patch**2, 3, padding=1),
            nn.PixelShuffle(patch),
        )

    def forward(self, grid: Tensor) -> Tensor:
        return self.layers(grid)[..., : self.height, : self.width]


class StridedEncoder(nn.Module):
    """The encoder of the authors' code: 4x4 convolutions of stride 2, one 3x3, residual blocks.

    Images (B, C, H, W) in [0, 1] to features (B, outputs, rows, columns). Each of the log2(patch)
    strided convolutions doubles the channels, up to `filters`.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], outputs: int, patch: int, filters: int, blocks: int
    ) -> None:
        super().__init__()
        channels, height, width = image_shape
        self.border = (0, -width % patch, 0, -height % patch)  # left, right, top, bottom
        layers: list[nn.Module] = []
        for wide in strided_channels(patch, filters):
            layers += [nn.Conv2d(channels, wide, 4, stride=2, padding=1), nn.LeakyReLU(SLOPE)]
            channels = wide
        self.layers = nn.Sequential(
            *layers,
            nn.Conv2d(channels, filters, 3, padding=1),
            nn.LeakyReLU(SLOPE),
            *(ResidualBlock(filters) for _ in range(blocks)),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(filters, outputs, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(functional.pad(images * 2 - 1, self.border, mode="replicate"))


class StridedDecoder(nn.Module):
    """The mirror of `StridedEncoder`: features to pixel logits (B, C, H, W), cropped."""

    def __init__(
        self, inputs: int, image_shape: tuple[int, int, int], patch: int, filters: int, blocks: int
    ) -> None:
        super().__init__()
        channels, self.height, self.width = image_shape
        layers: list[nn.Module] = []
        narrowing = [*reversed(strided_channels(patch, filters)), channels]
        for wide, narrow in pairwise(narrowing):
            layers += [nn.LeakyReLU(SLOPE), nn.ConvTranspose2d(wide, narrow, 4, 2, padding=1)]
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, filters, 3, padding=1),
            *(ResidualBlock(filters) for _ in range(blocks)),
            *(layers or [nn.LeakyReLU(SLOPE), nn.Conv2d(filters, channels, 1)]),
        )

    def forward(self, grid: Tensor) -> Tensor:
        return self.layers(grid)[..., : self.height, : self.width]


def strided_channels(patch: int, filters: int) -> list[int]:
    """Return the channels after each strided convolution: filters / 4, filters / 2, filters."""
    halvings = patch.bit_length() - 1
    return [max(1, filters >> (halvings - 1 - i)) for i in range(halvings)]
