"""Mechanisms of a trained CMCL and do() on its nodes (Mao et al. 2022, App. B, Eqs. 15 and 16).

do() on a cause of a latent changes the image. do() on an effect leaves it bit for bit the same:
with z -> u, p(x | do(u)) = p(x), where Eq. 16 prints p(x | u).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intervae.causal.do import Action, Do, SoftAction, abduct, act, predict
from intervae.errors import QueryError, unknown
from intervae.models.inputs import as_tensor

if TYPE_CHECKING:
    from intervae.models.cmcl.model import CMCL


def effect_curve(model: CMCL, effect: str, causes: Mapping[str, Any]) -> Tensor:
    """f of one node at values of its causes; see `CMCL.effect_curve`."""
    for name in (effect, *causes):
        if name not in model.node_names:
            raise unknown("variable", name, model.node_names, QueryError)
    values = {
        name: as_tensor(value, name).to(model.device, torch.float32).flatten()
        for name, value in causes.items()
    }
    rows = max((len(value) for value in values.values()), default=1)
    for name, value in values.items():
        if len(value) not in (1, rows):
            raise QueryError(
                f"effect_curve({effect!r}): {name} has {len(value)} values where another cause "
                f"has {rows}; give as many, or one."
            )
    expanded = {name: value.expand(rows) for name, value in values.items()}
    return _evaluate(model, effect, expanded, rows, model.graph_mask)


def intervene(
    model: CMCL, latents: Tensor, do: Do, labels: Any = None, keep_noise: bool | None = None
) -> Tensor:
    """Latents (B, m, 1) under `do`; see `CMCL.intervene`."""
    z, graph, columns = model.as_latents(latents), model.graph, model.spec.names
    table = None if labels is None else model.as_labels(labels, z.shape[0])
    keep_noise = table is not None if keep_noise is None else keep_noise
    if keep_noise and table is None:
        raise QueryError("keep_noise=True needs the labels of the images; give labels.")
    factual: dict[str, Any] = {name: z[:, i, 0] for i, name in enumerate(model.latent_names)}
    factual |= {name: None if table is None else table[:, i] for i, name in enumerate(columns)}
    # a discrete column keeps its value unless do() sets it, so it has no causes here
    held = {v.name for v in model.spec.variables if v.kind != "continuous"}
    edges = model.graph_mask

    def mechanism(name: str, values: dict[str, Any]) -> Tensor | float:
        if name in held:
            return 0.0
        available = {node: value for node, value in values.items() if value is not None}
        return _evaluate(model, name, available, z.shape[0], edges)

    def on_unknown(action: Action, value: Tensor | None) -> Tensor:
        return action(torch.zeros(z.shape[0], device=model.device) if value is None else value)

    noises = abduct(factual, mechanism) if keep_noise else {}
    actions = act(do, model.node_names, model.spec.categories)
    for name, action in actions.items():
        if table is None and name in columns and isinstance(action, SoftAction):
            raise QueryError(
                f"do({name}=...) is a function of the column, whose value is unknown; "
                "give labels, or a number."
            )
    after = predict(
        graph.without_causes(held),
        lambda name, values: mechanism(name, values) + noises.get(name, 0.0),
        {name: partial(on_unknown, action) for name, action in actions.items()},
        factual,
    )
    return torch.stack([after[name] for name in model.latent_names], dim=1)[..., None]


def _evaluate(
    model: CMCL, effect: str, values: Mapping[str, Tensor], rows: int, edges: Tensor
) -> Tensor:
    """f of one node in its own units: (B,), or (B, K) probabilities of a categorical column."""
    index, m = model.node_names.index(effect), model.settings.latents
    output = model.networks(_node_inputs(model, values, rows), edges)[index]  # (B, K)
    if index < m:
        return output[:, 0] * model.latent_std[index] + model.latent_mean[index]
    variable = model.spec.variables[index - m]
    if variable.kind == "categorical":
        return torch.softmax(output[:, : model.input_sizes[index - m]], dim=1)
    if variable.kind == "binary":
        return torch.sigmoid(output[:, 0])
    return variable.denormalise(output[:, 0])


def _node_inputs(model: CMCL, values: Mapping[str, Tensor], rows: int) -> Tensor:
    """Standardised inputs (B, m + P) of all nodes; a node without a value is at its mean."""
    m, d = model.settings.latents, len(model.spec.variables)
    latents = model.latent_mean.expand(rows, m).clone()
    labels = torch.zeros(rows, d, device=model.device)
    is_set = torch.zeros(d, device=model.device)
    for name, value in values.items():
        index = model.node_names.index(name)
        if index < m:
            latents[:, index] = value
        else:
            labels[:, index - m], is_set[index - m] = value, 1.0
    z = (latents - model.latent_mean) / model.latent_std
    return torch.cat([z, model.inputs(labels) * (is_set @ model.owner)], dim=1)
