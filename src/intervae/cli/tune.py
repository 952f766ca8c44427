"""`intervae tune`: search settings of a model on the validation split."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from intervae.cli.options import (
    DataOptions,
    Device,
    Epochs,
    Group,
    Kinds,
    Preset,
    Seed,
    Size,
    Variables,
)
from intervae.cli.output import echo, print_data
from intervae.cli.signals import interrupted_by_signals, trace_crashes
from intervae.cli.train import load_described_data, parse_model_settings
from intervae.errors import RunError, unknown


def tune(
    model: Annotated[str, typer.Argument(help="Name from `intervae models`.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(
            help="Name from `intervae datasets`, a folder of images, an .npz or an .h5 file.",
            show_default=False,
        ),
    ],
    budget: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, help="Number of trials, earlier ones included.", show_default=False
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the search.", show_default="runs/tune-DATA-MODEL"),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            help="SETTING=LOW:HIGH, SETTING=log:LOW:HIGH or SETTING=A|B|C; may be repeated.",
            show_default="the model's own",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="Metric to compare, on the validation split.", show_default="validation loss"
        ),
    ] = "",
    seed: Seed = 0,
    epochs: Epochs = None,
    device: Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing search.")
    ] = False,
    size: Size = None,
    variables: Variables = None,
    kinds: Kinds = None,
    group: Group = None,
    data_option: DataOptions = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE, a setting that stays fixed.", show_default=False),
    ] = None,
    preset: Preset = None,
) -> None:
    """Search the settings of a model by trainings, compared on the validation split."""
    trace_crashes()
    echo(f"reading {data}")
    from intervae.models import MODELS
    from intervae.models.presets import find_preset
    from intervae.settings import parse_settings
    from intervae.tuning import default_search
    from intervae.tuning import tune as search_settings

    if model not in MODELS:
        raise unknown("model", model, MODELS)
    if preset is not None:
        find_preset(MODELS[model], preset)  # an unknown one is an error before the data is read
    values = parse_model_settings(model, settings or [], epochs)
    fixed = set(values)
    space = parse_settings(search or [], "--search") or {
        name: text for name, text in default_search(MODELS[model]).items() if name not in fixed
    }
    dataset = load_described_data(data, size, variables, kinds, group, data_option)
    print_data(dataset)
    out = folder or Path("runs") / f"tune-{dataset.name}-{model}"
    echo("searching " + ", ".join(f"{name}={text}" for name, text in space.items()))
    words = ["intervae", "train", model, "--data", data]
    words += ["--size", str(size)] * (size is not None)
    words += ["--variables", variables or ""] * (variables is not None)
    words += ["--group", group or ""] * (group is not None)
    words += [word for kind in kinds or [] for word in ("--kind", kind)]
    words += [word for text in data_option or [] for word in ("--data-option", text)]
    try:
        with interrupted_by_signals():
            result = search_settings(
                model,
                dataset,
                budget=budget,
                out=out,
                search=space,
                metric=metric,
                seed=seed,
                device=device,
                overwrite=overwrite,
                preset=preset,
                command=shlex.join(words),
                notify=echo,
                **values,
            )
    except KeyboardInterrupt:
        raise RunError(
            f"interrupted; the finished trials are in {out}: give the same command to go on."
        ) from None
    assert result.best.value is not None
    echo(f"best {result.objective}: {result.best.value:.6g}, of trial {result.best.number + 1}")
    echo(f"wrote {out / 'trials.json'}, {out / 'search.png'} and a run folder for each trial")
    echo("train with the best settings, and evaluate on the test split:")
    echo(f"  {result.command}")
