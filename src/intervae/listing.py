"""What the commands print: the lists of what there is, the settings of a model and tables of numbers, for people or as JSON."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from intervae.errors import unknown

if TYPE_CHECKING:
    from intervae.data.base import Dataset
    from intervae.metrics.base import Measurement

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)
Row = dict[str, Any]
MOST_SHOWN = 12  # categories of a variable
# What settings mean that models share; a model's own have their meaning beside them, as the comment of their line.
SHARED = {
    "network": "convolutions, or the CausalVAE authors' fully connected layers",
    "channels": "of the convolutions, each of which halves the picture",
    "hidden": "width of the fully connected layers of the conv network",
    "likelihood": "of a pixel",
    "epochs": "passes over the training split, at most",
    "batch_size": "images in a step",
    "optimiser": "that takes the steps; a GPU captures those of adam, adamw and muon as a graph",
    "learning_rate": "of the optimiser",
    "schedule": "how the learning rate goes on; cosine falls to nearly 0",
    "generator_rate": "learning rate of the generator",
    "patience": "epochs without a better validation loss after which training stops; none never stops early",
}


def say(text: str, style: str | None = None) -> None:
    """Print words that may hold anything: names and paths with brackets are not markup."""
    out.print(text, style=style, markup=False, highlight=False)


def print_rows(rows: list[Row], columns: tuple[str, ...], as_json: bool) -> None:
    """One line each, the first column bold, or JSON with all there is."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    grid = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        grid.add_row(*(Text(str(row[column]), "" if i else "bold") for i, column in enumerate(columns)))
    out.print(grid)


def print_changes(before: dict[str, float], after: dict[str, float], as_json: bool, *, mark: bool = False) -> None:
    """Variables before and after do(), with `mark` by how much those changed that did; where none did, their values alone."""
    rows = [{"variable": name, "before": old, "after": after[name], "changed": old != after[name]} for name, old in before.items()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ["before", "after", *(["change"] if mark else [])] if before != after else ["value"]
    grid = Table("variable", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        grid.add_column(column, justify="right")
    for name, old in before.items():
        new = after[name]
        shown = (f"{old:.4g}", f"{new:.4g}", f"{new - old:+.4g}" if new != old else "")
        grid.add_row(Text(name), *shown[: len(columns)], style="bold" if mark and new != old else "")
    out.print(grid)


def print_page(text: str) -> None:
    """A results page: to a pipe as it is, to a person with its tables drawn; a long list of every number below a first table is left to the file."""
    from rich.markdown import Markdown

    if not out.is_terminal:
        print(text)
        return
    first, found, _ = text.partition("## Every number")
    out.print(Markdown(first + ("Every number is in the file." if found else "")), width=max(out.width, 120))


# ---- what there is --------------------------------------------------------------------------------------------------
def models() -> list[Row]:
    from intervae.models import MODELS
    from intervae.models.base import QUERIES, answers

    return [
        {
            "name": name,
            "about": model.title,
            "answers": [query for query in QUERIES if answers(model, query)],
            "settings": {field.name: field.default for field in fields(model.Settings)},
        }
        for name, model in MODELS.items()
    ]


def datasets() -> list[Row]:
    from intervae.data.registry import datasets as known

    return [{"name": entry.name, "about": entry.description, "needs": entry.needs} for entry in known()]


def metrics() -> list[Row]:
    from intervae.evaluation import METRICS

    return [
        {"name": name, "about": metric.about + " (only when named)" * metric.on_request, "needs": metric.needs, "on_request": metric.on_request}
        for name, metric in METRICS.items()
    ]


def experiments() -> list[Row]:
    from intervae.experiments import EXPERIMENTS

    return [{"name": e.name, "about": f"{e.title} ({e.seeds} seeds)"} for e in EXPERIMENTS]


# ---- the settings of a model ----------------------------------------------------------------------------------------
def settings(model: str) -> list[Row]:
    """Name, type, default and meaning of every setting of a model, in the order in which it declares them."""
    from intervae.models import MODELS

    if model not in MODELS:
        raise unknown("model", model, MODELS)
    cls = MODELS[model].Settings
    hints, said = typing.get_type_hints(cls), {**SHARED, **_comments(cls)}
    return [{"name": f.name, "type": _type(hints[f.name]), "default": f.default, "meaning": said.get(f.name, "")} for f in fields(cls)]


def print_settings(rows: list[Row]) -> None:
    """A table with the defaults as --set takes them."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("setting", "default", "type", "meaning"):
        grid.add_column(column, no_wrap=column in ("setting", "default"))
    for row in rows:
        grid.add_row(Text(row["name"], "bold"), as_text(row["default"]), Text(row["type"]), Text(row["meaning"]))
    out.print(grid)


def as_text(value: Any) -> str:
    """A setting's value as `--set` takes it: 32,64 and none and true."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _comments(cls: type) -> dict[str, str]:
    """Field -> the comment of its line, of a dataclass and of those that it extends."""
    found: dict[str, str] = {}
    for parent in reversed(cls.__mro__[:-1]):
        found |= dict(re.findall(r"^    (\w+):[^#\n]*=[^#\n]*  # (.+)$", inspect.getsource(parent), re.MULTILINE))
    return found


def _type(hint: Any) -> str:
    """A type in words: `int or none`, `conv or mlp`, `int, ...`."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, arguments))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if typing.get_origin(hint) is tuple:
        return f"{_type(arguments[0])},..."
    return {type(None): "none", bool: "true or false", str: "text"}.get(hint, getattr(hint, "__name__", str(hint)))


# ---- tables ---------------------------------------------------------------------------------------------------------
def print_data(data: Dataset) -> None:
    """What was made of the data: its size, its variables, and what a person should know."""
    from intervae.data.columns import listed

    say(str(data))
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("variable", "kind", "range"):
        grid.add_column(column)
    for v in data.variables:
        values = listed(v.categories, MOST_SHOWN) if v.categories else f"{v.low:.4g} to {v.high:.4g} {v.unit}".strip()
        grid.add_row(Text(v.name), v.kind, Text(values))
    if data.variables:
        out.print(grid)
    print_notes(data.notes)


def print_notes(notes: Iterable[str]) -> None:
    """What a person should know of how data were read, one line each."""
    for note in notes:
        say(f"note: {note}", "yellow")


def print_measurements(measurements: list[Measurement]) -> None:
    """The headline of every metric, then what there is for each variable."""
    from intervae.evaluation import headlines, variable_tables

    _print(["metric on the test split", "value", "images", "beside it"], headlines(measurements), words=(0, 3))
    for header, rows in variable_tables(measurements):
        _print(header, rows)


def _print(header: list[str], rows: list[list[str]], words: tuple[int, ...] = (0,)) -> None:
    """A table whose columns hold numbers, but for those that hold words."""
    grid = Table(header_style="bold")
    for i, column in enumerate(header):
        grid.add_column(Text(column), justify="left" if i in words else "right", overflow="fold", no_wrap=i == 0)
    for row in rows:
        grid.add_row(*map(Text, row))
    out.print(grid)
