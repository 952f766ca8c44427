"""Access to run folders: the model of a run and the data on which it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from intervae.evaluation.run_data import load_run_data
    from intervae.models.storage import read_config

    model = load_run(run, device)
    return model, load_run_data(run, read_config(run), model, where)


def open_other_data(run: Path, device: str, where: str) -> tuple[Model, Dataset, bool]:
    """Return the model of a run, data at `where`, and whether they are the run's own data.

    Other data is read as the model knows its variables, and all of it is for testing.
    """
    from dataclasses import replace

    from intervae.data import load_data
    from intervae.data.registry import DATASETS
    from intervae.errors import DataError, RunError
    from intervae.evaluation import same_data
    from intervae.evaluation.run_data import load_run_data
    from intervae.models.storage import read_config

    model = load_run(run, device)
    spec = model.spec
    config = read_config(run)
    source = config.get("data")
    options = dict(source.get("options", {})) if isinstance(source, dict) else {}
    if isinstance(source, dict) and "samples" in source:
        try:
            own = load_run_data(run, config, model, where)
            return model, own, True
        except (DataError, RunError):  # other rows, columns or values
            pass
    size = list(spec.image_shape[1:])
    if where in DATASETS:
        data = load_data(where, size=size[0], variables=spec.names or None)
        if data.names != spec.names:
            raise DataError(f"{where} does not have the variables of {run}.")
        return model, replace(data, variables=spec.variables), False
    more: dict[str, Any] = {key: options[key] for key in ("names",) if key in options}
    if Path(where).is_dir():
        more["channels"] = spec.image_shape[0]
    data = load_data(where, size=size, test=1.0, like=spec, **more)
    if not same_data(data.spec, spec):
        raise DataError(
            f"the images of {where} are {data.spec.image_shape}, those of {run} "
            f"{spec.image_shape} (channels, height, width)."
        )
    return model, data, False
