"""Numbers of finished runs: numbers.json in the folder of a job and seed, with what made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import intervae
from intervae.errors import UsageError
from intervae.experiments.base import Job, MetricKey, Numbers
from intervae.files import read_json, write_json
from intervae.models.environment import hardware, revision, versions


@dataclass(frozen=True, eq=False)  # compared by identity: jobs have dicts, which have no hash
class Task:
    """One job and seed, and the folder of its run."""

    job: Job
    seed: int
    folder: Path


@dataclass(frozen=True)
class Record:
    """The numbers of a finished task, and the machine and code that made them.

    `versions` maps program to version; empty for records of early versions, which lack it.
    """

    numbers: Mapping[MetricKey, float]
    hardware: str
    revision: str
    versions: Mapping[str, str]


def read_record(task: Task) -> Record | None:
    """Return the stored numbers of a task, None if there are none.

    Numbers of other settings or of another version raise a UsageError.
    """
    path = task.folder / "numbers.json"
    if not path.is_file():
        return None
    stored = read_json(path, "the numbers of a finished job")
    identity = _identity(task)
    if (
        not isinstance(stored, dict)
        or {key: stored.get(key) for key in identity} != identity
        or not {"numbers", "hardware", "revision"} <= stored.keys()
    ):
        raise UsageError(
            f"{task.folder} holds the numbers of other settings; remove it or choose another "
            "--runs folder."
        )
    numbers = {MetricKey.parse(key): value for key, value in stored["numbers"].items()}
    return Record(numbers, stored["hardware"], stored["revision"], stored.get("versions", {}))


def write_record(task: Task, numbers: Numbers, device: str) -> Record:
    """Store the numbers of a task, and return them with what made them."""
    record = Record(
        {MetricKey.parse(key): value for key, value in numbers.items()},
        hardware(device),
        revision(),
        versions(),
    )
    document = {
        **_identity(task),
        "numbers": {str(key): value for key, value in record.numbers.items()},
        "hardware": record.hardware,
        "revision": record.revision,
        "versions": record.versions,
    }
    write_json(task.folder / "numbers.json", document)
    return record


def _identity(task: Task) -> dict[str, Any]:
    """Return everything that the numbers of a task depend on, as JSON has it."""
    return {
        "job": _without_remarks(json.loads(json.dumps(asdict(task.job)))),
        "seed": task.seed,
        "intervae": intervae.__version__,
    }


def _without_remarks(value: Any) -> Any:
    """Return the fields of a job, and of jobs in it, without those that are about its page only."""
    if not isinstance(value, dict):
        return value
    return {k: _without_remarks(v) for k, v in value.items() if k != "paper_differs"}
