"""Networks of the Ladder VAE: one Gaussian per layer, upwards and downwards, and their merge.

Layer 1 is next to the image, layer L the top. B images, d units of a layer.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.models.ladder_vae.settings import LadderVAESettings
from intervae.nets.images import build_decoder, build_encoder
from intervae.nets.norm import BatchNorm

SMALLEST_VARIANCE = 1e-5


class LadderLayer(NamedTuple):
    """Inference result of one layer: a sample z, and means and variances, each (B, d)."""

    z: Tensor
    mean: Tensor
    variance: Tensor
    prior_mean: Tensor
    prior_variance: Tensor

    @property
    def kl(self) -> Tensor:
        """KL(q || p) of every unit, (B, d), given the sample of the neighbouring layer."""
        distance = self.mean - self.prior_mean
        ratio = self.variance / self.prior_variance
        return 0.5 * (distance.square() / self.prior_variance + ratio - ratio.log() - 1)

    @property
    def log_ratio(self) -> Tensor:
        """log p(z) - log q(z) of every unit, (B, d)."""
        prior = log_normal(self.z, self.prior_mean, self.prior_variance.log())
        return prior - log_normal(self.z, self.mean, self.variance.log())


def merge_gaussians(
    mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the product of two Gaussians, weighted by precision.

    s2_q = 1 / (1 / s2 + 1 / s2_p),  mu_q = s2_q (mu / s2 + mu_p / s2_p); computed from the weight
    of the prior, s2 / (s2 + s2_p).
    """
    weight = variance / (variance + prior_variance)
    return torch.lerp(mean, prior_mean, weight), weight * prior_variance


class DenseBlock(nn.Sequential):
    """Linear layer, optional batch norm (then without a bias), optional activation."""

    def __init__(
        self, inputs: int, outputs: int, norm: bool, activation: nn.Module | None = None
    ) -> None:
        linear = nn.Linear(inputs, outputs, bias=not norm)
        nn.init.xavier_normal_(linear.weight)
        if not norm:
            nn.init.zeros_(linear.bias)
        layers = (linear, BatchNorm(outputs) if norm else None, activation)
        super().__init__(*[layer for layer in layers if layer is not None])


class GaussianNetwork(nn.Module):
    """Inputs to hidden units, and from those mean and softplus variance (B, outputs)."""

    def __init__(self, body: nn.Module, hidden: int, outputs: int, norm: bool) -> None:
        super().__init__()
        self.body, self.head = body, DenseBlock(hidden, 2 * outputs, norm)
        last: Any = self.head[-1]
        with torch.no_grad():
            (last.shift if norm else last.bias)[outputs:] = 1.0  # variances start at softplus(1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return hidden units (B, hidden), mean and variance (B, outputs)."""
        hidden = self.body(inputs)
        mean, spread = self.head(hidden).chunk(2, dim=-1)
        return hidden, mean, functional.softplus(spread) + SMALLEST_VARIANCE


def build_upward(settings: LadderVAESettings, image_shape: tuple[int, int, int]) -> nn.ModuleList:
    """Return the networks from the image to z_1 and from each layer to the one above."""
    sizes, widths = settings.latents, settings.widths
    takes_means = settings.upward_input == "mean" or settings.inference == "bottom-up"
    inputs = sizes if takes_means else widths  # of layer i + 1, from layer i
    bodies = [
        _image_to_hidden(settings, image_shape),
        *(
            _mlp(settings, below, width)
            for below, width in zip(inputs, widths[1 : len(sizes)], strict=False)
        ),
    ]
    return nn.ModuleList(
        GaussianNetwork(body, width, size, settings.batch_norm)
        for body, width, size in zip(bodies, widths, sizes, strict=False)
    )


def build_downward(settings: LadderVAESettings) -> nn.ModuleList:
    """Return the networks from z_{i+1} to z_i; that at index 0 ends at z_1."""
    pairs = zip(pairwise(settings.latents), settings.widths[1:], strict=False)
    return nn.ModuleList(
        GaussianNetwork(_mlp(settings, above, width), width, below, settings.batch_norm)
        for (below, above), width in pairs
    )


def build_image_decoder(
    settings: LadderVAESettings, image_shape: tuple[int, int, int]
) -> nn.Module:
    """Return the network from z_1 to the image; scale=0 doubles its channels for variances."""
    colours, height, width = image_shape
    shape = (2 * colours if settings.scale == 0 else colours, height, width)
    latents, hidden = settings.latents[0], settings.widths[0]
    if settings.network == "conv":
        return build_decoder("conv", latents, shape, settings.channels, hidden)
    return nn.Sequential(
        *_mlp(settings, latents, hidden),
        DenseBlock(hidden, math.prod(shape), norm=False),
        nn.Unflatten(1, shape),
    )


def _image_to_hidden(
    settings: LadderVAESettings, image_shape: tuple[int, int, int]
) -> nn.Sequential:
    width = settings.widths[0]
    if settings.network == "conv":
        encoder = build_encoder("conv", image_shape, width, settings.channels, width)
        return nn.Sequential(encoder, _activation(settings))
    return nn.Sequential(nn.Flatten(), *_mlp(settings, math.prod(image_shape), width))


def _mlp(settings: LadderVAESettings, inputs: int, width: int) -> nn.Sequential:
    """Return two dense layers of `width` units."""
    return nn.Sequential(
        *(
            DenseBlock(size, width, settings.batch_norm, _activation(settings))
            for size in (inputs, width)
        )
    )


def _activation(settings: LadderVAESettings) -> nn.Module:
    return nn.Tanh() if settings.activation == "tanh" else nn.LeakyReLU(0.1)
