"""Plan of an experiment: which jobs and seeds to run, in which folders, on which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intervae.errors import RunError, UsageError
from intervae.experiments.base import Experiment, Job
from intervae.experiments.engines import Engine
from intervae.experiments.records import Task, read_record
from intervae.files import read_json
from intervae.training import choose_device

CONCURRENT_ON_GPU = 8  # default number of concurrent runs; see benchmarks/concurrent_runs.py


@dataclass(frozen=True)
class Plan:
    """What is to be done for one call of `run_experiment`.

    Arguments:
        experiment: the experiment, or its quick form.
        jobs: the jobs of the table, in order.
        tasks: all jobs and seeds whose numbers are needed, finished ones included.
        unfinished: those of them that have no numbers yet.
        missing: folder names of tasks left out because they are not finished (`finished`).
        partial: only a part of the experiment is run, so there is no table.
        command: the command that the results file names.
        engine: where the unfinished tasks are run; None: in this process.
        stack: train the seeds of a job as one stack where its model allows it.
    """

    experiment: Experiment
    jobs: tuple[Job, ...]
    tasks: tuple[Task, ...]
    unfinished: tuple[Task, ...]
    missing: tuple[str, ...]
    partial: bool
    command: str
    device: str
    workers: int
    engine: Engine | None = None
    stack: bool = False


def make_plan(
    experiment: Experiment,
    *,
    seeds: int | None,
    device: str,
    runs: Path,
    results: Path,
    overwrite: bool,
    only: str,
    shard: tuple[int, int],
    concurrent: int | None,
    stack: bool | None,
    command: str,
    quick: bool,
    finished: bool,
    engine: Engine | None = None,
) -> Plan:
    """Return the plan; see `run_experiment` for the arguments. Nothing is run or written."""
    _check_seeds_and_shard(seeds, shard)
    base_name = experiment.name
    experiment = experiment.quick_form if quick else experiment
    jobs = _choose_jobs(experiment, only)
    counts = [seeds or job.seeds or experiment.seeds for job in jobs]
    partial = bool(only) or shard[1] > 1
    if not (overwrite or partial):
        _check_replaced_seeds(results / f"{experiment.name}.json", max(counts))
    if engine is None:
        device = str(choose_device(device))
    elif concurrent is not None:
        raise UsageError("--concurrent is of one machine; with --on, give --gpus-per-job.")
    elif stack:
        raise UsageError("--stack is of one machine; with --on, each seed is a job of its own.")
    folder = runs / experiment.runs_name
    tasks = [
        Task(job, seed, folder / f"{job.key}-{seed}")
        for job, count in zip(jobs, counts, strict=True)
        for seed in range(count)
    ][shard[0] - 1 :: shard[1]]
    unfinished = [task for task in tasks if read_record(task) is None]
    missing: list[str] = []
    if finished:
        missing = [task.folder.name for task in unfinished]
        tasks = [task for task in tasks if task not in unfinished]
        unfinished = []
        if not tasks:
            raise RunError(
                f"{folder} holds no finished run of {experiment.name}; run it without --finished."
            )
    if not command:
        command = _command(base_name, quick, seeds, counts)
    if concurrent is None:
        concurrent = CONCURRENT_ON_GPU if device.startswith("cuda") else 1
    return Plan(
        experiment,
        tuple(jobs),
        tuple(tasks),
        tuple(unfinished),
        tuple(missing),
        partial,
        command,
        device,
        concurrent,
        engine,
        bool(stack),
    )


def _check_seeds_and_shard(seeds: int | None, shard: tuple[int, int]) -> None:
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds}: at least one seed is needed.")
    if not 1 <= shard[0] <= shard[1]:
        raise UsageError(
            f"shard {shard[0]}/{shard[1]}: the first number must be from 1 to the second."
        )


def _choose_jobs(experiment: Experiment, only: str) -> list[Job]:
    """Return the jobs whose key contains `only`."""
    jobs = [job for job in experiment.jobs if only in job.key]
    if not jobs:
        names = ", ".join(job.key for job in experiment.jobs)
        raise UsageError(
            f"--only {only}: no job of {experiment.name} has that in its name; they are {names}."
        )
    return jobs


def _check_replaced_seeds(path: Path, count: int) -> None:
    """Raise an error if a results file has more seeds than the one that would replace it."""
    try:
        document = read_json(path, "the numbers of the experiment") if path.is_file() else {}
    except RunError:
        return
    rows = document.get("rows", []) if isinstance(document, dict) else []
    stored = max((len(row.get("per_seed", {})) for row in rows), default=0)
    if stored > count:
        raise UsageError(
            f"{path} has {stored} seeds and would be replaced by {count}; choose another "
            "--results folder, or pass --overwrite."
        )


def _command(name: str, quick: bool, seeds: int | None, counts: Sequence[int]) -> str:
    """Return the command line that makes the table; --seeds where it applies to all jobs."""
    if quick:
        return f"intervae reproduce {name} --quick" + (f" --seeds {seeds}" if seeds else "")
    uniform = len(set(counts)) == 1
    return f"intervae reproduce {name}" + (f" --seeds {counts[0]}" if uniform else "")
