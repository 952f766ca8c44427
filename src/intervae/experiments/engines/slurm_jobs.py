"""Jobs as an array of Slurm jobs, submitted with submitit. Needs `[slurm]`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intervae.errors import RunError, UsageError
from intervae.experiments.engines import RETRIES, Ended
from intervae.experiments.engines.task import absolute, run_task, shared_storage
from intervae.experiments.records import Task
from intervae.training.concurrent_runs import run_concurrently

MISSING = "--on slurm needs submitit; install it with pip install 'intervae[slurm]'."
TICK_SECONDS = 1.0
LOGS = "slurm-logs"  # folder beside the runs
MINUTES = 24 * 60  # time limit of a job without timeout_min


class JobGroup:
    """Tasks that one Slurm job runs, side by side on its GPU.

    A job that Slurm preempts or ends at its time limit is submitted again; the tasks then resume
    from their checkpoints.
    """

    def __call__(
        self, tasks: Sequence[Task], device: str, marker: Path, tf32: bool
    ) -> dict[int, str]:
        """Run the tasks; return their errors, or "", by their positions."""
        calls = [_Call(task, device, marker, tf32) for task in tasks]
        workers = len(tasks) if len(tasks) > 1 else 1
        return dict(run_concurrently(calls, workers, device if device != "auto" else "cpu"))

    def checkpoint(self, *arguments: Any) -> Any:
        """Return what submitit submits in the place of an interrupted job: the same."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)


class _Call:
    """A call of `run_task` that is made later."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __call__(self) -> str:
        return run_task(*self.arguments)


def slurm_executor(
    tasks: Sequence[Task], device: str, gpus: float | None, options: Mapping[str, Any]
) -> Any:
    """Return submitit's executor of Slurm, with logs beside the runs."""
    try:
        import submitit
    except ImportError:
        raise UsageError(MISSING) from None
    if shutil.which("sbatch") is None:
        raise RunError("there is no sbatch here; run this on a machine that submits Slurm jobs.")
    executor = submitit.AutoExecutor(absolute(tasks[0]).folder.parent / LOGS, cluster="slurm")
    whole = 0 if device == "cpu" else max(1, round(gpus or 1)) if gpus != 0 else 0
    defaults = {"name": "intervae", "cpus_per_task": 1, "timeout_min": MINUTES}
    try:
        executor.update_parameters(**{**defaults, "gpus_per_node": whole, **options})
    except (NameError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"submitit does not accept these options of Slurm: {reason}.") from None
    return executor


def run_on_slurm(
    tasks: Sequence[Task], device: str, executor: Any, gpus: float | None, *, tf32: bool
) -> Ended:
    """Run the tasks; yield (number, error or "") as they end, and None while waiting.

    With a fraction of a GPU per job, such as 0.25, that many tasks share a Slurm job.
    """
    size = max(1, round(1 / gpus)) if gpus and gpus < 1 else 1
    groups = [list(range(i, min(i + size, len(tasks)))) for i in range(0, len(tasks), size)]
    with shared_storage(tasks) as marker:

        def submit(group: list[int]) -> Any:
            group_tasks = [absolute(tasks[number]) for number in group]
            return executor.submit(JobGroup(), group_tasks, device, marker.resolve(), tf32)

        with executor.batch():
            jobs = [submit(group) for group in groups]
        running = [(job, group, 0) for job, group in zip(jobs, groups, strict=True)]
        try:
            while running:
                waiting = []
                for job, group, retries in running:
                    if not job.done():
                        waiting.append((job, group, retries))
                        continue
                    if (error := job.exception()) is None:
                        errors = job.result()
                        yield from ((number, errors[i]) for i, number in enumerate(group))
                    elif retries < RETRIES:  # a lost node or a killed process
                        waiting.append((submit(group), group, retries + 1))
                    else:
                        reason = str(error).strip().splitlines()[0]
                        text = f"its Slurm job was lost more than {RETRIES} times ({reason})."
                        yield from ((number, text) for number in group)
                running = waiting
                if running:
                    yield None
                    time.sleep(TICK_SECONDS)
        finally:  # after Ctrl-C
            for job, _, _ in running:
                job.cancel()
