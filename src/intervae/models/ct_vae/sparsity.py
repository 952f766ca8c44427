"""Sparse graphs and masks of CT-VAE: prices of open edges and masks that follow target shares.

The loss of the phase `graphs` adds an augmented Lagrangian of two constraints, at most a share of
edges and at most a share of masks open. The price of an open edge or mask is a multiplier, which
integrates the excess over the target share, plus a part proportional to the excess. Targets fall
from the shares at the start of the phase to their final values, after the accuracies are reached.
Graphs are sampled at first; their noise falls to 0, so that the phase ends with the graphs that
queries use, whose edges and masks are 0 or 1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from intervae.data import Batch, Dataset
from intervae.data.transitions import TransitionSplit
from intervae.models.phases import Phase, Terms

if TYPE_CHECKING:
    from intervae.models.ct_vae.model import CTVAE

STIFFNESS = 2.0  # nats per open edge or mask at a share of twice the target
INTEGRATION = 10.0  # change of a multiplier over the phase at that share, in stiffnesses
DESCENT = 0.5  # fraction of the phase in which the targets fall
GATES = ("edge_place", "edge_bias", "mask_place")  # parameters with the learning rate of gates
CHUNK = 2**16  # pairs compared at once


class GraphPrices(nn.Module):
    """Multipliers of open edges and open masks, and the shares that they follow, as buffers.

    Arguments:
        positions: number n of variables.
    """

    multipliers: Tensor  # (2,) of an edge, of a mask, in nats
    first: Tensor  # (2,) shares at the first step
    final: Tensor  # (2,) targets at the end
    step: Tensor  # () steps done
    steps: Tensor  # () steps of the phase
    most: Tensor  # (2,) numbers of edges and masks

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.register_buffer("multipliers", torch.zeros(2))
        self.register_buffer("first", torch.ones(2))
        self.register_buffer("final", torch.ones(2))
        self.register_buffer("step", torch.zeros(()))
        self.register_buffer("steps", torch.ones(()))
        most = torch.tensor([float(positions**2), float(positions)])
        self.register_buffer("most", most, persistent=False)
        self.last_shares: Tensor | None = None  # of the last training batch, for update()

    @torch.no_grad()
    def start(self, steps: int, edges: float, masks: float) -> None:
        """Begin a phase of `steps` steps that ends with these mean shares of edges and masks."""
        self.multipliers.zero_()
        self.final.copy_(torch.tensor([edges, masks]))
        self.steps.fill_(max(1, steps))
        self.step.zero_()

    def noise_scale(self) -> Tensor:
        """Return the scale () of the graphs' noise, from 1 to 0."""
        return (1 - self.step / self.steps).clamp(min=0.0)

    def targets(self) -> Tensor:
        """Return the shares (2,) that are allowed at this step."""
        done = (self.step / (DESCENT * self.steps)).clamp(max=1.0)
        return torch.lerp(self.first, self.final, done)

    def excess(self, shares: Tensor) -> Tensor:
        """Return by how much shares (2,) exceed the targets, in targets."""
        return shares / self.targets() - 1

    def cost(self, edges: Tensor, masks: Tensor) -> Tensor:
        """Return the cost () in nats of mean numbers () of open edges and masks.

        With the excess e over a target of t edges (masks) it is
        t (multiplier e + stiffness max(e, 0)^2 / 2), so one more edge costs multiplier + stiffness
        max(e, 0).
        """
        shares = torch.stack([edges, masks]) / self.most
        if self.training:
            self.last_shares = shares.detach()
        excess = self.excess(shares)
        cost = self.multipliers * excess + STIFFNESS / 2 * excess.clamp(min=0).square()
        return (self.targets() * self.most * cost).sum()

    @torch.no_grad()
    def update(self) -> None:
        """Move the multipliers by the excess of the last batch; for `Phase.after_step`."""
        if self.last_shares is None:
            return
        self.first.copy_(torch.where(self.step == 0, self.last_shares, self.first))
        change = self.excess(self.last_shares).clamp(-1, 1) * STIFFNESS * INTEGRATION / self.steps
        self.multipliers.add_(change).clamp_(min=0)
        self.step.add_(1)


@torch.no_grad()
def changed_share(pairs: TransitionSplit) -> float:
    """Return the fraction of codes that differ between the images of pairs."""
    codes, transitions = pairs.pool.fields["codes"], pairs.transitions
    codes = codes if codes.ndim == 2 else codes[:, 0]  # (N, V, n): without augmentation
    differ = 0
    for rows in torch.arange(len(transitions)).split(CHUNK):
        before, after = (
            end[rows].to(codes.device) for end in (transitions.before, transitions.after)
        )
        differ += int((codes[before] != codes[after]).sum())
    return differ / max(1, len(transitions) * codes.shape[1])


def graph_phase(model: CTVAE, transitions: Phase) -> Phase:
    """Return the phase that closes edges and masks, after `transitions` reached the accuracies.

    It keeps its last weights, as earlier ones have more open edges.
    """
    settings = model.settings
    player = replace(
        transitions.players[0],
        loss=partial(graph_loss, model),
        prefix_rates=tuple((f"transition.{name}", settings.gate_rate) for name in GATES),
    )

    def begin(data: Dataset, seed: int) -> Dataset:
        pairs = model.encode_pairs(data, seed)
        assert isinstance(pairs.train, TransitionSplit)
        steps = settings.sparse_epochs * (len(pairs.train) // settings.transition_batch)
        masks = settings.mask_share
        masks = changed_share(pairs.train) if masks is None else masks
        model.prices.start(steps, settings.edge_share, masks)
        return pairs

    return replace(
        transitions,
        name="graphs",
        players=(player,),
        epochs=settings.sparse_epochs,
        prepare=begin,
        after_step=model.prices.update,
        keep_best=False,
    )


def graph_loss(model: CTVAE, batch: Batch, generator: torch.Generator | None = None) -> Terms:
    """The loss of the transition layer under graphs with less and less noise, and their cost."""
    terms = model.transition_loss(batch, generator, model.prices.noise_scale())
    cost = model.prices.cost(terms["edge_norm"], terms["masks"])
    edge_price, mask_price = model.prices.multipliers
    prices = {"edge_price": edge_price, "mask_price": mask_price}
    return {**terms, **prices, "loss": terms["loss"] + cost}
