"""Engines that run the jobs of an experiment on other machines: Ray and Slurm.

task.py: what a worker does with a job. ray_cluster.py, slurm_jobs.py: the engines; each yields
(number of the task, error or "") as jobs end, and None while it waits. progress.py: the table.
The runs lie on storage that all machines share, so a job that lost its worker goes on elsewhere
from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intervae.errors import UsageError, unknown
from intervae.experiments.records import Task

Ended = Generator[tuple[int, str] | None, None, None]
RETRIES = 10  # times that a job whose worker was lost is run again
JOBS_PER_GPU = 8  # by default, as of concurrent runs on one machine


@dataclass(frozen=True)
class Engine:
    """Where the jobs of an experiment are run.

    Arguments:
        name: "ray" or "slurm".
        address: of a running Ray cluster, `HOST:PORT`, `ray://HOST:PORT` or `auto`; "" starts one
            on this machine.
        gpus: GPUs per job, which may be a fraction; None: an eighth where there are any.
        options: of `submitit`, such as `slurm_partition` and `timeout_min`.
    """

    name: str
    address: str = ""
    gpus: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, tasks: Sequence[Task], device: str, *, tf32: bool) -> Ended:
        """Run the tasks; yield (number, error or "") as they end, and None while waiting."""
        if self.name == "ray":
            from intervae.experiments.engines.ray_cluster import run_on_ray

            return run_on_ray(tasks, device, self.address, self.gpus, tf32=tf32)
        from intervae.experiments.engines.slurm_jobs import run_on_slurm, slurm_executor

        executor = slurm_executor(tasks, device, self.gpus, self.options)
        return run_on_slurm(tasks, device, executor, self.gpus, tf32=tf32)


def parse_engine(
    text: str, gpus: float | None = None, options: Mapping[str, Any] | None = None
) -> Engine | None:
    """Return the engine of `ray`, `ray:ADDRESS` or `slurm`; None of ""."""
    name, _, address = text.partition(":")
    if not text:
        if gpus is not None or options:
            raise UsageError("GPUs per job and options of Slurm need --on ray or --on slurm.")
        return None
    if name not in ("ray", "slurm"):
        raise unknown("engine", name, ("ray", "slurm"))
    if name == "slurm" and address:
        raise UsageError(f"--on {text}: slurm takes no address; run it where sbatch is.")
    if name == "ray" and options:
        raise UsageError("options of Slurm need --on slurm.")
    if gpus is not None and not 0 <= gpus <= 64:
        raise UsageError(f"{gpus} GPUs per job must be from 0 to 64, such as 0.25.")
    return Engine(name, address, gpus, dict(options or {}))
