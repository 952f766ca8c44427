"""Measures of counterfactual images, as in measures.py: against a simulator, and without truth."""

from __future__ import annotations

import functools
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from intervae import metrics
from intervae.data.simulators.base import Simulator
from intervae.evaluation.context import Context
from intervae.metrics.base import Measurement
from intervae.models.batches import query_split
from intervae.models.capabilities import HasGraph, Intervention

COUNTERFACTUAL_IMAGES = 512
AXIOM_IMAGES = 128  # each answers about 30 queries for every variable
REGRESSOR_LOCK = threading.Lock()  # concurrent runs fit a simulator's regressor only once


def counterfactual(context: Context) -> list[Measurement]:
    """Against the simulator; a regressor measures the variables, and its quality comes last."""
    model, data = context.model, context.data
    subset = context.test_subset(COUNTERFACTUAL_IMAGES)
    assert data.simulator is not None
    with REGRESSOR_LOCK:
        regressor, quality = _simulator_regressor(data.simulator, data.spec.image_shape[-1])
    measurements = metrics.counterfactual_errors(
        context.counterfactual,
        data.simulator,
        subset.images.cpu().numpy(),
        subset.fields["exogenous"].cpu().numpy(),
        data.variables,
        regressor=regressor,
    )
    if isinstance(model, Intervention) and isinstance(model, HasGraph):
        latents = context.latents[context.subset_rows(COUNTERFACTUAL_IMAGES)]

        def intervene(before: np.ndarray, do: dict[str, Any]) -> np.ndarray:
            return model.intervene(torch.as_tensor(before, device=model.device), do).cpu().numpy()

        movement = metrics.latent_movement(intervene, latents, data.variables, model.graph)
        measurements += [movement] if movement is not None else []
    return measurements + quality


@functools.lru_cache(maxsize=2)
def _simulator_regressor(simulator: Simulator, size: int) -> Any:
    """A regressor and its quality, fitted once for all models evaluated on the same data."""
    return metrics.simulator_regressor(simulator, size)


def object_layers(context: Context) -> list[Measurement]:
    """Against the simulator's objects."""
    assert context.data.simulator is not None
    layers = [layer.variables for layer in context.model.layers]
    return [metrics.object_layers(layers, context.data.simulator.objects)]


def outside_mask(context: Context) -> list[Measurement]:
    """Against the simulator, where nothing may change; also of the model's reconstructions."""
    subset, data = context.test_subset(COUNTERFACTUAL_IMAGES), context.data
    assert data.simulator is not None
    return metrics.outside_mask_errors(
        context.counterfactual,
        data.simulator,
        subset.images.cpu().numpy(),
        subset.fields["exogenous"].cpu().numpy(),
        data.variables,
        reconstructions=query_split(context.model, "reconstruct", subset),
    )


def axioms(context: Context) -> list[Measurement]:
    """Without truth; the regressor is fitted on the validation split, its quality comes last."""
    data, subset = context.data, context.test_subset(AXIOM_IMAGES)
    regressor = metrics.fit_image_regressor(
        data.validation.images, data.validation.labels.cpu().numpy(), data.variables
    )
    query, images, labels = (
        context.counterfactual,
        subset.images.cpu().numpy(),
        subset.labels.cpu().numpy(),
    )
    if data.graph is not None:
        graph, owner = data.graph.subgraph(data.names), "true"  # without a simulator's latents
    else:
        graph, owner = context.model.graph, "the model's"
    minimality = [
        replace(m, parameters={**m.parameters, "graph": owner})
        for m in metrics.minimality(query, images, labels, data.variables, regressor, graph)
    ]
    unseen = context.test_subset(COUNTERFACTUAL_IMAGES)
    return [
        *metrics.composition(query, images, labels, data.variables),
        *metrics.reversibility(query, images, labels, data.variables),
        *metrics.effectiveness(query, images, data.variables, regressor),
        *minimality,
        *regressor.quality(unseen.images, unseen.labels.cpu().numpy(), name="predictor"),
    ]
