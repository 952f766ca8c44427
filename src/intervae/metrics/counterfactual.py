"""Counterfactual pictures against the simulator's truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intervae.data.base import Variable
from intervae.data.simulators.base import Simulator
from intervae.metrics.base import Measurement

Query = Callable[[np.ndarray, dict[str, np.ndarray]], np.ndarray]  # images uint8 (N, C, H, W), do -> images in [0, 1]


def random_interventions(variables: Sequence[Variable], n: int, seed: int) -> dict[str, np.ndarray]:
    """For each variable, n values to set it to: uniform over its training range, or 0 and 1 at random for a binary one."""
    rng = np.random.default_rng(seed)
    draws = {}
    for variable in variables:
        uniform = rng.uniform(variable.low, variable.high, n)
        draws[variable.name] = np.round(uniform) if variable.kind == "binary" else uniform
    return draws


def counterfactual_pixel_mae(
    query: Query, simulator: Simulator, images: np.ndarray, exogenous: np.ndarray, variables: Sequence[Variable], *, seed: int = 0
) -> tuple[Measurement, Measurement]:
    """Mean absolute pixel error in [0, 1] of do(variable = random value) against the simulator re-rendered after the same do().

    Arguments:
        query: answers (images, do) with counterfactual images in [0, 1].
        images: (N, C, H, W) uint8 that the simulator made from `exogenous` (N, e).

    Returns:
        The model's error and the error of doing nothing (`identity_pixel_mae`), each per intervened variable. The headline is the mean
        over the causes: the variables that have an effect in the true graph. An intervention on a pure effect asks for pictures
        outside the support of the data (a shadow that belongs to no light) and is reported beside it.
    """
    ours: dict[str, float] = {}
    nothing: dict[str, float] = {}
    factual = images.astype(np.float32) / 255
    for name, values in random_interventions(variables, len(images), seed).items():
        truth = simulator.counterfactual(exogenous, {name: values}, size=images.shape[-1])[0].astype(np.float32) / 255
        ours[name] = float(np.abs(np.asarray(query(images, {name: values})) - truth).mean())
        nothing[name] = float(np.abs(factual - truth).mean())
    causes = [v.name for v in variables if simulator.graph.children(v.name)]
    parameters: dict[str, Any] = {"seed": seed, "headline": "mean over do(" + "), do(".join(causes) + ")"}

    def result(metric: str, values: dict[str, float]) -> Measurement:
        return Measurement(metric, float(np.mean([values[c] for c in causes])), len(images), values, None, parameters, higher_is_better=False)

    return result("counterfactual_pixel_mae", ours), result("identity_pixel_mae", nothing)
