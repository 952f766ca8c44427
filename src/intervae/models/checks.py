"""Checks before a model is built or queried; errors name the models that qualify."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intervae.data import Dataset, Spec
from intervae.data.missing_labels import missing_labels_error
from intervae.errors import DataError, MissingQueryError, UsageError

if TYPE_CHECKING:
    from intervae.models.base import Model

QUERIES = (
    "encode",
    "decode",
    "sample",
    "graph",
    "measure",
    "intervene",
    "counterfactual",
    "act",
    "act_repeatedly",
    "attribute",
    "explain",
    "best_explanation",
    "mechanism",
    "action_mechanism",
    "effect_curve",
    "label_influence",
    "traverse",
    "extrapolate",
    "latents_over_time",
    "log_weights",
)
REASONS = {"measure": ", as its latents are not the labels; encode() returns the latents"}


def models_that(condition: Callable[[type[Model]], bool]) -> str:
    """Return the names of the models whose class fulfils a condition, comma-separated."""
    from intervae.models import MODELS  # known once every model is defined

    return ", ".join(name for name, cls in MODELS.items() if condition(cls)) or "none yet"


def missing_query(cls: type[Model], query: str) -> MissingQueryError:
    """Return the error for a query that the model class lacks."""
    able = models_that(lambda other: hasattr(other, query))
    reason = REASONS.get(query, "")
    return MissingQueryError(
        f"{cls.name} cannot answer {query}(){reason}; models that can: {able}."
    )


def check_data(data: Any) -> None:
    """Raise a UsageError for what is not a Dataset."""
    if isinstance(data, Dataset):
        return
    kind = type(data).__name__
    advice = {
        "Split": "; pass the whole data set, not one of its splits",
        "Spec": "; pass the data set itself, not its spec",
    }
    hint = advice.get(kind, ", as load_data returns it")
    raise UsageError(f"data must be a Dataset{hint}; this is a {kind}.")


def check_model(model: Any) -> None:
    """Raise a UsageError for what is not a model."""
    from intervae.models.base import Model  # which imports this module

    if not isinstance(model, Model):
        raise UsageError(
            "model must be a model, as intervae.create or intervae.load returns it; this is a "
            f"{type(model).__name__}."
        )


def need_labels(name: str, spec: Spec, *, categories: bool = False) -> None:
    """Raise a DataError for data without labels, or with categorical ones.

    Arguments:
        name: of the model.
        categories: whether it takes categorical labels.
    """
    if not spec.variables:
        raise DataError(
            f"{name} learns from labels, but this data has none; "
            "give a labels.csv or another model."
        )
    for variable in spec.variables:
        if variable.kind == "categorical" and not categories:
            raise DataError(
                f"{name} takes continuous and binary variables, but {variable.name!r} is "
                "categorical; leave it out with variables= (--variables), or recode it."
            )


def check_missing_labels(cls: type[Model], data: Dataset) -> None:
    """Raise a DataError for missing labels, unless the model class can use such rows."""
    if cls.accepts_missing_labels or not data.missing:
        return
    raise missing_labels_error(
        data, f"{cls.name} takes no missing labels", *models_for_missing_labels()
    )


def models_for_missing_labels() -> list[str]:
    """Return advice that names the models that take missing labels; [] if there are none."""
    from intervae.models import MODELS  # known once every model is defined

    able = [name for name, cls in MODELS.items() if cls.accepts_missing_labels]
    return [f"use a model that takes missing labels ({', '.join(able)})"] if able else []


def check_accepts_graph(cls: type[Model]) -> None:
    """Raise a UsageError for a model whose constructor takes no known graph."""

    def takes_graph(cls: type[Model]) -> bool:
        return "graph" in inspect.signature(cls).parameters

    if not takes_graph(cls):
        raise UsageError(
            f"{cls.name} takes no graph (graph=, --graph); models that do: "
            f"{models_that(takes_graph)}."
        )
