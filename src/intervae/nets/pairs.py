"""The convolutions of CMCL (Mao et al. 2022, App. D.2): 3x3 in pairs, the second of a pair halving the picture, and the mirror of it.

The activation is SiLU where the paper has ReLU: at the rates used here ReLUs die in the first epochs, up to nine channels of ten in a layer, and the
encoder with them; and the weights start so that each layer passes on the spread of its input, as torch's own start does not over seven layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from intervae.nets.images import base_size, check_sizes, halvings

FIRST_LOGITS = 0.1  # about the spread of a decoder's first pictures: even grey, so that the first steps are not spent on unlearning them
SILU_KEEPS = 0.356  # E silu(x)^2 of x ~ N(0, 1)


def keep_spread(network: nn.Module) -> None:
    """Start every layer with weights of variance 1 / (SILU_KEEPS inputs), as He et al. (2015) do for ReLU, and biases of 0."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=(SILU_KEEPS * layer.weight[0].numel()) ** -0.5)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


class PairEncoder(nn.Module):
    """Images (B, C, H, W) in [0, 1] to features (B, outputs): pairs of 3x3 convolutions with SiLU, then one linear layer.

    `channels` has one number for a pair, (16, 32, 64) is the paper's 16/16/32/32/64/64; as many pairs as the picture can be halved.
    """

    def __init__(self, image_shape: tuple[int, int, int], outputs: int, channels: Sequence[int]) -> None:
        super().__init__()
        check_sizes(outputs, channels, 1)
        colours, height, width = image_shape
        channels = list(channels)[: halvings(height, width, len(channels))]
        layers: list[nn.Module] = []
        for before, after in pairwise([colours, *channels]):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.SiLU(), nn.Conv2d(after, after, 3, stride=2, padding=1), nn.SiLU()]
        self.convolutions = nn.Sequential(*layers)
        rows, columns = base_size(height, width, len(channels))
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(channels[-1] * rows * columns, outputs))
        keep_spread(self.convolutions)

    def forward(self, images: Tensor) -> Tensor:
        return self.dense(self.convolutions(images * 2 - 1))


class PairDecoder(nn.Module):
    """Vectors (B, inputs) to logits (B, C, H, W): one linear layer, pairs of 3x3 convolutions each after nearest up-sampling, a last 1x1 one."""

    def __init__(self, inputs: int, image_shape: tuple[int, int, int], channels: Sequence[int]) -> None:
        super().__init__()
        check_sizes(inputs, channels, 1)
        colours, self.height, self.width = image_shape
        channels = list(channels)[: halvings(self.height, self.width, len(channels))][::-1]
        rows, columns = base_size(self.height, self.width, len(channels))
        layers: list[nn.Module] = [nn.Linear(inputs, channels[0] * rows * columns), nn.SiLU(), nn.Unflatten(1, (channels[0], rows, columns))]
        for before, after in pairwise([channels[0], *channels]):
            layers += [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(before, after, 3, padding=1), nn.SiLU()]
            layers += [nn.Conv2d(after, after, 3, padding=1), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], colours, 1))
        keep_spread(self.layers[:-1])
        nn.init.normal_(self.layers[-1].weight, std=FIRST_LOGITS * channels[-1] ** -0.5)  # type: ignore[arg-type]
        nn.init.zeros_(self.layers[-1].bias)  # type: ignore[arg-type]

    def forward(self, latents: Tensor) -> Tensor:
        return self.layers(latents)[..., : self.height, : self.width]
