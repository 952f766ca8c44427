"""The mask layer, z_i = g_i(A_i ∘ z) + eps_i (CausalVAE Eq. 2): one small network per variable that sees its parents only."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.errors import UsageError


class MaskLayer(nn.Module):
    """g_1 ... g_n, evaluated all at once.

    Arguments:
        n: variables.
        k: latent dims of each.
        hidden: units of each hidden layer of each g_i.
        parents: what g_i sees: "vector", every parent times its edge weight, n * k numbers (the paper); or "sum", the weighted sum over
            parents, k numbers (the authors' code).
        depth: hidden layers of each g_i, with ELU.

    `layer_weights[l]` is (n, in, out) and `layer_biases[l]` (n, 1, out): row i belongs to g_i alone.
    """

    def __init__(self, n: int, k: int, hidden: int = 32, parents: Literal["vector", "sum"] = "vector", depth: int = 1) -> None:
        super().__init__()
        if parents not in ("vector", "sum"):
            raise UsageError(f"parents={parents!r} is unknown; use 'vector' (the paper) or 'sum' (the authors' code).")
        if min(n, k, hidden, depth) < 1:
            raise UsageError(f"a mask layer needs n, k, hidden and depth of at least 1, not n={n}, k={k}, hidden={hidden}, depth={depth}.")
        self.n, self.k, self.hidden, self.parents, self.depth = n, k, hidden, parents, depth
        widths = [n * k if parents == "vector" else k, *[hidden] * depth, k]
        pairs = list(pairwise(widths))
        self.layer_weights = nn.ParameterList(nn.Parameter(torch.empty(n, fan_in, fan_out)) for fan_in, fan_out in pairs)
        self.layer_biases = nn.ParameterList(nn.Parameter(torch.empty(n, 1, fan_out)) for _, fan_out in pairs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Each net as n separate nn.Linear stacks would start."""
        for weight, bias in zip(self.layer_weights, self.layer_biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, z: Tensor, weights: Tensor) -> Tensor:
        """z (B, n, k) and weights (n, n) to g (B, n, k). Row i is bit for bit the same whatever z_j is, where weights[j, i] = 0."""
        return self._evaluate(z, weights, slice(None)).movedim(0, 1)

    def one(self, i: int, z: Tensor, weights: Tensor) -> Tensor:
        """g_i alone, (B, k), for a walk over the graph: row i of `forward` to about 1e-6 in single precision.

        Not bit for bit: a matrix library adds in another order for one net than for n of them. Like `forward`, it depends on parents only.
        """
        return self._evaluate(z, weights, slice(i, i + 1)).squeeze(0)

    def _evaluate(self, z: Tensor, weights: Tensor, which: slice) -> Tensor:
        """The nets `which` of z (B, n, k), as (nets, B, k).

        The edge weights multiply the first layer instead of z: sum_j (A_ji z_j) W_j = z (A_ji W_j). That spares n masked copies of z, and
        the weighted sum over parents is the case of one W for all j. A missing edge is a multiplication by 0, not a choice, so that its
        weight still gets a gradient.
        """
        edges = weights.mT[which]  # (nets, n), the parents of each net
        first, *rest = [w[which] for w in self.layer_weights]
        biases = [b[which] for b in self.layer_biases]
        per_parent = first.reshape(len(edges), -1, self.k, first.shape[-1])  # (nets, n or 1, k, hidden)
        masked = (edges[:, :, None, None] * per_parent).reshape(len(edges), self.n * self.k, -1)
        inputs = z.reshape(len(z), -1).expand(len(edges), -1, -1)  # (nets, B, n * k), without copies
        out = torch.baddbmm(biases[0], inputs, masked)
        for weight, bias in zip(rest, biases[1:], strict=True):
            out = torch.baddbmm(bias, functional.elu(out), weight)
        return out
