"""Small networks side by side, one for each node or latent, every layer of all of them in one batched product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

UnitActivation = Literal["sigmoid", "tanh", "elu", "relu"]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": functional.elu,
    "relu": torch.relu,
}


class PerNode(nn.Module):
    """n dense networks of one shape.

    Arguments:
        n: networks.
        sizes: inputs, hidden units of each layer, outputs.
        activation: between the layers.
        limit: largest norm of each layer's weights but the first; without one they are free.

    `layer_weights[l]` is (n, in, out) and `layer_biases[l]` (n, 1, out): row i belongs to network i alone.
    """

    def __init__(self, n: int, sizes: Sequence[int], activation: UnitActivation = "elu", limit: float | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.activation = _ACTIVATIONS[activation]
        pairs = list(pairwise(sizes))
        self.layer_weights = nn.ParameterList(nn.Parameter(torch.empty(n, fan_in, fan_out)) for fan_in, fan_out in pairs)
        self.layer_biases = nn.ParameterList(nn.Parameter(torch.empty(n, 1, fan_out)) for _, fan_out in pairs)
        self.reset()

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Start anew, as n separate nn.Linear would; `generator` is one of the CPU."""
        for weight, bias in zip(self.layer_weights, self.layer_biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            for part in (weight, bias):
                part.copy_(torch.empty(part.shape).uniform_(-bound, bound, generator=generator))

    def forward(self, inputs: Tensor, first: Tensor | None = None) -> Tensor:
        """Inputs (n, B, in), or (B, in) for all alike, to outputs (n, B, out); `first` (n, in, out) in the place of the first layer's weights."""
        biases = list(self.layer_biases)
        first = self.layer_weights[0] if first is None else first
        out = torch.baddbmm(biases[0], inputs.expand(len(first), -1, -1), first)
        for weight, bias in zip(self.later, biases[1:], strict=True):
            out = torch.baddbmm(bias, self.activation(out), weight)
        return out

    @property
    def later(self) -> list[Tensor]:
        """The weights (n, in, out) of all layers but the first, each network's within its limit."""
        weights = list(self.layer_weights)[1:]
        if self.limit is None:
            return weights
        return [weight / (weight.square().sum((1, 2), keepdim=True).sqrt() / self.limit).clamp(min=1.0) for weight in weights]
