"""Interventions that counterfactual metrics ask for, and the summary of their scores.

The headline of a metric is the mean over the interventions on all variables. Beside it are the
means over causes and over pure effects: no training image shows an effect that its causes do not
explain, so that do() on an effect is the harder question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data import Variable

# images (N, C, H, W) uint8 or in [0, 1], do -> images in [0, 1]
CounterfactualQuery = Callable[[np.ndarray, dict[str, Any]], Any]
MODEL = "model"  # the source of scores of the answers; other sources are references
GROUPS = ("causes", "effects")  # parameters with the mean over some of the interventions


def random_interventions(variables: Sequence[Variable], n: int, seed: int) -> dict[str, np.ndarray]:
    """Draw n values for each variable: uniform over its training range, or over its classes."""
    rng = np.random.default_rng(seed)
    draws = {}
    for variable in variables:
        values = rng.uniform(variable.low, variable.high, n)
        if variable.kind == "categorical":  # stretched, so that every class is equally likely
            stretch = 1 + 1 / (variable.high - variable.low)
            values = variable.low + np.floor((values - variable.low) * stretch)
        draws[variable.name] = np.round(values) if variable.kind == "binary" else values
    return draws


def non_descendants(graph: CausalGraph, name: str) -> list[str]:
    """Return the variables that do(name) must not change, without `name` itself."""
    reached = {name, *graph.descendants(name)}
    return [variable for variable in graph.names if variable not in reached]


def causes_and_effects(graph: CausalGraph, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the causes (variables with an effect) and the pure effects among `names`.

    A variable without any edge is neither.
    """
    causes = [name for name in names if graph.children(name)]
    effects = [name for name in names if graph.parents(name) and not graph.children(name)]
    return dict(zip(GROUPS, (causes, effects), strict=True))


def summarise_interventions(
    graph: CausalGraph, scores: Mapping[str, Mapping[str, float]]
) -> tuple[float, dict[str, Any]]:
    """Return the headline of scores per intervention, and the parameters beside it.

    Arguments:
        graph: the true graph, which decides what is a cause.
        scores: source -> intervened variable -> score. MODEL is the source of the answers; others
            are references, such as `doing_nothing`.

    Returns:
        The mean of the model's scores over all variables, and parameters: `headline` in words; for
        each reference its mean under "value" and its scores; for `causes` and `effects`, unless
        there are none, the model's mean under "value", the means of the references, and the
        `variables`.
    """
    names = list(scores[MODEL])
    references = [source for source in scores if source != MODEL]

    def mean(source: str, over: Sequence[str]) -> float:
        return float(np.mean([scores[source][name] for name in over]))

    parameters: dict[str, Any] = {"headline": f"mean over do({'), do('.join(names)})"}
    for source in references:
        parameters[source] = {"value": mean(source, names), **scores[source]}
    for group, members in causes_and_effects(graph, names).items():
        if members:
            means = {source: mean(source, members) for source in references}
            parameters[group] = {"value": mean(MODEL, members), **means, "variables": members}
    return mean(MODEL, names), parameters
