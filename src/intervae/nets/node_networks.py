"""Causal DAG of CMCL (Mao et al. 2022, Eqs. 8-10): non-linear NOTEARS over nodes of mixed kinds.

One network f_j per node takes the columns of all other nodes; W[k, j] is the norm of the weights
of its first layer on node k. The module trains together with others, so gradients reach the nodes
as well; `intervae.discovery` has NOTEARS for a fixed table.
Shapes: B samples, p nodes, P input columns (one per number, one per category), K outputs at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.acyclicity import trace_exponential_of_squares
from intervae.nets.per_node import PerNode, UnitActivation

DagLoss = Literal["nll", "mse"]


class NodeLayers(NamedTuple):
    """Effective weights of f_1 ... f_p, computed once per step."""

    first: Tensor  # A^(1) (p, P, hidden), 0 where an edge is not allowed
    later: list[Tensor]  # (p, in, out) each, scaled to their limit
    squares: Tensor  # W∘W (p, p)
    later_squares: Tensor  # (p, layers), squared norms of the later layers before scaling

    def detach(self) -> NodeLayers:
        return NodeLayers(
            self.first.detach(),
            [weight.detach() for weight in self.later],
            self.squares.detach(),
            self.later_squares.detach(),
        )


class NodeNetworks(nn.Module):
    """Mechanisms f_1 ... f_p and the graph W of their first layers.

    Arguments:
        kinds: (p,) continuous, binary or categorical.
        columns: (p,) number of input columns of each node; also of its outputs if categorical.
        allowed: (p, p) of 0 and 1, [k, j] for an edge k -> j; the diagonal is ignored.
        hidden: units of each hidden layer.
        activation: between the layers.
        limit: largest norm of each layer after the first. Without it later layers can amplify a
            tiny first layer, so that W says nothing about dependence.
    """

    owner: Tensor
    allowed: Tensor
    first_layer_mask: Tensor
    is_continuous: Tensor
    is_categorical: Tensor
    has_output: Tensor

    def __init__(
        self,
        kinds: Sequence[str],
        columns: Sequence[int],
        allowed: Tensor,
        hidden: Sequence[int] = (10, 10, 10),
        activation: UnitActivation = "sigmoid",
        limit: float | None = None,
    ) -> None:
        super().__init__()
        p = len(kinds)
        outputs = max(
            c if kind == "categorical" else 1 for kind, c in zip(kinds, columns, strict=True)
        )
        self.networks = PerNode(p, [sum(columns), *hidden, outputs], activation, limit)
        self.log_noise = nn.Parameter(torch.zeros(p))  # log s_j^2 of the continuous nodes
        owner = torch.repeat_interleave(torch.eye(p), torch.tensor(list(columns)), dim=0)
        self.register_buffer("owner", owner)  # (P, p), 1 where a column belongs to a node
        self.register_buffer("allowed", allowed.float() * (1 - torch.eye(p)))
        self.register_buffer(
            "is_continuous", torch.tensor([kind == "continuous" for kind in kinds])
        )
        self.register_buffer(
            "is_categorical", torch.tensor([kind == "categorical" for kind in kinds])
        )
        has_output = torch.arange(outputs) < torch.tensor([[c] for c in columns])
        self.register_buffer("has_output", has_output)  # (p, K), used of categorical nodes
        self.one_column_per_node = all(c == 1 for c in columns)  # then P = p
        self.register_buffer(
            "first_layer_mask", self.edges_to_columns(self.allowed), persistent=False
        )
        self.mixed = any(kind != "continuous" for kind in kinds)

    # ---- the graph -------------------------------------------------------------------------------
    def layers(self) -> NodeLayers:
        """Compute the effective weights."""
        first = self.networks.layer_weights[0] * self.first_layer_mask
        squares = first.square().sum(-1).T  # (P, p)
        if not self.one_column_per_node:
            squares = self.owner.T @ squares  # (p, p)
        later, later_squares = self.networks.limited_weights()
        return NodeLayers(first, later, squares, later_squares)

    def edges_to_columns(self, edges: Tensor) -> Tensor:
        """Mask (p, P, 1) of the first layers for edges [k, j] (p, p)."""
        return (edges if self.one_column_per_node else self.owner @ edges).T[..., None]

    @property
    def strengths(self) -> Tensor:
        """W (p, p), detached."""
        return self.layers().squares.detach().sqrt()

    def cycles(self, layers: NodeLayers | None = None) -> Tensor:
        """h(W) = tr exp(W∘W) - p."""
        return trace_exponential_of_squares((layers or self.layers()).squares)

    def sparsity(self, layers: NodeLayers | None = None) -> Tensor:
        """sum_j |A_j^(1)|_1."""
        return (layers or self.layers()).first.abs().sum()

    def decay(self, layers: NodeLayers | None = None) -> Tensor:
        """Half the sum of all squared weights without biases."""
        layers = layers or self.layers()
        return 0.5 * (layers.squares.sum() + layers.later_squares.sum())

    # ---- the mechanisms --------------------------------------------------------------------------
    def forward(
        self, inputs: Tensor, edges: Tensor | None = None, layers: NodeLayers | None = None
    ) -> Tensor:
        """Standardised columns (B, P) to outputs (p, B, K): a value, a logit, or logits.

        `edges` (p, p) of 0 and 1 restricts the parents.
        """
        layers = layers or self.layers()
        first = layers.first
        if edges is not None:
            first = first * self.edges_to_columns(edges)
        return self.networks(inputs, first, layers.later)

    @torch.no_grad()
    def influence(self, inputs: Tensor) -> Tensor:
        """(p, p): [k, j] is the standard deviation of f_j due to node k over rows (N, P).

        The rows are standardised columns in random order. Squared, it is the fraction of the
        variance of node j that k explains; of several outputs the root mean square; of logits in
        logits. W shows which edges exist but not their strength, as later layers can rescale it.
        """
        outputs, permuted = self(inputs), inputs.roll(1, 0)
        count = torch.where(self.is_categorical, self.has_output.sum(1), 1)  # (p,)
        used = self.has_output[:, None] & (
            torch.arange(outputs.shape[-1], device=inputs.device) < count[:, None, None]
        )
        variances = []
        for columns in self.owner.T:  # of node k
            change = self(torch.where(columns > 0, permuted, inputs)) - outputs
            variances.append(0.5 * (change.square() * used).sum((1, 2)) / (count * len(inputs)))
        return torch.stack(variances).sqrt()

    def refit(
        self,
        inputs: Tensor,
        targets: Tensor,
        edges: Tensor,
        *,
        steps: int,
        rate: float,
        decay: float,
        loss: DagLoss = "nll",
        seed: int = 0,
    ) -> None:
        """Fit new f to inputs (N, P) and targets (N, P), with the parents of `edges` only."""
        self.networks.reset(torch.Generator().manual_seed(seed))
        with torch.no_grad():
            self.log_noise.zero_()
            self.networks.layer_weights[0].mul_(self.edges_to_columns(edges * self.allowed))
        optimiser = torch.optim.Adam(self.parameters(), lr=rate)
        with torch.enable_grad():
            for _ in range(steps):
                optimiser.zero_grad()
                layers = self.layers()
                fit = self.node_loss(self(inputs, edges, layers), targets, loss).mean()
                (fit + decay * self.decay(layers)).backward()
                optimiser.step()
        self.zero_grad()

    def node_loss(self, outputs: Tensor, targets: Tensor, loss: DagLoss = "nll") -> Tensor:
        """(B,) sum of the losses of all nodes.

        Arguments:
            outputs: (p, B, K).
            targets: (B, P) standardised numbers, 0 / 1, or one-hot codes.
            loss: of continuous nodes, "nll" for 1/2 ((v - f)^2 / s^2 + log s^2) or "mse" for
                1/2 (v - f)^2; binary and categorical nodes have the cross-entropy.
        """
        first_column = targets  # (B, p)
        if not self.one_column_per_node:
            first_column = targets @ self._first_columns
        value = outputs[..., 0].T  # (B, p)
        squared = 0.5 * (first_column - value).square()
        if loss == "nll":
            squared = squared * torch.exp(-self.log_noise) + 0.5 * self.log_noise
        if not self.mixed:
            return squared.sum(1)
        binary = functional.softplus(value) - first_column * value
        losses = torch.where(self.is_continuous, squared, binary)
        if outputs.shape[-1] > 1:
            logits = torch.where(self.has_output[:, None], outputs, -torch.inf)
            total = torch.logsumexp(logits, dim=-1).T  # (B, p)
            true_logits = torch.einsum("pbk,bpk->bp", outputs, self._by_category(targets))
            losses = torch.where(self.is_categorical, total - true_logits, losses)
        return losses.sum(1)

    @property
    def _first_columns(self) -> Tensor:
        """(P, p), 1 at the first column of each node."""
        return self.owner * (self.owner.cumsum(0) == 1)

    def _by_category(self, targets: Tensor) -> Tensor:
        """Columns (B, P) by node, (B, p, K); 0 beyond the categories of a node."""
        category = self.owner.cumsum(0) - 1  # (P, p), index of a column within its node
        categories = torch.arange(self.has_output.shape[-1], device=targets.device)
        is_category = self.owner[..., None] * (category[..., None] == categories)
        return torch.einsum("bc,cpk->bpk", targets, is_category)
