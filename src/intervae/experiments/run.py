"""Run an experiment: plan, execute, collect, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from intervae.experiments.base import Experiment
from intervae.experiments.collect import collect_document, collect_rows
from intervae.experiments.engines import parse_engine
from intervae.experiments.execute import execute
from intervae.experiments.plan import make_plan
from intervae.experiments.write import write_results


def run_experiment(
    experiment: Experiment,
    *,
    seeds: int | None = None,
    device: str = "auto",
    runs: str | Path = "runs",
    results: str | Path = "results",
    overwrite: bool = False,
    only: str = "",
    shard: tuple[int, int] = (1, 1),
    concurrent: int | None = None,
    stack: bool | None = None,
    command: str = "",
    quick: bool = False,
    finished: bool = False,
    on: str = "",
    gpus_per_job: float | None = None,
    slurm: Mapping[str, Any] | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run every job and seed that `runs` does not have yet; write NAME.json, .md and .png.

    Arguments:
        seeds: number of seeds, 0 .. seeds - 1; without it, that of each job.
        overwrite: replace a NAME.json that has more seeds.
        only: run the jobs whose key contains this text, and write no table. To spread an experiment
            over machines: copy their `runs` into one folder, then run it there without `only`.
        shard: (k, n) runs every n-th job and seed from the k-th on, and writes no table.
        concurrent: number of concurrent runs; without it, 8 on a GPU and 1 elsewhere.
        stack: train the seeds of each job as one stack where its model allows it.
        command: the command that the results file names, if not `intervae reproduce NAME ...`.
        quick: run the quick form, and write NAME-quick.*.
        finished: run nothing; make the table of the finished runs, and list the missing ones.
        on: "ray", "ray:ADDRESS" or "slurm": where the jobs are run, with `runs` on storage that all
            machines share; jobs that lose their worker go on elsewhere from their checkpoints.
        gpus_per_job: with `on`; a fraction lets several jobs share a GPU.
        slurm: parameters of submitit, such as {"slurm_partition": "gpu", "timeout_min": 240}.
        notify: called with a line of text after each job and seed.

    Returns:
        The content of the JSON file; with `only` or `shard`, just its rows.
    """
    plan = make_plan(
        experiment,
        seeds=seeds,
        device=device,
        runs=Path(runs),
        results=Path(results),
        overwrite=overwrite,
        only=only,
        shard=shard,
        concurrent=concurrent,
        stack=stack,
        command=command,
        quick=quick,
        finished=finished,
        engine=parse_engine(on, gpus_per_job, slurm),
    )
    records = execute(plan, notify)
    if plan.partial:
        return {"rows": collect_rows(plan, records)}
    document = collect_document(plan, records)
    write_results(plan, document, Path(results))
    return document
