"""Lists of models, data sets, metrics and experiments, for people and programs.

`lists.json` has the built-in entries, so that a list does not import torch; `make inventory` writes
it from the registries, and a test compares them. Where another package declares entry points, or
the registry is imported already, the registry is read instead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FILE = Path(__file__).parent / "lists.json"


def listed(kind: str) -> list[Row]:
    """Return the rows of "models", "datasets", "metrics" or "experiments"."""
    read, module = REGISTRIES[kind]
    if module in sys.modules or entry_points(group=f"intervae.{kind}"):
        return read()
    rows: list[Row] = json.loads(FILE.read_text(encoding="utf-8"))[kind]
    return rows


def list_models() -> list[Row]:
    """Return name, description, queries and default settings of every model."""
    from intervae.models import MODELS
    from intervae.models.base import QUERIES

    return [
        {
            "name": name,
            "description": model.title,
            "answers": [query for query in QUERIES if hasattr(model, query)],
            "settings": {field.name: field.default for field in fields(model.Settings)},
        }
        for name, model in MODELS.items()
    ]


def list_datasets() -> list[Row]:
    """Return name, description and required files of every data set."""
    from intervae.data import datasets

    return [
        {"name": entry.name, "description": entry.description, "needs": entry.needs}
        for entry in datasets()
    ]


def list_metrics() -> list[Row]:
    """Return name, description and requirements of every metric."""
    from intervae.evaluation import METRICS

    return [
        {
            "name": name,
            "description": metric.description + " (only on request)" * metric.on_request,
            "needs": metric.requirements,
            "on_request": metric.on_request,
        }
        for name, metric in METRICS.items()
    ]


def list_experiments() -> list[Row]:
    """Return name and description of every experiment."""
    from intervae.experiments import EXPERIMENTS

    return [
        {"name": e.name, "description": f"{e.title} ({e.seeds} seed{'s' if e.seeds > 1 else ''})"}
        for e in EXPERIMENTS
    ]


REGISTRIES: dict[str, tuple[Callable[[], list[Row]], str]] = {
    "models": (list_models, "intervae.models"),
    "datasets": (list_datasets, "intervae.data.registry"),
    "metrics": (list_metrics, "intervae.evaluation.registry"),
    "experiments": (list_experiments, "intervae.experiments"),
}
"""Kind -> its rows from the registry, and the module that holds the registry."""


def built_in() -> str:
    """Return the text of `lists.json`, from the registries."""
    lists = {kind: read() for kind, (read, _) in REGISTRIES.items()}
    return json.dumps(lists, indent=1, ensure_ascii=False) + "\n"
