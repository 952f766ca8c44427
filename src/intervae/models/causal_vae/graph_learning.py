"""The graph phase of CausalVAE: edges, or A itself, from the labels of the training split.

The pre-training is that of Yang et al. 2021, sec. 6.2: l_u (Eq. 11) subject to H(A) = 0 (Eq. 13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.discovery import discover
from intervae.models.label_graph import graph_columns

if TYPE_CHECKING:
    from intervae.models.causal_vae.model import CausalVAE


def learn_graph(model: CausalVAE, data: Dataset, seed: int) -> None:
    """Set the edges of a model from the labels, see `intervae.discovery`.

    With `lagrangian` A starts at the pre-training's result on its edges, and with `pretrained` at
    all of it; with `independence` A starts at the least-squares fit on the parents.
    """
    settings, variables = model.settings, model.spec.variables
    pretrained = settings.graph == "pretrained"
    method = "lagrangian" if pretrained else settings.graph
    names = graph_columns(variables, method)
    if len(names) < 2:
        if not pretrained:
            model.fix_edges(CausalGraph.empty(model.spec.names))
        return
    options: dict[str, Any] = {}
    if method == "lagrangian":
        options = {
            "threshold": settings.edge_threshold,
            "l1": settings.pretraining_l1,
            "intercept": settings.pretraining_intercept,
        }
    if pretrained:  # Eq. 11 is a mean over the data, not over a part of it
        options["samples"] = len(data.train)
    result = discover(
        data.select(names).train.labels.cpu().numpy(),
        method,
        names=names,
        kinds=[model.spec.variable(name).kind for name in names],
        seed=seed,
        **options,
    )
    if len(names) == len(model.spec.names):
        model.graph_history = [{"adjacency": weights.tolist()} for weights in result.history]
    if pretrained:
        _start_at(model, names, torch.as_tensor(result.history[-1]))
        return
    model.store_directions(result)
    graph = CausalGraph.from_edges(model.spec.names, result.graph.edges)
    slopes = least_squares(graph, data, model) if method == "independence" else None
    model.fix_edges(graph, slopes)


@torch.no_grad()
def _start_at(model: CausalVAE, names: list[str], weights: Tensor) -> None:
    """Write A of the columns `names` into the model; all its entries stay free."""
    rows = torch.tensor([model.spec.names.index(name) for name in names])
    adjacency = torch.zeros(model.adjacency.shape)
    adjacency[rows[:, None], rows] = weights.float()
    model.adjacency.copy_(adjacency)


def least_squares(graph: CausalGraph, data: Dataset, model: CausalVAE) -> Tensor:
    """(n, n) least-squares slopes of the normalised labels on their parents."""
    u = model.spec.normalise(data.train.labels).double().cpu()
    slopes = torch.zeros(graph.weights.shape)
    for i, name in enumerate(graph.names):
        parents = [graph.index(parent) for parent in graph.parents(name)]
        if parents:
            solution = torch.linalg.lstsq(u[:, parents], u[:, i : i + 1]).solution
            slopes[parents, i] = solution[:, 0].float()
    return slopes
