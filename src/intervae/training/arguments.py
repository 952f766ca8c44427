"""Checks of the arguments of `fit`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.files import as_path
from intervae.models.base import Model
from intervae.models.checks import check_data, check_missing_labels, check_model
from intervae.settings import check_flags
from intervae.training.validation import check_spec


def check_out(out: Any) -> Path | None:
    """Return the run folder; raise a UsageError for what is no path or cannot hold weights."""
    if out is None:
        return None
    path = as_path(out, "out")
    try:
        str(path).encode()
    except UnicodeEncodeError:  # safetensors opens no such path
        raise UsageError(
            f"out={str(path)!r}: the name of a run folder must be UTF-8; choose another out= "
            "(--out)."
        ) from None
    return path


def check_arguments(
    model: Model, data: Dataset, options: Iterable[str], *, resume: bool, overwrite: bool
) -> None:
    """Raise an error for a model and data that do not fit, and for settings among the options."""
    check_model(model)
    check_data(data)
    check_flags(resume=resume, overwrite=overwrite)
    check_spec(model.spec, data.spec)
    check_missing_labels(type(model), data)
    model_settings = {f.name for f in fields(model.Settings)}
    for name in options:
        if name in model_settings:
            raise UsageError(
                f"{name} is a setting of the model, not of its training: create the model with "
                f"{name}=."
            )
