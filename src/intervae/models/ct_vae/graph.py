"""The causal graph of CT-VAE (Gendron et al. 2023, 3.4, Eq. 3, 4 and 12): edge networks, the
intervention mask, and graphs sampled from them.

Every edge leads from a variable L_x (code before) to a variable L_y (code after), so the graph is
acyclic by construction.

Shapes: B images, n positions of K codebooks with S codes, A actions, G actions evaluated (1, or
all A), w features per node. `edges[b, g, i, j]` is the edge i <- j: row i holds the parents of y_i.
Actions are numbered from 0; NO_ACTION stands for none.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.models.ct_vae.edge_network import PairMLP
from intervae.models.ct_vae.layers import FeedForward, plain_norm

NO_ACTION = -1  # the paper's empty set
NEVER = -30.0  # log-odds of an event that is never sampled
LARGEST_LOG_ODDS = 6.0  # of an edge; certain edges can still be unlearned
INITIAL_LOG_ODDS = 3.0  # of an edge; sparse graphs learn slowly


class GraphNoise(NamedTuple):
    """Random numbers of one forward pass; all G actions share them, so that they are comparable."""

    edges: Tensor  # (B, n, n) uniform in (0, 1)
    mask: Tensor  # (B, n) uniform in (0, 1)
    z: Tensor  # (B, n, z) standard normal

    def rows(self, rows: slice) -> GraphNoise:
        return GraphNoise(*(part[rows] for part in self))

    def scaled(self, scale: Tensor) -> GraphNoise:
        """Return noise whose log-odds are multiplied by `scale` (); 0: the most probable graph."""
        edges, mask = ((scale * part.logit(1e-6)).sigmoid() for part in (self.edges, self.mask))
        return GraphNoise(edges, mask, self.z)


class TransitionGraph(NamedTuple):
    """Log-odds and values of edges and of the intervention mask.

    Values are 0 or 1 in a sampled graph, and probabilities in an expected one.
    """

    edge_logits: Tensor  # (B, G, n, n)
    edges: Tensor  # (B, G, n, n)
    mask_logits: Tensor  # (B, G, n)
    mask: Tensor  # (B, G, n)


def sample_bernoulli(logits: Tensor, uniform: Tensor) -> Tensor:
    """Return values in {0, 1} with these log-odds, by the straight-through Gumbel trick.

    The gradient is that of the relaxed sample, for values 0 as well as 1.
    """
    shifted = logits + torch.logit(uniform, eps=1e-6)
    soft = torch.sigmoid(shifted)
    return (shifted > 0).to(logits.dtype) + (soft - soft.detach())


class GraphNetwork(nn.Module):
    """p(graph | codes before, action): one edge network per action and one for no action.

    Arguments:
        positions: number n of variables; the first n / K belong to the first codebook.
        codebooks, codes, actions: K, S and A.
        width: features per node [w].
        hidden: hidden units of the feed-forward layers, in multiples of w.
        edge_width: features in which an edge network compares two nodes.
        noise: dims of z.
        edge_network: "product" of two linear maps, or "mlp" of each pair with `edge_width` units.
        discrete: whether graphs without noise are the most probable ones, of edges and masks of 0
            or 1, instead of the expected ones.
    """

    def __init__(
        self,
        positions: int,
        codebooks: int,
        codes: int,
        actions: int,
        *,
        width: int,
        hidden: int,
        edge_width: int,
        noise: int,
        edge_network: str = "product",
        discrete: bool = False,
    ) -> None:
        super().__init__()
        self.discrete = discrete
        self.positions, self.codebooks, self.codes = positions, codebooks, codes
        self.actions, self.noise = actions, noise
        self.code = nn.Parameter(torch.randn(codebooks * codes, width))
        self.place = nn.Parameter(torch.randn(positions, width))
        self.describe = FeedForward(width, hidden)
        self.describe_norm = plain_norm(width)
        self.edge_mlp = None
        if edge_network == "mlp":
            self.edge_mlp = PairMLP(actions + 1, width, edge_width)
        else:  # edge networks, number 0 for no action: log-odds F L_xi . G L_xj + bias
            shape = (actions + 1, width, edge_width)
            self.edge_target = nn.Parameter(torch.randn(shape) / width**0.5)
            self.edge_source = nn.Parameter(torch.randn(shape) / width**0.5)
            self.edge_bias = nn.Parameter(torch.full((actions + 1, 1, 1), INITIAL_LOG_ODDS))
        self.edge_place = None
        if discrete:
            self.edge_place = nn.Parameter(torch.zeros(actions + 1, positions, positions))
        self.mask_action = nn.Parameter(torch.randn(actions, width) / width**0.5)
        self.mask_place = nn.Parameter(torch.zeros(actions, positions))

    def nodes(self, codes: Tensor) -> Tensor:
        """Return features (B, n, w) of the variables L_x: code numbers (B, n) and positions."""
        book = torch.arange(self.positions, device=codes.device)
        book = book // (self.positions // self.codebooks)
        # embedding(), as the gradient of indexing adds up equal codes one by one on a GPU
        embedded = functional.embedding(book * self.codes + codes, self.code) + self.place
        return self.describe_norm(self.describe(embedded))

    def draw_noise(
        self, batch: int, generator: torch.Generator | None, device: torch.device
    ) -> GraphNoise:
        """Return the random numbers of one forward pass for `batch` images."""
        n = self.positions
        return GraphNoise(
            torch.rand(batch, n, n, generator=generator, device=device),
            torch.rand(batch, n, generator=generator, device=device),
            torch.randn(batch, n, self.noise, generator=generator, device=device),
        )

    def median_noise(self, batch: int, device: torch.device) -> GraphNoise:
        """Return noise under which every edge and mask has its most probable value."""
        n = self.positions
        half = torch.full((1, 1, 1), 0.5, device=device)
        return GraphNoise(
            half.expand(batch, n, n),
            half[0].expand(batch, n),
            torch.zeros(batch, n, self.noise, device=device),
        )

    def graph(
        self,
        nodes: Tensor,
        action: Tensor | None,
        noise: GraphNoise | None = None,
        *,
        with_no_action: bool = False,
    ) -> TransitionGraph:
        """Return a sampled graph, without `noise` the expected (or the most probable) one.

        Arguments:
            nodes: (B, n, w).
            action: (B,) numbers, NO_ACTION allowed; None for all A.
            with_no_action: with action=None, also evaluate no action, first; then G = A + 1.
        """
        if noise is None and self.discrete:
            noise = self.median_noise(len(nodes), nodes.device)
        if noise is None:
            return self.expected_graph(nodes, action, with_no_action=with_no_action)
        return self.sample_graph(nodes, action, noise, with_no_action=with_no_action)

    def sample_graph(
        self,
        nodes: Tensor,
        action: Tensor | None,
        noise: GraphNoise,
        *,
        with_no_action: bool = False,
    ) -> TransitionGraph:
        """Return sampled graphs (Eq. 3, 4): first the mask, then the edges given the mask."""
        mask_logits, without, under = self._logits_of_graph(nodes, action, with_no_action)
        mask = sample_bernoulli(mask_logits, noise.mask[:, None])
        edge_logits = without + mask[..., None] * (under - without)
        edges = sample_bernoulli(edge_logits, noise.edges[:, None])
        return TransitionGraph(edge_logits, edges, mask_logits, mask)

    def expected_graph(
        self, nodes: Tensor, action: Tensor | None, *, with_no_action: bool = False
    ) -> TransitionGraph:
        """Return graphs whose edges are gated by their probability (no sampling).

        P(edge) = r P(edge under the action) + (1 - r) P(edge under none), r = P(mask = 1).
        """
        mask_logits, without, under = self._logits_of_graph(nodes, action, with_no_action)
        mask = mask_logits.sigmoid()
        edges = torch.lerp(without.sigmoid(), under.sigmoid(), mask[..., None])
        return TransitionGraph(edges.logit(), edges, mask_logits, mask)

    def _logits_of_graph(
        self, nodes: Tensor, action: Tensor | None, with_no_action: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-odds of the mask (B, G, n), and of edges under no action and each action."""
        mask_logits = self._mask_logits(nodes, action)  # (B, G, n)
        if action is not None:
            without = self._edge_logits(nodes, torch.zeros_like(action[:1]))
            return mask_logits, without, self._edge_logits(nodes, action + 1)
        edge_logits = self._edge_logits(nodes, None)  # (B, A + 1, n, n)
        if not with_no_action:
            return mask_logits, edge_logits[:, :1], edge_logits[:, 1:]
        never = torch.full_like(mask_logits[:, :1], NEVER)
        return torch.cat([never, mask_logits], dim=1), edge_logits[:, :1], edge_logits

    def _mask_logits(self, nodes: Tensor, action: Tensor | None) -> Tensor:
        """Return log-odds that an action intervenes on each variable, R of Eq. 4, (B, G, n)."""
        if action is None:
            return (nodes @ self.mask_action.T).transpose(1, 2) + self.mask_place
        number = action.clamp(min=0)
        logits = (nodes @ self.mask_action[number][..., None])[..., 0] + self.mask_place[number]
        never = torch.full_like(logits, NEVER)  # no action intervenes on nothing
        return torch.where((action == NO_ACTION)[:, None], never, logits)[:, None]

    def _edge_logits(self, nodes: Tensor, network: Tensor | None) -> Tensor:
        """Return log-odds of all edges i <- j, (B, G, n, n).

        Arguments:
            network: numbers of the edge networks, (B,) or (1,); None for all A + 1.
        """
        return LARGEST_LOG_ODDS * torch.tanh(self._edge_scores(nodes, network) / LARGEST_LOG_ODDS)

    def _edge_scores(self, nodes: Tensor, network: Tensor | None) -> Tensor:
        """Return log-odds before they are bounded, (B, G, n, n)."""
        scores = self._pair_scores(nodes, network)
        if self.edge_place is None:
            return scores
        return scores + (self.edge_place if network is None else self.edge_place[network][:, None])

    def _pair_scores(self, nodes: Tensor, network: Tensor | None) -> Tensor:
        if self.edge_mlp is not None:
            return self.edge_mlp(nodes, network)
        if network is None:
            target = torch.einsum("bnw,awe->bane", nodes, self.edge_target)
            source = torch.einsum("bnw,awe->bane", nodes, self.edge_source)
            bias: Tensor = self.edge_bias
        else:
            target = (nodes @ self.edge_target[network])[:, None]
            source = (nodes @ self.edge_source[network])[:, None]
            bias = self.edge_bias[network][:, None]
        return target @ source.transpose(2, 3) / target.shape[3] ** 0.5 + bias
