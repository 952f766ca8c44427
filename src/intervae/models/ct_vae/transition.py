"""The causal transition layer of CT-VAE (Gendron et al. 2023, 3.4 and 3.5, Eq. 2, 6-10): codes
after an action, predicted along a graph.

In a sampled graph, y_i depends only on its parents x_j, on its position, on the action (which
reaches every node) and on the noise z. In an expected graph every x_j is a parent to some degree.

Shapes as in `graph.py`: B images, n positions, A actions, G actions evaluated, S codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from intervae.models.ct_vae.graph import GraphNetwork, GraphNoise
from intervae.models.ct_vae.layers import FeedForward, ParentAttention, plain_norm
from intervae.models.ct_vae.regularisers import (
    bernoulli_kl,
    dependency_loss,
    squared_no_parents,
)

INITIAL_STAY = 3.0  # log-odds that a position keeps its code, before training
MAX_WEIGHTS = {"cpu": 2**24, "cuda": 2**27}  # attention weights held in memory at once


class TransitionScore(NamedTuple):
    """Log-likelihood and graph regularisers of a batch of transitions under each of G actions."""

    log_likelihood: Tensor  # (B, G) joint, of all codes after
    kl: Tensor  # (B, G) Eq. 11-13
    norm: Tensor  # (B, G) Eq. 14
    dependency: Tensor  # (B, G) Eq. 15
    masked: Tensor  # (B, G) number of variables that the action intervenes on


class ModeScores(NamedTuple):
    """Log-likelihoods and losses of the three training modes on the same pairs."""

    actions: Tensor  # (B, A) log-likelihood of the codes after under each action (Eq. 9, 10)
    standard: Tensor  # (B,) log-likelihood of unchanged codes under no action (Eq. 6)
    identity_codes: Tensor  # (B,) Eq. 7
    identity_graph: Tensor  # (B,) Eq. 8, (expected) number of edges that differ from the identity
    kl: Tensor  # (B, 2) Eq. 11-13, of the graphs under no action and under the true one
    norm: Tensor  # (B, 2) Eq. 14
    dependency: Tensor  # (B, 2) Eq. 15
    masked: Tensor  # (B, 2) number of variables that the action intervenes on


class CausalTransition(GraphNetwork):
    """p(L_y | L_x, a), with a graph of its own for every image and action.

    Arguments:
        positions: number n of variables; the first n / K belong to the first codebook.
        codebooks, codes, actions: K, S and A.
        width: features per node [w].
        heads, rounds: of the attention to the parents.
        hidden: hidden units of the feed-forward layers, in multiples of w.
        edge_width: features in which an edge network compares two nodes.
        noise: dims of z ~ N(0, 1) per node; 0 for none.
        prior: prior probability of an edge.
        edge_network: see `GraphNetwork`.
        dependency_form: "log" or "squared", the form of Eq. 15.
        discrete: see `GraphNetwork`.
        masked_action: whether the action reaches only the variables whose mask is open; the others
            then have the mechanism of no action.
    """

    def __init__(
        self,
        positions: int,
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
        prior: float = 0.5,
        edge_network: str = "product",
        dependency_form: str = "log",
        discrete: bool = False,
        masked_action: bool = False,
    ) -> None:
        super().__init__(
            positions,
            codebooks,
            codes,
            actions,
            width=width,
            hidden=hidden,
            edge_width=edge_width,
            noise=noise,
            edge_network=edge_network,
            discrete=discrete,
        )
        self.masked_action = masked_action
        # numbers per pair of nodes that a forward pass holds in memory
        self.pair_numbers = max(heads, edge_width if edge_network == "mlp" else 0)
        self.dependency = dependency_loss if dependency_form == "log" else squared_no_parents
        self.heads, self.prior = heads, prior
        self.action = nn.Parameter(torch.randn(actions + 1, width))
        self.goal = nn.Parameter(torch.randn(positions, width))  # position of a variable after
        self.own = nn.Linear(width, width, bias=False)
        self.chance = nn.Linear(noise, width, bias=False) if noise else None
        self.begin = FeedForward(width, hidden)
        self.rounds = nn.ModuleList(ParentAttention(width, heads, hidden) for _ in range(rounds))
        self.last_norm = plain_norm(width)
        self.head = nn.Parameter(torch.randn(codebooks, width, codes) / width**0.5 * 0.1)
        self.head_bias = nn.Parameter(torch.zeros(codebooks, 1, codes))
        self.stay = nn.Linear(width, 1)
        nn.init.zeros_(self.stay.weight)
        nn.init.constant_(self.stay.bias, INITIAL_STAY)

    # ---- Eq. 2: codes after an action, given a graph ---------------------------------------------
    def logits(
        self,
        codes: Tensor,
        nodes: Tensor,
        edges: Tensor,
        action: Tensor | None,
        z: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits of every code at every position after the action (Eq. 2), (B, G, n, S).

        Arguments:
            codes: (B, n) before.
            nodes: (B, n, w), from `nodes(codes)`.
            edges: (B, G, n, n), or (n, n) for all.
            action: (B,) numbers, or None for all A.
            z: (B, n, z) noise; None for its mean.
            mask: (B, G, n) with `masked_action`, the intervention masks.
        """
        states = self._initial_states()
        start = states[1:][None] if action is None else states[action + 1][:, None]
        return self._logits_from(self._masked(states, start, mask), codes, nodes, edges, z)

    def _initial_states(self) -> Tensor:
        """Return the states of the y_i before they read any x_j, (A + 1, n, w), no action first."""
        return self.begin(self.goal + self.action[:, None])

    def _masked(self, states: Tensor, start: Tensor, mask: Tensor | None) -> Tensor:
        """Return initial states (B, G, n, w), those of no action where masks (B, G, n) are 0."""
        if not self.masked_action or mask is None:
            return start
        return states[0] + mask[..., None] * (start - states[0])

    def _logits_from(
        self, start: Tensor, codes: Tensor, nodes: Tensor, edges: Tensor, z: Tensor | None
    ) -> Tensor:
        """Return `logits` for initial states (1 or B, G, n, w)."""
        questions = start.shape[1]
        edges = edges.expand(len(codes), questions, self.positions, self.positions)
        self_edge = edges.diagonal(dim1=2, dim2=3)[..., None]  # (B, G, n, 1)
        state = start + self_edge * self.own(nodes)[:, None]
        if self.chance is not None and z is not None:
            state = state + self.chance(z)[:, None]
        for attend in self.rounds:
            state = attend(state, nodes, edges)
        state = self.last_norm(state)
        by_codebook = state.unflatten(2, (self.codebooks, -1))  # (B, G, K, n / K, w)
        logits = (by_codebook @ self.head + self.head_bias).flatten(2, 3)
        before = codes[:, None, :, None].expand(-1, questions, -1, -1)
        return logits.scatter_add(3, before, (self_edge * self.stay(state)).to(logits.dtype))

    def probabilities(
        self, codes: Tensor, action: Tensor, noise: GraphNoise | None = None
    ) -> Tensor:
        """Return the probabilities (B, n, S) of the codes after actions (B,)."""
        nodes = self.nodes(codes)
        graph = self.graph(nodes, action, noise)
        z = None if noise is None else noise.z
        logits = self.logits(codes, nodes, graph.edges, action, z, graph.mask)
        return logits[:, 0].float().softmax(2)

    # ---- Eq. 6-10: scores of pairs of images -----------------------------------------------------
    def score(
        self, codes: Tensor, after: Tensor, action: Tensor | None, noise: GraphNoise | None = None
    ) -> TransitionScore:
        """Score the codes after (B, n) given those before (B, n), under one or all actions.

        Arguments:
            action: (B,) numbers, NO_ACTION allowed; None for all A.
            noise: samples the graphs; None for the expected graphs.
        """
        questions = self.actions if action is None else 1
        return TransitionScore(
            *self._in_chunks(self._score, questions, codes, after, action, noise)
        )

    def score_modes(
        self, codes: Tensor, after: Tensor, action: Tensor, noise: GraphNoise | None = None
    ) -> ModeScores:
        """Score pairs (B, n), (B, n) with actions (B,) in all three modes, in one pass."""
        questions = self.actions + 2
        return ModeScores(*self._in_chunks(self._modes, questions, codes, after, action, noise))

    def _in_chunks(
        self,
        evaluate: Callable[..., tuple[Tensor, ...]],
        questions: int,
        codes: Tensor,
        after: Tensor,
        action: Tensor | None,
        noise: GraphNoise | None,
    ) -> list[Tensor]:
        """Evaluate as many rows at once as MAX_WEIGHTS allows; recompute chunks for gradients."""
        max_weights = MAX_WEIGHTS.get(codes.device.type, MAX_WEIGHTS["cpu"])
        size = max(1, max_weights // (questions * self.pair_numbers * self.positions**2))
        chunks = [slice(start, start + size) for start in range(0, len(codes), size)]
        recompute = len(chunks) > 1 and torch.is_grad_enabled()
        results = []
        for rows in chunks:
            arguments = (
                codes[rows],
                after[rows],
                None if action is None else action[rows],
                None if noise is None else noise.rows(rows),
            )
            results.append(
                checkpoint(evaluate, *arguments, use_reentrant=False, preserve_rng_state=False)
                if recompute
                else evaluate(*arguments)
            )
        return [torch.cat(chunk) for chunk in zip(*results, strict=True)]

    def _score(
        self, codes: Tensor, after: Tensor, action: Tensor | None, noise: GraphNoise | None
    ) -> tuple[Tensor, ...]:
        nodes = self.nodes(codes)
        graph = self.graph(nodes, action, noise)
        z = None if noise is None else noise.z
        logits = self.logits(codes, nodes, graph.edges, action, z, graph.mask)
        regularisers = self._regularisers(graph.edge_logits, graph.edges, graph.mask)
        return joint_log_likelihood(logits, after), *regularisers

    def _regularisers(self, edge_logits: Tensor, edges: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Return Eq. 11-13, 14 and 15 of graphs, and the number of open masks, each (B, G)."""
        kl = bernoulli_kl(edge_logits, self.prior).sum((2, 3))
        return kl, edges.sum((2, 3)), self.dependency(edge_logits), mask.sum(2)

    def _modes(
        self, codes: Tensor, after: Tensor, action: Tensor, noise: GraphNoise | None
    ) -> tuple[Tensor, ...]:
        nodes, identity = self.nodes(codes), torch.eye(self.positions, device=codes.device)
        graph = self.graph(nodes, None, noise, with_no_action=True)
        # no action, each of the A actions, and no action under the identity graph
        edges = torch.cat([graph.edges, identity.expand(len(codes), 1, -1, -1)], dim=1)
        states = self._initial_states()
        start = self._masked(states, states[None], graph.mask).expand(len(codes), -1, -1, -1)
        start = torch.cat([start, start[:, :1]], dim=1)
        z = None if noise is None else noise.z
        logits = self._logits_from(start, codes, nodes, edges, z)
        target = torch.stack([codes, *[after] * self.actions, codes], dim=1)  # (B, A + 2, n)
        likelihood = joint_log_likelihood(logits, target)
        number = torch.stack([torch.zeros_like(action), action + 1], dim=1)[..., None, None]
        number = number.expand(-1, -1, self.positions, self.positions)  # no action, the true one
        regularisers = self._regularisers(
            graph.edge_logits.gather(1, number),
            graph.edges.gather(1, number),
            graph.mask.gather(1, number[..., 0]),
        )
        error = graph.edges[:, 0] - identity
        # equal for values 0 and 1; of probabilities, |error| is the expected squared error
        error = error.abs() if noise is None else error.square()
        return (
            likelihood[:, 1:-1],
            likelihood[:, 0],
            -likelihood[:, -1],
            error.sum((1, 2)),
            *regularisers,
        )


def joint_log_likelihood(logits: Tensor, codes: Tensor) -> Tensor:
    """Return the log-likelihood (B, G) of all codes, summed over the positions.

    Arguments:
        logits: (B, G, n, S).
        codes: (B, n), or (B, G, n).
    """
    target = (codes[:, None] if codes.ndim == 2 else codes).expand(logits.shape[:3])
    losses = functional.cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="none")
    return -losses.view(logits.shape[:3]).sum(2)
