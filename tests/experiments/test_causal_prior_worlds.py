"""Experiments on further video worlds: their data, and tiny runs of all jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from intervae.data import load_data
from intervae.experiments import run_experiment
from intervae.experiments.causal_prior_worlds import SPRING_WORLD, WORLDS

TINY: dict[str, Any] = {
    "widths": (16,),
    "background_size": 2,
    "warm_up": 4,
    "epochs": 1,
    "refit_epochs": 1,
    "batch_size": 16,
}


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_jobs_name_existing_data_and_differ_in_their_variant(world: Any) -> None:
    for jobs in (world.jobs, world.quick):
        assert len({job.key for job in jobs}) == len(jobs)
        for job in jobs:
            data = load_data(job.data, **{**job.options, "samples": 10})
            assert data.spec.frames == job.options.get("frames", 3)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_tiny_runs_write_results(world: Any, tmp_path: Path) -> None:
    jobs = tuple(
        replace(
            job,
            options={**job.options, "size": 12, "samples": 80, "backgrounds": 3},
            settings={**job.settings, **TINY},
        )
        for job in world.jobs
    )
    document = run_experiment(
        replace(world, jobs=jobs, seeds=1), device="cpu", runs=tmp_path, results=tmp_path
    )
    shown = {row["metric"] for row in document["rows"]}
    assert set(world.columns) <= shown
    assert ("mode_shd" in shown) == (world is SPRING_WORLD)
    assert all(math.isfinite(row["mean"]) for row in document["rows"])
    assert (tmp_path / f"{world.name}-responses.png").is_file()
