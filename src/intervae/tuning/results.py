"""Results of a search: trials.json, search.png, and the best settings as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intervae.errors import RunError
from intervae.figures import search_progress
from intervae.files import write_json

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Trial:
    """One training of a search.

    Arguments:
        settings: the searched settings, as --set takes them.
        value: the number compared; None for a trial that failed.
        reason: why it failed.
    """

    number: int
    settings: Mapping[str, Any]
    folder: Path
    value: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Search:
    """What `tune` returns: the trials in order, and the best one.

    `command` trains the model with the best settings; `objective` says what was compared.
    """

    trials: tuple[Trial, ...]
    best: Trial
    objective: str
    higher_is_better: bool
    command: str


def trial_folder(folder: Path, number: int) -> Path:
    """Return the run folder of a trial."""
    return folder / f"trial-{number:03d}"


def write_search(
    study: optuna.Study, folder: Path, command: str, fixed: Mapping[str, Any]
) -> Search:
    """Write trials.json and search.png, and return the trials.

    Arguments:
        command: the command line of a training without its --set options.
        fixed: the settings that all trials share.
    """
    description = study.user_attrs["search"]
    higher = bool(study.user_attrs.get("higher_is_better", False))
    trials = _ended_trials(study, folder, higher)
    scored = [trial for trial in trials if trial.value is not None]
    if not scored:
        reason = trials[-1].reason if trials else "no trial was run"
        raise RunError(f"no trial of {folder} ended with a number; the last failed: {reason}")
    best = (max if higher else min)(scored, key=lambda trial: trial.value or 0.0)
    # a graph has an option of its own
    values = {**{name: value for name, value in fixed.items() if name != "graph"}, **best.settings}
    words = [f"--set {shlex.quote(f'{k}={setting_text(v)}')}" for k, v in values.items()]
    command = " ".join([command, *words])
    rows = [{**asdict(trial), "folder": trial.folder.name} for trial in trials]
    document = {
        **description,
        "higher_is_better": higher,
        "best": best.number,
        "command": command,
        "trials": rows,
    }
    write_json(folder / "trials.json", document)
    search_progress(
        folder / "search.png", rows, description["search"], description["objective"], higher=higher
    )
    return Search(tuple(trials), best, description["objective"], higher, command)


def _ended_trials(study: optuna.Study, folder: Path, higher: bool) -> list[Trial]:
    return [
        Trial(
            trial.number,
            dict(trial.params),
            trial_folder(folder, trial.number),
            None if trial.value is None else (-trial.value if higher else trial.value),
            study.user_attrs.get(f"reason {trial.number}", ""),
        )
        for trial in study.get_trials(deepcopy=False)
        # without a number and a reason: killed while its settings were drawn
        if trial.value is not None or f"reason {trial.number}" in study.user_attrs
    ]


def setting_text(value: Any) -> str:
    """Return a value as --set reads it back exactly."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return repr(value) if isinstance(value, float) else str(value)
