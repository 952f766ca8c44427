"""`intervae train` and `intervae resume`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from intervae.cli.data_options import read_data_options, read_graph
from intervae.cli.evaluate import draw_figures, evaluate_run
from intervae.cli.options import (
    DataOptions,
    Device,
    Epochs,
    Evaluate,
    Group,
    Kinds,
    OtherData,
    Pictures,
    Preset,
    Run,
    Seed,
    Size,
    Stack,
    Variables,
)
from intervae.cli.output import echo, print_data, print_notes
from intervae.cli.signals import interrupted_by_signals, trace_crashes
from intervae.cli.train_seeds import train_seeds
from intervae.cli.with_ranks import other_rank
from intervae.errors import DataError, RunError, UsageError, unknown

if TYPE_CHECKING:
    from intervae.data import Dataset
    from intervae.models.base import Model
    from intervae.training import Result


@contextlib.contextmanager
def explain_interrupt(run: Path | None = None) -> Iterator[None]:
    """Turn Ctrl-C into an error that says how to resume `run`, or that nothing was written.

    While a run is trained, SIGTERM, SIGHUP and SIGQUIT do the same.
    """
    try:
        with contextlib.nullcontext() if run is None else interrupted_by_signals():
            yield
    except KeyboardInterrupt:
        if run is None or not (run / "config.json").is_file():
            raise RunError(
                "interrupted before anything was written; give the same command again."
            ) from None
        from intervae.models.storage import how_to_resume

        raise RunError(f"interrupted; {how_to_resume(run)}.") from None


@explain_interrupt()
def train(
    model: Annotated[str, typer.Argument(help="Name from `intervae models`.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(
            help="Name from `intervae datasets`, a folder (of images, packed data), an .npz, .h5, "
            ".parquet or .tar file.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder.", show_default="runs/DATA-MODEL-SEED"),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Train this many seeds from --seed on, into OUT/seed-N.",
            show_default=False,
        ),
    ] = None,
    stack: Stack = None,
    epochs: Epochs = None,
    device: Device = "auto",
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="CPU threads.", show_default="the fastest number"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run.")
    ] = False,
    size: Size = None,
    variables: Variables = None,
    kinds: Kinds = None,
    group: Group = None,
    data_option: DataOptions = None,
    graph: Annotated[
        str | None,
        typer.Option(
            help="Known graph: a graph.json file, edges such as 'a -> b, a -> c', or `true` for "
            "the data set's own graph.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE, a setting of the model or of the training.",
            show_default=False,
        ),
    ] = None,
    preset: Preset = None,
    evaluate: Evaluate = True,
    pictures: Pictures = True,
) -> None:
    """Train a model, evaluate it and draw its figures."""
    trace_crashes()
    echo(f"reading {data}")  # importing torch takes seconds on a busy machine
    from intervae.models import MODELS, create
    from intervae.models.checks import check_accepts_graph
    from intervae.models.presets import find_preset
    from intervae.settings import split_settings
    from intervae.training import Options, fit

    if model not in MODELS:
        raise unknown("model", model, MODELS)
    if preset is not None:
        find_preset(MODELS[model], preset)  # an unknown one is an error before the data is read
    values = parse_model_settings(model, settings or [], epochs)
    if graph is not None:
        check_accepts_graph(MODELS[model])
    if stack is not None and not seeds:
        raise UsageError("--stack and --no-stack are about several seeds; add --seeds N.")
    if threads is not None:
        values["threads"] = str(threads)
    model_settings, training_options = split_settings(values, MODELS[model].Settings, Options)
    dataset = load_described_data(data, size, variables, kinds, group, data_option)
    if classes := ask_for_classes(dataset):
        kinds = [*(kinds or []), *(f"{name}=categorical" for name in classes)]
        dataset = load_described_data(data, size, variables, kinds, group, data_option)
    print_data(dataset)
    many = f"{seeds}-seeds" if seeds else str(seed)
    run = folder or Path("runs") / f"{dataset.name}-{model}-{many}"
    if graph is not None:
        model_settings["graph"] = read_graph(graph, dataset)
    net = create(model, dataset, seed=seed, preset=preset, **model_settings)
    print_notes(net.notes(dataset))
    training_options |= {"device": device, "resume": resume, "overwrite": overwrite}
    if seeds:
        chosen = range(seed, seed + seeds)
        echo(f"training {model} on {dataset.name}, seeds {seed} to {chosen[-1]}, into {run}")
        training_options["stack"] = stack
        train_seeds(net, dataset, chosen, run, evaluate and pictures, training_options)
        return
    echo(f"training {model} on {dataset.name}, seed {seed}, into {run}")
    with explain_interrupt(run):
        result = fit(net, dataset, seed=seed, out=run, **training_options)
        _finish(net, dataset, run, result, evaluate and pictures)


def resume(
    run: Run,
    data: OtherData = None,
    device: Device = "auto",
    evaluate: Evaluate = True,
    pictures: Pictures = True,
) -> None:
    """Resume an interrupted run with its own settings, evaluate it and draw its figures."""
    trace_crashes()
    with explain_interrupt(run):
        net, dataset, result = _resume_run(run, device, data)
        _finish(net, dataset, run, result, evaluate and pictures)


def parse_model_settings(model: str, texts: list[str], epochs: int | None) -> dict[str, str]:
    """Return the values of --set and --epochs; contradictory ones raise a UsageError."""
    from intervae.models import MODELS
    from intervae.settings import parse_settings

    values = parse_settings(texts)
    if epochs is not None:
        if "epochs" in values:
            raise UsageError(
                f"--epochs {epochs} and --set epochs={values['epochs']} set the same thing; "
                "give one of them."
            )
        values["epochs"] = str(epochs)
    if "epochs" in values and "epochs" not in {f.name for f in fields(MODELS[model].Settings)}:
        raise UsageError(f"{model} is not trained in epochs; leave epochs={values['epochs']} out.")
    return values


def _resume_run(run: Path, device: str, where: str | None = None) -> tuple[Model, Dataset, Result]:
    """Train an interrupted run to its end, with the settings in its config.json."""
    from intervae.evaluation.run_data import load_run_data
    from intervae.files import read_json
    from intervae.models.storage import build_model, check_run_folder
    from intervae.training import Options, fit

    check_run_folder(run)
    config = read_json(run / "config.json", "the run's settings")
    model = build_model(config, run)
    seed, options = config.get("seed"), config.get("training")
    if (
        not isinstance(seed, int)
        or not isinstance(options, dict)
        or options.keys() - {f.name for f in fields(Options)}
    ):
        raise RunError(
            f"{run / 'config.json'} has no training options; resume it with the original command "
            "plus --resume."
        )
    data = load_run_data(run, config, model, where)
    echo(f"resuming {run}")
    return model, data, fit(model, data, seed=seed, out=run, device=device, resume=True, **options)


def _finish(net: Model, dataset: Dataset, run: Path, result: Result, evaluate: bool) -> None:
    """Print the time of the training, then evaluate and draw if `evaluate`, on the first rank."""
    if other_rank():
        return
    if result.seconds_before_resume == result.seconds:
        echo(f"{run} was already trained, in {result.seconds:.0f} s; nothing to do")
    else:
        before = f", {result.seconds_before_resume:.0f} s of them before the interruption"
        echo(
            f"trained in {result.seconds:.0f} s" + (before if result.seconds_before_resume else "")
        )
    if evaluate:
        evaluate_run(net, dataset, run, None, False)
        draw_figures(net, dataset, run)


def load_described_data(
    data: str,
    size: int | None,
    variables: str | None,
    kinds: list[str] | None,
    group: str | None,
    options: list[str] | None,
) -> Dataset:
    """Return the data set that the options describe."""
    from intervae.data import load_data

    try:
        return load_data(data, **read_data_options(size, variables, kinds, group, options))
    except DataError as error:
        print_notes(getattr(error, "__notes__", ()))  # files that were skipped before the error
        raise


def ask_for_classes(data: Dataset) -> list[str]:
    """Return the columns of few whole numbers that the user calls classes; [] if not a terminal."""
    from intervae.data.column_kinds import FEW_VALUES

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return []  # the note of the column says what to do
    return [
        note.subject
        for note in data.notes
        if note.kind == FEW_VALUES
        and typer.confirm(f"{note.subject!r}: {note.reason}. Are these classes?", default=False)
    ]
