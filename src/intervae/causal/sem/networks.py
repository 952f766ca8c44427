"""Neural mechanisms of a structural equation model: one small network per child.

The networks of `SEM(form="mlp")` in equations.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

REFERENCE_POINTS = 256  # fixed draws of N(0, I) on which the output scale is measured
SMALLEST_VARIANCE = 1e-8  # added to the output variance, for networks with constant output


class MechanismNetworks(nn.Module):
    """f_i(z) = (g_i(e_i o z) - g_i(0)) / s_i with g_i(x) = v_i^T tanh(W_i x + b_i).

    s_i is the standard deviation of g_i over fixed draws of N(0, I), with all allowed edges at
    strength 1. It replaces the paper's batch norm as the fixed output scale that the
    identifiability theorem needs, and is the same in training and evaluation. Edge strengths e_i
    do not enter s_i. A child without edges has f_i = 0.

    Arguments:
        allowed: (d, d) of 0 and 1; `allowed[j, i]` allows j -> i. C variables have parents.
        hidden: hidden units of each network.
    """

    allowed: Tensor
    effects: Tensor
    reference: Tensor

    def __init__(self, allowed: Tensor, hidden: int) -> None:
        super().__init__()
        d, effects = len(allowed), allowed.sum(0).nonzero().flatten()
        self.d, self.hidden, self.count = d, hidden, len(effects)
        self.register_buffer("allowed", allowed.clone(), persistent=False)
        self.register_buffer("effects", effects, persistent=False)
        reference = torch.randn(REFERENCE_POINTS, d, generator=torch.Generator().manual_seed(0))
        self.register_buffer("reference", reference, persistent=False)
        bounds = allowed.sum(0)[effects].rsqrt()[:, None]  # (C, 1), number of parents ** -0.5
        self.first = nn.Parameter(
            (2 * torch.rand(self.count, d, hidden) - 1)
            * bounds[..., None]
            * allowed.mT[effects][..., None]
        )
        self.bias = nn.Parameter((2 * torch.rand(self.count, hidden) - 1) * bounds)
        self.last = nn.Parameter((2 * torch.rand(self.count, hidden) - 1) / math.sqrt(hidden))

    def forward(self, z: Tensor, strengths: Tensor) -> Tensor:
        """z (..., d) and strengths (d, d) to f (..., d)."""
        at_zero = (torch.tanh(self.bias) * self.last).sum(-1)
        out = (self._units(z, strengths) * self.last).sum(-1)  # (..., C)
        out = (out - at_zero) * self._inverse_scale()
        return z.new_zeros(z.shape).index_copy(-1, self.effects, out)

    def jacobian(self, z: Tensor, strengths: Tensor) -> Tensor:
        """(..., d, d): [i, j] = d f_i / d z_j at z (..., d)."""
        slope = 1 - self._units(z, strengths).square()  # (..., C, hidden)
        slope = slope * self.last * self._inverse_scale()[:, None]
        rows = torch.einsum("...ch,cjh->...cj", slope, self._masked(strengths))
        return z.new_zeros(*z.shape, self.d).index_copy(-2, self.effects, rows)

    def _masked(self, strengths: Tensor) -> Tensor:
        return strengths.mT.index_select(0, self.effects)[..., None] * self.first  # (C, d, hidden)

    def _units(self, z: Tensor, strengths: Tensor) -> Tensor:
        """Hidden units of all networks, (..., C, hidden), by one product."""
        weights = self._masked(strengths).movedim(0, 1).reshape(self.d, -1)  # (d, C * hidden)
        return torch.tanh((z @ weights).reshape(*z.shape[:-1], self.count, self.hidden) + self.bias)

    def _inverse_scale(self) -> Tensor:
        """1 / s, (C,)."""
        out = (self._units(self.reference, self.allowed) * self.last).sum(-1)  # (points, C)
        return ((out - out.mean(0)).square().mean(0) + SMALLEST_VARIANCE).rsqrt()
