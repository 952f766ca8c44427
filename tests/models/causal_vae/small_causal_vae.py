"""Small CausalVAEs for tests."""

from __future__ import annotations

from typing import Any

import torch

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.models import CausalVAE

SMALL = {
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "mechanism_hidden": 8,
    "batch_size": 16,
    "epochs": 2,
}
# weights of the loss terms that the paper does not have
PAPER = {"absolute_error_weight": 0.0, "influence_weight": 0.0}
CHAIN = [("a", "b", 0.9), ("b", "c", -1.4)]


def make(data: Dataset, graph: Any = "joint", **settings: Any) -> CausalVAE:
    return CausalVAE(data.spec, graph=graph, **{**SMALL, **settings})


def chain(weights: list[tuple[str, str, float]] | None = None) -> CausalGraph:
    return CausalGraph.from_edges(("a", "b", "c"), CHAIN if weights is None else weights)


def with_weights(model: CausalVAE, weights: Any) -> CausalVAE:
    with torch.no_grad():
        model.adjacency.copy_(torch.as_tensor(weights, dtype=torch.float32))
    return model
