"""Evaluate a trained model on the test split of its data.

registry.py: METRICS, the table of all metrics. measures.py and counterfactual_measures.py: one
function for each entry. requirements.py: predicates that decide which entries apply. context.py:
the model, the data and arrays that several metrics share. tables.py: evaluation.json and the
printed tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from intervae.data import Dataset
from intervae.errors import DataError, UsageError, unknown
from intervae.evaluation.context import Context
from intervae.evaluation.registry import METRICS, Metric, register_metric
from intervae.evaluation.tables import (
    headlines,
    poor_answers,
    same_data,
    variable_tables,
    write_evaluation,
)
from intervae.metrics.base import Measurement
from intervae.models.base import Model
from intervae.models.checks import check_data, check_missing_labels, check_model

__all__ = [
    "METRICS",
    "Metric",
    "evaluate",
    "headlines",
    "poor_answers",
    "register_metric",
    "same_data",
    "variable_tables",
    "write_evaluation",
]


def evaluate(
    model: Model,
    data: Dataset,
    metrics: Sequence[str] | None = None,
    *,
    notify: Callable[[str], None] = lambda text: None,
) -> list[Measurement]:
    """Measure a model on the test split of `data`.

    Arguments:
        metrics: names of entries of METRICS; by default all that apply and are not on request.
        notify: called with one line for each default metric that these samples do not allow, for
            example because they have a single class, and if rows with missing labels are left out.
    """
    check_model(model)
    check_data(data)
    if isinstance(metrics, str) or not isinstance(metrics, Iterable | None):
        raise UsageError(f"metrics={metrics!r} must be a list of names of metrics.")
    check_missing_labels(type(model), data)
    complete = data.complete()
    used, rows = len(complete.test), len(data.test)
    if used < rows:
        notify(f"measured on the {used} of {rows} test rows that have all labels")
    context = Context(model, complete)
    model.eval()
    requested = list(dict.fromkeys(metrics or ()))
    for name in requested:
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
        if not METRICS[name].applies(context):
            raise UsageError(
                f"metric {name!r} does not apply to {model.name} on {data.name}: "
                f"it needs {METRICS[name].requirements}."
            )
    default = (
        name
        for name, metric in METRICS.items()
        if not metric.on_request and metric.applies(context) and metric.default(context)
    )
    measurements = []
    for name in requested or default:
        try:
            measurements += METRICS[name].measure(context)
        except DataError as error:
            if requested:
                raise
            notify(f"{name} left out: {error}")
    return measurements
