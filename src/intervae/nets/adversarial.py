"""Networks and losses of adversarial models.

Non-saturating GAN (Goodfellow et al. 2014, sec. 3) and the gradient penalty of WGAN-GP (Gulrajani
et al. 2017, Eq. 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.nets.images import PadToEven, base_size, check_sizes, halvings
from intervae.nets.norm import BatchNorm

SLOPE = 0.2  # of every leaky ReLU
SMALLEST_SQUARE = 1e-12  # added to a squared gradient norm, whose root has no derivative at 0


class ImageGenerator(nn.Module):
    """Vectors (B, inputs) to images (B, C, H, W) in [0, 1].

    Two dense layers, then 4x4 transposed convolutions of stride 2. Batch norm and ReLU follow
    every layer but the last. `channels` are listed from the image inwards, as in the trunk.
    """

    def __init__(
        self, inputs: int, image_shape: tuple[int, int, int], channels: Sequence[int], hidden: int
    ) -> None:
        super().__init__()
        check_sizes(1, channels, hidden)
        colours, self.height, self.width = image_shape
        channels = list(channels)[: halvings(self.height, self.width, len(channels))][::-1]
        rows, columns = base_size(self.height, self.width, len(channels))
        maps = channels[0] * rows * columns
        layers: list[nn.Module] = [
            nn.Linear(inputs, hidden),
            BatchNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, maps),
            BatchNorm(maps),
            nn.ReLU(),
        ]
        layers.append(nn.Unflatten(1, (channels[0], rows, columns)))
        for wide, narrow in pairwise(channels):
            layers += [
                nn.ConvTranspose2d(wide, narrow, 4, stride=2, padding=1),
                BatchNorm(narrow),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(
            *layers, nn.ConvTranspose2d(channels[-1], colours, 4, stride=2, padding=1)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sigmoid(self.layers(inputs)[..., : self.height, : self.width])


class SingleGroupNorm(nn.Module):
    """GroupNorm with one group: normalise maps (B, C, H, W) per image, then scale per channel.

    torch's GroupNorm fails on channels-last maps under vmap.
    """

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gain, self.shift = (
            nn.Parameter(torch.ones(channels, 1, 1)),
            nn.Parameter(torch.zeros(channels, 1, 1)),
        )

    def forward(self, maps: Tensor) -> Tensor:
        variance, mean = torch.var_mean(maps, dim=(1, 2, 3), correction=0, keepdim=True)
        return (maps - mean) * torch.rsqrt(variance + self.epsilon) * self.gain + self.shift


class DiscriminatorTrunk(nn.Module):
    """Images (B, C, H, W) in [0, 1] to features (B, hidden) for the heads of a discriminator.

    All layers but the first are normalised per image, not over the batch, so that the features of
    an image do not depend on the other images.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], channels: Sequence[int], hidden: int
    ) -> None:
        super().__init__()
        check_sizes(1, channels, hidden)
        colours, height, width = image_shape
        channels = list(channels)[: halvings(height, width, len(channels))]
        layers: list[nn.Module] = []
        for narrow, wide in pairwise([colours, *channels]):
            layers += [PadToEven(), nn.Conv2d(narrow, wide, 4, stride=2, padding=1)]
            layers += [*([SingleGroupNorm(wide)] if len(layers) > 2 else []), nn.LeakyReLU(SLOPE)]
        rows, columns = base_size(height, width, len(channels))
        dense = [
            nn.Flatten(),
            nn.Linear(channels[-1] * rows * columns, hidden),
            nn.LayerNorm(hidden),
            nn.LeakyReLU(SLOPE),
        ]
        self.layers = nn.Sequential(*layers, *dense)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images * 2 - 1)


def leaky_mlp(inputs: int, width: int, layers: int, outputs: int) -> nn.Sequential:
    """Return an MLP with `layers` hidden layers of `width` leaky ReLU units."""
    modules: list[nn.Module] = []
    for narrow, wide in pairwise([inputs, *[width] * layers]):
        modules += [nn.Linear(narrow, wide), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*modules, nn.Linear(width, outputs))


def uniform_noise(*size: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return samples of U(-1, 1) on the device of `like`."""
    return 2 * torch.rand(size, device=like.device, generator=generator) - 1


def discriminator_loss(real: Tensor, generated: Tensor) -> Tensor:
    """Return -log D(x) - log(1 - D(G(z))), (B,), from logits (B, 1)."""
    return (functional.softplus(-real) + functional.softplus(generated)).squeeze(1)


def generator_loss(generated: Tensor) -> Tensor:
    """Return -log D(G(z)), (B,), from logits (B, 1)."""
    return functional.softplus(-generated).squeeze(1)


def gradient_penalty(
    critic: Callable[[Tensor], Tensor],
    real: Tensor,
    generated: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Return (|gradient of the critic| - 1)^2, (B,), at random points between two batches.

    Each point lies between a real and a generated row (B, n). `torch.func.grad` instead of
    `torch.autograd.grad` lets the penalty be differentiated, vmapped, captured and evaluated
    under no_grad.
    """
    weight = torch.rand(len(real), 1, device=real.device, generator=generator)
    points = torch.lerp(generated, real, weight)
    gradients = torch.func.grad(lambda rows: critic(rows).sum())(points)
    return ((gradients.square().sum(1) + SMALLEST_SQUARE).sqrt() - 1).square()
