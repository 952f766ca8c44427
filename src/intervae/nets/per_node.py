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

    layer_of: Tensor

    def __init__(self, n: int, sizes: Sequence[int], activation: UnitActivation = "elu", limit: float | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.activation = _ACTIVATIONS[activation]
        pairs = list(pairwise(sizes))
        self.layer_weights = nn.ParameterList(nn.Parameter(torch.empty(n, fan_in, fan_out)) for fan_in, fan_out in pairs)
        self.layer_biases = nn.ParameterList(nn.Parameter(torch.empty(n, 1, fan_out)) for _, fan_out in pairs)
        sizes_of = torch.tensor([fan_in * fan_out for fan_in, fan_out in pairs[1:]], dtype=torch.int64)
        self.register_buffer("layer_of", torch.repeat_interleave(torch.eye(len(sizes_of)), sizes_of, dim=0), persistent=False)  # (S, layers)
        self.reset()

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Start anew, as n separate nn.Linear would; `generator` is one of the CPU."""
        for weight, bias in zip(self.layer_weights, self.layer_biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            for part in (weight, bias):
                part.copy_(torch.empty(part.shape).uniform_(-bound, bound, generator=generator))

    def forward(self, inputs: Tensor, first: Tensor | None = None, later: Sequence[Tensor] | None = None) -> Tensor:
        """Inputs (n, B, in), or (B, in) for all alike, to outputs (n, B, out).

        `first` (n, in, out) stands in the place of the first layer's weights, `later` in that of the others (`bounded`).
        """
        biases = list(self.layer_biases)
        first = self.layer_weights[0] if first is None else first
        out = torch.baddbmm(biases[0], inputs.expand(len(first), -1, -1), first)
        for weight, bias in zip(self.bounded()[0] if later is None else later, biases[1:], strict=True):
            out = torch.baddbmm(bias, self.activation(out), weight)
        return out

    def bounded(self) -> tuple[list[Tensor], Tensor]:
        """The weights (n, in, out) of all layers but the first, each network's within its limit; and the squared norms (n, layers) without it.

        All layers are treated in one go: on a GPU a step of small networks costs as much as it has operations.
        """
        weights = list(self.layer_weights)[1:]
        if not weights:
            return [], self.layer_weights[0].new_zeros(len(self.layer_weights[0]), 0)
        flat = torch.cat([weight.flatten(1) for weight in weights], dim=1)  # (n, S)
        squares = flat.square() @ self.layer_of  # (n, layers)
        if self.limit is None:
            return weights, squares
        factor = (squares / self.limit**2).clamp(min=1.0).rsqrt() @ self.layer_of.T
        parts = (flat * factor).split([weight[0].numel() for weight in weights], dim=1)
        return [part.unflatten(1, weight.shape[1:]) for part, weight in zip(parts, weights, strict=True)], squares
