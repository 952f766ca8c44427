"""Final edges of CMCL and their directions, decided once after training.

By default `discovery.edge_directions.decide_edges` compares the likelihood of both directions of
every pair of a latent and a column. With direction=networks the edges are read off the mechanisms
f, and with direction=norms they are W, the norms of their first layers, as in the paper (Eq. 9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from intervae.data import Dataset, Split
from intervae.discovery.edge_directions import EdgeRule, decide_edges
from intervae.models.batches import repeat_rows
from intervae.models.cmcl.networks import LABEL_BANK
from intervae.models.cmcl.schedule import random_training_rows

if TYPE_CHECKING:
    from intervae.models.cmcl.model import CMCL


@torch.no_grad()
def decide_graph(model: CMCL, data: Dataset, seed: int) -> None:
    """Decide the edges on training rows and refit the mechanisms f to them; store label rows."""
    settings, rows = model.settings, random_training_rows(data, seed)
    model.label_bank.copy_(repeat_rows(rows.labels, LABEL_BANK))
    model.eval()
    z = model.encode(rows.images, rows.labels if model.needs_labels else None)[..., 0]
    standardised = model.standardiser(z) if settings.standardise else z
    inputs = torch.cat([standardised, model.inputs(rows.labels)], dim=1)
    if settings.direction == "norms":
        model.influence.copy_(model.networks.strengths)
        return
    model.influence.copy_(model.networks.influence(inputs))
    if settings.direction == "networks":
        return
    decide_directions(model, z, rows)
    model.edges.copy_(model.graph_mask)
    if settings.refit_steps and model.edges.any():
        model.networks.refit(
            inputs,
            torch.cat([standardised, model.targets(rows.labels)], dim=1),
            model.edges,
            steps=settings.refit_steps,
            rate=settings.graph_rate,
            decay=settings.decay,
            loss=settings.graph_loss,
            seed=seed,
        )


def decide_directions(model: CMCL, z: Tensor, rows: Split) -> None:
    """Write edges between latents (N, m) and columns into `influence` and `margins`."""
    m = model.settings.latents
    decision = decide_edges(
        z.double().cpu().numpy(),
        rows.labels.double().cpu().numpy(),
        threshold=model.settings.edge_threshold,
        one_edge_per_node=model.settings.one_edge_per_node,
        kinds=[variable.kind for variable in model.spec.variables],
        visible=model.visible_latents(rows),
    )
    model.influence[m:, :m] = torch.as_tensor(decision.causes).to(model.influence)
    model.influence[:m, m:] = torch.as_tensor(decision.effects).to(model.influence)
    model.margins.copy_(torch.as_tensor(decision.margins))


def edge_rule(model: CMCL) -> EdgeRule:
    """Return the rule by which the edges were decided."""
    settings = model.settings
    return EdgeRule(
        threshold=settings.edge_threshold,
        one_edge_per_node=settings.one_edge_per_node,
        by_likelihood=settings.direction == "likelihood",
        allowed=model.networks.allowed.cpu().numpy() > 0,
        rows=LABEL_BANK,
    )


def direction_margin(model: CMCL, cause: str, effect: str) -> float | None:
    """Nats for cause -> effect; see `CMCL.direction_margin`."""
    latents, columns = model.latent_names, model.spec.names
    if model.settings.direction != "likelihood" or (cause in latents) == (effect in latents):
        return None
    column, latent = (cause, effect) if cause in columns else (effect, cause)
    if model.spec.variable(column).kind != "continuous":
        return None
    nats = float(model.margins[columns.index(column), latents.index(latent)])
    return nats if cause == column else -nats
