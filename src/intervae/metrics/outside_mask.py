"""Pixels that an intervention must not change, against a simulator that names its objects.

do(v) may change the objects that v or its descendants draw. The mask of what may change has every
pixel that such an object covers, in the image before or in the true image after; outside it both
are equal, and the right answer is the image before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intervae.data import Variable
from intervae.data.simulators.base import Simulator
from intervae.errors import UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.image_similarity import as_float_images
from intervae.metrics.interventions import (
    MODEL,
    CounterfactualQuery,
    non_descendants,
    random_interventions,
    summarise_interventions,
)

CHANGED = 8 / 255  # largest difference in a channel that does not count as a change
ROUNDING = 1e-6  # of differences of float32 images


def outside_mask_errors(
    query: CounterfactualQuery,
    simulator: Simulator,
    images: np.ndarray,
    exogenous: np.ndarray,
    variables: Sequence[Variable],
    *,
    reconstructions: Any = None,
    decoder_alone: CounterfactualQuery | None = None,
    seed: int = 0,
) -> list[Measurement]:
    """Measure what answers to do(variable = random value) change outside the mask.

    Arguments:
        query: function of (images, do) to counterfactual images in [0, 1].
        simulator: one whose `objects` cover every variable that an image shows.
        images: (N, C, H, W) uint8, rendered by the simulator from `exogenous` (N, e).
        reconstructions: the model's answers without an intervention, (N, C, H, W) in [0, 1].
        decoder_alone: the same query without the images' own pixel noise, for models that keep it;
            another reference.

    Returns:
        outside_mask_mae: mean |answer - truth| over the pixels outside the mask of all images.
        changed_outside_share: fraction of these pixels that differ from the image before by more
            than 8 of 255 levels in a channel.

    The parameter `doing_nothing` has the values of the unchanged input, 0 for a simulator whose
    masks are right, and `reconstruction` those of `reconstructions`: the difference to it is what
    do() adds. `outside` is the fraction of pixels outside the mask. A variable whose mask covers
    everything is left out, and nothing is returned where that holds for all.
    """
    if not simulator.objects:
        raise UsageError(f"the simulator {simulator.name!r} does not name the objects it draws.")
    factual = as_float_images(images)
    size = factual.shape[-1]
    before = simulator.object_masks(simulator.simulate(exogenous), exogenous, size=size)
    unchanged = {"doing_nothing": factual}
    if reconstructions is not None:
        unchanged["reconstruction"] = as_float_images(reconstructions, "the reconstructions")
    sources = (MODEL, *unchanged, *(() if decoder_alone is None else ("decoder_alone",)))
    errors: dict[str, dict[str, float]] = {source: {} for source in sources}
    shares: dict[str, dict[str, float]] = {source: {} for source in sources}
    outside_fraction: dict[str, float] = {}
    for name, values in random_interventions(variables, len(factual), seed).items():
        true_values = simulator.simulate(exogenous, {name: values})
        after = simulator.object_masks(true_values, exogenous, size=size)
        outside = ~_mask(simulator, name, before, after)  # (N, H, W)
        if not outside.any():
            continue
        outside_fraction[name] = float(outside.mean())
        truth = as_float_images(simulator.render(true_values, exogenous, size=size))
        answer = as_float_images(query(images, {name: values}), f"the answer to do({name})")
        compared = {MODEL: answer, **unchanged}
        if decoder_alone is not None:
            compared["decoder_alone"] = as_float_images(decoder_alone(images, {name: values}))
        for source, answers in compared.items():
            error = np.abs(answers - truth).mean(1, dtype=np.float64)  # (N, H, W)
            change = np.abs(answers - factual).max(1)
            errors[source][name] = float(error[outside].mean())
            shares[source][name] = float((change[outside] > CHANGED + ROUNDING).mean())
    measurements = []
    for metric, scores in (("outside_mask_mae", errors), ("changed_outside_share", shares)):
        if outside_fraction:
            value, summary = summarise_interventions(simulator.graph, scores)
            parameters = {"seed": seed, **summary, "outside": outside_fraction}
            measurements.append(
                Measurement(
                    metric,
                    value,
                    len(factual),
                    scores[MODEL],
                    parameters=parameters,
                    higher_is_better=False,
                )
            )
    return measurements


def _mask(
    simulator: Simulator,
    name: str,
    before: Mapping[str, np.ndarray],
    after: Mapping[str, np.ndarray],
) -> np.ndarray:
    """Return (N, H, W) bool: pixels of the objects that do(name) may change, before or after."""
    fixed = set(non_descendants(simulator.graph, name))
    mask = np.zeros_like(next(iter(before.values())))
    for item, drawn_by in simulator.objects.items():
        if not fixed.issuperset(drawn_by):
            mask |= before[item] | after[item]
    return mask
