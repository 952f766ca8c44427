"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="Folder of a trained run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all random numbers.")]
Stack = Annotated[
    bool | None,
    typer.Option(
        "--stack/--no-stack",
        help="Train the seeds as one stack where the model allows it.",
        show_default="on a GPU",
    ),
]
Evaluate = Annotated[
    bool,
    typer.Option(
        "--evaluate/--no-evaluate",
        help="Evaluate on the test split and draw figures after training.",
    ),
]
# earlier name of --evaluate/--no-evaluate
Pictures = Annotated[bool, typer.Option("--pictures/--no-pictures", hidden=True)]
OtherData = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Where the run's data is now, if it was moved.",
        show_default="where it was trained",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings to start from, such as `paper`, the settings of the model's paper.",
        show_default=False,
    ),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Short for --set epochs=N.", show_default=False)
]

# ---- options of `load_data` -------------------------------------------------------------------
Size = Annotated[
    int | None, typer.Option(min=1, help="Image height and width in pixels.", show_default=False)
]
Variables = Annotated[
    str | None, typer.Option(help="Label columns to use: a,b,c.", show_default=False)
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        help="COLUMN=continuous, binary, categorical or ordinal, or an order of texts, "
        "'COLUMN=small < medium < large', to override the detected kind.",
        show_default=False,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        help="Group column, e.g. patient; a group is never divided between splits.",
        show_default=False,
    ),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(help="KEY=VALUE, an option of the data set.", show_default=False),
]
