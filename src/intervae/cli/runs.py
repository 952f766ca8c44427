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


def open_run(run: Path, device: str, where: str | None = None) -> tuple[Model, Dataset]:
    """Return the model of a run and the data on which it was trained, now at `where`."""
    from intervae.files import read_json

    model = load_run(run, device)
    config = read_json(run / "config.json", "the run's settings")
    return model, load_run_data(run, config, model, where)


def load_run_data(
    run: Path, config: dict[str, Any], model: Model, where: str | None = None
) -> Dataset:
    """Load the data that config.json names; data that have changed since raise a RunError.

    Arguments:
        where: path of the data if it was moved.
    """
    from intervae.data import reload
    from intervae.evaluation import same_data

    source = config.get("data")
    if not isinstance(source, dict):
        raise RunError(
            f"{run / 'config.json'} does not name the data of the run, so they cannot be loaded."
        )
    data = reload(source if where is None else moved_source(source, where))
    if not same_data(data.spec, model.spec):
        raise RunError(
            f"{data.name} has changed since {run} was trained on it (its variables, their ranges "
            "or the images); put the old data back, or train again (`intervae train ... "
            "--overwrite`)."
        )
    return data


def moved_source(source: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a run's source of data with another path, or as a registered name."""
    from intervae.data.registry import DATASETS

    place = {k: v for k, v in source.items() if k not in ("path", "name", "object")}
    return {**place, **({"name": where} if where in DATASETS else {"path": where})}
