"""Figures of a causal model whose latents are the labels: values, interventions, sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from intervae import figures
from intervae.data import Dataset, Split, Variable
from intervae.models.batches import query_split, spread_rows
from intervae.models.causal import CausalModel

IMAGES = 8  # columns of the figure of interventions
SWEEP_VALUES = 7


def draw_variables(model: CausalModel, data: Dataset, path: Path) -> None:
    """Draw measured against true values of each variable of the test split."""
    measured = query_split(model, "measure", data.test).numpy()
    labels = data.test.labels.cpu().numpy()
    figures.scatter(path, measured, labels, data.names, [v.unit for v in data.variables])


def draw_interventions(model: CausalModel, data: Dataset, path: Path) -> None:
    """Draw test images with each variable set in turn, above the simulator's truth."""
    part = data.test[spread_rows(len(data.test), IMAGES)]
    rows = [intervention_row(model, data, part, v) for v in data.variables]
    figures.interventions(path, rows, part.images)


def draw_sweep(model: CausalModel, data: Dataset, path: Path) -> None:
    """Draw one test image with each variable swept over its range."""
    middle = len(data.test) // 2
    part = data.test[middle : middle + 1]
    labels = data.train.labels.cpu().numpy()
    rows = [
        sweep_row(model, part, v, i, sweep_values(v, labels[:, i]))
        for i, v in enumerate(data.variables)
    ]
    figures.intervention_sweep(path, part.images[0], rows)


def intervention_row(
    model: CausalModel, data: Dataset, part: Split, variable: Variable
) -> figures.InterventionRow:
    """Return the images of `part` with a number set to the middle of its range, or a last class."""
    is_code = variable.kind != "continuous"
    value = variable.high if is_code else round((variable.low + variable.high) / 2, 2)
    do = {variable.name: value}
    generated = model.counterfactual(part.images, do, input_labels(model, part)).cpu()
    truth = None
    if data.simulator is not None and "exogenous" in part.fields:
        exogenous = part.fields["exogenous"].cpu().numpy()
        size = data.spec.image_shape[-1]
        truth = data.simulator.counterfactual(exogenous, do, size=size)[0]
    shown = variable.format_value(value) if variable.categories else f"{value:g}"
    label = f"do({variable.name} = {shown}{' ' + variable.unit if variable.unit else ''})"
    return figures.InterventionRow(label, generated, truth)


def input_labels(model: CausalModel, part: Split) -> Tensor | None:
    """Return the labels of `part` for a model whose encoder needs them."""
    return part.labels if model.needs_labels else None


def sweep_values(variable: Variable, labels: np.ndarray) -> np.ndarray:
    """Return values over the range of a variable, or codes among its labels (N,)."""
    if variable.kind == "continuous":
        return np.linspace(variable.low, variable.high, SWEEP_VALUES)
    codes = np.unique(labels[~np.isnan(labels)])
    spread = np.linspace(0, len(codes) - 1, min(len(codes), SWEEP_VALUES)).round().astype(int)
    return codes[spread]


def sweep_row(
    model: CausalModel, part: Split, variable: Variable, index: int, values: np.ndarray
) -> figures.SweepRow:
    """Return the one image of `part` with one variable set to each of `values`."""
    image, labels = part.images, input_labels(model, part)
    images = [model.counterfactual(image, {variable.name: float(v)}, labels) for v in values]
    measured = float(model.measure(image, labels)[0, index])
    words = [variable.format_value(value) for value in values] if variable.categories else []
    return figures.SweepRow(
        variable.name, values.tolist(), torch.cat(images).cpu(), variable.unit, measured, words
    )
