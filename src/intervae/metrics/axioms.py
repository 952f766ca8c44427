"""Counterfactual pictures without a known truth: composition, reversibility, effectiveness (Monteiro et al. 2023) and minimality.

f(x, do) is the query that answers with counterfactual pictures, |.| the mean absolute difference over pixels, values in [0, 1].
No axiom stands alone: doing nothing composes, reverses and is minimal perfectly, and is not effective at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.base import Variable
from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual import Query, distances, non_descendants, random_interventions
from intervae.metrics.pictures import as_pictures, pixel_mae
from intervae.metrics.reader import Reader


def composition(query: Query, images: Any, labels: np.ndarray, variables: Sequence[Variable], *, times: Sequence[int] = (1, 10)) -> list[Measurement]:
    """Doing nothing must change nothing: `composition_m` = mean |f(...f(f(x, {}), {})..., {}) - x| after m null interventions.

    Per variable v: |f(x, do(v = its own value)) - x|, repeated as often: what holds already is made to hold.

    Arguments:
        labels: (N, n) the variables' own values in these images.
    """
    start, table = _checked(images, labels, variables)
    found: dict[int, Measurement] = {}
    empty = _repeat(query, start, [{}], times)
    own = {v.name: _repeat(query, start, [{v.name: table[:, i]}], times) for i, v in enumerate(variables)}
    for m in times:
        per_variable = {name: values[m] for name, values in own.items()}
        parameters = {"null_interventions": m, "headline": "do({}); per variable: do(variable = its own value)"}
        found[m] = Measurement(f"composition_{m}", empty[m], len(start), per_variable, None, parameters, False)
    return [found[m] for m in times]


def reversibility(
    query: Query, images: Any, labels: np.ndarray, variables: Sequence[Variable], *, cycles: Sequence[int] = (1, 10), seed: int = 0
) -> list[Measurement]:
    """What is done can be undone: with x' = f(f(x, do(v = a)), do(v = its own value)), repeated m times, `reversibility_m` = mean |x' - x|.

    a is drawn at random for each image (`random_interventions`) and stays the same in every cycle. The headline is the mean over variables.

    Arguments:
        labels: (N, n) the variables' own values in these images.
    """
    start, table = _checked(images, labels, variables)
    draws = random_interventions(variables, len(start), seed)
    names = [v.name for v in variables]
    walks = {name: _repeat(query, start, [{name: draws[name]}, {name: table[:, i]}], cycles) for i, name in enumerate(names)}
    found = []
    for m in cycles:
        per_variable = {name: walks[name][m] for name in names}
        parameters = {"cycles": m, "seed": seed}
        found.append(Measurement(f"reversibility_{m}", _mean(per_variable), len(start), per_variable, None, parameters, False))
    return found


def effectiveness(query: Query, images: Any, variables: Sequence[Variable], reader: Reader, *, seed: int = 0) -> list[Measurement]:
    """What was set is what is seen: a predictor reads v off f(x, do(v = a)).

    Returns, for what there is of each kind:
        effectiveness_error: per continuous variable, mean |read - a| in its own units; the headline is the mean in standard deviations.
        effectiveness_accuracy: per binary or categorical variable, the share read as set; a random one of c classes has 1 / c.
        effectiveness_f1: per binary variable 2 TP / (2 TP + FP + FN) of the value 1; per categorical one the mean of that over its classes.
    """
    start = as_pictures(images)
    columns = _columns(reader, variables)
    errors, accuracy, f1 = {}, {}, {}
    for variable, (name, values) in zip(variables, random_interventions(variables, len(start), seed).items(), strict=True):
        read = reader(_ask(query, start, {name: values}))[:, columns[name]]
        if variable.kind == "continuous":
            errors[name] = float(np.abs(read - values).mean())
        else:
            accuracy[name] = float((read == values).mean())
            f1[name] = (
                f1_score(read, values) if variable.kind == "binary" else float(np.mean([f1_score(read == c, values == c) for c in set(values)]))
            )
    parameters = {"seed": seed, "headline": "mean over variables"}
    found = []
    if errors:
        value = float(np.mean([errors[v.name] / v.std for v in variables if v.name in errors]))
        more = {**parameters, "headline": "mean over variables of error / standard deviation"}
        found.append(Measurement("effectiveness_error", value, len(start), errors, None, more, False))
    for metric, values_by_name in (("effectiveness_accuracy", accuracy), ("effectiveness_f1", f1)):
        if values_by_name:
            found.append(Measurement(metric, _mean(values_by_name), len(start), values_by_name, None, parameters, True))
    return found


def minimality(
    query: Query, images: Any, labels: np.ndarray, variables: Sequence[Variable], reader: Reader, graph: CausalGraph, *, seed: int = 0
) -> list[Measurement]:
    """Nothing else changes, with x0 = f(x, {}) and x' = f(x, do(v = a)).

    Returns:
        minimality_variables: per do(v), mean |read(x')_w - read(x0)_w| / standard deviation of w, over the variables w that neither are v
            nor descend from it (a binary or categorical w: the share that changed). Left out where there are none.
        minimality_picture: per do(v), |x' - x0| over the mean intended change |a - v| / standard deviation of v: how much of the picture
            moves for one standard deviation. It has no best value, as an intervention must show; it compares models that are as effective.

    Arguments:
        labels: (N, n) the variables' own values in these images.
        graph: over these variables.
    """
    start, table = _checked(images, labels, variables)
    columns = _columns(reader, variables)
    null = _ask(query, start, {})
    before = reader(null)
    others, picture = {}, {}
    for i, (name, values) in enumerate(random_interventions(variables, len(start), seed).items()):
        after = _ask(query, start, {name: values})
        still = [columns[w] for w in non_descendants(graph, name) if w in columns]
        if still:
            moved = distances(reader.variables, reader(after), before).mean(0)
            scale = np.array([v.std if v.kind == "continuous" else 1.0 for v in reader.variables])
            others[name] = float((moved / scale)[still].mean())
        intended = float(np.abs(values - table[:, i]).mean() / variables[i].std)
        if intended > 0:
            picture[name] = float(pixel_mae(after, null).mean() / intended)
    found = []
    for metric, per_variable, better in (("minimality_variables", others, False), ("minimality_picture", picture, None)):
        if per_variable:
            found.append(Measurement(metric, _mean(per_variable), len(start), per_variable, None, {"seed": seed}, better))
    return found


def f1_score(predicted: np.ndarray, truth: np.ndarray) -> float:
    """2 TP / (2 TP + FP + FN); 1 where the value neither occurs nor is predicted."""
    predicted, truth = np.asarray(predicted, dtype=bool), np.asarray(truth, dtype=bool)
    either = predicted.sum() + truth.sum()
    return float(2 * (predicted & truth).sum() / either) if either else 1.0


def _repeat(query: Query, start: np.ndarray, steps: Sequence[dict[str, Any]], times: Sequence[int]) -> dict[int, float]:
    """Walk through `steps` max(times) times; mean |picture - start| after each count in `times`."""
    if not times or min(times) < 1:
        raise UsageError(f"interventions are repeated at least once, not {list(times)} times.")
    found, picture = {}, start
    for m in range(1, max(times) + 1):
        for do in steps:
            picture = _ask(query, picture, do)
        if m in times:
            found[m] = float(pixel_mae(picture, start).mean())
    return found


def _ask(query: Query, pictures: np.ndarray, do: dict[str, Any]) -> np.ndarray:
    return as_pictures(query(pictures, do), f"the answer to do({', '.join(do)})")


def _checked(images: Any, labels: np.ndarray, variables: Sequence[Variable]) -> tuple[np.ndarray, np.ndarray]:
    pictures, table = as_pictures(images), np.asarray(labels, dtype=np.float64)
    if table.shape != (len(pictures), len(variables)):
        raise DataError(f"labels must be ({len(pictures)}, {len(variables)}), one row per image and one column per variable, not {table.shape}.")
    return pictures, table


def _columns(reader: Reader, variables: Sequence[Variable]) -> dict[str, int]:
    missing = [v.name for v in variables if v.name not in reader.names]
    if missing:
        raise DataError(f"the predictor does not read {missing[0]!r}; train it on that variable too.")
    return {v.name: reader.names.index(v.name) for v in variables}


def _mean(values: dict[str, float]) -> float:
    return float(np.mean(list(values.values())))
