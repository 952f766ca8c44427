"""`intervae reproduce`: run an experiment and print its table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from intervae.cli.options import Device, Stack
from intervae.cli.output import echo, print_page, print_rows
from intervae.cli.signals import trace_crashes
from intervae.errors import RunError, UsageError

ALL = "all"  # in the place of a name: every experiment


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="Name from `intervae experiments`, or all with --quick.", show_default=False
        ),
    ],
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Number of seeds.", show_default="the experiment's own"
        ),
    ] = None,
    device: Device = "auto",
    runs: Annotated[
        Path, typer.Option(help="Folder of the runs; finished ones are not run again.")
    ] = Path("runs"),
    results: Annotated[
        Path, typer.Option(help="Folder of NAME.json, NAME.md and NAME.png.")
    ] = Path("results"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a NAME.json that has more seeds.")
    ] = False,
    only: Annotated[
        str,
        typer.Option(
            help="Run only the jobs with this text in their name; no table.", show_default=False
        ),
    ] = "",
    shard: Annotated[
        str,
        typer.Option(
            help="K/N: run the K-th of N equal parts, such as 2/4; no table.", show_default=False
        ),
    ] = "",
    concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Number of concurrent runs.", show_default="8 on a GPU, else 1"),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            help="Where the jobs are run: ray (a cluster on this machine), ray:ADDRESS or slurm; "
            "--runs must then be on storage that all machines share.",
            show_default="this process",
        ),
    ] = "",
    gpus_per_job: Annotated[
        float | None,
        typer.Option(
            min=0, help="With --on; 0.25 lets four jobs share a GPU.", show_default="1/8 or 1"
        ),
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE of submitit, such as slurm_partition=gpu or timeout_min=240.",
            show_default=False,
        ),
    ] = None,
    stack: Stack = None,
    together: Annotated[int | None, typer.Option(hidden=True)] = None,
    table: Annotated[
        bool,
        typer.Option("--table", help="Run nothing; write page and figure again from NAME.json."),
    ] = False,
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing; make the table of finished runs.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Run a short form with one seed, minutes on a CPU, as NAME-quick."
        ),
    ] = False,
) -> None:
    """Run an experiment and print its table with the paper's numbers."""
    trace_crashes()
    from intervae.experiments import (
        EXPERIMENTS,
        find_experiment,
        results_page,
        run_experiment,
        write_table,
    )
    from intervae.settings import parse_settings, plain_value

    if together is not None:
        raise UsageError(f"--together is now called --concurrent; use --concurrent {together}.")
    if experiment == ALL:
        elsewhere = on or slurm or gpus_per_job is not None or stack is not None
        if not quick or seeds or only or shard or table or finished or elsewhere:
            raise UsageError(
                "reproduce all runs the quick forms: it needs --quick, and takes --device, --runs, "
                "--results, --overwrite and --concurrent only."
            )
        _reproduce_all(device, runs, results, overwrite, concurrent)
        return
    declared = find_experiment(experiment, EXPERIMENTS)
    form = declared.quick_form if quick else declared
    if table:
        write_table(form, results)
    else:
        run_experiment(
            declared,
            seeds=seeds,
            device=device,
            runs=runs,
            results=results,
            overwrite=overwrite,
            only=only,
            shard=_parse_shard(shard),
            concurrent=concurrent,
            stack=stack,
            quick=quick,
            finished=finished,
            on=on,
            gpus_per_job=gpus_per_job,
            slurm={k: plain_value(v) for k, v in parse_settings(slurm or [], "--slurm").items()},
            notify=echo,
        )
        if only or shard:
            option = "--only" if only else "--shard"
            echo(f"the numbers are in {runs / form.runs_name}; run without {option} for the table")
            return
    print_page(results_page(form, results))
    suffixes = [".json"] * (not table) + [".md"] + [".png"] * (form.figure is not None)
    text = " and ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))
    echo(f"wrote {results / form.name}{text}")


def _reproduce_all(
    device: str, runs: Path, results: Path, overwrite: bool, concurrent: int | None
) -> None:
    """Run every quick form and print a table of them; failures are an error at the end."""
    from intervae.experiments import EXPERIMENTS
    from intervae.experiments.quick import run_quick_forms

    outcomes = run_quick_forms(
        EXPERIMENTS,
        device=device,
        runs=runs,
        results=results,
        overwrite=overwrite,
        concurrent=concurrent,
        notify=echo,
    )
    rows = [
        {"name": run.name, "state": run.state, "seconds": f"{run.seconds:.0f} s", "why": run.reason}
        for run in outcomes
    ]
    print_rows(rows, ("name", "state", "seconds", "why"), as_json=False)
    echo(f"the numbers are in {results / '*-quick.json'}")
    failed = [run.name for run in outcomes if run.state == "failed"]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(outcomes)} quick forms failed, {', '.join(failed)}; "
            "the table has the reasons."
        )


def _parse_shard(text: str) -> tuple[int, int]:
    """Return (2, 4) of "2/4", and (1, 1) of ""."""
    if not text:
        return 1, 1
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None:
        raise UsageError(f"--shard {text} must be like 2/4, the second of four parts.")
    return int(match[1]), int(match[2])
