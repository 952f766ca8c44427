"""Values of variables before and after do(), by the model and by the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from intervae.data.support import LabelSupport
from intervae.errors import IntervaeError
from intervae.models.capabilities import HasGraph, Intervention, MeasuresVariables
from intervae.models.intervention_values import (
    InterventionValues,
    not_shown_notes,
    off_support_note,
)
from intervae.serve.answers import ValueAnswer
from intervae.serve.describe import accepts, can, label_names, settable_variables
from intervae.serve.inputs import InputPictures

if TYPE_CHECKING:
    from intervae.data import Variable
    from intervae.serve.served_runs import ServedRun


@dataclass(frozen=True)
class Values:
    """Name -> (B,) before and after do(), and what the answered pictures show."""

    before: dict[str, np.ndarray] = field(default_factory=dict)
    after: dict[str, np.ndarray] = field(default_factory=dict)
    shown: dict[str, np.ndarray] = field(default_factory=dict)  # read by the model
    moved: dict[str, np.ndarray] = field(default_factory=dict)  # bools


@dataclass(frozen=True)
class Truth:
    """The simulator's answer: images (B, C, H, W) uint8 and values, or why there is none."""

    images: np.ndarray | None = None
    values: Values = field(default_factory=Values)
    error: str | None = None


@torch.no_grad()
def measure_values(
    run: ServedRun, pictures: InputPictures, do: Mapping[str, Any], answers: Any = None
) -> Values:
    """Return the model's own values of its variables, in their units where it knows them.

    Arguments:
        answers: (B, C, H, W) counterfactuals, on which the variables are read; None for no reading.
    """
    model, values = run.model, Values()
    if not can(model, Intervention):
        return values
    labels = pictures.options.get("labels")
    takes = {"labels": labels} if labels is not None and accepts(model.intervene, "labels") else {}
    latents = model.encode(pictures.images, **({"labels": labels} if labels is not None else {}))
    after = model.intervene(latents, do, **takes)
    has_units = can(model, MeasuresVariables)
    shown = None
    if answers is not None and has_units and not model.needs_labels:
        with suppress(IntervaeError):  # latents that are no variables are not measured
            shown = model.measure(answers).cpu().double().numpy()
    for i, name in enumerate(model.latent_names):
        values.moved[name] = (latents[:, i] != after[:, i]).any(-1).cpu().numpy()
        if shown is not None:
            values.shown[name] = shown[:, i]
        for table, z in ((values.before, latents), (values.after, after)):
            value = model.to_units(i, z[:, i]) if has_units else z[:, i].mean(-1)
            table[name] = value.cpu().double().numpy()
    _add_columns(run, pictures, do, values, len(latents))
    return values


def _add_columns(
    run: ServedRun, pictures: InputPictures, do: Mapping[str, Any], values: Values, rows: int
) -> None:
    """Add the variables that are no latents, such as columns of a table.

    Before do() they have their labels. An effect of what do() sets has no known value after it.
    """
    model = run.model
    graph = model.graph if can(model, HasGraph) else None
    effects = set() if graph is None else {d for name in do for d in graph.descendants(name)}
    for variable, is_label, _ in settable_variables(run):
        name = variable.name
        if name in values.after or not is_label:
            continue
        column = np.full(rows, np.nan)
        if pictures.rows is not None:
            column = pictures.rows.labels[:, model.spec.names.index(name)].double().cpu().numpy()
        after = np.full(rows, np.nan) if name in effects else column
        if name in do:
            after = do[name](column) if callable(do[name]) else np.asarray(do[name], dtype=float)
        values.before[name], values.after[name] = column, np.broadcast_to(after, (rows,))


def reading_notes(
    run: ServedRun, do: Mapping[str, Any], values: Values, outside: bool
) -> list[str]:
    """Return notes on combinations unlike the training data, and on what a picture does not show.

    Arguments:
        outside: whether a value is outside its own range, and so in every combination.
    """
    if not values.shown or not do:
        return []
    names = tuple(values.shown)
    tables = (values.before, values.after, values.shown, values.moved)
    columns = [np.stack([table[name] for name in names], axis=1) for table in tables]
    measured = InterventionValues(names, *columns)
    notes = not_shown_notes(measured, run.model.spec)
    if outside:
        return notes
    return off_support_note(run.model, measured, do, _support(run)) + notes


def _support(run: ServedRun) -> LabelSupport | None:
    """Return the combinations of labels in the training data, if they are known here."""
    if "support" not in run.cache:
        support = None
        if run.data is not None:
            support = LabelSupport.of(run.data.variables, run.data.train)
        elif run.folder is not None:
            support = LabelSupport.read(run.folder, run.model.spec.variables)
        run.cache["support"] = support
    return run.cache["support"]


def true_counterfactual(run: ServedRun, pictures: InputPictures, do: Mapping[str, Any]) -> Truth:
    """Return the simulator's counterfactual of test pictures, or why there is none."""
    data = run.data
    if data is None or data.simulator is None:
        return Truth()
    if pictures.exogenous is None:
        return Truth(error="the true noises of this picture are not known.")
    simulator = data.simulator
    labels = label_names(run)
    for name in do:
        if name not in simulator.graph.names or name not in labels:
            return Truth(error=f"{name} is no variable of the simulator.")
        if name in simulator.without_true_image:
            return Truth(error=f"do({name}) has no unique true picture.")
    try:
        exogenous, size = pictures.exogenous, data.spec.image_shape[-1]
        images, after = simulator.counterfactual(exogenous, dict(do), size=size)
        before = simulator.simulate(exogenous)
    except IntervaeError as error:
        return Truth(error=str(error))
    if images.shape[1:] != tuple(pictures.images.shape[1:]):
        return Truth(error="the simulator draws pictures of another shape.")
    columns = {v.name: i for i, v in enumerate(simulator.variables) if v.name in labels}
    true_before, true_after = (
        {name: table[:, i] for name, i in columns.items()} for table in (before, after)
    )
    return Truth(images, Values(true_before, true_after))


def value_answers(run: ServedRun, i: int, values: Values, true_values: Values) -> list[ValueAnswer]:
    """Return the variables of picture i, those of the model first."""
    variables = {variable.name: variable for variable, _, _ in settable_variables(run)}
    names = dict.fromkeys([*values.after, *(n for n in true_values.after if n in variables)])
    return [
        _value_answer(variables[name], i, values, true_values)
        for name in names
        if name in variables
    ]


def _value_answer(variable: Variable, i: int, values: Values, true_values: Values) -> ValueAnswer:
    name = variable.name

    def number(table: Mapping[str, np.ndarray]) -> float | None:
        value = float(table[name][i]) if name in table else float("nan")
        return value if np.isfinite(value) else None

    before, after = number(values.before), number(values.after)
    true_before, true_after = number(true_values.before), number(true_values.after)
    error = None
    if after is not None and true_after is not None:
        is_code = variable.kind != "continuous"
        error = float(round(after) != round(true_after)) if is_code else abs(after - true_after)
    return ValueAnswer(
        name=name,
        unit=variable.unit,
        before=before,
        after=after,
        true_before=true_before,
        true_after=true_after,
        shown=number(values.shown),
        error=error,
        before_text=value_text(variable, before) or "",
        after_text=value_text(variable, after) or "",
        true_text=value_text(variable, true_after),
        changed=before != after,
    )


def value_text(variable: Variable, value: float | None) -> str | None:
    """Return a value as text; the category of a code."""
    if value is None:
        return None
    if variable.kind != "continuous" and variable.categories:
        return variable.format_value(round(value))
    return f"{value:.4g}"
