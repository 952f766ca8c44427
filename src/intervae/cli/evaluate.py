"""`intervae evaluate`, `report` and `graph`: metrics, report and graph of a trained run."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intervae.cli.options import AsJson, Device, OtherData, Run
from intervae.cli.output import (
    echo,
    err,
    out,
    print_comparison,
    print_measurements,
    print_notes,
)
from intervae.cli.runs import open_other_data, open_run
from intervae.errors import UsageError, unknown

if TYPE_CHECKING:
    from intervae.causal.graph import CausalGraph
    from intervae.data import Dataset
    from intervae.metrics.base import Measurement
    from intervae.models.base import Model

GRAPH_FORMATS = (".svg", ".png", ".dot", ".json")


def evaluate(
    run: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of trained runs; several are compared.",
            show_default=False,
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Name from `intervae metrics`; without it, all that apply.", show_default=False
        ),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Other data, all of it as test; of the run's own data, moved, the test split.",
            show_default="the run's data",
        ),
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Evaluate runs on the test split of their data; print tables and write evaluation.json."""
    results, runs = {}, list(dict.fromkeys(run))
    for folder in runs:
        name = ""
        if other is None:
            model, data = open_run(folder, device)
        else:
            model, data, is_own = open_other_data(folder, device, other)
            name = "" if is_own else data.name
            text = " is the run's own data: its test split is used"
            print_notes(
                [other + (text if is_own else ": all of it is tested")], err if as_json else out
            )
        if len(runs) > 1 and not as_json:
            echo(str(folder), "bold")
        results[str(folder)] = evaluate_run(
            model, data, folder, metric, as_json and len(runs) == 1, on=name, quiet=as_json
        )
    if len(results) > 1 and as_json:
        rows = {name: [m.to_json() for m in measured] for name, measured in results.items()}
        print(json.dumps(rows, indent=2))
    elif len(results) > 1:
        print_comparison(results)


def evaluate_run(
    model: Model,
    data: Dataset,
    run: Path,
    metrics: list[str] | None,
    as_json: bool,
    *,
    on: str = "",
    quiet: bool = False,
) -> list[Measurement]:
    """Evaluate a model, write evaluation.json and print the measurements.

    Nothing is written into a zip of `intervae export`.

    Arguments:
        on: name of other data, for evaluation-NAME.json.
        quiet: whether to print no table.
    """
    from intervae.evaluation import evaluate as measure
    from intervae.evaluation import write_evaluation

    console = err if as_json or quiet else out
    notify = lambda text: print_notes([text], console)  # noqa: E731
    measurements = measure(model, data, metrics, notify=notify)
    if run.is_file():
        notify(f"{run} is one file, so evaluation.json is not written; --json prints it")
    else:
        write_evaluation(run, measurements, on=on)
    if as_json:
        print(json.dumps([m.to_json() for m in measurements], indent=2))
    elif not quiet:
        print_measurements(measurements)
    return measurements


def draw_figures(model: Model, data: Dataset, run: Path) -> None:
    """Write the figures of a run, and its report if its model has one."""
    from intervae.report import can_report, write_figures, write_report

    for path in write_figures(model, data, run):
        echo(f"wrote {path}")
    if can_report(model):
        echo(f"wrote {write_report(model, data, run)}")


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a trained cmcl run.", show_default=False)],
    resamples: Annotated[
        int | None,
        typer.Option(
            "--bootstrap",
            min=2,
            max=10_000,
            help="Bootstrap resamples for the confidence of links.",
            show_default="25 to 100, about 20 s",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the resamples.")] = 0,
    data: OtherData = None,
    device: Device = "auto",
) -> None:
    """Write report.html of a cmcl run: causes and effects, their confidence, and diagnostics."""
    from intervae.report import write_report

    if run.is_file():
        raise UsageError(f"{run} is one file; report.html is written into a run folder.")
    model, dataset = open_run(run, device, data)
    echo(f"wrote {write_report(model, dataset, run, resamples=resamples, seed=seed)}")


def graph(
    run: Run,
    path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File to write: .svg, .png, .dot or .json; without it, the edges are printed.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print or draw the causal graph of a run; a -- b is an edge of unknown direction."""
    from intervae.models import load
    from intervae.models.storage import describe_graph

    check_graph_format(path)
    model = load(run)
    causal_graph, undirected = model.graph, model.undirected_edges
    if path is not None:
        write_graph(path, causal_graph, undirected=undirected)
    if as_json:
        print(json.dumps(describe_graph(model), indent=2))
    elif path is not None:
        echo(f"wrote {path}")
    else:
        lines = [
            f"{cause} {'--' if (cause, effect) in undirected else '->'} {effect}  {weight:.3f}"
            for cause, effect, weight in causal_graph.edges
        ]
        echo("\n".join(lines) or "no edges")


def check_graph_format(path: Path | None) -> None:
    """Raise a UsageError if a graph cannot be written to this path."""
    if path is not None and path.suffix.lower() not in GRAPH_FORMATS:
        raise unknown("format of --out", path.suffix.lower() or str(path), GRAPH_FORMATS)


def write_graph(
    path: Path,
    causal_graph: CausalGraph,
    *,
    confidence: Any = None,
    undirected: Collection[tuple[str, str]] = (),
) -> None:
    """Write a graph in the format of the suffix; `confidence` (n, n) labels drawn edges."""
    from intervae.files import write_json, write_text

    if path.suffix.lower() == ".dot":
        write_text(path, causal_graph.to_dot())
    elif path.suffix.lower() == ".json":
        write_json(path, causal_graph.to_json())
    else:
        from intervae import figures

        figures.draw_graph(path, causal_graph, confidence=confidence, undirected=undirected)
