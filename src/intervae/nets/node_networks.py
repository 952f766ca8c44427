"""The causal DAG of CMCL (Mao et al. 2022, Eqs. 8-10): non-linear NOTEARS over nodes of mixed kinds, as a module that trains beside others.

One network f_j for each of p nodes sees the columns of all others; W[k, j] is the norm of what f_j's first layer has to do with node k. The
search over a table alone is `intervae.discovery`; here the nodes are learned at the same time, so gradients go to them too.
Shapes: B samples, p nodes, P input columns (a categorical node has one for each category), K outputs at most.
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


class Layers(NamedTuple):
    """The weights of f_1 ... f_p as they are used, worked out once for all that needs them."""

    first: Tensor  # A^(1) (p, P, hidden), with a frozen 0 wherever no edge may be
    later: list[Tensor]  # (p, in, out) each, within their limit
    squares: Tensor  # W∘W (p, p)
    later_squares: Tensor  # (p, layers), squared norms of the later ones before the limit

    def detach(self) -> Layers:
        return Layers(self.first.detach(), [weight.detach() for weight in self.later], self.squares.detach(), self.later_squares.detach())


class NodeNetworks(nn.Module):
    """f_1 ... f_p and the graph that their first layers make.

    Arguments:
        kinds: (p,) continuous, binary or categorical.
        columns: (p,) input columns of each node, one after the other; as many outputs where it is categorical, else one.
        allowed: (p, p) of 0 and 1, [k, j] where an edge k -> j may be; the diagonal is never.
        hidden: units of each hidden layer.
        activation: between the layers.
        limit: largest norm of each later layer. Without one the later layers make much of a first layer of almost nothing, and W no longer tells
            what depends on what: cycles then cost nothing.
    """

    owner: Tensor
    allowed: Tensor
    may: Tensor
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
        p, widest = len(kinds), max(c if kind == "categorical" else 1 for kind, c in zip(kinds, columns, strict=True))
        self.networks = PerNode(p, [sum(columns), *hidden, widest], activation, limit)
        self.log_noise = nn.Parameter(torch.zeros(p))  # log s_j^2 of the continuous nodes
        owner = torch.repeat_interleave(torch.eye(p), torch.tensor(list(columns)), dim=0)  # (P, p), 1 where a column is a node's
        self.register_buffer("owner", owner)
        self.register_buffer("allowed", allowed.float() * (1 - torch.eye(p)))
        self.register_buffer("is_continuous", torch.tensor([kind == "continuous" for kind in kinds]))
        self.register_buffer("is_categorical", torch.tensor([kind == "categorical" for kind in kinds]))
        self.register_buffer("has_output", torch.arange(widest) < torch.tensor([[c] for c in columns]))  # (p, K), of the categorical nodes
        self.single = all(c == 1 for c in columns)  # then columns are nodes
        self.register_buffer("may", self.spread(self.allowed), persistent=False)  # (p, P, 1)
        self.mixed = any(kind != "continuous" for kind in kinds)

    # ---- the graph --------------------------------------------------------------------------------------------------
    def layers(self) -> Layers:
        """[k, j] of `squares` is the sum of the squares of what f_j's first layer has to do with node k."""
        first = self.networks.layer_weights[0] * self.may
        squares = first.square().sum(-1).T  # (P, p)
        later, later_squares = self.networks.bounded()
        return Layers(first, later, squares if self.single else self.owner.T @ squares, later_squares)

    def spread(self, edges: Tensor) -> Tensor:
        """Edges [k, j] (p, p) to a mask of the first layers, (p, P, 1)."""
        return (edges if self.single else self.owner @ edges).T[..., None]

    @property
    def strengths(self) -> Tensor:
        """W (p, p), without a gradient."""
        return self.layers().squares.detach().sqrt()

    def cycles(self, layers: Layers | None = None) -> Tensor:
        """h(W) = tr exp(W∘W) - p."""
        return trace_exponential_of_squares((layers or self.layers()).squares)

    def sparsity(self, layers: Layers | None = None) -> Tensor:
        """sum_j |A_j^(1)|_1."""
        return (layers or self.layers()).first.abs().sum()

    def decay(self, layers: Layers | None = None) -> Tensor:
        """Half the sum of all squared weights, biases left out."""
        layers = layers or self.layers()
        return 0.5 * (layers.squares.sum() + layers.later_squares.sum())

    # ---- the mechanisms ---------------------------------------------------------------------------------------------
    def forward(self, inputs: Tensor, edges: Tensor | None = None, layers: Layers | None = None) -> Tensor:
        """Standardised columns (B, P) to outputs (p, B, K): a value, a logit, or one logit for each category; `edges` (p, p) keeps some parents."""
        layers = layers or self.layers()
        return self.networks(inputs, layers.first if edges is None else layers.first * self.spread(edges), layers.later)

    @torch.no_grad()
    def influence(self, inputs: Tensor) -> Tensor:
        """(p, p): [k, j] is the standard deviation of f_j that node k alone makes over standardised columns (N, P) in random order.

        Squared, it is the share of node j's variance that k explains. W tells whether there is an edge, but not how strong it is: the later
        layers can take over any scale. Of several outputs, the root of their mean square; of logits, in logits.
        """
        outputs, other = self(inputs), inputs.roll(1, 0)
        count = torch.where(self.is_categorical, self.has_output.sum(1), 1)  # (p,)
        used = self.has_output[:, None] & (torch.arange(outputs.shape[-1], device=inputs.device) < count[:, None, None])
        found = []
        for column in self.owner.T:  # a node k
            change = self(torch.where(column > 0, other, inputs)) - outputs
            found.append(0.5 * (change.square() * used).sum((1, 2)) / (count * len(inputs)))
        return torch.stack(found).sqrt()

    def refit(
        self, inputs: Tensor, targets: Tensor, edges: Tensor, *, steps: int, rate: float, decay: float, loss: DagLoss = "nll", seed: int = 0
    ) -> None:
        """Fit f anew to all rows, columns (N, P) and targets (N, P), with the parents of `edges` (p, p) alone; all others get weights of 0."""
        self.networks.reset(torch.Generator().manual_seed(seed))
        with torch.no_grad():
            self.log_noise.zero_()
            self.networks.layer_weights[0].mul_(self.spread(edges * self.allowed))
        optimiser = torch.optim.Adam(self.parameters(), lr=rate)
        with torch.enable_grad():
            for _ in range(steps):
                optimiser.zero_grad()
                layers = self.layers()
                found = self.misfit(self(inputs, edges, layers), targets, loss).mean() + decay * self.decay(layers)
                found.backward()
                optimiser.step()
        self.zero_grad()

    def misfit(self, outputs: Tensor, targets: Tensor, loss: DagLoss = "nll") -> Tensor:
        """(B,) sum over the nodes of their losses.

        Arguments:
            outputs: (p, B, K).
            targets: (B, P) standardised values of continuous nodes, 0 / 1 of binary ones, 0 / 1 for each category.
            loss: of a continuous node, "nll" 1/2 ((v - f)^2 / s^2 + log s^2) or "mse" 1/2 (v - f)^2; binary and categorical nodes have their
                cross-entropy.
        """
        first_column = targets if self.single else targets @ self._first_columns  # (B, p)
        value = outputs[..., 0].T  # (B, p)
        squared = 0.5 * (first_column - value).square()
        if loss == "nll":
            squared = squared * torch.exp(-self.log_noise) + 0.5 * self.log_noise
        if not self.mixed:
            return squared.sum(1)
        found = torch.where(self.is_continuous, squared, functional.softplus(value) - first_column * value)
        if outputs.shape[-1] > 1:
            logits = torch.where(self.has_output[:, None], outputs, -torch.inf)
            total = torch.logsumexp(logits, dim=-1).T  # (B, p)
            said = torch.einsum("pbk,bpk->bp", outputs, self._by_category(targets))
            found = torch.where(self.is_categorical, total - said, found)
        return found.sum(1)

    @property
    def _first_columns(self) -> Tensor:
        """(P, p), 1 at the first column of each node."""
        return self.owner * (self.owner.cumsum(0) == 1)

    def _by_category(self, targets: Tensor) -> Tensor:
        """Columns (B, P) to (B, p, K): those of each node, 0 where it has fewer."""
        place = self.owner.cumsum(0) - 1  # (P, p), which of its node's columns a column is
        wanted = torch.arange(self.has_output.shape[-1], device=targets.device)
        return torch.einsum("bc,cpk->bpk", targets, self.owner[..., None] * (place[..., None] == wanted))
