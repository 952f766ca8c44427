"""Labels from the causal controller, under do() and given evidence (by rejection sampling)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.causal.do import Action, Do, act, predict
from intervae.causal.graph import CausalGraph
from intervae.data import Spec
from intervae.errors import QueryError, unknown
from intervae.models.causal_gan.controller import CausalController

PROPOSALS = 4096  # samples of the controller per round of rejection sampling
# rejection sampling fails after MAX_PROPOSALS for each of at least MIN_SAMPLES samples
MAX_PROPOSALS = 2000
MIN_SAMPLES = 256


def sample_controller(
    controller: CausalController,
    spec: Spec,
    graph: CausalGraph,
    n: int,
    do: Do | None,
    evidence: Mapping[str, Any] | None,
    draw_noise: Callable[[int], Tensor],
) -> Tensor:
    """Return labels (n, variables) in their own units.

    Arguments:
        do: interventions, see `causal.do`.
        evidence: conditions that every sample satisfies, see `evidence_intervals`.
        draw_noise: n to noises (n, variables, d).
    """
    actions = act(do, spec.names, spec.categories)

    def draw(count: int) -> Tensor:
        return _intervened_labels(controller, spec, graph, actions, draw_noise(count))

    if not evidence:
        return draw(n)
    intervals = evidence_intervals(evidence, spec)
    for name, value in (do or {}).items():
        if not callable(value) and not isinstance(value, str) and np.ndim(value):
            raise QueryError(
                f"do({name}=...) with one number per sample cannot be combined with evidence=; "
                "give one number, or query each sample alone."
            )
    return _reject(n, intervals, spec, draw)


def _reject(
    n: int,
    intervals: Mapping[str, tuple[float, float]],
    spec: Spec,
    draw: Callable[[int], Tensor],
) -> Tensor:
    """Return the first `n` of many samples that lie in all intervals, (n, variables)."""
    accepted: list[Tensor] = []
    count, proposed = 0, 0
    while count < n:
        if proposed >= MAX_PROPOSALS * max(n, MIN_SAMPLES):
            text = ", ".join(f"{name} in {interval}" for name, interval in intervals.items())
            raise QueryError(
                f"evidence {text} held in {count} of {proposed} samples of the labels, too few; "
                "give less rare evidence, or use do=."
            )
        labels = draw(PROPOSALS)
        columns = [labels[:, spec.names.index(name)] for name in intervals]
        inside = [
            (low <= column) & (column <= high)
            for column, (low, high) in zip(columns, intervals.values(), strict=True)
        ]
        accepted.append(labels[torch.stack(inside).all(0)])
        count, proposed = count + len(accepted[-1]), proposed + PROPOSALS
    return torch.cat(accepted)[:n]


def _intervened_labels(
    controller: CausalController,
    spec: Spec,
    graph: CausalGraph,
    actions: Mapping[str, Action],
    noise: Tensor,
) -> Tensor:
    """Return the labels (n, variables) of the noises under the actions, in their own units."""
    names, variables = spec.names, spec.variables

    def compute(name: str, values: dict[str, Tensor]) -> Tensor:
        i = names.index(name)
        parents = {j: variables[j].normalise(values[names[j]]) for j in controller.parents[i]}
        return variables[i].denormalise(controller.mechanism(i, parents, noise, hard=True))

    labels = predict(graph, compute, actions)
    return torch.stack([labels[name] for name in names], dim=1)


def evidence_intervals(evidence: Mapping[str, Any], spec: Spec) -> dict[str, tuple[float, float]]:
    """Return the closed interval of each variable of the evidence, in its own units.

    A binary variable is 0, 1 or a category, a continuous one an interval (low, high).
    """
    intervals: dict[str, tuple[float, float]] = {}
    for name, value in evidence.items():
        if name not in spec.names:
            raise unknown("variable in evidence", name, spec.names, QueryError)
        if spec.variable(name).kind == "binary":
            action = act({name: value}, spec.names, spec.categories)[name]
            code = float(action(torch.zeros(1)))
            if code not in (0, 1):
                raise QueryError(f"evidence {name}={value!r}: a binary variable is 0 or 1.")
            intervals[name] = (code, code)
            continue
        try:
            low, high = (float(end) for end in value)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not low < high:
            raise QueryError(
                f"evidence {name}={value!r}: a continuous variable needs an interval (low, high) "
                "with low below high, as a single value has probability 0."
            )
        intervals[name] = (low, high)
    return intervals
