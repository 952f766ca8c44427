"""evaluation.json of a run, and the tables printed from its measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from intervae.data import Spec
from intervae.errors import RunError
from intervae.files import read_json, write_json
from intervae.metrics.base import Measurement
from intervae.metrics.interventions import GROUPS

COLUMNS = 4  # variables side by side in a table
REFERENCES = {
    "by_chance": "chance",
    "doing_nothing": "doing nothing",
    "decoder_alone": "decoder alone",
    "mean_picture": "mean picture",
    "true_picture": "true pictures",
    "reconstruction": "reconstruction",
}  # parameter of a measurement that holds a reference value -> its name in a table
SHOWN_PER_VARIABLE = (
    "doing_nothing",
    "decoder_alone",
    "mean_picture",
    "reconstruction",
)  # references with rows of their own


def write_evaluation(folder: Path, measurements: Sequence[Measurement], *, on: str = "") -> None:
    """Write evaluation.json of a run; earlier metrics that were not measured again stay.

    Arguments:
        on: name of other data than the run's, which get evaluation-NAME.json.
    """
    path = folder / (f"evaluation-{on}.json" if on else "evaluation.json")
    earlier = read_json(path, "the earlier measurements") if path.exists() else []
    if not isinstance(earlier, list) or not all(isinstance(row, dict) for row in earlier):
        raise RunError(f"{path} does not hold measurements of intervae; remove it.")
    names = {m.metric for m in measurements}
    rows = [row for row in earlier if row.get("metric") not in names]
    write_json(path, rows + [m.to_json() for m in measurements])


def headlines(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Rows of metric, value, number of samples, and reference values to compare with.

    The means over causes and over pure effects follow in rows of their own.
    """
    rows = []
    for m in measurements:
        rows.append([m.metric, f"{m.value:.4g}", str(m.n), references(m.parameters)])
        for group in GROUPS:
            if group in m.parameters:
                means = dict(m.parameters[group])
                value, compared = means.pop("value"), _reference_texts(means)
                rows.append([f"  over {group}", f"{value:.4g}", str(m.n), ", ".join(compared)])
    return rows


def references(parameters: dict[str, Any]) -> str:
    """Reference values (chance, doing nothing, ...), and effective samples of a likelihood."""
    whole = {key: parameters[key]["value"] for key in REFERENCES if key in parameters}
    values = _reference_texts(whole)
    if "effective_samples" in parameters:
        effective, samples = parameters["effective_samples"], parameters["samples"]
        values.append(f"{effective:.3g} of {samples} samples count")
    return ", ".join(values)


def poor_answers(measurements: Sequence[Measurement]) -> list[str]:
    """Return a sentence for each axiom in which a model is hardly better than a trivial answer.

    Composition is compared with the mean picture, effectiveness with doing nothing and with the
    mean picture; a tenth of the better one is asked for.
    """
    texts = []
    for m in measurements:
        keys = [key for key in ("doing_nothing", "mean_picture") if key in m.parameters]
        if m.metric.startswith("composition"):
            keys = [key for key in keys if key == "mean_picture"]
        elif not m.metric.startswith("effectiveness"):
            continue
        sign = 1 if m.higher_is_better else -1
        trivial = {key: m.parameters[key]["value"] for key in keys}
        for key, value in trivial.items():
            if sign * (m.value - value) < 0.1 * abs(value):
                texts.append(
                    f"{m.metric} {m.value:.3g} is hardly better than {REFERENCES[key]} "
                    f"({value:.3g}): do not trust these counterfactuals."
                )
                break
    return texts


def _reference_texts(values: dict[str, Any]) -> list[str]:
    return [f"{name} {values[key]:.3g}" for key, name in REFERENCES.items() if key in values]


def variable_tables(measurements: Sequence[Measurement]) -> list[tuple[list[str], list[list[str]]]]:
    """Tables (header, rows) of the values per variable, COLUMNS variables in each.

    A row per metric, and below it what doing nothing and a reconstruction score.
    """
    detailed = [row for m in measurements if m.per_variable for row in _variable_rows(m)]
    names = list(dict.fromkeys(name for _, values in detailed for name in values))
    tables = []
    for first in range(0, len(names), COLUMNS):
        columns = names[first : first + COLUMNS]
        rows = [
            [title, *(f"{values[v]:.4g}" if v in values else "" for v in columns)]
            for title, values in detailed
            if any(name in values for name in columns)
        ]
        tables.append((["for each variable", *columns], rows))
    return tables


def _variable_rows(measurement: Measurement) -> list[tuple[str, dict[str, float]]]:
    """Titles and values per variable: of the metric, then of its references."""
    rows = [(measurement.per_variable_metric, measurement.per_variable)]
    for key in SHOWN_PER_VARIABLE:
        values = measurement.parameters.get(key, {})
        compared = {name: values[name] for name in measurement.per_variable if name in values}
        rows += [(f"  {REFERENCES[key]}", compared)] if compared else []
    return rows


def same_data(now: Spec, then: Spec) -> bool:
    """Whether two specs describe the same data up to rounding of means, which is per machine."""
    if replace(now, variables=()) != replace(then, variables=()) or len(now.variables) != len(
        then.variables
    ):
        return False
    for a, b in zip(now.variables, then.variables, strict=True):
        scales = np.array([[v.mean, v.std, v.low, v.high] for v in (a, b)])
        if (a.name, a.kind, a.categories) != (b.name, b.kind, b.categories) or (
            abs(scales[0] - scales[1]) > 1e-4 * b.std
        ).any():
            return False
    return True
