"""Measures of counterfactual images, as in measures.py: against a simulator, and without truth."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from intervae import metrics
from intervae.data import Split
from intervae.data.simulators.base import Simulator
from intervae.evaluation.context import Context
from intervae.metrics.base import Measurement
from intervae.metrics.image_regressor import MAX_IMAGES
from intervae.metrics.image_similarity import as_float_images
from intervae.metrics.interventions import CounterfactualQuery
from intervae.models.batches import query_split, spread_rows
from intervae.models.capabilities import HasGraph, Intervention

COUNTERFACTUAL_IMAGES = 512
REPEATED_IMAGES = 128  # for the axioms that repeat a query ten times
REGRESSOR_LOCK = threading.Lock()  # concurrent runs fit a simulator's regressor only once


def counterfactual(context: Context) -> list[Measurement]:
    """Against the simulator; a regressor measures the variables, and its quality comes last."""
    model, data = context.model, context.data
    subset = context.test_subset(COUNTERFACTUAL_IMAGES)
    assert data.simulator is not None
    with REGRESSOR_LOCK:
        regressor, quality = _simulator_regressor(data.simulator, data.spec.image_shape[-1])
    measurements = metrics.counterfactual_errors(
        context.counterfactuals_of(subset),
        data.simulator,
        subset.images.cpu().numpy(),
        subset.fields["exogenous"].cpu().numpy(),
        data.variables,
        regressor=regressor,
        decoder_alone=context.decoder_alone(subset),
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
        context.counterfactuals_of(subset),
        data.simulator,
        subset.images.cpu().numpy(),
        subset.fields["exogenous"].cpu().numpy(),
        data.variables,
        reconstructions=query_split(context.model, "reconstruct", subset),
        decoder_alone=context.decoder_alone(subset),
    )


def axioms(context: Context) -> list[Measurement]:
    """Without truth, beside doing nothing and the mean picture; the regressor's quality last.

    Composition and reversibility are those of the decoder alone: with the images' own pixel noise
    an empty do() is right whatever the model has learned.

    The regressor is fitted on images that are not measured: of the validation and training splits,
    or, of data that is all for testing, on every second image.
    """
    data, tested = context.data, context.data.test
    others = [split for split in (data.validation, data.train) if len(split)]
    if not others:
        tested, others = tested[1::2], [tested[::2]]
    images, labels = _first_rows(others, MAX_IMAGES)
    regressor = metrics.fit_image_regressor(images, labels, data.variables)
    if data.graph is not None:
        graph, owner = data.graph.subgraph(data.names), "true"  # without a simulator's latents
    else:
        graph, owner = context.model.graph, "the model's"
    subset, few = (_random_rows(tested, n) for n in (COUNTERFACTUAL_IMAGES, REPEATED_IMAGES))

    def measure(
        query: CounterfactualQuery, repeated: CounterfactualQuery
    ) -> dict[str, Measurement]:
        x, y, v = subset.images.cpu().numpy(), subset.labels.cpu().numpy(), data.variables
        some, theirs = few.images.cpu().numpy(), few.labels.cpu().numpy()
        results = [
            *metrics.composition(repeated, x, y, v, times=(1,)),
            *metrics.composition(repeated, some, theirs, v, times=(10,)),
            *metrics.reversibility(repeated, x, y, v, cycles=(1,)),
            *metrics.reversibility(repeated, some, theirs, v, cycles=(10,)),
            *metrics.effectiveness(query, x, v, regressor),
            *metrics.minimality(query, x, y, v, regressor, graph),
        ]
        return {m.metric: m for m in results}

    mean = images.mean(0, dtype=np.float64).astype(np.float32)[None] / 255
    trivial: dict[str, CounterfactualQuery] = {
        "doing_nothing": lambda x, do: as_float_images(x),
        "mean_picture": lambda x, do: np.repeat(mean, len(x), axis=0),
    }
    references = {name: measure(query, query) for name, query in trivial.items()}
    results = []
    answers = measure(context.counterfactuals_of(subset), context.decoder_answers)
    for name, m in answers.items():
        compared = {
            key: {"value": reference[name].value, **reference[name].per_variable}
            for key, reference in references.items()
        }
        owned = {"graph": owner} if name.startswith("minimality") else {}
        results.append(replace(m, parameters={**m.parameters, **owned, **compared}))
    unseen = subset.images, subset.labels.cpu().numpy()
    return [*results, *regressor.quality(*unseen, name="predictor")]


def _first_rows(splits: Sequence[Split], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `most` images and labels, those of the first split first."""
    taken: list[Split] = []
    for split in splits:
        taken.append(split[: most - sum(map(len, taken))])
    images = np.concatenate([split.images.cpu().numpy() for split in taken])
    return images, np.concatenate([split.labels.cpu().numpy() for split in taken])


def _random_rows(split: Split, most: int) -> Split:
    """Return at most `most` random rows of a split, always the same ones."""
    return split[spread_rows(len(split), most)]
