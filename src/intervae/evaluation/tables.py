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

COLUMNS = 4  # variables side by side in a table
REFERENCES = {
    "by_chance": "chance",
    "doing_nothing": "doing nothing",
    "true_picture": "true pictures",
}  # parameter of a measurement that holds a reference value -> its name in a table


def write_evaluation(folder: Path, measurements: Sequence[Measurement]) -> None:
    """Write evaluation.json of a run; earlier metrics that were not measured again stay."""
    path = folder / "evaluation.json"
    earlier = read_json(path, "the earlier measurements") if path.is_file() else []
    if not isinstance(earlier, list) or not all(isinstance(row, dict) for row in earlier):
        raise RunError(f"{path} does not hold measurements of intervae; remove it.")
    names = {m.metric for m in measurements}
    rows = [row for row in earlier if row.get("metric") not in names]
    write_json(path, rows + [m.to_json() for m in measurements])


def headlines(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Rows of metric, value, number of samples, and reference values to compare with."""
    return [[m.metric, f"{m.value:.4g}", str(m.n), references(m.parameters)] for m in measurements]


def references(parameters: dict[str, Any]) -> str:
    """Reference values (chance, doing nothing, ...), and effective samples of a likelihood."""
    values = [
        f"{name} {parameters[key]['value']:.3g}"
        for key, name in REFERENCES.items()
        if key in parameters
    ]
    if "effective_samples" in parameters:
        effective, samples = parameters["effective_samples"], parameters["samples"]
        values.append(f"{effective:.3g} of {samples} samples count")
    return ", ".join(values)


def variable_tables(measurements: Sequence[Measurement]) -> list[tuple[list[str], list[list[str]]]]:
    """Tables (header, rows) of the values per variable: a row per metric, COLUMNS variables."""
    detailed = [m for m in measurements if m.per_variable]
    names = list(dict.fromkeys(name for m in detailed for name in m.per_variable))
    tables = []
    for first in range(0, len(names), COLUMNS):
        columns = names[first : first + COLUMNS]
        rows = [
            [
                m.per_variable_metric,
                *(f"{m.per_variable[v]:.4g}" if v in m.per_variable else "" for v in columns),
            ]
            for m in detailed
            if any(name in m.per_variable for name in columns)
        ]
        tables.append((["for each variable", *columns], rows))
    return tables


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
