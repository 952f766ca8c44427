"""The command line: `intervae train`, `resume`, `evaluate`, `report`, `graph`, `intervene`, `attribute`, `discover`, `reproduce`, and lists.

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors are one sentence on standard error; `--debug` shows the traceback as well.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

import intervae
from intervae import commands, listing, questions
from intervae.commands import AsJson, Device, Run
from intervae.errors import DataError, IntervaeError, UsageError, unknown
from intervae.listing import err, out, print_page, print_rows, say

if TYPE_CHECKING:
    from intervae.data.base import Dataset
    from intervae.models.base import Model
    from intervae.training import Result

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
INTERRUPTED = 130


def _version(asked: bool) -> None:
    if asked:
        print(f"intervae {intervae.__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; stands anywhere in the line.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Learn causal variables from images and video, and ask what if."""  # `main` has read --debug before: here it is for --help


def main() -> None:
    """Entry point: run a command and turn errors into one sentence and an exit code."""
    debug = "--debug" in sys.argv
    if not debug:
        threading.excepthook = lambda _: None  # TensorBoard's writer, on a full disk: the error reaches us too
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that this terminal cannot show must not end the command
    try:
        code = app([word for word in sys.argv[1:] if word != "--debug"], prog_name="intervae", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = INTERRUPTED if isinstance(error, typer.Abort) else _explain(error, debug)
    if code == INTERRUPTED:  # newer versions of typer return this, older ones abort
        code = _fail("interrupted; give the same command again.", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception, debug: bool) -> int:
    """Print an error as one sentence; returns the exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of a pipe went away: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if type(error).__name__ == "NoArgsIsHelpError":  # `intervae` alone has shown the help
        return 2
    if debug:
        err.print_exception()
    if isinstance(error, IntervaeError):
        return _fail(str(error), error.exit_code)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's own, about an option or an argument
        command = getattr(getattr(error, "ctx", None), "command_path", "intervae")
        return _fail(f"{error.format_message().rstrip('.?')}; see `{command} --help`.", error.exit_code)
    if isinstance(error, OSError):
        advice = "; check that path" if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)) else ""
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}{advice}.", 1)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error):  # of Python or torch
        return _fail("not enough memory; use smaller images (--size), fewer of them, or a smaller --set batch_size.", 1)
    return _fail(f"this should not happen ({type(error).__name__}: {error}); please report it with what --debug shows.", 1)


def _fail(sentence: str, code: int) -> int:
    err.print(f"[bold red]error:[/] {escape(' '.join(sentence.split()))}", highlight=False)
    return code


# ---- what there is --------------------------------------------------------------------------------------------------
@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this model, for --set of `train`.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the models, or the settings of one."""
    if name is None:
        print_rows(listing.models(), ("name", "about"), as_json)
    elif as_json:
        print(json.dumps(listing.settings(name), indent=2))
    else:
        listing.print_settings(listing.settings(name))


@app.command()
def datasets(as_json: AsJson = False) -> None:
    """List the data sets that have a name."""
    print_rows(listing.datasets(), ("name", "about"), as_json)
    if not as_json:
        say("\nOr a path: a folder of images, with a labels.csv if they have labels; an .npz, an .h5.", "dim")


@app.command()
def metrics(as_json: AsJson = False) -> None:
    """List the metrics of `evaluate`."""
    print_rows(listing.metrics(), ("name", "about"), as_json)


@app.command()
def experiments(as_json: AsJson = False) -> None:
    """List the experiments of `reproduce`."""
    print_rows(listing.experiments(), ("name", "about"), as_json)


# ---- train ----------------------------------------------------------------------------------------------------------
@app.command()
@commands.stoppable()
def train(
    model: Annotated[str, typer.Argument(help="A name from `intervae models`.", show_default=False)],
    data: Annotated[str, typer.Option(help="A name from `intervae datasets`, a folder of images, an .npz or an .h5.", show_default=False)],
    folder: Annotated[Path | None, typer.Option("--out", help="Where the run goes.", show_default="runs/DATA-MODEL-SEED")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Decides everything random.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training split; short for --set epochs=N.", show_default=False)] = None,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already there.")] = False,
    size: Annotated[int | None, typer.Option(min=1, help="Pixels a side.", show_default=False)] = None,
    variables: Annotated[str | None, typer.Option(help="Use only these label columns: a,b,c.", show_default=False)] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="column=continuous, binary or categorical, where the guess is wrong.", show_default=False)
    ] = None,
    group: Annotated[str | None, typer.Option(help="Column whose equal values stay in one split, such as patient.", show_default=False)] = None,
    data_option: Annotated[list[str] | None, typer.Option(help="key=value, an option of this data set.", show_default=False)] = None,
    graph: Annotated[str | None, typer.Option(help="A known graph: a graph.json, or `true` for the data's own.", show_default=False)] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, a setting of the model or of the training.", show_default=False)
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Evaluate on the test split and draw the figures when done.")] = True,
) -> None:
    """Train a model, then evaluate it and draw its pictures."""
    from intervae.models import MODELS, create
    from intervae.models.base import refuse_graph
    from intervae.settings import parse_settings, split_settings
    from intervae.training import Options, fit

    if model not in MODELS:
        raise unknown("model", model, MODELS)
    given = parse_settings(settings or [])
    if epochs is not None:
        if "epochs" in given:
            raise UsageError(f"--epochs {epochs} and --set epochs={given['epochs']} say the same thing twice; give one of them.")
        given["epochs"] = str(epochs)
    if "epochs" in given and "epochs" not in {f.name for f in fields(MODELS[model].Settings)}:
        raise UsageError(f"{model} makes no passes over the data, so it takes no epochs; leave epochs={given['epochs']} out.")
    if graph is not None:
        refuse_graph(MODELS[model])
    of_model, of_training = split_settings(given, MODELS[model].Settings, Options)
    dataset = _load_data(data, size, variables, kind, group, data_option)
    listing.print_data(dataset)
    run = folder or Path("runs") / f"{dataset.name}-{model}-{seed}"
    if graph is not None:
        of_model["graph"] = _given_graph(graph, dataset)
    net = create(model, dataset, seed=seed, **of_model)
    listing.print_notes(net.doubts(dataset))
    say(f"training {model} on {dataset.name}, seed {seed}, into {run}")
    with commands.stoppable(run):
        result = fit(net, dataset, seed=seed, out=run, device=device, resume=resume, overwrite=overwrite, **of_training)
        _finish(net, dataset, run, result, pictures)


@app.command()
def resume(
    run: Run,
    device: Device = "auto",
    pictures: Annotated[bool, typer.Option(help="Evaluate on the test split and draw the figures when done.")] = True,
) -> None:
    """Go on with a run that was stopped, as it was started; then evaluate it and draw its pictures."""
    with commands.stoppable(run):
        net, dataset, result = commands.go_on(run, device)
        _finish(net, dataset, run, result, pictures)


def _finish(net: Model, dataset: Dataset, run: Path, result: Result, pictures: bool) -> None:
    if result.earlier == result.seconds:
        say(f"{run} had been trained to its end, in {result.seconds:.0f} s; nothing was left to do")
    else:
        say(f"trained in {result.seconds:.0f} s" + (f", {result.earlier:.0f} s of them before it was stopped" if result.earlier else ""))
    if pictures:
        _evaluate(net, dataset, run, None, False)
        _draw(net, dataset, run)


def _load_data(data: str, size: int | None, variables: str | None, kinds: list[str] | None, group: str | None, options: list[str] | None) -> Dataset:
    from intervae.data import load_data
    from intervae.settings import parse_settings, plain_value

    more: dict[str, Any] = {key: plain_value(text) for key, text in parse_settings(options or [], "--data-option").items()}
    for key in more:
        if key in ("size", "variables", "kinds", "group"):
            raise UsageError(f"--data-option {key}=... has an option of its own: {'--kind' if key == 'kinds' else '--' + key}.")
    chosen = [name.strip() for name in variables.split(",")] if variables else None
    try:
        return load_data(data, size=size, variables=chosen, kinds=parse_settings(kinds or [], "--kind") or None, group=group, **more)
    except DataError as error:
        listing.print_notes(getattr(error, "__notes__", ()))  # what was ignored before it went wrong
        raise


def _given_graph(graph: str, data: Dataset) -> Any:
    from intervae.causal import CausalGraph
    from intervae.files import read_json

    if graph != "true":
        if not Path(graph).is_file():
            raise UsageError(f"--graph {graph}: there is no such file; give a graph.json, or `true` for the data's own graph.")
        return CausalGraph.from_json(read_json(Path(graph), "a graph"))
    if data.graph is None:
        raise UsageError(f"--graph true: the true graph of {data.name} is not known; give a graph.json.")
    return data.graph


app.command()(commands.discover)


# ---- after training -------------------------------------------------------------------------------------------------
@app.command()
def evaluate(
    run: Run,
    metric: Annotated[list[str] | None, typer.Option(help="A name from `intervae metrics`; all that apply without it.", show_default=False)] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure a run on the test split of its data; prints a table and writes evaluation.json."""
    model, data = commands.open_run(run, device)
    _evaluate(model, data, run, metric, as_json)


def _evaluate(model: Model, data: Dataset, run: Path, metric: list[str] | None, as_json: bool) -> None:
    from intervae.evaluation import evaluate as measure
    from intervae.evaluation import write_evaluation

    notes = err if as_json else out
    measurements = measure(model, data, metric, tell=lambda text: notes.print(f"note: {text}", style="yellow", markup=False, highlight=False))
    write_evaluation(run, measurements)
    if as_json:
        print(json.dumps([m.to_json() for m in measurements], indent=2))
    else:
        listing.print_measurements(measurements)


def _draw(model: Model, data: Dataset, run: Path) -> None:
    from intervae.report import tells_of, write_figures, write_report

    for path in [*write_figures(model, data, run), *([write_report(model, data, run)] if tells_of(model) else [])]:
        say(f"wrote {path}")


app.command()(commands.report)
app.command()(commands.graph)


app.command()(questions.intervene)
app.command()(questions.attribute)


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help="A name from `intervae experiments`.", show_default=False)],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds 0 to N - 1.", show_default="the experiment's own")] = None,
    device: Device = "auto",
    runs: Annotated[Path, typer.Option(help="Where the runs go; what is finished there is not done again.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Where NAME.json, NAME.md and NAME.png go.")] = Path("results"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a NAME.json that has more seeds.")] = False,
    only: Annotated[str, typer.Option(help="Run the jobs with this in their name, for a later table.", show_default=False)] = "",
    shard: Annotated[str, typer.Option(help="Run the k-th of n equal parts, for a later table: 2/4.", show_default=False)] = "",
    together: Annotated[int | None, typer.Option(min=1, help="Runs at once.", show_default="8 on a GPU, else 1")] = None,
    table: Annotated[bool, typer.Option("--table", help="Run nothing: only write page and figure again from NAME.json.")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Run nothing: a table of the runs that are there.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A short form on one seed, a few minutes on a CPU, as NAME-quick.")] = False,
) -> None:
    """Run an experiment and print its table beside the paper's numbers."""
    from intervae.experiments import EXPERIMENTS, find, write_table
    from intervae.experiments import reproduce as run_by_name

    asked = find(experiment, EXPERIMENTS)
    known = asked.quick_form if quick else asked
    if table:
        write_table(known, results)
    else:
        how = {"only": only, "shard": commands.parse_shard(shard), "together": together, "overwrite": overwrite, "quick": quick, "finished": finished}
        run_by_name(experiment, seeds=seeds, device=device, runs=runs, results=results, tell=say, **how)
        if only or shard:
            return say(f"the numbers are in {runs / known.name}; without --{'only' if only else 'shard'} the table is made")
    print_page((results / f"{known.name}.md").read_text(encoding="utf-8"))
    written = [".json"] * (not table) + [".md"] + [".png"] * (known.figure is not None)
    return say(f"wrote {results / known.name}" + (" and ".join([", ".join(written[:-1]), written[-1]]) if len(written) > 1 else written[0]))


if __name__ == "__main__":
    main()
