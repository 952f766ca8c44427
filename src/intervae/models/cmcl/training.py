"""Training of CMCL: one step of all losses, or the four steps of Algorithm 1 in turn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from intervae.data import Batch
from intervae.models.cmcl import final_graph, inference
from intervae.models.cmcl.losses import (
    causal_terms,
    contrast_rows,
    contrast_terms,
    embedding_terms,
    graph_terms,
)
from intervae.models.cmcl.schedule import set_kl_schedule, update_after_epoch
from intervae.models.phases import Loss, Phase, Player, Terms
from intervae.nets.norm import update_statistics

if TYPE_CHECKING:
    from intervae.models.cmcl.model import CMCL

ALL = (
    "encoder.",
    "posterior_nets.",
    "prior_nets.",
    "decoder.",
    "pairing_logits",
    "embedding_decoder.",
    "classifier.",
    "networks.",
)


def training_phases(model: CMCL) -> list[Phase]:
    """Train all networks, then decide the edges (final_graph.py)."""
    settings = model.settings
    joint = settings.training_steps == "joint"
    images = Phase(
        "images",
        (_player(model, model.loss, *ALL),) if joint else algorithm_1(model),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        schedule=settings.rate_schedule,
        prepare=partial(set_kl_schedule, model),
        after_step=partial(update_statistics, model),
        after_epoch=partial(update_after_epoch, model),
    )
    return [images, Phase("graph", prepare=partial(final_graph.decide_graph, model))]


def _player(model: CMCL, loss: Loss, *parameters: str, name: str = "model") -> Player:
    settings = model.settings
    return Player(
        loss,
        parameters,
        name=name,
        prefix_rates=(("networks.", settings.graph_rate),) if "networks." in parameters else (),
        learning_rate=settings.learning_rate,
        clip=settings.clip,
    )


# ---- Algorithm 1 ---------------------------------------------------------------------------------
def algorithm_1(model: CMCL) -> tuple[Player, ...]:
    """Return the steps (a) to (d) of a mini-batch, each with an Adam of its own.

    phi, which (c) and (d) update too, is both encoders. Step (b) is printed as a copy of (a); it
    trains L2 here.
    """
    settings = model.settings
    phi = ("encoder.", "posterior_nets.") if settings.causal_module else ("encoder.",)

    def step(name: str, *parameters: str) -> Player:
        return _player(model, partial(step_loss, model, name), *parameters, name=name)

    steps = [step("embedding", "encoder.", "embedding_decoder.")]
    if settings.causal_module:
        steps.append(step("causal", *phi, "prior_nets.", "decoder.", "pairing_logits"))
    steps.append(step("graph", *phi, "networks."))
    if settings.contrast:
        steps.append(step("contrast", *phi, "classifier."))
    return tuple(steps)


def step_loss(
    model: CMCL, name: str, batch: Batch, generator: torch.Generator | None = None
) -> Terms:
    """Return one of the four losses of Eq. 14 with its weight; z0 and z are drawn anew."""
    settings = model.settings
    inferred = inference.infer(model, batch["images"], batch["labels"], generator)
    if name == "embedding":
        terms, weight = embedding_terms(model, batch, inferred), settings.embedding_weight
    elif name == "causal":
        terms, weight = causal_terms(model, batch, inferred), settings.causal_weight
    elif name == "graph":
        terms, weight = graph_terms(model, inferred, batch["labels"]), settings.graph_weight
    else:
        rows = contrast_rows(model, inferred, generator, model.networks.layers().detach())
        logits = model.image_logits(rows.z)
        terms = contrast_terms(model, inferred, rows, logits, generator)
        weight = settings.contrast_weight
    return {**terms, "loss": weight * terms["loss"]}
