"""Evaluate a trained model on the test split of its data: every metric that model and data allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from intervae.data.base import Dataset
from intervae.errors import UsageError, unknown
from intervae.metrics.alignment import r2
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual import counterfactual_pixel_mae
from intervae.models.base import Model, answers
from intervae.models.causal import CausalModel

COUNTERFACTUAL_SAMPLES = 512


def _r2(model: Model, data: Dataset) -> list[Measurement]:
    measured = model.measure(data.test.images).cpu().numpy()  # type: ignore[attr-defined]
    return [r2(measured, data.test.labels.cpu().numpy(), data.names)]


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


# name -> (one line, which metrics it gives, whether model and data allow it, the function)
Entry = tuple[str, Callable[[Model, Dataset], bool], Callable[[Model, Dataset], list[Measurement]]]
METRICS: dict[str, Entry] = {
    "r2": ("R^2 of each variable read off the images, in its own units", lambda m, d: isinstance(m, CausalModel) and m.latent_names == d.names, _r2),
    "reconstruction": ("mean absolute pixel error of reconstructions", lambda m, d: True, _reconstruction),
    "counterfactual": (
        "pixel error of do() pictures against the simulator's truth, and of doing nothing",
        lambda m, d: answers(type(m), "counterfactual") and d.simulator is not None and m.latent_names == d.names,
        _counterfactual,
    ),
    "shd": ("edges to add, remove or turn round to get the true graph", lambda m, d: answers(type(m), "graph") and d.graph is not None, _shd),
}


def evaluate(model: Model, data: Dataset, metrics: Sequence[str] | None = None) -> list[Measurement]:
    """Measure on the test split. `metrics` names entries of METRICS; without it, all that apply."""
    for name in metrics or ():
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
        if not METRICS[name][1](model, data):
            raise UsageError(f"metric {name!r} does not apply to {model.name} on {data.name}: it needs {METRICS[name][0]}.")
    chosen = metrics or [name for name, (_, applies, _) in METRICS.items() if applies(model, data)]
    model.eval()
    return [measurement for name in chosen for measurement in METRICS[name][2](model, data)]


def as_rows(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    return [m.to_json() for m in measurements]
