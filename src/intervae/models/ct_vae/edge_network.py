"""Edge scores of CT-VAE as printed (Gendron et al. 2023, Eq. 3): an MLP of each pair of nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SLOPE = 0.01  # negative slope of the leaky ReLU


class PairMLP(nn.Module):
    """alpha_ij = MLP_a([L_xi, L_xj]): one hidden layer, one network per action and for none.

    The first layer on [L_xi, L_xj] is the sum of one map of L_xi and one of L_xj.

    Arguments:
        networks: number A + 1 of networks; number 0 is for no action.
        width: features per node [w].
        hidden: hidden units [h]; n^2 times h numbers per graph.
    """

    def __init__(self, networks: int, width: int, hidden: int) -> None:
        super().__init__()
        scale = (2 * width) ** -0.5
        self.target = nn.Parameter(torch.randn(networks, width, hidden) * scale)
        self.source = nn.Parameter(torch.randn(networks, width, hidden) * scale)
        self.bias = nn.Parameter(torch.zeros(networks, 1, hidden))
        self.out = nn.Parameter(torch.randn(networks, hidden) * hidden**-0.5)
        self.out_bias = nn.Parameter(torch.zeros(networks, 1, 1))

    def forward(self, nodes: Tensor, network: Tensor | None) -> Tensor:
        """Return log-odds (B, G, n, n) of all edges i <- j.

        Arguments:
            nodes: (B, n, w).
            network: numbers of the networks, (B,) or (1,); None for all.
        """
        if network is None:
            target = torch.einsum("bnw,awh->banh", nodes, self.target) + self.bias
            source = torch.einsum("bnw,awh->banh", nodes, self.source)
            out, out_bias = self.out[None], self.out_bias[None]
        else:
            target = (nodes @ self.target[network] + self.bias[network])[:, None]
            source = (nodes @ self.source[network])[:, None]
            out, out_bias = self.out[network][:, None], self.out_bias[network][:, None]
        hidden = functional.leaky_relu(target[:, :, :, None] + source[:, :, None], SLOPE)
        return (hidden @ out[:, :, None, :, None])[..., 0] + out_bias
