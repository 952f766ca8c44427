"""Counterfactual pictures against the simulator's truth: pixels, structure, every variable in its own units, and what must not move.

For each variable v a value is drawn for each image; the model answers do(v = value), the simulator draws what the same noises would have
shown. All picture metrics are means over the images; their headline is the mean over the causes, the variables with an effect in the
true graph. An intervention on a pure effect asks for pictures outside the support of the data (a shadow that belongs to no light) and is
reported beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.base import Variable
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.pictures import as_pictures, pixel_mae, psnr, ssim
from intervae.metrics.reader import Reader

Query = Callable[[np.ndarray, dict[str, Any]], Any]  # images (N, C, H, W) uint8 or in [0, 1], do -> images in [0, 1]
LatentQuery = Callable[[np.ndarray, dict[str, Any]], Any]  # latents (N, n, k), do -> latents (N, n, k)


def random_interventions(variables: Sequence[Variable], n: int, seed: int) -> dict[str, np.ndarray]:
    """For each variable, n values to set it to: uniform over its training range, or its classes at random for a binary or categorical one."""
    rng = np.random.default_rng(seed)
    draws = {}
    for variable in variables:
        uniform = rng.uniform(variable.low, variable.high, n)
        if variable.kind == "categorical":
            uniform = variable.low + np.floor((uniform - variable.low) * (1 + 1 / (variable.high - variable.low)))  # every code as likely
        draws[variable.name] = np.round(uniform) if variable.kind == "binary" else uniform
    return draws


def counterfactual_errors(
    query: Query,
    simulator: Simulator,
    images: np.ndarray,
    exogenous: np.ndarray,
    variables: Sequence[Variable],
    *,
    reader: Reader | None = None,
    seed: int = 0,
) -> list[Measurement]:
    """do(variable = random value) for every variable in turn, beside the simulator's picture after the same do().

    Arguments:
        query: answers (images, do) with counterfactual images in [0, 1].
        images: (N, C, H, W) uint8 that the simulator made from `exogenous` (N, e).
        reader: measures the simulator's variables on pictures, see `simulator_reader`; without it the last two below are left out.

    Returns:
        counterfactual_pixel_mae: mean |picture - truth|, values in [0, 1].
        identity_pixel_mae: the same for doing nothing, mean |image - truth|.
        counterfactual_psnr: mean over images of 10 log10(1 / mean squared error), in dB.
        counterfactual_ssim: structural similarity, see `ssim`.
        counterfactual_variable_error: per variable w, mean |read(picture)_w - true w| over do(cause), in the units of w (a binary or
            categorical one: the share read wrongly); the headline is the mean over variables in units of their standard deviation.
        nondescendant_movement: per intervention do(v), mean |read(picture)_w - read(image)_w| over the variables w that are neither v
            nor descend from it in the true graph, in standard deviations; 0 if only v and its effects moved.

    Parameters hold what doing nothing scores (`doing_nothing`) and, of the last two, what the true pictures score, the reader's own error
    (`true_picture`); the headline of each under "value".
    """
    factual = as_pictures(images)
    scores: dict[str, dict[str, float]] = {f"{who}_{what}": {} for what in _PICTURES for who in ("counterfactual", "identity")}
    readings = _Readings(reader, simulator, factual, exogenous) if reader is not None else None
    for name, values in random_interventions(variables, len(factual), seed).items():
        drawn, true_values = simulator.counterfactual(exogenous, {name: values}, size=factual.shape[-1])
        truth, picture = as_pictures(drawn), as_pictures(query(images, {name: values}), f"the answer to do({name})")
        for what, measure in _PICTURES.items():
            scores[f"counterfactual_{what}"][name] = float(measure(picture, truth).mean())
            scores[f"identity_{what}"][name] = float(measure(factual, truth).mean())
        if readings is not None:
            readings.add(name, picture, truth, true_values)
    causes = [v.name for v in variables if simulator.graph.children(v.name)] or [v.name for v in variables]
    parameters: dict[str, Any] = {"seed": seed, "headline": "mean over do(" + "), do(".join(causes) + ")"}

    def headline(metric: str) -> float:
        return float(np.mean([scores[metric][c] for c in causes]))

    def result(metric: str, higher: bool, **more: Any) -> Measurement:
        return Measurement(metric, headline(metric), len(factual), scores[metric], None, {**parameters, **more}, higher)

    found = [result("counterfactual_pixel_mae", False), result("identity_pixel_mae", False)]
    for what in ("psnr", "ssim"):
        nothing = {"value": headline(f"identity_{what}"), **scores[f"identity_{what}"]}
        found.append(result(f"counterfactual_{what}", True, doing_nothing=nothing))
    return found + (readings.results(causes, parameters) if readings is not None else [])


_PICTURES: dict[str, Callable[[Any, Any], np.ndarray]] = {"pixel_mae": pixel_mae, "psnr": psnr, "ssim": ssim}


class _Readings:
    """What a reader finds in counterfactual pictures: [do][who][variable] -> mean distance, for us, for the true picture, for doing nothing."""

    def __init__(self, reader: Reader, simulator: Simulator, factual: np.ndarray, exogenous: np.ndarray) -> None:
        self.reader, self.graph, self.n = reader, simulator.graph, len(factual)
        self.before = reader(factual)
        self.scale = scales(reader.variables, simulator.simulate(exogenous))
        self.errors: dict[str, dict[str, np.ndarray]] = {}
        self.movements: dict[str, dict[str, np.ndarray]] = {}

    def add(self, name: str, picture: np.ndarray, truth: np.ndarray, true_values: np.ndarray) -> None:
        ours, floor = self.reader(picture), self.reader(truth)
        read = {"model": ours, "true_picture": floor, "doing_nothing": self.before}
        self.errors[name] = {who: distances(self.reader.variables, values, true_values).mean(0) for who, values in read.items()}
        self.movements[name] = {who: distances(self.reader.variables, read[who], self.before).mean(0) for who in ("model", "true_picture")}

    def results(self, causes: Sequence[str], parameters: dict[str, Any]) -> list[Measurement]:
        names = self.reader.names

        def error(who: str) -> np.ndarray:
            return np.mean([self.errors[c][who] for c in causes], axis=0)

        def named(values: np.ndarray) -> dict[str, float]:
            return dict(zip(names, values.tolist(), strict=True))

        detail = {
            "headline": "mean over variables of error / standard deviation, over do(" + "), do(".join(causes) + ")",
            "true_picture": {"value": float((error("true_picture") / self.scale).mean()), **named(error("true_picture"))},
            "doing_nothing": {"value": float((error("doing_nothing") / self.scale).mean()), **named(error("doing_nothing"))},
            "by_intervention": {do: named(found["model"]) for do, found in self.errors.items()},
        }
        value = float((error("model") / self.scale).mean())
        errors = Measurement("counterfactual_variable_error", value, self.n, named(error("model")), None, {**parameters, **detail}, False)
        return [errors, *self._movement(causes, parameters)]

    def _movement(self, causes: Sequence[str], parameters: dict[str, Any]) -> list[Measurement]:
        moved: dict[str, dict[str, float]] = {"model": {}, "true_picture": {}}
        for do, found in self.movements.items():
            still = [self.reader.names.index(w) for w in non_descendants(self.graph, do)]
            if still:
                for who in moved:
                    moved[who][do] = float((found[who] / self.scale)[still].mean())
        headline = [do for do in causes if do in moved["model"]]
        if not headline:
            return []
        ours, floor = (float(np.mean([found[do] for do in headline])) for found in moved.values())
        more = {"headline": "mean over do(" + "), do(".join(headline) + ")", "true_picture": {"value": floor, **moved["true_picture"]}}
        return [Measurement("nondescendant_movement", ours, self.n, moved["model"], None, {**parameters, **more}, False)]


def latent_movement(
    query: LatentQuery, latents: np.ndarray, variables: Sequence[Variable], graph: CausalGraph, *, seed: int = 0
) -> Measurement | None:
    """How far latents that must stay move under do(v = random value): max |after - before| over all that neither are v nor descend from it.

    Arguments:
        query: answers (latents (N, n, k), do) with latents after the intervention.
        graph: over the same n variables, in the order of the latents; a model keeps its promise to the graph it has itself.

    Returns:
        None where every variable descends from every other that is acted on, so that nothing must stay. 0 means bit-equal.
    """
    before = np.asarray(latents)
    if before.ndim != 3 or before.shape[1] != len(graph):
        raise DataError(f"latents must be (N, {len(graph)}, k), one block for each variable of the graph, not {before.shape}.")
    moved: dict[str, float] = {}
    for name, values in random_interventions(variables, len(before), seed).items():
        still = [graph.index(w) for w in non_descendants(graph, name)]
        if still:
            after = np.asarray(query(before, {name: values}))
            moved[name] = float(np.abs(after[:, still] - before[:, still]).max())
    if not moved:
        return None
    return Measurement("nondescendant_latent_movement", max(moved.values()), len(before), moved, parameters={"seed": seed}, higher_is_better=False)


def non_descendants(graph: CausalGraph, name: str) -> list[str]:
    """Everything that do(name) leaves as it is: neither the variable nor what it reaches."""
    reached = {name, *graph.descendants(name)}
    return [other for other in graph.names if other not in reached]


def distances(variables: Sequence[Variable], ours: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(N, n): |difference| in own units for a continuous variable, 1 where the class differs for others."""
    columns = [np.abs(a - b) if v.kind == "continuous" else (a != b).astype(float) for v, a, b in zip(variables, ours.T, truth.T, strict=True)]
    return np.stack(columns, axis=1)


def scales(variables: Sequence[Variable], values: np.ndarray) -> np.ndarray:
    """(n,) what a distance is divided by to compare variables: the standard deviation of a continuous one in `values` (N, n), 1 for others."""
    return np.array([float(column.std()) or 1.0 if v.kind == "continuous" else 1.0 for v, column in zip(variables, values.T, strict=True)])
