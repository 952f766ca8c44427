"""Evaluate a trained model on the test split of its data: every metric that model and data allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from intervae.data.base import Dataset, Spec
from intervae.errors import RunError, UsageError, unknown
from intervae.files import read_json, write_json
from intervae.metrics.alignment import r2
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual import counterfactual_pixel_mae
from intervae.models.base import Model, answers
from intervae.models.causal import CausalModel

COUNTERFACTUAL_SAMPLES = 512


def _varying(data: Dataset) -> np.ndarray:
    """(n,) which variables have more than one value in the test split: a rare binary one may not."""
    labels = data.test.labels.cpu().numpy()
    return (labels != labels[:1]).any(0)


def _r2(model: Model, data: Dataset) -> list[Measurement]:
    assert isinstance(model, CausalModel)
    varying = _varying(data)
    measured, labels = model.measure(data.test.images).cpu().numpy(), data.test.labels.cpu().numpy()
    result = r2(measured[:, varying], labels[:, varying], [name for name, varies in zip(data.names, varying, strict=True) if varies])
    constant = [name for name, varies in zip(data.names, varying, strict=True) if not varies]
    return [replace(result, parameters={"constant_in_test": constant}) if constant else result]


def _counterfactual(model: Model, data: Dataset) -> list[Measurement]:
    rows = np.random.default_rng(0).permutation(len(data.test))[:COUNTERFACTUAL_SAMPLES]
    part = data.test[torch.as_tensor(np.sort(rows))]

    def query(images: np.ndarray, do: dict[str, np.ndarray]) -> np.ndarray:
        return model.counterfactual(images, do).cpu().numpy()

    assert data.simulator is not None
    exogenous = part.fields["exogenous"].cpu().numpy()
    return list(counterfactual_pixel_mae(query, data.simulator, part.images.cpu().numpy(), exogenous, data.variables))


def _reconstruction(model: Model, data: Dataset) -> list[Measurement]:
    truth = data.test.images.cpu().float() / 255
    error = (model.reconstruct(data.test.images).cpu() - truth).abs().mean()
    return [Measurement("reconstruction_pixel_mae", float(error), len(truth), higher_is_better=False)]


def _shd(model: Model, data: Dataset) -> list[Measurement]:
    assert data.graph is not None
    true, found = data.graph, model.graph
    return [
        Measurement(
            "shd", float(true.shd(found)), 1, parameters={"true_edges": len(true.edges), "found_edges": len(found.edges)}, higher_is_better=False
        )
    ]


class Metric(NamedTuple):
    """An entry of METRICS: one line on it, what it needs, whether model and data give that, and the function."""

    about: str
    needs: str
    applies: Callable[[Model, Dataset], bool]
    measure: Callable[[Model, Dataset], list[Measurement]]


METRICS: dict[str, Metric] = {
    "r2": Metric(
        "R^2 of each variable read off the images, in its own units",
        "a model whose variables are the labels, and labels that vary in the test split",
        lambda m, d: isinstance(m, CausalModel) and m.latent_names == d.names and bool(_varying(d).any()),
        _r2,
    ),
    "reconstruction": Metric("mean absolute pixel error of reconstructions", "nothing", lambda m, d: True, _reconstruction),
    "counterfactual": Metric(
        "pixel error of do() pictures against the simulator's truth, and of doing nothing",
        "data with a simulator, and a model that answers counterfactual() about its variables",
        lambda m, d: answers(type(m), "counterfactual") and d.simulator is not None and m.latent_names == d.names,
        _counterfactual,
    ),
    "shd": Metric(
        "edges to add, remove or turn round to get the true graph",
        "data with a known graph, and a model that has one",
        lambda m, d: answers(type(m), "graph") and d.graph is not None,
        _shd,
    ),
}


def evaluate(model: Model, data: Dataset, metrics: Sequence[str] | None = None) -> list[Measurement]:
    """Measure on the test split. `metrics` names entries of METRICS; without it, all that apply."""
    for name in metrics or ():
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
        if not METRICS[name].applies(model, data):
            raise UsageError(f"metric {name!r} does not apply to {model.name} on {data.name}: it needs {METRICS[name].needs}.")
    chosen = list(dict.fromkeys(metrics or (name for name, metric in METRICS.items() if metric.applies(model, data))))
    model.eval()
    return [measurement for name in chosen for measurement in METRICS[name].measure(model, data)]


# ---- evaluation.json and its table -----------------------------------------------------------------------------------
def write_evaluation(folder: Path, measurements: Sequence[Measurement]) -> None:
    """evaluation.json of a run; metrics measured before and not again are kept."""
    path = folder / "evaluation.json"
    before = read_json(path, "what was measured before") if path.is_file() else []
    if not isinstance(before, list) or not all(isinstance(row, dict) for row in before):
        raise RunError(f"{path} does not hold measurements of intervae; remove it.")
    names = {m.metric for m in measurements}
    write_json(path, [row for row in before if row.get("metric") not in names] + [m.to_json() for m in measurements])


def headlines(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Rows of metric, value and samples."""
    return [[m.metric, f"{m.value:.4g}", str(m.n)] for m in measurements]


def by_variable(measurements: Sequence[Measurement]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the metrics that have a value for each variable: one column per metric, one row per variable."""
    detailed = [m for m in measurements if m.per_variable]
    variables = list(dict.fromkeys(name for m in detailed for name in m.per_variable))
    rows = [[v, *(f"{m.per_variable[v]:.4g}" if v in m.per_variable else "" for m in detailed)] for v in variables]
    return ["variable", *(m.metric for m in detailed)], rows


def same_data(now: Spec, then: Spec) -> bool:
    """Whether two specs tell of the same data, but for rounding: another machine may add up a mean in another order."""
    if replace(now, variables=()) != replace(then, variables=()) or len(now.variables) != len(then.variables):
        return False
    for a, b in zip(now.variables, then.variables, strict=True):
        scales = np.array([[v.mean, v.std, v.low, v.high] for v in (a, b)])
        if (a.name, a.kind, a.categories) != (b.name, b.kind, b.categories) or (abs(scales[0] - scales[1]) > 1e-4 * b.std).any():
            return False
    return True
