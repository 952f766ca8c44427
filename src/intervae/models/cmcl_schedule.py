"""What CMCL does around the steps of its training: how long weights rise or fall, what starts after which epoch, which edges there are in the end.

All of it is kept in the model's buffers, which the losses read and a checkpoint holds; only `finish` changes weights, those of f.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Split
from intervae.models.base import repeat_rows
from intervae.models.cmcl_directions import decide_edges
from intervae.models.cmcl_queries import LABEL_BANK

if TYPE_CHECKING:
    from intervae.models.cmcl import CMCL

BERNOULLI_NOISE = 0.5  # as which a Bernoulli likelihood sees a grey pixel
FASTER_FALL = 0.25  # of the cycles in an epoch, short of which their penalty grows tenfold


def set_warm_up(model: CMCL, data: Dataset, seed: int) -> None:
    """Turn epochs of warm-up and the share of annealing into steps.

    Annealing starts at the largest variance of the pictures in any one direction, in units of the pixels' noise: above it not even the best
    linear latent is worth its KL (as in probabilistic PCA).
    """
    settings, steps = model.settings, len(data.train) // model.settings.batch_size
    model.warm_up_steps.fill_(settings.warm_up * steps)
    model.annealing_steps.fill_(settings.annealing * settings.epochs * steps)
    noise = BERNOULLI_NOISE if settings.likelihood == "bernoulli" else settings.scale
    pixels = (_some_rows(data, seed).images.float() / 255).flatten(1)
    model.first_weight.copy_((largest_variance(pixels) / noise**2).clamp(min=1.0))


def largest_variance(rows: Tensor, steps: int = 50) -> Tensor:
    """The largest variance of rows (N, k) in any one direction, by power iteration from the direction of their variances."""
    centred = rows - rows.mean(0)
    direction = centred.var(0, correction=0)
    for _ in range(steps):
        direction = centred.T @ (centred @ functional.normalize(direction, dim=0))
    return direction.norm() / len(rows)


@torch.no_grad()
def tighten(model: CMCL, terms: Any) -> None:
    """After an epoch: the augmented Lagrangian's dual step, and the edges that the contrast goes by."""
    settings = model.settings
    model.epochs_done += 1
    share = float(model.epochs_done) / settings.epochs
    model.contrast_on.fill_(float(share >= settings.contrast_start))
    model.shaping.fill_(float(share >= settings.shaping_start))
    strengths = CausalGraph(model.node_names, model.networks.strengths.double().cpu().numpy())
    strong = strengths.threshold(settings.contrast_threshold * float(strengths.weights.max())).to_acyclic()
    model.edges.copy_(torch.as_tensor(strong.adjacency))
    cycles = model.networks.cycles()
    if share >= settings.acyclicity_start:
        model.multiplier.add_(model.penalty * cycles)
        if cycles > FASTER_FALL * model.last_cycles:
            model.penalty.mul_(10).clamp_(max=settings.largest_penalty)
        model.last_cycles.copy_(cycles)


@torch.no_grad()
def finish(model: CMCL, data: Dataset, seed: int) -> None:
    """Keep labels of the training split, from which sample() draws; decide on it which edges there are, and fit f to them."""
    settings, part = model.settings, _some_rows(data, seed)
    model.label_bank.copy_(repeat_rows(part.labels, LABEL_BANK))
    model.eval()
    z = model.encode(part.images, part.labels if model.needs_labels else None)[..., 0]
    standardised = model.standardiser(z)
    inputs = torch.cat([standardised, model.inputs(part.labels)], dim=1)
    model.influence.copy_(model.networks.influence(inputs))
    if settings.direction == "networks":
        return
    decide(model, z, part)
    model.edges.copy_(model.graph_mask)
    if settings.refit_steps and model.edges.any():
        targets = torch.cat([standardised, model.targets(part.labels)], dim=1)
        fit: dict[str, Any] = {"steps": settings.refit_steps, "rate": settings.graph_rate, "decay": settings.decay, "loss": settings.graph_loss}
        model.networks.refit(inputs, targets, model.edges, seed=seed, **fit)


def decide(model: CMCL, z: Tensor, part: Split) -> None:
    """Edges between latents (N, m) that pictures show and the columns of these rows, by the likelihood of both directions, into `influence`."""
    m = model.settings.latents
    decision = decide_edges(
        z.double().cpu().numpy(),
        part.labels.double().cpu().numpy(),
        threshold=model.settings.edge_threshold,
        one_each=model.settings.one_each,
        kinds=[variable.kind for variable in model.spec.variables],
        shown=model.visible(part),
    )
    model.influence[m:, :m] = torch.as_tensor(decision.causes).to(model.influence)
    model.influence[:m, m:] = torch.as_tensor(decision.effects).to(model.influence)
    model.margins.copy_(torch.as_tensor(decision.margins))


def _some_rows(data: Dataset, seed: int) -> Split:
    """Random rows of the training split, all of them where it is small."""
    return data.train[torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:LABEL_BANK].to(data.train.device)]
