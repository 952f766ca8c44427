"""Experiments whose jobs return what a test says, and the format of results files."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intervae.errors import RunError
from intervae.experiments import (
    Experiment,
    Job,
    MetricKey,
    Numbers,
    run_experiment,
)


def check_format(document: Mapping[str, Any]) -> None:
    """Assert the format of a results file."""
    assert {
        "experiment",
        "command",
        "revision",
        "hardware",
        "versions",
        "date",
        "rows",
    } <= document.keys()
    assert document["command"].startswith("intervae reproduce ")
    assert document["hardware"]
    assert {"intervae", "python", "torch", "numpy"} <= document["versions"].keys() or (
        "intervae" in document["versions"] and "did not record" in document["versions_note"]
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"])
    assert document["rows"]
    for row in document["rows"]:
        assert {"data", "model", "variant", "metric", "per_seed", "mean", "std"} <= row.keys()
        values = list(row["per_seed"].values())
        assert values
        assert all(isinstance(value, int | float) and math.isfinite(value) for value in values)
        assert list(row["per_seed"]) == [str(seed) for seed in range(len(values))]
        assert abs(statistics.fmean(values) - row["mean"]) <= 1e-6 * max(1, abs(row["mean"]))
        assert row["std"] == pytest.approx(np.std(values, ddof=1) if len(values) > 1 else 0)
    assert len(
        {(r["data"], r["model"], r["variant"], r["metric"]) for r in document["rows"]}
    ) == len(document["rows"])


@dataclass(frozen=True)
class Scripted(Job):
    """A job that returns options["values"][seed] and logs that it was executed.

    The value "stop" raises a KeyboardInterrupt and "fail" an error, until a file `fixed` exists;
    then they are 9.
    """

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.parent / "executed.txt", "a") as log:
            log.write(f"{self.variant}{seed} ")
        value = self.options["values"][seed]
        if value == "fail" and not (folder.parent / "fixed").exists():
            raise RunError(f"{self.variant}{seed} broke.")
        if value == "stop" and not (folder.parent / "fixed").exists():
            raise KeyboardInterrupt
        score = 9.0 if value in ("stop", "fail") else float(value)
        return {"score": score, MetricKey("score", "part"): 2 * score}


def scripted(*values: Any, **changes: Any) -> Experiment:
    """Return an experiment of one job with these values for seeds 0, 1, ..."""
    job = Scripted("made", "method", {"values": list(values)}, {}, "a", {"score": 4.5})
    return Experiment(
        "scripted", "Scripted", (replace(job, **changes),), seeds=len(values), shown=("score",)
    )


def two_jobs(a: list[Any], b: list[Any], **changes: Any) -> Experiment:
    """Return an experiment of jobs a and b; `changes` are of job a."""
    first, second = (
        scripted(*values, variant=name).jobs[0] for name, values in (("a", a), ("b", b))
    )
    return Experiment(
        "scripted",
        "Scripted",
        (replace(first, **changes), second),
        seeds=len(b),
        shown=("score",),
    )


def executed(folder: Path) -> list[str]:
    """Return variant and seed of every job that was executed, in order."""
    return (folder / "runs" / "scripted" / "executed.txt").read_text().split()


def reproduce_in(experiment: Experiment, folder: Path, **options: Any) -> dict[str, Any]:
    """Run an experiment on the CPU, with `runs` and `results` in a folder."""
    return run_experiment(
        experiment, device="cpu", runs=folder / "runs", results=folder / "results", **options
    )
