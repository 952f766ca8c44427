"""Conditional hierarchical VAE as a picture mechanism, in the manner of very deep VAEs.

Child 2021; with parents, De Sousa Ribeiro et al. 2023. The encoder keeps its activations at every
resolution. The decoder goes from 1x1 maps to the picture; every layer has a latent z_i with prior
p(z_i | h), posterior q(z_i | h, parents, activations) and h += features + conv([z_i, parents]).

The prior is the mechanism of z_i: z_i = mean(h) + std(h) e_i, and the noise of a picture is e, not
z. Under do() the prior moves with the parents, and z with it. In the papers z itself is kept
(`latent_noise="values"`); then what z tells of the parents contradicts their new values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import kl_diagonal
from intervae.errors import UsageError
from intervae.nets.images import SMALLEST_MAP
from intervae.nets.latent_pictures import (
    DEFAULT_PIXELS,
    DiagonalGaussian,
    LatentPictureMechanism,
    PictureInference,
    PixelDistribution,
)
from intervae.nets.stochastic_layers import (
    DecoderLevel,
    EncoderLevel,
    StochasticLayer,
)

LatentNoise = Literal["standardised", "values"]
# (level, layer, maps before it, prior) to the latent z of that layer
ChooseLatent = Callable[[int, StochasticLayer, Tensor, DiagonalGaussian], Tensor]


def resolutions(height: int, width: int, patch: int = 1) -> list[tuple[int, int]]:
    """Return the sizes of the maps, from that of the padded picture's patches to (1, 1).

    The picture is padded so that it can be halved until its shorter side is about 4 patches:
    28 x 28 gives 32, 16, 8, 4, 1; with patches of 2 x 2 pixels 16, 8, 4, 1.
    """
    height, width = -(-height // patch), -(-width // patch)
    times = max(1, round(math.log2(min(height, width) / SMALLEST_MAP)))
    unit = 2**times
    rows, columns = -(-height // unit) * unit, -(-width // unit) * unit
    return [*((rows >> i, columns >> i) for i in range(times + 1)), (1, 1)]


class HierarchicalVAE(LatentPictureMechanism):
    """Hierarchical VAE of any picture size; by default 4 stochastic layers per resolution.

    Arguments:
        image_shape, parents, pixels: see `LatentPictureMechanism`.
        widths: channels per resolution, from the finest; the last one repeats, surplus ones are
            not used.
        layers: stochastic layers of the decoder per resolution, likewise.
        encoder_blocks: blocks of the encoder per resolution, likewise.
        latents: channels of each z.
        latent_noise: what do() keeps of a latent: its noise e under the prior, or its value z.
        patch: side of the squares of pixels that the finest maps have as channels; 1 is a map per
            pixel, as published. 2 makes a step about twice as fast.
        parent_scales: whether the parents also scale the channels of every level, so that a change
            of brightness is simple; in the papers they are only added.
        dense_coarsest: whether dense layers are between the 1x1 maps and the next level, and first
            weights between levels keep the variance; not in the papers.
    """

    encoder: Any  # of EncoderLevel, finest first
    decoder: Any  # of DecoderLevel, coarsest first

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        pixels: PixelDistribution = DEFAULT_PIXELS,
        widths: Sequence[int] = (16, 32, 64, 160, 320),
        layers: Sequence[int] = (4,),
        encoder_blocks: Sequence[int] = (3,),
        latents: int = 16,
        latent_noise: LatentNoise = "standardised",
        patch: int = 1,
        parent_scales: bool = False,
        dense_coarsest: bool = False,
    ) -> None:
        super().__init__(image_shape, parents, pixels)
        if not 1 <= patch <= min(image_shape[1:]) // 2:
            raise UsageError(
                f"patch={patch} must be from 1 to {min(image_shape[1:]) // 2}, half of the "
                "picture's shorter side."
            )
        self.patch = patch
        self.sizes = resolutions(*image_shape[1:], patch)
        self.latents, self.standardised = latents, latent_noise == "standardised"
        channels = _per_level("widths", widths, len(self.sizes))
        depths = _per_level("layers", layers, len(self.sizes))
        blocks = _per_level("encoder_blocks", encoder_blocks, len(self.sizes))
        if latents < 1:
            raise UsageError(f"latents={latents} leaves a layer without a latent; use 1 or more.")
        finer_sizes = [self.sizes[0], *self.sizes]
        self.encoder = nn.ModuleList(
            EncoderLevel(
                narrow,
                wide,
                size,
                (finer[0] // size[0], finer[1] // size[1]),
                count,
                dense=dense_coarsest and size == (1, 1),
            )
            for narrow, wide, size, finer, count in zip(
                [image_shape[0] * patch**2, *channels],
                channels,
                self.sizes,
                finer_sizes,
                blocks,
                strict=False,
            )
        )
        self.decoder = nn.ModuleList(
            DecoderLevel(
                wide,
                narrow,
                latents,
                parents,
                size,
                depth,
                dense=dense_coarsest and index == 1,
                scaled=parent_scales,
            )
            for index, (wide, narrow, size, depth) in enumerate(
                zip(
                    [0, *channels[:0:-1]],
                    channels[::-1],
                    self.sizes[::-1],
                    depths[::-1],
                    strict=True,
                )
            )
        )
        self.last = nn.Conv2d(channels[0], self.head.outputs * patch**2, 1)
        self._scale_weights(sum(depths), sum(blocks))
        if dense_coarsest:
            self._keep_variance()

    @torch.no_grad()
    def _scale_weights(self, layers: int, blocks: int) -> None:
        """Divide what each block adds by the root of their number; start priors at N(0, I)."""
        for level in self.encoder:
            for block in level.blocks:
                block.last.weight /= math.sqrt(blocks)
        for level in self.decoder:
            for layer in level.layers:
                layer.block.last.weight /= math.sqrt(layers)
                layer.join.convolution.weight /= math.sqrt(layers)
                nn.init.zeros_(layer.prior.last.weight)
                nn.init.zeros_(layer.prior.last.bias)

    @torch.no_grad()
    def _keep_variance(self) -> None:
        """Draw weights between levels that keep the variance.

        torch's first weights divide it by three, and what comes from the coarsest level would be
        too faint to be learned before the finest maps.
        """
        for level in (*self.encoder, *self.decoder):
            for layer in level.enter.modules() if level.enter is not None else ():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)

    @property
    def latent_shapes(self) -> list[tuple[int, ...]]:
        return [(self.latents, *level.size) for level in self.decoder for _ in level.layers]

    @property
    def latent_fineness(self) -> list[float]:
        last = len(self.decoder) - 1
        return [i / last for i, level in enumerate(self.decoder) for _ in level.layers]

    # ---- networks ------------------------------------------------------------------------------
    def activations(self, images: Tensor) -> list[Tensor]:
        """Return the encoder's maps (B, width, rows, columns) per level, coarsest first."""
        left, right, top, bottom = self._margins()
        maps = functional.pad(images * 2 - 1, (left, right, top, bottom), mode="replicate")
        maps = functional.pixel_unshuffle(maps, self.patch)
        levels: list[Tensor] = []
        for level in self.encoder:
            maps = level(maps)
            levels.insert(0, maps)
        return levels

    def _margins(self) -> tuple[int, int, int, int]:
        """Return the padding of a picture: left, right, top, bottom."""
        rows, columns = (side * self.patch for side in self.sizes[0])
        _, height, width = self.image_shape
        left, top = (columns - width) // 2, (rows - height) // 2
        return left, columns - width - left, top, rows - height - top

    def decode(self, parents: Tensor, choose: ChooseLatent) -> tuple[Tensor, Tensor]:
        """Return m and s, each (B, C, H, W); `choose` returns the latent of every layer."""
        maps: Any = None
        for index, level in enumerate(self.decoder):
            maps = level.start(maps, parents.shape[0])
            for layer in level.layers:
                prior, features = layer.infer_prior(maps)
                z = choose(index, layer, maps, prior)
                maps = layer(maps, features, z, parents)
            maps = level.end(maps, parents)
        left, _, top, _ = self._margins()
        _, height, width = self.image_shape
        outputs = functional.pixel_shuffle(self.last(functional.gelu(maps)), self.patch)
        return self.head(outputs[..., top : top + height, left : left + width])

    # ---- interface -----------------------------------------------------------------------------
    def infer(
        self,
        images: Tensor,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> PictureInference:
        activations = self.activations(images)
        latents: list[Tensor] = []
        kls: list[Tensor] = []

        def choose(
            index: int, layer: StochasticLayer, maps: Tensor, prior: DiagonalGaussian
        ) -> Tensor:
            posterior = layer.infer_posterior(maps, activations[index], parents)
            z = posterior.draw(temperature, generator)
            latents.append(prior.standardise(z) if self.standardised else z)
            # axes in the order of channels-last memory, so that the sum needs no copy
            kls.append(kl_diagonal(*(v.movedim(1, -1) for v in (*posterior, *prior))))
            return z

        mean, scale = self.decode(parents, choose)
        return PictureInference(tuple(latents), torch.stack(kls), mean, scale)

    def mean_scale(self, latents: tuple[Tensor, ...], parents: Tensor) -> tuple[Tensor, Tensor]:
        remaining = iter(latents)

        def choose(
            index: int, layer: StochasticLayer, maps: Tensor, prior: DiagonalGaussian
        ) -> Tensor:
            noise = next(remaining)
            return prior.shift(noise) if self.standardised else noise

        return self.decode(parents, choose)

    def generate(
        self,
        parents: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        latents: list[Tensor] = []

        def choose(
            index: int, layer: StochasticLayer, maps: Tensor, prior: DiagonalGaussian
        ) -> Tensor:
            z = prior.draw(temperature, generator)
            latents.append(prior.standardise(z) if self.standardised else z)
            return z

        mean, scale = self.decode(parents, choose)
        return tuple(latents), mean, scale


def _per_level(name: str, values: Sequence[int], levels: int) -> list[int]:
    """Repeat the last of `values` for the levels that have none; drop surplus ones."""
    if not values or min(values) < 1:
        raise UsageError(
            f"{name}={','.join(map(str, values)) or '()'} leaves a level without units; "
            "use 1 or more for each."
        )
    return [values[min(level, len(values) - 1)] for level in range(levels)]
