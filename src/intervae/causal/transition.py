"""The causal transition layer of CT-VAE (Gendron et al. 2023, 3.4 and 3.5, Eq. 2-15): which codes a picture has after an action, by a graph over its
code places that is drawn for every picture and action.

Every edge starts at a variable L_x before and ends at a variable L_y after, so the graph has no circles by construction. What y_i is depends on its
parents alone: the x_j with an edge, y_i's own place, the action (which reaches every node) and, where asked for, noise.

Shapes: B pictures, n places of K codebooks with S codes, A actions, G of them asked about (1, or all A), w features. `edges[b, g, i, j]` is the edge
i <- j: row i holds the parents of y_i. Actions count from 0; NONE is no action.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

NONE = -1  # the number of no action, the paper's empty set
SHARPEST = 16.0  # largest attention score, so that no exponential overflows
STAY = 3.0  # at the start, how much more likely a place is to keep its code, in nats
OPEN = 3.0  # log-odds of an edge at the start: a graph that shows little teaches little
MOST_WEIGHTS = {
    "cpu": 2**24,
    "cuda": 2**27,
}  # attention weights held at once; beyond them pictures are taken in turns and recomputed for the gradient


class Draw(NamedTuple):
    """What is random in one pass; the same for all G actions, so that they are compared on equal terms."""

    edges: Tensor  # (B, n, n) in (0, 1)
    mask: Tensor  # (B, n) in (0, 1)
    noise: Tensor  # (B, n, z) standard normal


class Graph(NamedTuple):
    """Log-odds and values in {0, 1} of the edges and of the intervention mask; gradients of the values are those of a relaxation."""

    edge_logits: Tensor  # (B, G, n, n)
    edges: Tensor  # (B, G, n, n)
    mask_logits: Tensor  # (B, G, n)
    mask: Tensor  # (B, G, n)


class Score(NamedTuple):
    """What a batch of transitions costs under each of G actions."""

    log_likelihood: Tensor  # (B, G) of all codes after together
    kl: Tensor  # (B, G) Eq. 11-13
    norm: Tensor  # (B, G) Eq. 14
    dependency: Tensor  # (B, G) Eq. 15


# ---- the mathematics of graphs --------------------------------------------------------------------------------------
def bernoulli(logits: Tensor, uniform: Tensor | None, temperature: float = 1.0) -> Tensor:
    """Values in {0, 1} with these log-odds: drawn by `uniform` (Gumbel trick), or without it the most probable ones.

    The gradient is that of the relaxed draw (straight through), for what came out 0 as for what came out 1.
    """
    shifted = logits if uniform is None else logits + torch.logit(uniform, eps=1e-6)
    soft = torch.sigmoid(shifted / temperature)
    return (shifted > 0).to(logits.dtype) + (soft - soft.detach())


def bernoulli_kl(logits: Tensor, prior: float) -> Tensor:
    """KL(Bernoulli(sigmoid(logits)) || Bernoulli(prior)) of each edge (Eq. 11-13), at least 0."""
    probability = torch.sigmoid(logits)
    present, absent = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    return probability * (present - math.log(prior)) + (1 - probability) * (absent - math.log1p(-prior))


def log_no_parents(logits: Tensor) -> Tensor:
    """log prod_j (1 - sigmoid(logits_ij)) of each node (Eq. 15), as a sum of logs: (..., n, n) to (..., n)."""
    return functional.logsigmoid(-logits).sum(-1)


def dependency_loss(logits: Tensor) -> Tensor:
    """sum_i -log P(y_i has a parent), (..., n, n) to (...): Eq. 15 in log space, which neither underflows nor loses its gradient."""
    empty = log_no_parents(logits).clamp(max=-1e-6)
    return -torch.log(-torch.expm1(empty)).sum(-1)


# ---- the layer ------------------------------------------------------------------------------------------------------
class CausalTransition(nn.Module):
    """p(L_y | L_x, a) with a graph of its own for every picture and action.

    Arguments:
        places: the number n of variables; the first n / K belong to the first codebook.
        width: features of a node [w].
        heads, rounds: of the attention that reads the parents; every round reads L_x anew, knowing what the last one found.
        edge_width: features in which two nodes are compared by an edge network.
        noise: dims of z ~ N(0, 1) at every node; 0 for none.
        temperature: of the relaxation that gives edges their gradients.
        prior: of an edge.
    """

    def __init__(
        self,
        places: int,
        codebooks: int,
        codes: int,
        actions: int,
        *,
        width: int = 128,
        heads: int = 4,
        rounds: int = 2,
        edge_width: int = 32,
        noise: int = 0,
        temperature: float = 1.0,
        prior: float = 0.5,
    ) -> None:
        super().__init__()
        self.places, self.codebooks, self.codes, self.actions = places, codebooks, codes, actions
        self.heads, self.noise, self.temperature, self.prior = heads, noise, temperature, prior
        self.code = nn.Parameter(torch.randn(codebooks * codes, width))
        self.place = nn.Parameter(torch.randn(places, width))
        self.describe = FeedForward(width)
        self.describe_norm = nn.LayerNorm(width)
        # edge networks, number 0 for no action: sigmoid(tanh(F L_xi) . tanh(G L_xj) + bias)
        self.edge_target = nn.Parameter(torch.randn(actions + 1, width, edge_width) / width**0.5)
        self.edge_source = nn.Parameter(torch.randn(actions + 1, width, edge_width) / width**0.5)
        self.edge_bias = nn.Parameter(torch.full((actions + 1, 1, 1), OPEN))
        self.mask_action = nn.Parameter(torch.randn(actions, width) / width**0.5)
        self.mask_place = nn.Parameter(torch.zeros(actions, places))
        # the transition itself
        self.action = nn.Parameter(torch.randn(actions + 1, width))
        self.goal = nn.Parameter(torch.randn(places, width))  # of a variable after
        self.own = nn.Linear(width, width, bias=False)
        self.chance = nn.Linear(noise, width, bias=False) if noise else None
        self.begin = FeedForward(width)
        self.rounds = nn.ModuleList(ReadParents(width, heads) for _ in range(rounds))
        self.last_norm = nn.LayerNorm(width)
        self.head = nn.Parameter(torch.randn(codebooks, width, codes) / width**0.5 * 0.1)
        self.head_bias = nn.Parameter(torch.zeros(codebooks, 1, codes))
        self.stay = nn.Linear(width, 1)
        nn.init.zeros_(self.stay.weight)
        nn.init.constant_(self.stay.bias, STAY)

    def nodes(self, codes: Tensor) -> Tensor:
        """Code numbers (B, n) to descriptions of the variables L_x, code and place, (B, n, w); none knows of another."""
        book = torch.arange(self.places, device=codes.device) // (self.places // self.codebooks)
        known = self.code[book * self.codes + codes] + self.place
        return self.describe_norm(self.describe(known))

    def draw(self, batch: int, generator: torch.Generator | None, device: torch.device) -> Draw:
        n = self.places
        return Draw(
            torch.rand(batch, n, n, generator=generator, device=device),
            torch.rand(batch, n, generator=generator, device=device),
            torch.randn(batch, n, self.noise, generator=generator, device=device),
        )

    # ---- the graph --------------------------------------------------------------------------------------------------
    def graph(self, nodes: Tensor, action: Tensor | None, draw: Draw | None = None) -> Graph:
        """The graph of each picture, drawn, or without `draw` the most probable one (Eq. 3, 4).

        Arguments:
            nodes: (B, n, w).
            action: (B,) numbers, NONE among them if need be; None asks about all A.
        """
        mask_logits = self._mask_logits(nodes, action)  # (B, G, n)
        mask = bernoulli(mask_logits, None if draw is None else draw.mask[:, None], self.temperature)
        without = self._edge_logits(nodes, torch.zeros(1, dtype=torch.int64, device=nodes.device))  # shared by all actions, (B, 1, n, n)
        under = self._edge_logits(nodes, None if action is None else action + 1)  # (B, G, n, n)
        edge_logits = without + mask[..., None] * (under - without)
        edges = bernoulli(edge_logits, None if draw is None else draw.edges[:, None], self.temperature)
        return Graph(edge_logits, edges, mask_logits, mask)

    def _mask_logits(self, nodes: Tensor, action: Tensor | None) -> Tensor:
        """Log-odds that the action intervenes on each variable, R of Eq. 4, (B, G, n); no action never does."""
        if action is None:
            return (nodes @ self.mask_action.T).transpose(1, 2) + self.mask_place
        known = action.clamp(min=0)
        logits = (nodes @ self.mask_action[known][..., None])[..., 0] + self.mask_place[known]
        return torch.where((action == NONE)[:, None], torch.full_like(logits, -30.0), logits)[:, None]

    def _edge_logits(self, nodes: Tensor, network: Tensor | None) -> Tensor:
        """Log-odds of all edges i <- j by the networks asked for, (B, G, n, n): only those of the batch's actions (B,), one (1,), or all of None."""
        if network is None:
            target = torch.einsum("bnw,awe->bane", nodes, self.edge_target[1:])
            source = torch.einsum("bnw,awe->bane", nodes, self.edge_source[1:])
            bias = self.edge_bias[1:]
        else:
            target = (nodes @ self.edge_target[network])[:, None]
            source = (nodes @ self.edge_source[network])[:, None]
            bias = self.edge_bias[network][:, None]
        return torch.tanh(target) @ torch.tanh(source).transpose(2, 3) / target.shape[3] ** 0.5 + bias  # bounded: certain edges can be unlearned

    # ---- the transition ---------------------------------------------------------------------------------------------
    def logits(self, codes: Tensor, nodes: Tensor, edges: Tensor, action: Tensor | None, noise: Tensor | None = None) -> Tensor:
        """Log-odds of every code at every place after the action (Eq. 2), (B, G, n, S).

        Arguments:
            codes: (B, n) before.
            edges: (B, G, n, n), or (n, n) the same for all.
            action: (B,) numbers, or None for all A.
            noise: (B, n, z); None is its mean.
        """
        told = self.action[1:][None] if action is None else self.action[action + 1][:, None]  # (1, A, w) or (B, 1, w)
        edges = edges.expand(len(codes), told.shape[1], self.places, self.places)
        itself = edges.diagonal(dim1=2, dim2=3)[..., None]  # (B, G, n, 1): a variable is read along its own edge, like any other
        state = self.begin(self.goal + told[:, :, None]) + itself * self.own(nodes)[:, None]
        if self.chance is not None and noise is not None:
            state = state + self.chance(noise)[:, None]
        for read in self.rounds:
            state = read(state, nodes, edges)
        state = self.last_norm(state)
        by_book = state.unflatten(2, (self.codebooks, -1))  # (B, G, K, n / K, w)
        logits = (by_book @ self.head + self.head_bias).flatten(2, 3)
        same = (codes[:, None, :, None] == torch.arange(self.codes, device=codes.device)).to(logits.dtype)  # one_hot might wait for the host
        return logits + itself * self.stay(state) * same

    def score(self, codes: Tensor, after: Tensor, action: Tensor | None, draw: Draw | None = None) -> Score:
        """Joint log-likelihood of the codes after (B, n), given those before (B, n), under each action asked about, and what its graph costs."""
        asked = self.actions if action is None else 1
        rows = max(1, MOST_WEIGHTS.get(codes.device.type, 2**24) // (asked * self.heads * self.places**2))
        parts = [t.split(rows) for t in (codes, after)]
        actions = [None] * len(parts[0]) if action is None else list(action.split(rows))
        draws = [None] * len(parts[0]) if draw is None else [Draw(*some) for some in zip(*(t.split(rows) for t in draw), strict=True)]
        recompute = len(parts[0]) > 1 and torch.is_grad_enabled()
        found = []
        for given in zip(*parts, actions, draws, strict=True):
            found.append(checkpoint(self._score, *given, use_reentrant=False, preserve_rng_state=False) if recompute else self._score(*given))
        return Score(*(torch.cat(part) for part in zip(*found, strict=True)))

    def _score(self, codes: Tensor, after: Tensor, action: Tensor | None, draw: Draw | None) -> Score:
        nodes = self.nodes(codes)
        graph = self.graph(nodes, action, draw)
        logits = self.logits(codes, nodes, graph.edges, action, None if draw is None else draw.noise)
        found = joint_log_likelihood(logits, after)
        return Score(found, bernoulli_kl(graph.edge_logits, self.prior).sum((2, 3)), graph.edges.sum((2, 3)), dependency_loss(graph.edge_logits))

    def identity(self, codes: Tensor, draw: Draw | None = None) -> tuple[Tensor, Tensor]:
        """How far no action is from changing nothing: -log-likelihood of the same codes under the graph I (Eq. 7) and |M - I|^2 (Eq. 8), (B,)."""
        nodes, none = self.nodes(codes), torch.full_like(codes[:, 0], NONE)
        one = torch.eye(self.places, device=codes.device)
        logits = self.logits(codes, nodes, one, none, None if draw is None else draw.noise)
        edges = self.graph(nodes, none, draw).edges
        return -joint_log_likelihood(logits, codes)[:, 0], (edges[:, 0] - one).square().sum((1, 2))


def joint_log_likelihood(logits: Tensor, codes: Tensor) -> Tensor:
    """Log-odds (B, G, n, S) and codes (B, n) to the log-likelihood of all codes together (B, G): the sum over the places, not their mean."""
    chosen = logits.gather(3, codes[:, None, :, None].expand(-1, logits.shape[1], -1, -1))[..., 0]
    return (chosen - logits.logsumexp(3)).sum(2)


class FeedForward(nn.Module):
    """x + W leaky(V norm(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, state: Tensor) -> Tensor:
        return state + self.layers(state)


class ReadParents(nn.Module):
    """A round of attention from the variables after to those before, along the edges that the graph has, and a step of each by itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.query = nn.LayerNorm(width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.sharpness = nn.Parameter(torch.full((heads, 1, 1), 2.0))
        self.out = nn.Linear(width, width)
        self.think = FeedForward(width)

    def forward(self, state: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """state (B, G, n, w), nodes (B, n, w), edges (B, G, n, n) to the next state (B, G, n, w).

        weight_ij = edge_ij exp(s_ij) / (1 + sum_j edge_ij exp(s_ij)): multiplied, so that an edge that is 0 has a gradient, and bounded, so that
        a node without parents reads 0.
        """
        query = functional.normalize(self.query(self.norm(state)).unflatten(3, (self.heads, -1)), dim=4).transpose(2, 3)  # (B, G, h, n, w / h)
        key, value = self.key_value(nodes).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)[:, :, None].unbind(0)  # (B, 1, h, n, w / h)
        scores = query * self.sharpness.exp().clamp(max=SHARPEST) @ functional.normalize(key, dim=4).transpose(3, 4)
        weights = edges[:, :, None] * scores.exp_()  # (B, G, h, n, n)
        read = weights @ value / (1 + weights.sum(4, keepdim=True))
        return self.think(state + self.out(read.transpose(2, 3).flatten(3)))
