"""Run folders: clear the one of a new run, check the one of a resumed run, write config.json."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from intervae.data import Dataset
from intervae.data.support import LabelSupport
from intervae.errors import RunError
from intervae.files import cannot_write, leftovers, read_json
from intervae.models.base import Model
from intervae.models.environment import hardware, revision, versions
from intervae.models.storage import describe_model
from intervae.settings import upgrade_settings
from intervae.training.options import Options

RUN_FILES = (  # beside config.json
    "model.safetensors",
    "metrics.jsonl",
    "graph.json",
    "README.md",
    "report.html",
    "evaluation.json",
    "support.safetensors",
    "checkpoints/last.safetensors",
)
FIGURES = (".png", ".svg", ".gif")  # suffixes of files in figures/ that belong to the run


def current_command() -> str:
    """Return the command line of this process if it is `intervae`, else ""."""
    is_program = Path(sys.argv[0]).name == "intervae"
    return shlex.join(["intervae", *sys.argv[1:]]) if is_program else ""


def describe_training(
    source: dict[str, Any], seed: int, options: Options, device: torch.device, command: str
) -> dict[str, Any]:
    """Return what config.json holds beside the model: data, seed, options and environment."""
    return {
        "data": source,
        "seed": seed,
        "training": asdict(options),
        "hardware": hardware(device),
        "versions": versions(),
        "revision": revision(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": command,
    }


def clear_run_folder(out: Path, overwrite: bool) -> None:
    """Remove the files of an earlier run; raise a RunError for a folder not to be replaced."""
    try:
        if (out / "config.json").exists() and not overwrite:
            raise RunError(
                f"{out} already holds a run; resume it with resume=True (`intervae resume "
                f"{shlex.quote(str(out))}`), replace it with overwrite=True (--overwrite), or "
                "choose another out= (--out)."
            )
        if out.is_file():
            raise RunError(
                f"{out} is a file, and a run needs a folder; choose another out= (--out)."
            )
        if (
            out.exists()
            and not (out / "config.json").exists()
            and (not out.is_dir() or set(out.iterdir()) - set(leftovers(out)))
        ):
            raise RunError(
                f"{out} is not empty and not a run of intervae; choose another out= (--out)."
            )
        events = (out / "tensorboard").glob("events.*")
        figures = [path for path in (out / "figures").glob("*") if path.suffix in FIGURES]
        others = out.glob("evaluation-*.json")
        for path in [*(out / name for name in RUN_FILES), *events, *figures, *others]:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(out / "config.json", error) from error


def write_support(out: Path, data: Dataset) -> None:
    """Write some rows of the training labels, for warnings of values that are unlike them."""
    support = LabelSupport.of(data.variables, data.train)
    if support is not None:
        support.write(out)


def resumed_files(out: Path | None, resume: bool) -> list[Path]:
    """Return the files that a resumed run rewrites; none of a new run."""
    if out is None or not resume:
        return []
    return [out / name for name in ("config.json", *RUN_FILES) if name != "report.html"]


def remove_partial_files(out: Path) -> None:
    """Remove the temporary files of a process that was killed while it wrote."""
    for folder in (out, out / "checkpoints"):
        for path in leftovers(folder):
            path.unlink(missing_ok=True)


def check_resumed_run(out: Path, model: Model, seed: int, options: Options) -> dict[str, Any]:
    """Return config.json of a run that is resumed.

    A run that was started with another model, seed or precision raises a RunError.
    """
    if not out.exists():
        raise RunError(
            f"{out} does not exist, so there is nothing to resume; start it without resume=True "
            "(--resume)."
        )
    config = read_json(out / "config.json", "the run's settings")
    if not isinstance(config, dict):
        raise RunError(f"{out / 'config.json'} is not the config of an intervae run.")
    current = {**describe_model(model), "seed": seed, "precision": options.precision}
    current = _as_json(current)
    del current["intervae"]
    stored = {**config, "precision": (config.get("training") or {}).get("precision")}
    if isinstance(settings := config.get("settings"), dict):
        # a setting that is newer than the run has its default
        cls = type(model).Settings
        stored["settings"] = {
            **_as_json(asdict(cls())),
            **upgrade_settings(cls, settings, strict=True),
        }
    changes = list(_differences({key: stored.get(key) for key in current}, current))
    if changes:
        raise RunError(
            f"{out} was started differently ({'; '.join(changes[:3])}): resume it with the same "
            "settings, or start again with overwrite=True (--overwrite)."
        )
    return config


def _as_json(value: Any) -> Any:
    """Return a value as JSON stores it: tuples become lists."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _differences(stored: Any, current: Any, path: str = "") -> Iterator[str]:
    """Yield one text for each place where two parsed JSON values differ."""
    if isinstance(stored, dict) and isinstance(current, dict):
        for key in {**stored, **current}:
            inner = f"{path}.{key}" if path else key
            yield from _differences(stored.get(key), current.get(key), inner)
    elif isinstance(stored, list) and isinstance(current, list) and len(stored) == len(current):
        for i, (old, new) in enumerate(zip(stored, current, strict=True)):
            yield from _differences(old, new, f"{path}[{i}]")
    elif stored != current:
        yield f"{path} was {stored!r}, now {current!r}"
