"""Schedule of CMCL's training: KL weights, start of each loss, penalty of cycles.

The state is in the model's buffers, which the losses read and a checkpoint holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Split
from intervae.models.cmcl.networks import LABEL_BANK

if TYPE_CHECKING:
    from intervae.models.cmcl.model import CMCL

BERNOULLI_NOISE = 0.5  # pixel noise that a Bernoulli likelihood of grey values corresponds to
CYCLE_REDUCTION = 0.25  # the penalty grows when an epoch leaves more of the cycles than this
LARGEST_PENALTY = 1e8  # limit in single precision


def set_kl_schedule(model: CMCL, data: Dataset, seed: int) -> None:
    """Convert warm-up epochs and the annealing fraction into steps.

    Annealing starts at the largest variance of the images in any direction, in units of the
    pixel noise. Above that weight no linear latent is worth its KL (probabilistic PCA).
    """
    settings, steps = model.settings, len(data.train) // model.settings.batch_size
    model.warm_up_steps.fill_(settings.warm_up * steps)
    model.annealing_steps.fill_(settings.annealing * settings.epochs * steps)
    noise = BERNOULLI_NOISE if settings.likelihood == "bernoulli" else settings.scale
    pixels = (random_training_rows(data, seed).images.float() / 255).flatten(1)
    model.first_weight.copy_((largest_variance(pixels) / noise**2).clamp(min=1.0))


def largest_variance(rows: Tensor, steps: int = 50) -> Tensor:
    """Return the largest variance of rows (N, k) in any direction, by power iteration."""
    centred = rows - rows.mean(0)
    direction = centred.var(0, correction=0)
    for _ in range(steps):
        direction = centred.T @ (centred @ functional.normalize(direction, dim=0))
    return direction.norm() / len(rows)


@torch.no_grad()
def update_after_epoch(model: CMCL, terms: Any) -> None:
    """Start losses whose time has come, choose the contrast's edges, update the Lagrangian."""
    settings = model.settings
    model.epochs_done.add_(1)
    progress = float(model.epochs_done) / settings.epochs
    model.contrast_on.fill_(float(progress >= settings.contrast_start))
    model.shaping.fill_(float(progress >= settings.dag_gradient_start))
    graph = CausalGraph(model.node_names, model.networks.strengths.double().cpu().numpy())
    threshold = settings.contrast_threshold * float(graph.weights.max())
    model.edges.copy_(torch.as_tensor(graph.threshold(threshold).to_acyclic().adjacency))
    if progress >= settings.acyclicity_start:
        cycles = model.networks.cycles()
        model.multiplier.add_(model.penalty * cycles)
        if cycles > CYCLE_REDUCTION * model.last_cycles:
            model.penalty.mul_(10).clamp_(max=LARGEST_PENALTY)
        model.last_cycles.copy_(cycles)


def random_training_rows(data: Dataset, seed: int) -> Split:
    """Return at most LABEL_BANK random rows of the training split."""
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    return data.train[order[:LABEL_BANK].to(data.train.device)]
