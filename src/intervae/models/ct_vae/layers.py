"""Layers of CT-VAE's transition network: attention from codes after to their parents."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from intervae.models.ct_vae.attention import gated_attention

LARGEST_SHARPNESS = 16.0  # of attention scores, so that no exponential overflows


def plain_norm(width: int) -> nn.LayerNorm:
    """Return a layer norm without scale and shift, whose gradients are slow on a GPU."""
    return nn.LayerNorm(width, elementwise_affine=False)


class FeedForward(nn.Module):
    """x + W silu(V norm(x)), with `hidden` times `width` hidden units."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        units = hidden * width
        self.layers = nn.Sequential(
            plain_norm(width),
            nn.Linear(width, units),
            nn.SiLU(),
            nn.Linear(units, width, bias=False),
        )

    def forward(self, state: Tensor) -> Tensor:
        return state + self.layers(state)


class ParentAttention(nn.Module):
    """Attention from the variables after to those before, gated by edges, and a feed-forward."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.query = plain_norm(width), nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.sharpness = nn.Parameter(torch.full((heads, 1, 1), 2.0))
        self.out = nn.Linear(width, width, bias=False)
        self.think = FeedForward(width, hidden)

    def forward(self, state: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """Return the next state (B, G, n, w).

        Arguments:
            state: (B, G, n, w) of the variables after.
            nodes: (B, n, w) of the variables before.
            edges: (B, G, n, n).
        """
        # actions and positions as one axis, so that all G actions share keys and values
        query = self.query(self.norm(state)).flatten(1, 2)  # (B, G n, w)
        sharpness = self.sharpness.exp().clamp(max=LARGEST_SHARPNESS)
        read = gated_attention(query, self.key_value(nodes), edges.flatten(1, 2), sharpness)
        return self.think(state + self.out(read).view_as(state))
