"""`intervae reproduce`: run an experiment and print its table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from intervae.cli.options import Device, Stack
from intervae.cli.output import echo, print_page
from intervae.cli.signals import trace_crashes
from intervae.errors import UsageError


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="Name from `intervae experiments`.", show_default=False)
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

    if together is not None:
        raise UsageError(f"--together is now called --concurrent; use --concurrent {together}.")
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


def _parse_shard(text: str) -> tuple[int, int]:
    """Return (2, 4) of "2/4", and (1, 1) of ""."""
    if not text:
        return 1, 1
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None:
        raise UsageError(f"--shard {text} must be like 2/4, the second of four parts.")
    return int(match[1]), int(match[2])
