"""Errors of counterfactual images against a simulator.

For each variable v a random value is drawn for each image; the model answers do(v = value), and the
simulator renders the truth from the same exogenous noise. Measures are means over images, their
headlines means over all variables, see `summarise_interventions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data import Variable
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.image_regressor import ImageRegressor
from intervae.metrics.image_similarity import as_float_images, pixel_mae, psnr, ssim
from intervae.metrics.interventions import (
    MODEL,
    CounterfactualQuery,
    non_descendants,
    random_interventions,
    summarise_interventions,
)

# latents (N, n, k), do -> latents (N, n, k)
LatentQuery = Callable[[np.ndarray, dict[str, Any]], Any]

_SIMILARITIES: dict[str, Callable[[Any, Any], np.ndarray]] = {
    "pixel_mae": pixel_mae,
    "psnr": psnr,
    "ssim": ssim,
}


def counterfactual_errors(
    query: CounterfactualQuery,
    simulator: Simulator,
    images: np.ndarray,
    exogenous: np.ndarray,
    variables: Sequence[Variable],
    *,
    regressor: ImageRegressor | None = None,
    decoder_alone: CounterfactualQuery | None = None,
    seed: int = 0,
) -> list[Measurement]:
    """Compare answers to do(variable = random value) with the simulator, for every variable.

    Arguments:
        query: function of (images, do) to counterfactual images in [0, 1].
        images: (N, C, H, W) uint8, rendered by the simulator from `exogenous` (N, e).
        regressor: measures the simulator's variables on images, see `simulator_regressor`; without
            it the last two measurements are left out.
        decoder_alone: the same query without the images' own pixel noise, for models that keep it;
            a reference of the similarities.

    Returns:
        counterfactual_pixel_mae: mean |image - truth|, values in [0, 1].
        identity_pixel_mae: the same for the unchanged input.
        counterfactual_psnr: mean over images of 10 log10(1 / mean squared error), in dB.
        counterfactual_ssim: structural similarity, see `ssim`.
        counterfactual_variable_error: per variable w, mean |measured w - true w| over all do(v), in
            the units of w (binary or categorical w: fraction wrong); the headline is the mean over
            variables in standard deviations.
        nondescendant_movement: per do(v), mean change of the variables that are neither v nor its
            descendants in the true graph, in standard deviations; 0 is best.

    The first four leave out do() of a variable in `simulator.without_true_image`.
    A headline is the mean over all variables; the parameters `causes` and `effects` have the means
    over these. The parameter `doing_nothing` holds the values of the unchanged input;
    `true_picture`, of the last two, those of the true images, which is the error of the regressor.
    Their headlines are under "value".
    """
    factual = as_float_images(images)
    scores: dict[str, dict[str, float]] = {
        f"{source}_{name}": {}
        for name in _SIMILARITIES
        for source in ("counterfactual", "identity", "decoder_alone")
    }
    measured = (
        _MeasuredVariables(regressor, simulator, factual, exogenous)
        if regressor is not None
        else None
    )
    for name, values in random_interventions(variables, len(factual), seed).items():
        rendered, true_values = simulator.counterfactual(
            exogenous, {name: values}, size=factual.shape[-1]
        )
        truth = as_float_images(rendered)
        answer = as_float_images(query(images, {name: values}), f"the answer to do({name})")
        plain = None if decoder_alone is None else decoder_alone(images, {name: values})
        for similarity, function in _SIMILARITIES.items():
            if name in simulator.without_true_image:
                continue
            scores[f"counterfactual_{similarity}"][name] = float(function(answer, truth).mean())
            scores[f"identity_{similarity}"][name] = float(function(factual, truth).mean())
            if plain is not None:
                error = float(function(as_float_images(plain), truth).mean())
                scores[f"decoder_alone_{similarity}"][name] = error
        if measured is not None:
            measured.add(name, answer, truth, true_values)
    graph = simulator.graph

    def result(metric: str, higher_is_better: bool, **references: dict[str, float]) -> Measurement:
        value, summary = summarise_interventions(graph, {MODEL: scores[metric], **references})
        return Measurement(
            metric,
            value,
            len(factual),
            scores[metric],
            parameters={"seed": seed, **summary},
            higher_is_better=higher_is_better,
        )

    measurements = []
    for similarity in _SIMILARITIES:
        unchanged, better = scores[f"identity_{similarity}"], similarity != "pixel_mae"
        references = {"doing_nothing": unchanged}
        if decoder_alone is not None:
            references["decoder_alone"] = scores[f"decoder_alone_{similarity}"]
        measurements.append(result(f"counterfactual_{similarity}", better, **references))
    measurements.insert(1, result("identity_pixel_mae", False))
    if measured is not None:
        measurements += [measured.variable_error(seed), *measured.nondescendant_movement(seed)]
    return measurements


class _MeasuredVariables:
    """Variables that a regressor measures on answers, true images and unchanged inputs.

    `errors` and `movements` map do -> source -> mean distance (n,).
    """

    def __init__(
        self,
        regressor: ImageRegressor,
        simulator: Simulator,
        factual: np.ndarray,
        exogenous: np.ndarray,
    ) -> None:
        self.regressor, self.graph, self.n = regressor, simulator.graph, len(factual)
        self.before = regressor(factual)
        self.scale = variable_scales(regressor.variables, simulator.simulate(exogenous))
        self.errors: dict[str, dict[str, np.ndarray]] = {}
        self.movements: dict[str, dict[str, np.ndarray]] = {}

    def add(
        self, name: str, answer: np.ndarray, truth: np.ndarray, true_values: np.ndarray
    ) -> None:
        variables = self.regressor.variables
        measured = {
            MODEL: self.regressor(answer),
            "true_picture": self.regressor(truth),
            "doing_nothing": self.before,
        }
        self.errors[name] = {
            source: variable_distances(variables, values, true_values).mean(0)
            for source, values in measured.items()
        }
        self.movements[name] = {
            source: variable_distances(variables, values, self.before).mean(0)
            for source, values in measured.items()
        }

    def variable_error(self, seed: int) -> Measurement:
        def error(source: str) -> dict[str, float]:
            """Mean over the interventions of the error of each variable, in its units."""
            errors = np.mean([by_source[source] for by_source in self.errors.values()], axis=0)
            return self._named(errors)

        sources = (MODEL, "true_picture", "doing_nothing")
        scores = {
            source: {do: float((e[source] / self.scale).mean()) for do, e in self.errors.items()}
            for source in sources
        }
        value, summary = summarise_interventions(self.graph, scores)
        for source in sources[1:]:
            summary[source] = {"value": summary[source]["value"], **error(source)}
        over = f"mean over variables of error / standard deviation, {summary['headline']}"
        by_do = {do: self._named(errors[MODEL]) for do, errors in self.errors.items()}
        return Measurement(
            "counterfactual_variable_error",
            value,
            self.n,
            error(MODEL),
            parameters={"seed": seed, **summary, "headline": over, "by_intervention": by_do},
            higher_is_better=False,
        )

    def nondescendant_movement(self, seed: int) -> list[Measurement]:
        """Return the measurement, or nothing where every variable descends from all acted on."""
        moved: dict[str, dict[str, float]] = {MODEL: {}, "true_picture": {}, "doing_nothing": {}}
        for do, movement in self.movements.items():
            fixed = [self.regressor.names.index(w) for w in non_descendants(self.graph, do)]
            if fixed:
                for source in moved:
                    moved[source][do] = float((movement[source] / self.scale)[fixed].mean())
        if not moved[MODEL]:
            return []
        value, summary = summarise_interventions(self.graph, moved)
        return [
            Measurement(
                "nondescendant_movement",
                value,
                self.n,
                moved[MODEL],
                parameters={"seed": seed, **summary},
                higher_is_better=False,
            )
        ]

    def _named(self, values: np.ndarray) -> dict[str, float]:
        return dict(zip(self.regressor.names, values.tolist(), strict=True))


def latent_movement(
    query: LatentQuery,
    latents: np.ndarray,
    variables: Sequence[Variable],
    graph: CausalGraph,
    *,
    seed: int = 0,
) -> Measurement | None:
    """Return max |after - before| of non-descendant latents under do(v = random value).

    0 means bit-equal. None is returned where all variables descend from those acted on.

    Arguments:
        query: function of (latents (N, n, k), do) to latents after the intervention.
        graph: over the same n variables, in the order of the latents.
    """
    before = np.asarray(latents)
    if before.ndim != 3 or before.shape[1] != len(graph):
        raise DataError(
            f"latents must be (N, {len(graph)}, k), one block for each variable of the graph, "
            f"not {before.shape}."
        )
    moved: dict[str, float] = {}
    for name, values in random_interventions(variables, len(before), seed).items():
        fixed = [graph.index(w) for w in non_descendants(graph, name)]
        if fixed:
            after = np.asarray(query(before, {name: values}))
            moved[name] = float(np.abs(after[:, fixed] - before[:, fixed]).max())
    if not moved:
        return None
    return Measurement(
        "nondescendant_latent_movement",
        max(moved.values()),
        len(before),
        moved,
        parameters={"seed": seed},
        higher_is_better=False,
    )


def variable_distances(
    variables: Sequence[Variable], values: np.ndarray, truth: np.ndarray
) -> np.ndarray:
    """Return distances (N, n): |difference| of continuous variables, else 1 for another class."""
    columns = [
        np.abs(a - b) if v.kind == "continuous" else (a != b).astype(float)
        for v, a, b in zip(variables, values.T, truth.T, strict=True)
    ]
    return np.stack(columns, axis=1)


def variable_scales(variables: Sequence[Variable], values: np.ndarray) -> np.ndarray:
    """Return (n,) standard deviations of continuous variables in `values` (N, n), 1 for others."""
    return np.array(
        [
            float(column.std()) or 1.0 if v.kind == "continuous" else 1.0
            for v, column in zip(variables, values.T, strict=True)
        ]
    )
