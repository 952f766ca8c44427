"""Collection of records: rows with mean and deviation over seeds, and the results document."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import intervae
from intervae.errors import RunError
from intervae.experiments.base import Job, MetricKey
from intervae.experiments.plan import Plan
from intervae.experiments.records import Record, Task

Row = dict[str, Any]


def collect_rows(plan: Plan, records: Mapping[Task, Record]) -> list[Row]:
    """Return one row per job, metric and part: the value of each seed, mean, std and paper."""
    rows: list[Row] = []
    for job in plan.jobs:
        per_seed = {
            task.seed: record.numbers for task, record in records.items() if task.job is job
        }
        rows += _job_rows(job, per_seed) if per_seed else []
    return rows


def collect_document(plan: Plan, records: Mapping[Task, Record]) -> dict[str, Any]:
    """Return the content of NAME.json: the rows, and what made them."""
    return {
        "experiment": plan.experiment.name,
        "command": plan.command,
        "revision": _joined(record.revision for record in records.values()),
        "hardware": _joined(record.hardware for record in records.values()),
        **versions_entries(list(records.values())),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **({"missing": list(plan.missing)} if plan.missing else {}),
        "rows": collect_rows(plan, records),
    }


def _job_rows(job: Job, per_seed: Mapping[int, Mapping[MetricKey, float]]) -> list[Row]:
    keys = next(iter(per_seed.values())).keys()
    for seed, numbers in per_seed.items():
        if numbers.keys() != keys:
            different = ", ".join(sorted(map(str, numbers.keys() ^ keys)))
            raise RunError(
                f"{job.key}: seed {seed} has other metrics than the first ({different}); remove "
                "the older of the two from --runs."
            )
    return [
        _row(job, key, {str(seed): numbers[key] for seed, numbers in per_seed.items()})
        for key in keys
    ]


def _row(job: Job, key: MetricKey, values: dict[str, float]) -> Row:
    return {
        "data": job.data,
        "model": job.model,
        "variant": " ".join(text for text in (job.variant, key.part) if text),
        "metric": key.metric,
        "per_seed": values,
        "mean": statistics.fmean(values.values()),
        "std": statistics.stdev(values.values()) if len(values) > 1 else 0.0,
        **job.paper_entries(key),
    }


def versions_entries(records: Sequence[Record]) -> dict[str, Any]:
    """Return `versions`, program -> versions of the machines that ran the records.

    Records without versions add nothing to them, least of all those of this machine; a sentence,
    `versions_note`, says how many there are.
    """
    stored = [record.versions for record in records if record.versions]
    names = dict.fromkeys(name for one in stored for name in one)
    entries: dict[str, Any] = {
        "versions": {
            "intervae": intervae.__version__,  # stored numbers of other versions are refused
            **{name: _joined(one[name] for one in stored if name in one) for name in names},
        }
    }
    missing = [record for record in records if not record.versions]
    if missing:
        entries["versions_note"] = (
            f"{len(missing)} of {len(records)} runs, on {_joined(r.hardware for r in missing)}, "
            "did not record their versions of Python, torch and numpy."
        )
    return entries


def _joined(texts: Iterable[str]) -> str:
    """Return the distinct texts, in order, with commas between them."""
    return ", ".join(dict.fromkeys(texts))
