"""The mask layer of CausalVAE: the networks g_i of Eq. 2, z_i = g_i(A_i ∘ z) + eps_i.

The layer returns g_i only; models/causal.py adds the noise eps_i.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.errors import UsageError


class MaskLayer(nn.Module):
    """Networks g_1 ... g_n of the parents of each variable, evaluated together.

    Arguments:
        n: number of variables.
        k: latent dims of each variable.
        hidden: units of each hidden layer.
        parents: input of g_i: "vector", each parent times its edge weight, n * k numbers (the
            paper), or "sum", their sum over parents, k numbers (the authors' code).
        depth: number of hidden layers, with ELU.

    `layer_weights[l]` is (n, in, out) and `layer_biases[l]` (n, 1, out); row i belongs to g_i.
    """

    def __init__(
        self,
        n: int,
        k: int,
        hidden: int = 32,
        parents: Literal["vector", "sum"] = "vector",
        depth: int = 1,
    ) -> None:
        super().__init__()
        if parents not in ("vector", "sum"):
            raise UsageError(
                f"parents={parents!r} is unknown; "
                "use 'vector' (the paper) or 'sum' (the authors' code)."
            )
        if min(n, k, hidden, depth) < 1:
            raise UsageError(
                "a mask layer needs n, k, hidden and depth of at least 1, "
                f"not n={n}, k={k}, hidden={hidden}, depth={depth}."
            )
        self.n, self.k, self.hidden, self.parents, self.depth = n, k, hidden, parents, depth
        widths = [n * k if parents == "vector" else k, *[hidden] * depth, k]
        pairs = list(pairwise(widths))
        self.layer_weights = nn.ParameterList(
            nn.Parameter(torch.empty(n, fan_in, fan_out)) for fan_in, fan_out in pairs
        )
        self.layer_biases = nn.ParameterList(
            nn.Parameter(torch.empty(n, 1, fan_out)) for _, fan_out in pairs
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise each network as a stack of nn.Linear."""
        for weight, bias in zip(self.layer_weights, self.layer_biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, z: Tensor, weights: Tensor) -> Tensor:
        """Return g (B, n, k) of z (B, n, k) and weights (n, n).

        Row i does not depend on z_j, bit for bit, if weights[j, i] = 0.
        """
        return self._evaluate(z, weights, slice(None)).movedim(0, 1)

    def forward_one(self, i: int, z: Tensor, weights: Tensor) -> Tensor:
        """Return g_i (B, k): row i of `forward` up to rounding, which differs between batches."""
        return self._evaluate(z, weights, slice(i, i + 1)).squeeze(0)

    def _evaluate(self, z: Tensor, weights: Tensor, which: slice) -> Tensor:
        """Return the networks `which` of z (B, n, k), as (networks, B, k).

        The edge weights multiply the first layer instead of z, which saves n masked copies of z:
        sum_j (A_ji z_j) W_j = z (A_ji W_j). "sum" has one W for all j. A missing edge multiplies by
        0, so that its weight still has a gradient.
        """
        edges = weights.mT[which]  # (networks, n), the parents of each
        first, *rest = [w[which] for w in self.layer_weights]
        biases = [b[which] for b in self.layer_biases]
        # (networks, n or 1, k, hidden)
        per_parent = first.reshape(len(edges), -1, self.k, first.shape[-1])
        masked = (edges[:, :, None, None] * per_parent).reshape(len(edges), self.n * self.k, -1)
        # (networks, B, n * k), without copies
        inputs = z.reshape(z.shape[0], -1).expand(len(edges), -1, -1)
        out = torch.baddbmm(biases[0], inputs, masked)
        for weight, bias in zip(rest, biases[1:], strict=True):
            out = torch.baddbmm(bias, functional.elu(out), weight)
        return out
