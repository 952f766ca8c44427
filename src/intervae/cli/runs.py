"""Access to run folders: the model of a run and the data on which it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from intervae.errors import RunError

if TYPE_CHECKING:
    from intervae.data import Dataset
    from intervae.models.base import Model


def load_run(run: Path, device: str) -> Model:
    """Return the model of a run, on the device."""
    from intervae.models import load
    from intervae.training import choose_device

    return load(run, choose_device(device))


def open_run(run: Path, device: str) -> tuple[Model, Dataset]:
    """Return the model of a run and the data on which it was trained."""
    from intervae.models.storage import read_config

    model = load_run(run, device)
    return model, load_run_data(run, read_config(run), model)


def load_run_data(run: Path, config: dict[str, Any], model: Model) -> Dataset:
    """Load the data that config.json names; data that have changed since raise a RunError."""
    from intervae.data import reload
    from intervae.evaluation import same_data

    source = config.get("data")
    if not isinstance(source, dict):
        raise RunError(
            f"{run / 'config.json'} does not name the data of the run, so they cannot be loaded."
        )
    data = reload(source)
    if not same_data(data.spec, model.spec):
        raise RunError(
            f"{data.name} has changed since {run} was trained on it (its variables, their ranges "
            "or the images); put the old data back, or train again (`intervae train ... "
            "--overwrite`)."
        )
    return data
