"""evaluation.json of a run, and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from intervae.data.base import Spec
from intervae.errors import RunError
from intervae.files import read_json, write_json
from intervae.metrics.base import Measurement

COLUMNS = 4  # variables that stand side by side in a table
BESIDE = {"by_chance": "chance", "doing_nothing": "doing nothing", "true_picture": "true pictures"}  # parameter -> what scores it


def write_evaluation(folder: Path, measurements: Sequence[Measurement]) -> None:
    """evaluation.json of a run; metrics measured before and not again are kept."""
    path = folder / "evaluation.json"
    before = read_json(path, "what was measured before") if path.is_file() else []
    if not isinstance(before, list) or not all(isinstance(row, dict) for row in before):
        raise RunError(f"{path} does not hold measurements of intervae; remove it.")
    names = {m.metric for m in measurements}
    write_json(path, [row for row in before if row.get("metric") not in names] + [m.to_json() for m in measurements])


def headlines(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Rows of metric, value, samples, and what it is to be compared with."""
    return [[m.metric, f"{m.value:.4g}", str(m.n), beside(m.parameters)] for m in measurements]


def beside(parameters: dict[str, Any]) -> str:
    """What else scores how much: chance, doing nothing, the true pictures; of a likelihood, how many samples count."""
    known = [f"{words} {parameters[key]['value']:.3g}" for key, words in BESIDE.items() if key in parameters]
    if "effective_samples" in parameters:
        known.append(f"{parameters['effective_samples']:.3g} of {parameters['samples']} samples count")
    return ", ".join(known)


def variable_tables(measurements: Sequence[Measurement]) -> list[tuple[list[str], list[list[str]]]]:
    """Tables of the metrics that have a value for each variable, as header and rows: one row per metric, at most COLUMNS variables each."""
    detailed = [m for m in measurements if m.per_variable]
    names = list(dict.fromkeys(name for m in detailed for name in m.per_variable))
    tables = []
    for first in range(0, len(names), COLUMNS):
        chosen = names[first : first + COLUMNS]
        shown = [m for m in detailed if any(name in m.per_variable for name in chosen)]
        rows = [[m.metric.removesuffix("_min"), *(f"{m.per_variable[v]:.4g}" if v in m.per_variable else "" for v in chosen)] for m in shown]
        tables.append((["for each variable", *chosen], rows))
    return tables


def same_data(now: Spec, then: Spec) -> bool:
    """Whether two specs tell of the same data, but for rounding: another machine may add up a mean in another order."""
    if replace(now, variables=()) != replace(then, variables=()) or len(now.variables) != len(then.variables):
        return False
    for a, b in zip(now.variables, then.variables, strict=True):
        scales = np.array([[v.mean, v.std, v.low, v.high] for v in (a, b)])
        if (a.name, a.kind, a.categories) != (b.name, b.kind, b.categories) or (abs(scales[0] - scales[1]) > 1e-4 * b.std).any():
            return False
    return True
