"""Axioms of counterfactual images without ground truth.

Composition, reversibility and effectiveness (Monteiro et al. 2023), and minimality. f(x, do) is the
query for counterfactual images; |.| is the mean absolute difference over pixels in [0, 1]. The
axioms belong together: the identity satisfies all but effectiveness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data import Variable
from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual import variable_distances
from intervae.metrics.image_similarity import as_float_images, pixel_mae
from intervae.metrics.interventions import (
    CounterfactualQuery,
    non_descendants,
    random_interventions,
)
from intervae.metrics.variable_regressor import VariableRegressor


def composition(
    query: CounterfactualQuery,
    images: Any,
    labels: np.ndarray,
    variables: Sequence[Variable],
    *,
    times: Sequence[int] = (1, 10),
) -> list[Measurement]:
    """Return `composition_m` = mean |f(...f(f(x, {}), {})..., {}) - x| after m null interventions.

    The values per variable v are those of f(x, do(v = its own value)), repeated m times.

    Arguments:
        labels: (N, n) values of the variables in these images.
        times: the numbers m.
    """
    start, table = _check(images, labels, variables)
    empty = _repeat(query, start, [{}], times)
    own_value = {
        v.name: _repeat(query, start, [{v.name: table[:, i]}], times)
        for i, v in enumerate(variables)
    }
    return [
        Measurement(
            f"composition_{m}",
            empty[m],
            len(start),
            {name: values[m] for name, values in own_value.items()},
            parameters={
                "null_interventions": m,
                "headline": "do({}); per variable: do(variable = its own value)",
            },
            higher_is_better=False,
        )
        for m in times
    ]


def reversibility(
    query: CounterfactualQuery,
    images: Any,
    labels: np.ndarray,
    variables: Sequence[Variable],
    *,
    cycles: Sequence[int] = (1, 10),
    seed: int = 0,
) -> list[Measurement]:
    """Return `reversibility_m` = mean |x' - x| after m cycles of do and undo.

    A cycle is x' = f(f(x, do(v = a)), do(v = its own value)). The value a is random for each image
    (`random_interventions`) and the same in every cycle. The headline is the mean over variables.

    Arguments:
        labels: (N, n) values of the variables in these images.
        cycles: the numbers m.
    """
    start, table = _check(images, labels, variables)
    draws = random_interventions(variables, len(start), seed)
    distances = {
        v.name: _repeat(query, start, [{v.name: draws[v.name]}, {v.name: table[:, i]}], cycles)
        for i, v in enumerate(variables)
    }
    return [
        _mean_measurement(
            f"reversibility_{m}",
            {name: values[m] for name, values in distances.items()},
            len(start),
            {"cycles": m, "seed": seed},
            higher_is_better=False,
        )
        for m in cycles
    ]


def effectiveness(
    query: CounterfactualQuery,
    images: Any,
    variables: Sequence[Variable],
    regressor: VariableRegressor,
    *,
    seed: int = 0,
) -> list[Measurement]:
    """Compare the value that a regressor measures on f(x, do(v = a)) with a.

    Returns (only for kinds of variables that occur):
        effectiveness_error: per continuous variable, mean |measured - a| in its units; the headline
            is the mean in standard deviations.
        effectiveness_accuracy: per binary or categorical variable; chance is 1 / classes.
        effectiveness_f1: per binary variable F1 of the value 1; per categorical variable the mean
            F1 over its classes.
    """
    start = as_float_images(images)
    columns = _columns(regressor, variables)
    errors, accuracy, f1 = {}, {}, {}
    for variable, (name, values) in zip(
        variables, random_interventions(variables, len(start), seed).items(), strict=True
    ):
        measured = regressor(_answer(query, start, {name: values}))[:, columns[name]]
        if variable.kind == "continuous":
            errors[name] = float(np.abs(measured - values).mean())
        else:
            accuracy[name] = float((measured == values).mean())
            f1[name] = (
                f1_score(measured, values)
                if variable.kind == "binary"
                else float(np.mean([f1_score(measured == c, values == c) for c in set(values)]))
            )
    measurements = []
    if errors:
        relative = [errors[v.name] / v.std for v in variables if v.name in errors]
        headline = "mean over variables of error / standard deviation"
        measurements.append(
            Measurement(
                "effectiveness_error",
                float(np.mean(relative)),
                len(start),
                errors,
                parameters={"seed": seed, "headline": headline},
                higher_is_better=False,
            )
        )
    parameters = {"seed": seed, "headline": "mean over variables"}
    for metric, scores in (("effectiveness_accuracy", accuracy), ("effectiveness_f1", f1)):
        if scores:
            measurements.append(
                _mean_measurement(metric, scores, len(start), parameters, higher_is_better=True)
            )
    return measurements


def minimality(
    query: CounterfactualQuery,
    images: Any,
    labels: np.ndarray,
    variables: Sequence[Variable],
    regressor: VariableRegressor,
    graph: CausalGraph,
    *,
    seed: int = 0,
    interventions: Mapping[str, np.ndarray] | None = None,
) -> list[Measurement]:
    """Measure what else changes, with x0 = f(x, {}) and x' = f(x, do(v = a)).

    Returns:
        minimality_variables: per do(v), mean |measured(x')_w - measured(x0)_w| / standard deviation
            of w, over the variables w that are neither v nor its descendants (binary or categorical
            w: fraction that changed). Left out if there are none.
        minimality_picture: per do(v), |x' - x0| over the mean intended change |a - v| / standard
            deviation of v. It has no best value, as an intervention must show; it compares models
            of equal effectiveness.

    Arguments:
        labels: (N, n) values of the variables in these images.
        graph: over these variables.
        interventions: name -> values (N,), in the order of the variables; by default random.
    """
    start, table = _check(images, labels, variables)
    columns = _columns(regressor, variables)
    draws = interventions or random_interventions(variables, len(start), seed)
    null = _answer(query, start, {})
    before = regressor(null)
    scale = np.array([v.std if v.kind == "continuous" else 1.0 for v in regressor.variables])
    movement, pixels = {}, {}
    for i, (name, values) in enumerate(draws.items()):
        after = _answer(query, start, {name: values})
        fixed = [columns[w] for w in non_descendants(graph, name) if w in columns]
        if fixed:
            distances = variable_distances(regressor.variables, regressor(after), before).mean(0)
            movement[name] = float((distances / scale)[fixed].mean())
        distance = variable_distances(variables[i : i + 1], values[:, None], table[:, [i]]).mean()
        intended = float(distance / (variables[i].std if variables[i].kind == "continuous" else 1))
        if intended > 0:
            pixels[name] = float(pixel_mae(after, null).mean() / intended)
    measurements = []
    if movement:
        measurements.append(
            _mean_measurement(
                "minimality_variables",
                movement,
                len(start),
                {"seed": seed},
                higher_is_better=False,
            )
        )
    if pixels:
        measurements.append(
            _mean_measurement(
                "minimality_picture", pixels, len(start), {"seed": seed}, higher_is_better=None
            )
        )
    return measurements


def f1_score(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return 2 TP / (2 TP + FP + FN); 1 where the value neither occurs nor is predicted."""
    predicted, truth = np.asarray(predicted, dtype=bool), np.asarray(truth, dtype=bool)
    either = predicted.sum() + truth.sum()
    return float(2 * (predicted & truth).sum() / either) if either else 1.0


def _repeat(
    query: CounterfactualQuery,
    start: np.ndarray,
    steps: Sequence[dict[str, Any]],
    times: Sequence[int],
) -> dict[int, float]:
    """Apply `steps` max(times) times; return mean |image - start| after each count in `times`."""
    if not times or min(times) < 1:
        raise UsageError(f"interventions are repeated at least once, not {list(times)} times.")
    distances, current = {}, start
    for m in range(1, max(times) + 1):
        for do in steps:
            current = _answer(query, current, do)
        if m in times:
            distances[m] = float(pixel_mae(current, start).mean())
    return distances


def _answer(query: CounterfactualQuery, images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
    return as_float_images(query(images, do), f"the answer to do({', '.join(do)})")


def _check(
    images: Any, labels: np.ndarray, variables: Sequence[Variable]
) -> tuple[np.ndarray, np.ndarray]:
    floats, table = as_float_images(images), np.asarray(labels, dtype=np.float64)
    if table.shape != (len(floats), len(variables)):
        raise DataError(
            f"labels must be ({len(floats)}, {len(variables)}), one row per image and one column "
            f"per variable, not {table.shape}."
        )
    return floats, table


def _columns(regressor: VariableRegressor, variables: Sequence[Variable]) -> dict[str, int]:
    """Return the regressor's column of each variable."""
    missing = [v.name for v in variables if v.name not in regressor.names]
    if missing:
        raise DataError(
            f"the regressor does not measure {missing[0]!r}; train it on that variable too."
        )
    return {v.name: regressor.names.index(v.name) for v in variables}


def _mean_measurement(
    metric: str,
    per_variable: dict[str, float],
    n: int,
    parameters: dict[str, Any],
    *,
    higher_is_better: bool | None,
) -> Measurement:
    value = float(np.mean(list(per_variable.values())))
    return Measurement(
        metric,
        value,
        n,
        per_variable,
        parameters=parameters,
        higher_is_better=higher_is_better,
    )
