"""The data on which a run was trained, loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intervae.data import Dataset, reload
from intervae.errors import RunError
from intervae.evaluation.tables import same_data
from intervae.models.base import Model


def load_run_data(
    run: Path, config: dict[str, Any], model: Model, where: str | None = None
) -> Dataset:
    """Load the data that config.json names; data that have changed since raise a RunError.

    Arguments:
        where: path of the data if it was moved.
    """
    source = config.get("data")
    if not isinstance(source, dict):
        raise RunError(
            f"{run / 'config.json'} does not name the data of the run, so they cannot be loaded."
        )
    data = reload(source, where)
    if not same_data(data.spec, model.spec):
        raise RunError(
            f"{data.name} has changed since {run} was trained on it (its variables, their ranges "
            "or the images); put the old data back, or train again (`intervae train ... "
            "--overwrite`)."
        )
    return data
