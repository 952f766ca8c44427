"""Many small dense networks, one per node or latent, evaluated in one batched product per layer."""

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
        n: number of networks.
        sizes: inputs, hidden units of each layer, outputs.
        activation: between the layers.
        limit: largest norm of the weights of each layer after the first; None: no limit.

    `layer_weights[l]` is (n, in, out) and `layer_biases[l]` (n, 1, out); row i is network i.
    """

    layer_of_weight: Tensor

    def __init__(
        self,
        n: int,
        sizes: Sequence[int],
        activation: UnitActivation = "elu",
        limit: float | None = None,
    ) -> None:
        super().__init__()
        self.limit = limit
        self.activation = _ACTIVATIONS[activation]
        pairs = list(pairwise(sizes))
        self.layer_weights = nn.ParameterList(
            nn.Parameter(torch.empty(n, fan_in, fan_out)) for fan_in, fan_out in pairs
        )
        self.layer_biases = nn.ParameterList(
            nn.Parameter(torch.empty(n, 1, fan_out)) for _, fan_out in pairs
        )
        sizes_of = torch.tensor(
            [fan_in * fan_out for fan_in, fan_out in pairs[1:]], dtype=torch.int64
        )
        self.register_buffer(
            "layer_of_weight",
            torch.repeat_interleave(torch.eye(len(sizes_of)), sizes_of, dim=0),
            persistent=False,
        )  # (S, layers)
        self.reset()

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None = None) -> None:
        """Draw new weights, as n separate nn.Linear would; `generator` is a CPU one."""
        for weight, bias in zip(self.layer_weights, self.layer_biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            for tensor in (weight, bias):
                values = torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator)
                tensor.copy_(values)

    def forward(
        self, inputs: Tensor, first: Tensor | None = None, later: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Inputs (n, B, in), or shared (B, in), to outputs (n, B, out).

        `first` (n, in, out) replaces the weights of the first layer, `later` those of the others
        (`limited_weights`).
        """
        biases = list(self.layer_biases)
        first = self.layer_weights[0] if first is None else first
        out = torch.baddbmm(biases[0], inputs.expand(len(first), -1, -1), first)
        later = self.limited_weights()[0] if later is None else later
        for weight, bias in zip(later, biases[1:], strict=True):
            out = torch.baddbmm(bias, self.activation(out), weight)
        return out

    def limited_weights(self) -> tuple[list[Tensor], Tensor]:
        """Weights (n, in, out) of the layers after the first, scaled to `limit`.

        Also returns their squared norms (n, layers) before scaling. All layers are scaled together:
        small networks on a GPU are bound by kernel launches.
        """
        weights = list(self.layer_weights)[1:]
        if not weights:
            return [], self.layer_weights[0].new_zeros(len(self.layer_weights[0]), 0)
        flat = torch.cat([weight.flatten(1) for weight in weights], dim=1)  # (n, S)
        squares = flat.square() @ self.layer_of_weight  # (n, layers)
        if self.limit is None:
            return weights, squares
        factor = (squares / self.limit**2).clamp(min=1.0).rsqrt() @ self.layer_of_weight.T
        scaled = (flat * factor).split([weight[0].numel() for weight in weights], dim=1)
        return [
            flat_weight.unflatten(1, weight.shape[1:])
            for flat_weight, weight in zip(scaled, weights, strict=True)
        ], squares
