"""Paired convolutions of CMCL (Mao et al. 2022, App. D.2): 3x3, the second of a pair of stride 2.

The activation is SiLU, as ReLUs died at our learning rates. The initial weights keep the variance
of the activations from layer to layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from intervae.nets.images import base_size, check_sizes, halvings

FIRST_LOGITS = 0.1  # standard deviation of an untrained decoder's logits, nearly uniform grey
SILU_SECOND_MOMENT = 0.356  # E silu(x)^2 of x ~ N(0, 1)


def initialise_for_silu(network: nn.Module) -> None:
    """Draw weights of variance 1 / (SILU_SECOND_MOMENT inputs), as He et al. (2015) for ReLU."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(
                layer.weight, std=(SILU_SECOND_MOMENT * layer.weight[0].numel()) ** -0.5
            )
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


class PairEncoder(nn.Module):
    """Encoder of images (B, C, H, W) in [0, 1] to features (B, outputs).

    `channels` has one number per pair: (16, 32, 64) is the paper's 16/16/32/32/64/64. There are at
    most as many pairs as the image can be halved. A linear layer follows.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], outputs: int, channels: Sequence[int]
    ) -> None:
        super().__init__()
        check_sizes(outputs, channels, 1)
        colours, height, width = image_shape
        channels = list(channels)[: halvings(height, width, len(channels))]
        layers: list[nn.Module] = []
        for before, after in pairwise([colours, *channels]):
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.SiLU(),
                nn.Conv2d(after, after, 3, stride=2, padding=1),
                nn.SiLU(),
            ]
        self.convolutions = nn.Sequential(*layers)
        rows, columns = base_size(height, width, len(channels))
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(channels[-1] * rows * columns, outputs))
        initialise_for_silu(self.convolutions)

    def forward(self, images: Tensor) -> Tensor:
        return self.dense(self.convolutions(images * 2 - 1))


class PairDecoder(nn.Module):
    """Decoder of vectors (B, inputs) to logits (B, C, H, W).

    A linear layer, pairs of 3x3 convolutions each after nearest up-sampling, a 1x1 convolution.
    """

    def __init__(
        self, inputs: int, image_shape: tuple[int, int, int], channels: Sequence[int]
    ) -> None:
        super().__init__()
        check_sizes(inputs, channels, 1)
        colours, self.height, self.width = image_shape
        channels = list(channels)[: halvings(self.height, self.width, len(channels))][::-1]
        rows, columns = base_size(self.height, self.width, len(channels))
        layers: list[nn.Module] = [
            nn.Linear(inputs, channels[0] * rows * columns),
            nn.SiLU(),
            nn.Unflatten(1, (channels[0], rows, columns)),
        ]
        for before, after in pairwise([channels[0], *channels]):
            layers += [
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.Conv2d(before, after, 3, padding=1),
                nn.SiLU(),
            ]
            layers += [nn.Conv2d(after, after, 3, padding=1), nn.SiLU()]
        last = nn.Conv2d(channels[-1], colours, 1)
        self.layers = nn.Sequential(*layers, last)
        initialise_for_silu(self.layers[:-1])
        nn.init.normal_(last.weight, std=FIRST_LOGITS * channels[-1] ** -0.5)
        nn.init.zeros_(last.bias)  # type: ignore[arg-type]

    def forward(self, latents: Tensor) -> Tensor:
        return self.layers(latents)[..., : self.height, : self.width]
