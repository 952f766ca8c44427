"""Access to run folders: the model of a run and the data on which it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    from intervae.evaluation.run_data import load_run_data
    from intervae.files import read_json

    model = load_run(run, device)
    return model, load_run_data(run, read_json(run / "config.json", "the run's settings"), model)
