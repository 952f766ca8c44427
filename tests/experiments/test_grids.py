"""Grids on Ray and Slurm: tables of one machine, lost workers, finished jobs, bad addresses."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from command import intervae, refused
from intervae.errors import RunError, UsageError
from intervae.experiments import run_experiment
from intervae.experiments.engines import Engine, parse_engine
from intervae.experiments.engines.progress import grid_progress
from intervae.experiments.engines.slurm_jobs import run_on_slurm
from intervae.experiments.engines.task import run_task, shared_storage
from intervae.experiments.records import Task
from scripted_experiment import executed, reproduce_in, scripted, two_jobs
from tiny_trainings import Killer, starts, tiny_trainings

HELPERS = Path(__file__).parents[1] / "helpers"


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["rows"]


# ---- Ray -----------------------------------------------------------------------------------------
@pytest.fixture
def ray_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local clusters of two workers that find the helpers of the tests."""
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    path = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    with mock.patch("intervae.experiments.engines.ray_cluster._local_cpus", return_value=2):
        yield


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_killed_workers_of_ray_leave_the_table_of_one_process(
    ray_workers: None, tmp_path: Path
) -> None:
    """40 trainings; lost ones go on from their checkpoints, and nothing finished is repeated."""
    experiment = tiny_trainings(seeds=20, epochs=25)
    alone = reproduce_in(experiment, tmp_path / "alone")
    runs = tmp_path / "grid" / "runs" / "tiny"
    killer = Killer(runs, kills=6)
    killer.start()
    on_ray = reproduce_in(experiment, tmp_path / "grid", on="ray")
    killer.stop.set()
    killer.join()
    assert rows(on_ray) == rows(alone)
    assert len(killer.killed) >= 3
    counts = Counter(start["run"] for start in starts(runs))
    assert len(counts) == 40
    again = [s for s in starts(runs) if counts[s["run"]] > 1 and s["epochs"]]
    assert again  # a lost training did not begin from its first epoch
    before = len(starts(runs))
    assert rows(reproduce_in(experiment, tmp_path / "grid", on="ray")) == rows(alone)
    assert len(starts(runs)) == before
    assert not list(runs.glob(".grid-*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_job_that_fails_on_ray_does_not_stop_the_others(
    ray_workers: None, tmp_path: Path
) -> None:
    experiment = two_jobs([1, "fail"], [2, 3])
    lines: list[str] = []
    with pytest.raises(RunError, match=r"made-method-a, seed 1: a1 broke"):
        reproduce_in(experiment, tmp_path, on="ray", notify=lines.append)
    assert sorted(executed(tmp_path)) == ["a0", "a1", "b0", "b1"]
    assert len(lines) == 4
    (tmp_path / "runs" / "scripted" / "fixed").touch()
    document = reproduce_in(experiment, tmp_path, on="ray")
    assert Counter(executed(tmp_path)) == {"a0": 1, "a1": 2, "b0": 1, "b1": 1}
    assert rows(document)[0]["per_seed"] == {"0": 1.0, "1": 9.0}


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_that_does_not_answer_is_one_sentence_soon(form: str, tmp_path: Path) -> None:
    address, start = form.format(closed_port()), time.monotonic()
    with pytest.raises(RunError, match="does not answer") as error:
        reproduce_in(scripted(1), tmp_path, on=f"ray:{address}")
    assert address in str(error.value)
    assert time.monotonic() - start < 20
    assert not list((tmp_path / "runs" / "scripted").glob(".grid-*"))


def test_a_server_that_is_not_ray_is_one_sentence_soon(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        with pytest.raises(RunError, match="does not answer"):
            reproduce_in(scripted(1), tmp_path, on=f"ray:127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on": "rai"}, "did you mean 'ray'"),
        ({"on": "slurm:host"}, "slurm takes no address"),
        ({"on": "ray", "slurm": {"timeout_min": 3}}, "need --on slurm"),
        ({"gpus_per_job": 0.5}, "need --on ray or --on slurm"),
        ({"on": "ray", "gpus_per_job": -1}, "must be from 0 to 64"),
        ({"on": "ray", "concurrent": 2}, "--gpus-per-job"),
        ({"on": "ray:nowhere:port"}, "HOST:PORT"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        run_experiment(scripted(1), runs=tmp_path, results=tmp_path, **options)


def test_the_command_has_the_options() -> None:
    refused(intervae("reproduce", "sachs", "--on", "condor"), 2, "unknown engine 'condor'")
    refused(intervae("reproduce", "sachs", "--slurm", "a=b"), 2, "need --on ray or --on slurm")


@pytest.mark.parametrize("extra", ["ray", "slurm"])
def test_without_the_package_the_error_names_the_extra(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"ray": "ray", "slurm": "submitit"}[extra], None)
    with pytest.raises(UsageError, match=rf"intervae\[{extra}\]"):
        reproduce_in(scripted(1), tmp_path, on=extra)


# ---- Slurm ---------------------------------------------------------------------------------------
class LocalSlurm(Engine):
    """The engine of Slurm with submitit's executor of this machine."""

    def run(self, tasks: Any, device: str, *, tf32: bool) -> Any:
        import submitit

        executor = submitit.LocalExecutor(tasks[0].folder.resolve().parent / "slurm-logs")
        executor.update_parameters(timeout_min=10)
        return run_on_slurm(tasks, device, executor, self.gpus, tf32=tf32)


def on_local_slurm(folder: Path, experiment: Any, gpus: float | None = None) -> dict[str, Any]:
    engine = LocalSlurm("slurm", gpus=gpus)
    with mock.patch("intervae.experiments.run.parse_engine", return_value=engine):
        return reproduce_in(experiment, folder)


@pytest.fixture
def slurm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="the extra [slurm] is not installed")
    path = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gpus", [None, 0.5])
def test_jobs_of_slurm_give_the_table_of_one_process(
    gpus: float | None, slurm_workers: None, tmp_path: Path
) -> None:
    experiment = tiny_trainings(seeds=2, epochs=2)
    alone = reproduce_in(experiment, tmp_path / "alone")
    grid = on_local_slurm(tmp_path / "grid", experiment, gpus)
    assert rows(grid) == rows(alone)
    runs = tmp_path / "grid" / "runs" / "tiny"
    # with half a GPU per job, two jobs share a process
    assert len({start["process"] for start in starts(runs)}) == (4 if gpus is None else 2)
    assert rows(on_local_slurm(tmp_path / "grid", experiment)) == rows(alone)
    assert len(starts(runs)) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_job_of_slurm_is_submitted_again(slurm_workers: None, tmp_path: Path) -> None:
    experiment = tiny_trainings(seeds=1, epochs=150)
    experiment = replace(experiment, jobs=experiment.jobs[:1])
    runs = tmp_path / "grid" / "runs" / "tiny"

    def kill() -> None:
        log = runs / "ramps-vae-rate-0.01-0" / "metrics.jsonl"
        while not (log.is_file() and len(log.read_text().splitlines()) > 2):
            time.sleep(0.02)
        os.kill(int(str(starts(runs)[0]["process"])), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    grid = on_local_slurm(tmp_path / "grid", experiment)
    thread.join()
    assert rows(grid) == rows(reproduce_in(experiment, tmp_path / "alone"))
    first, second = starts(runs)
    assert first["epochs"] == 0 < int(str(second["epochs"]))


def test_without_sbatch_the_error_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit", reason="the extra [slurm] is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match="no sbatch here"):
        reproduce_in(scripted(1), tmp_path, on="slurm")


# ---- workers and progress ------------------------------------------------------------------------
def tasks_in(folder: Path) -> list[Task]:
    return [Task(job, 0, folder / job.variant) for job in two_jobs([1], [2]).jobs]


def test_a_worker_without_the_storage_says_so(tmp_path: Path) -> None:
    task = tasks_in(tmp_path / "runs")[0]
    with shared_storage([task]) as marker:
        assert run_task(task, "cpu", marker, False) == ""
    error = run_task(task, "cpu", tmp_path / "elsewhere" / marker.name, False)
    assert "storage that all machines share" in error
    assert socket.gethostname() in error


def test_the_progress_table_counts_the_runs_of_each_job(tmp_path: Path) -> None:
    jobs = two_jobs([1, 2, 3], [4, 5, 6]).jobs
    names = [(job, seed) for job in jobs for seed in range(3)]
    tasks = [Task(job, seed, tmp_path / f"{job.variant}{seed}") for job, seed in names]
    tasks[1].folder.mkdir()
    line = '{"phase": "joint", "epoch": 7}\n'
    (tasks[1].folder / "metrics.jsonl").write_text('{"phase": "graph", "epoch": 2}\n' + line)
    first, second = grid_progress(tasks, {tasks[0]}, {tasks[4]})
    assert first.cells == ("made-method-a", "1", "1", "1", "", "joint 7")
    assert second.cells == ("made-method-b", "", "", "2", "1", "")


def test_engines_are_read_from_texts() -> None:
    assert parse_engine("") is None
    assert parse_engine("ray:auto", 0.5) == Engine("ray", "auto", 0.5)
    assert parse_engine("slurm", None, {"timeout_min": 5}) == Engine(
        "slurm", options={"timeout_min": 5}
    )
