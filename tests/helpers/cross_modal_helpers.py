"""A tiny CMCL and its data, for the tests of CMCL and of its report."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data import Dataset, Variable, build_dataset
from intervae.models.cmcl.inference import Inference, infer
from intervae.models.cmcl.losses import contrast_rows, contrast_terms, graph_terms
from intervae.models.cmcl.model import CMCL

SMALL: dict[str, Any] = {
    "latents": 4,
    "embedding": 3,
    "channels": (4, 4),
    "posterior_widths": (8,),
    "prior_widths": (8,),
    "graph_widths": (4,),
}
QUICK: dict[str, Any] = {**SMALL, "epochs": 2, "batch_size": 16}
M = SMALL["latents"]


def mixed(samples: int = 60, size: int = 8) -> Dataset:
    """Random images with a continuous, a binary and a categorical column."""
    rng = np.random.default_rng(0)
    table = np.stack(
        [rng.normal(5, 3, samples), rng.random(samples) < 0.3, rng.integers(3, size=samples)],
        axis=1,
    )
    images = rng.integers(0, 256, (samples, 1, size, size), dtype=np.uint8)
    return build_dataset(
        "mixed",
        images,
        table,
        [
            Variable("a"),
            Variable("b", "binary"),
            Variable("c", "categorical", categories=("x", "y", "z")),
        ],
    )


def batch_of(data: Dataset, n: int = 8, step: float = 1e9) -> dict[str, Tensor]:
    return {**data.train.batch(torch.arange(n)), "step": torch.tensor(step)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def infer_batch(model: CMCL, batch: dict[str, Tensor], seed: int = 0) -> Inference:
    return infer(model, batch["images"], batch["labels"], seeded(seed))


def graph_loss(model: CMCL, batch: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """L_DAG and its terms on one batch."""
    return graph_terms(model, infer_batch(model, batch, seed), batch["labels"])


def contrast_loss(model: CMCL, batch: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """-L_CR on one batch."""
    generator = seeded(seed)
    inferred = infer(model, batch["images"], batch["labels"], generator)
    rows = contrast_rows(model, inferred, generator)
    return contrast_terms(model, inferred, rows, model.image_logits(rows.z), generator)


def strengthen(model: CMCL) -> CMCL:
    """Scale up the first weights, so that untrained networks depend clearly on their inputs."""
    with torch.no_grad():
        for nets in (model.posterior_nets, model.prior_nets, model.networks.networks):
            for weight in nets.layer_weights:
                weight.mul_(3)
    return model.eval()


def make(data: Dataset | None = None, **settings: Any) -> CMCL:
    return strengthen(CMCL((data or mixed()).spec, **{**SMALL, **settings}))


def with_edges(model: CMCL, *edges: tuple[str, str]) -> CMCL:
    """Set these edges, and no others, in the DAG's networks and in `graph`."""
    edge_mask = torch.zeros_like(model.edges)
    for cause, effect in edges:
        edge_mask[model.node_names.index(cause), model.node_names.index(effect)] = 1
    with torch.no_grad():
        first = model.networks.networks.layer_weights[0]
        first.copy_(
            first.sign() * first.abs().clamp(min=0.5) * model.networks.edges_to_columns(edge_mask)
        )
        model.edges.copy_(edge_mask)
        model.influence.copy_(edge_mask)
    return model
