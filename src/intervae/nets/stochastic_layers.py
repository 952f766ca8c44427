"""Blocks of the hierarchical VAE: bottleneck block, layer with a latent, levels of both networks.

From the description of Child 2021 and De Sousa Ribeiro et al. 2023. Maps are (B, width, rows,
columns); parents (B, f) enter as constant maps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.nets.latent_pictures import DiagonalGaussian, as_gaussian

BOTTLENECK = 4  # width of a block's input over the width inside
SMALLEST_KERNEL_MAP = 3  # shorter side of the smallest maps with 3x3 convolutions


class ParentConv(nn.Module):
    """1x1 convolution of maps and parents.

    Equal to a convolution of the concatenation [maps, parents as constant maps], which it avoids:
    the parents' share is the same for every pixel.
    """

    def __init__(self, inputs: int, parents: int, outputs: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.convolution = nn.Conv2d(inputs + parents, outputs, 1)

    def forward(self, maps: Tensor, parents: Tensor) -> Tensor:
        weight, bias = self.convolution.weight, self.convolution.bias
        constant = functional.linear(parents, weight[:, self.inputs :, 0, 0], bias)
        return functional.conv2d(maps, weight[:, : self.inputs]) + constant[:, :, None, None]


class BottleneckBlock(nn.Module):
    """GELU, 1x1 to a quarter of the width, 3x3, 3x3, 1x1, with a GELU before each convolution.

    Arguments:
        inputs, outputs: channels.
        size: rows and columns of the maps; the inner convolutions are 1x1 on the smallest maps.
        width: four times the channels inside; by default `inputs`.
        parents: f, where the block takes parents; they join the first convolution.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: tuple[int, int],
        width: int | None = None,
        parents: int = 0,
    ) -> None:
        super().__init__()
        inner = max(1, (width or inputs) // BOTTLENECK)
        kernel = 3 if min(size) >= SMALLEST_KERNEL_MAP else 1
        self.first: nn.Module = (
            ParentConv(inputs, parents, inner) if parents else nn.Conv2d(inputs, inner, 1)
        )
        self.middle = nn.ModuleList(
            nn.Conv2d(inner, inner, kernel, padding=kernel // 2) for _ in range(2)
        )
        self.last = nn.Conv2d(inner, outputs, 1)

    def forward(self, maps: Tensor, *parents: Tensor) -> Tensor:
        maps = self.first(functional.gelu(maps), *parents)
        for convolution in self.middle:
            maps = convolution(functional.gelu(maps))
        return self.last(functional.gelu(maps))


class EncoderLevel(nn.Module):
    """Residual blocks at one resolution; before them average pooling and a change of width.

    Arguments:
        finer_width: channels of the next finer level; of the images for the finest.
        pool: how often rows and columns shrink, (1, 1) for the finest level.
        dense: whether one convolution of the size of `pool` is in place of both: an average over
            the picture knows no places.
    """

    def __init__(
        self,
        finer_width: int,
        width: int,
        size: tuple[int, int],
        pool: tuple[int, int],
        blocks: int,
        *,
        dense: bool = False,
    ) -> None:
        super().__init__()
        self.pool = (1, 1) if dense else pool
        finest = pool == (1, 1)
        kernel = pool if dense else (3, 3) if finest else (1, 1)
        self.enter = nn.Conv2d(finer_width, width, kernel, padding=int(finest))
        self.blocks = nn.ModuleList(BottleneckBlock(width, width, size) for _ in range(blocks))

    def forward(self, maps: Tensor) -> Tensor:
        if self.pool != (1, 1):
            maps = functional.avg_pool2d(maps, self.pool)
        maps = self.enter(maps)
        for block in self.blocks:
            maps = maps + block(maps)
        return maps


class StochasticLayer(nn.Module):
    """One latent z of the decoder: prior, posterior and what z and the parents add to the maps.

    Arguments:
        width: channels of the maps.
        latents: channels of z.
        parents: f.
        size: rows and columns of the maps and of z.
    """

    def __init__(self, width: int, latents: int, parents: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.latents = latents
        self.prior = BottleneckBlock(width, 2 * latents + width, size)
        self.posterior = BottleneckBlock(2 * width, 2 * latents, size, width, parents)
        self.join = ParentConv(latents, parents, width)
        self.block = BottleneckBlock(width, width, size)

    def infer_prior(self, maps: Tensor) -> tuple[DiagonalGaussian, Tensor]:
        """Return p(z | maps) and the features that the prior adds to the maps."""
        statistics, features = self.prior(maps).tensor_split([2 * self.latents], dim=1)
        return as_gaussian(statistics), features

    def infer_posterior(
        self, maps: Tensor, activations: Tensor, parents: Tensor
    ) -> DiagonalGaussian:
        """Return q(z | maps, activations of the encoder, parents)."""
        return as_gaussian(self.posterior(torch.cat([maps, activations], dim=1), parents))

    def forward(self, maps: Tensor, features: Tensor, z: Tensor, parents: Tensor) -> Tensor:
        """Add the prior's features, z and the parents to the maps; apply the block."""
        maps = maps + features + self.join(z, parents)
        return maps + self.block(maps)


class DecoderLevel(nn.Module):
    """Stochastic layers at one resolution, with a learnt bias map.

    Arguments:
        coarser_width: channels of the next coarser level; 0 for the coarsest.
        width, latents, parents, size: see `StochasticLayer`.
        layers: number of stochastic layers.
        dense: whether the coarser maps, of 1 x 1, become maps by a dense layer: repeated, they are
            alike everywhere, and what the variables say of the shape takes long to learn.
        scaled: whether the parents also scale the channels at the end of the level.
    """

    def __init__(
        self,
        coarser_width: int,
        width: int,
        latents: int,
        parents: int,
        size: tuple[int, int],
        layers: int,
        *,
        dense: bool = False,
        scaled: bool = False,
    ) -> None:
        super().__init__()
        self.size = size
        self.bias = nn.Parameter(torch.zeros(1, width, *size))
        self.enter: nn.Module | None = None
        if dense:
            self.enter = nn.Sequential(
                nn.Flatten(),
                nn.Linear(coarser_width, width * size[0] * size[1]),
                nn.Unflatten(1, (width, *size)),
            )
        elif coarser_width:
            self.enter = nn.Conv2d(coarser_width, width, 1)
        self.layers = nn.ModuleList(
            StochasticLayer(width, latents, parents, size) for _ in range(layers)
        )
        self.scales = nn.Linear(parents, width) if scaled else None
        if self.scales is not None:
            nn.init.zeros_(self.scales.weight)
            nn.init.zeros_(self.scales.bias)

    def start(self, coarser: Tensor | None, batch: int) -> Tensor:
        """Return the first maps of this level, from those of the next coarser one."""
        if coarser is None or self.enter is None:
            return self.bias.expand(batch, -1, -1, -1)
        maps = self.enter(coarser)
        if maps.shape[2:] != self.bias.shape[2:]:
            maps = functional.interpolate(maps, self.size, mode="nearest")
        return self.bias + maps

    def end(self, maps: Tensor, parents: Tensor) -> Tensor:
        """Return the last maps of this level, their channels scaled by the parents."""
        if self.scales is None:
            return maps
        return maps * (1 + self.scales(parents))[:, :, None, None]
