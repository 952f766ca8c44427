"""The causal transition layer of CT-VAE (Gendron et al. 2023, 3.4 and 3.5, Eq. 2-15): which codes a picture has after an action, by a graph over its
code places that is drawn for every picture and action.

Every edge starts at a variable L_x before and ends at a variable L_y after, so the graph has no circles by construction. What y_i is depends on its
parents alone: the x_j with an edge, y_i's own place, the action (which reaches every node) and, where asked for, noise. Without a draw every edge is
as open as it is probable, and every x_j is a parent to some degree.

Shapes: B pictures, n places of K codebooks with S codes, A actions, G of them asked about (1, or all A), w features. `edges[b, g, i, j]` is the edge
i <- j: row i holds the parents of y_i. Actions count from 0; NONE is no action.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from intervae.causal.attention import gated_attention

NONE = -1  # the number of no action, the paper's empty set
SHARPEST = 16.0  # largest attention score, so that no exponential overflows
STAY = 3.0  # at the start, how much more likely a place is to keep its code, in nats
NEVER = -30.0  # log-odds that no draw overcomes
CERTAIN = 6.0  # largest log-odds of an edge
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
    """Log-odds and values of the edges and of the intervention mask: drawn, in {0, 1}, with the gradients of a relaxation, or their probabilities.

    The log-odds of edges are those of the mask that was drawn; without a draw, those that they have with every mask, weighed by its probability.
    """

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
    masked: Tensor  # (B, G) expected number of variables that are intervened on


class Modes(NamedTuple):
    """The three modes of training on the same pairs, found in one pass."""

    actions: Tensor  # (B, A) log-likelihood of the codes after under each action (Eq. 9 and 10)
    standard: Tensor  # (B,) log-likelihood that no action leaves the codes as they are (Eq. 6)
    identity_codes: Tensor  # (B,) Eq. 7
    identity_graph: Tensor  # (B,) Eq. 8: on how many edges the graph of no action and the identity differ, or are expected to
    kl: Tensor  # (B, 2) Eq. 11-13, of the graphs of no action and of the true one
    norm: Tensor  # (B, 2) Eq. 14
    dependency: Tensor  # (B, 2) Eq. 15
    masked: Tensor  # (B, 2) expected number of variables that are intervened on


# ---- the mathematics of graphs --------------------------------------------------------------------------------------
def bernoulli(logits: Tensor, uniform: Tensor, temperature: float = 1.0) -> Tensor:
    """Values in {0, 1} with these log-odds, drawn by `uniform` (Gumbel trick).

    The gradient is that of the relaxed draw (straight through), for what came out 0 as for what came out 1.
    """
    shifted = logits + torch.logit(uniform, eps=1e-6)
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
        hidden: features, in multiples of w, in between the two layers by which a node works on what it knows.
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
        hidden: int = 2,
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
        self.describe = FeedForward(width, hidden)
        self.describe_norm = plain_norm(width)
        # edge networks, number 0 for no action: log-odds F L_xi . G L_xj + bias, bounded
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
        self.begin = FeedForward(width, hidden)
        self.rounds = nn.ModuleList(ReadParents(width, heads, hidden) for _ in range(rounds))
        self.last_norm = plain_norm(width)
        self.head = nn.Parameter(torch.randn(codebooks, width, codes) / width**0.5 * 0.1)
        self.head_bias = nn.Parameter(torch.zeros(codebooks, 1, codes))
        self.stay = nn.Linear(width, 1)
        nn.init.zeros_(self.stay.weight)
        nn.init.constant_(self.stay.bias, STAY)

    def nodes(self, codes: Tensor) -> Tensor:
        """Code numbers (B, n) to descriptions of the variables L_x, code and place, (B, n, w); none knows of another."""
        book = torch.arange(self.places, device=codes.device) // (self.places // self.codebooks)
        # not self.code[...]: on a GPU its gradient would add up the thousands of places with the code of the background one after another
        known = functional.embedding(book * self.codes + codes, self.code) + self.place
        return self.describe_norm(self.describe(known))

    def draw(self, batch: int, generator: torch.Generator | None, device: torch.device) -> Draw:
        n = self.places
        return Draw(
            torch.rand(batch, n, n, generator=generator, device=device),
            torch.rand(batch, n, generator=generator, device=device),
            torch.randn(batch, n, self.noise, generator=generator, device=device),
        )

    # ---- the graph --------------------------------------------------------------------------------------------------
    def graph(self, nodes: Tensor, action: Tensor | None, draw: Draw | None = None, *, none: bool = False) -> Graph:
        """The graph of each picture (Eq. 3, 4), drawn; without `draw` every edge is as open as it is probable.

        P(edge) = r P(edge under the action) + (1 - r) P(edge under none), r the probability that a variable is intervened on.

        Arguments:
            nodes: (B, n, w).
            action: (B,) numbers, NONE among them if need be; None asks about all A.
            none: ask about no action too, before all others; then G = A + 1.
        """
        mask_logits = self._mask_logits(nodes, action)  # (B, G, n)
        if action is None:
            under = self._edge_logits(nodes, None)  # (B, A + 1, n, n)
            without, under = under[:, :1], under if none else under[:, 1:]
            mask_logits = torch.cat([torch.full_like(mask_logits[:, :1], NEVER), mask_logits], dim=1) if none else mask_logits
        else:
            without, under = (self._edge_logits(nodes, networks) for networks in (torch.zeros_like(action[:1]), action + 1))
        if draw is None:
            mask = mask_logits.sigmoid()
            edges = torch.lerp(without.sigmoid(), under.sigmoid(), mask[..., None])
            return Graph(edges.logit(), edges, mask_logits, mask)
        mask = bernoulli(mask_logits, draw.mask[:, None], self.temperature)
        edge_logits = without + mask[..., None] * (under - without)
        return Graph(edge_logits, bernoulli(edge_logits, draw.edges[:, None], self.temperature), mask_logits, mask)

    def _mask_logits(self, nodes: Tensor, action: Tensor | None) -> Tensor:
        """Log-odds that the action intervenes on each variable, R of Eq. 4, (B, G, n); no action never does."""
        if action is None:
            return (nodes @ self.mask_action.T).transpose(1, 2) + self.mask_place
        known = action.clamp(min=0)
        logits = (nodes @ self.mask_action[known][..., None])[..., 0] + self.mask_place[known]
        return torch.where((action == NONE)[:, None], torch.full_like(logits, NEVER), logits)[:, None]

    def _edge_logits(self, nodes: Tensor, network: Tensor | None) -> Tensor:
        """Log-odds of all edges i <- j by the networks asked for, (B, G, n, n): only those of the batch's actions (B,), one (1,), or all A + 1."""
        if network is None:
            target = torch.einsum("bnw,awe->bane", nodes, self.edge_target)
            source = torch.einsum("bnw,awe->bane", nodes, self.edge_source)
            bias: Tensor = self.edge_bias
        else:
            target = (nodes @ self.edge_target[network])[:, None]
            source = (nodes @ self.edge_source[network])[:, None]
            bias = self.edge_bias[network][:, None]
        free = target @ source.transpose(2, 3) / target.shape[3] ** 0.5 + bias
        return CERTAIN * torch.tanh(free / CERTAIN)  # bounded: certain edges can be unlearned

    # ---- the transition ---------------------------------------------------------------------------------------------
    def logits(self, codes: Tensor, nodes: Tensor, edges: Tensor, action: Tensor | None, noise: Tensor | None = None) -> Tensor:
        """Log-odds of every code at every place after the action (Eq. 2), (B, G, n, S).

        Arguments:
            codes: (B, n) before.
            edges: (B, G, n, n), or (n, n) the same for all.
            action: (B,) numbers, or None for all A.
            noise: (B, n, z); None is its mean.
        """
        begun = self._begun()  # (A + 1, n, w)
        return self._logits(codes, nodes, edges, begun[1:][None] if action is None else begun[action + 1][:, None], noise)

    def _begun(self) -> Tensor:
        """What every y_i starts from under no action and under each: its place and the action, (A + 1, n, w)."""
        return self.begin(self.goal + self.action[:, None])

    def _logits(self, codes: Tensor, nodes: Tensor, edges: Tensor, begun: Tensor, noise: Tensor | None) -> Tensor:
        """`logits` with edges that may be shared, and starts (1 or B, G, n, w)."""
        asked = begun.shape[1]
        edges = edges.expand(len(codes), asked, self.places, self.places)
        itself = edges.diagonal(dim1=2, dim2=3)[..., None]  # (B, G, n, 1): a variable is read along its own edge, like any other
        state = begun + itself * self.own(nodes)[:, None]
        if self.chance is not None and noise is not None:
            state = state + self.chance(noise)[:, None]
        for read in self.rounds:
            state = read(state, nodes, edges)
        state = self.last_norm(state)
        by_book = state.unflatten(2, (self.codebooks, -1))  # (B, G, K, n / K, w)
        logits = (by_book @ self.head + self.head_bias).flatten(2, 3)
        before = codes[:, None, :, None].expand(-1, asked, -1, -1)
        return logits.scatter_add(3, before, (itself * self.stay(state)).to(logits.dtype))

    def score(self, codes: Tensor, after: Tensor, action: Tensor | None, draw: Draw | None = None) -> Score:
        """Joint log-likelihood of the codes after (B, n), given those before (B, n), under each action asked about, and what its graph costs."""
        return Score(*self._in_turns(self._score, self.actions if action is None else 1, codes, after, action, draw))

    def modes(self, codes: Tensor, after: Tensor, action: Tensor, draw: Draw | None = None) -> Modes:
        """All that training asks of pairs (B, n), (B, n) and their actions (B,), in one pass over A + 2 questions for each."""
        return Modes(*self._in_turns(self._modes, self.actions + 2, codes, after, action, draw))

    def _in_turns(
        self, ask: Callable[..., tuple[Tensor, ...]], asked: int, codes: Tensor, after: Tensor, action: Tensor | None, draw: Draw | None
    ) -> list[Tensor]:
        """`ask` of as many pictures at once as memory allows, recomputed for the gradient where they are taken in turns."""
        rows = max(1, MOST_WEIGHTS.get(codes.device.type, 2**24) // (asked * self.heads * self.places**2))
        parts = [t.split(rows) for t in (codes, after)]
        actions = [None] * len(parts[0]) if action is None else list(action.split(rows))
        draws = [None] * len(parts[0]) if draw is None else [Draw(*some) for some in zip(*(t.split(rows) for t in draw), strict=True)]
        recompute = len(parts[0]) > 1 and torch.is_grad_enabled()
        found = []
        for given in zip(*parts, actions, draws, strict=True):
            found.append(checkpoint(ask, *given, use_reentrant=False, preserve_rng_state=False) if recompute else ask(*given))
        return [torch.cat(part) for part in zip(*found, strict=True)]

    def _score(self, codes: Tensor, after: Tensor, action: Tensor | None, draw: Draw | None) -> tuple[Tensor, ...]:
        nodes = self.nodes(codes)
        graph = self.graph(nodes, action, draw)
        logits = self.logits(codes, nodes, graph.edges, action, None if draw is None else draw.noise)
        return joint_log_likelihood(logits, after), *self._costs(graph.edge_logits, graph.edges, graph.mask_logits)

    def _costs(self, edge_logits: Tensor, edges: Tensor, mask_logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What graphs (B, G, n, n) and masks (B, G, n) cost: Eq. 11-13, 14, 15, and the size of the mask, (B, G) each."""
        divergence = bernoulli_kl(edge_logits, self.prior).sum((2, 3))
        return divergence, edges.sum((2, 3)), dependency_loss(edge_logits), mask_logits.sigmoid().sum(2)

    def _modes(self, codes: Tensor, after: Tensor, action: Tensor, draw: Draw | None) -> tuple[Tensor, ...]:
        nodes, one = self.nodes(codes), torch.eye(self.places, device=codes.device)
        graph = self.graph(nodes, None, draw, none=True)  # of no action, then of each
        edges = torch.cat([graph.edges, one.expand(len(codes), 1, -1, -1)], dim=1)
        begun = self._begun()
        logits = self._logits(codes, nodes, edges, torch.cat([begun, begun[:1]])[None], None if draw is None else draw.noise)
        wanted = torch.stack([codes, *[after] * self.actions, codes], dim=1)  # (B, A + 2, n)
        found = joint_log_likelihood(logits, wanted)
        of = torch.stack([torch.zeros_like(action), action + 1], dim=1)[..., None].expand(-1, -1, self.places)
        edges_of = of[..., None].expand(-1, -1, -1, self.places)
        costs = self._costs(graph.edge_logits.gather(1, edges_of), graph.edges.gather(1, edges_of), graph.mask_logits.gather(1, of))
        off = graph.edges[:, 0] - one
        wrong = off.abs() if draw is None else off.square()  # the same of 0 and 1, and of probabilities what is to be expected of those
        return found[:, 1:-1], found[:, 0], -found[:, -1], wrong.sum((1, 2)), *costs


def joint_log_likelihood(logits: Tensor, codes: Tensor) -> Tensor:
    """Log-odds (B, G, n, S) and codes (B, n), or (B, G, n), to the log-likelihood of all codes together (B, G): a sum over the places, no mean."""
    asked = (codes[:, None] if codes.ndim == 2 else codes).expand(logits.shape[:3])
    return -functional.cross_entropy(logits.flatten(0, 2), asked.flatten(), reduction="none").view(logits.shape[:3]).sum(2)


def plain_norm(width: int) -> nn.LayerNorm:
    """Without a scale and shift of its own, which the weights that follow can take over; on a GPU their gradients would cost a tenth of a step."""
    return nn.LayerNorm(width, elementwise_affine=False)


class FeedForward(nn.Module):
    """x + W silu(V norm(x))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        between = hidden * width
        self.layers = nn.Sequential(plain_norm(width), nn.Linear(width, between), nn.SiLU(), nn.Linear(between, width, bias=False))

    def forward(self, state: Tensor) -> Tensor:
        return state + self.layers(state)


class ReadParents(nn.Module):
    """A round of attention from the variables after to those before, along the edges that the graph has, and a step of each by itself."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm, self.query = plain_norm(width), nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.sharpness = nn.Parameter(torch.full((heads, 1, 1), 2.0))
        self.out = nn.Linear(width, width, bias=False)
        self.think = FeedForward(width, hidden)

    def forward(self, state: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """state (B, G, n, w), nodes (B, n, w), edges (B, G, n, n) to the next state (B, G, n, w).

        Questions and places are one axis, so that all questions about a picture share its keys and values.
        """
        query = self.query(self.norm(state)).flatten(1, 2)  # (B, G n, w)
        sharpness = self.sharpness.exp().clamp(max=SHARPEST)
        read = gated_attention(query, self.key_value(nodes), edges.flatten(1, 2), sharpness)
        return self.think(state + self.out(read).view_as(state))
