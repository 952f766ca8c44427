"""Tables of a model's settings and presets: `intervae models NAME`."""

from __future__ import annotations

import json
import types
import typing
from typing import Any

from rich.table import Table
from rich.text import Text

from intervae.cli.output import Row, echo, out
from intervae.errors import unknown
from intervae.settings import describe_settings


def list_settings(model: str) -> list[Row]:
    """Return name, type, default, help and advanced flag of every setting of a model."""
    from intervae.models import MODELS

    if model not in MODELS:
        raise unknown("model", model, MODELS)
    return [
        {**row, "type": _type_text(row["type"])}
        for row in describe_settings(MODELS[model].Settings)
    ]


def print_settings(model: str, show_all: bool) -> None:
    """Print the common settings of a model, with `show_all` the advanced ones below."""
    from intervae.models import MODELS

    rows = list_settings(model)
    advanced = [row for row in rows if row["advanced"]]
    _print_settings_table([row for row in rows if not row["advanced"]])
    if advanced and show_all:
        echo("\nadvanced", "bold")
        _print_settings_table(advanced)
    elif advanced:
        echo(f"\n{len(advanced)} advanced settings: intervae models {model} --all", "dim")
    for name in MODELS[model].presets:
        echo(f"preset {name}: intervae models {model} --preset {name}", "dim")


def print_preset(model: str, preset: str, as_json: bool) -> None:
    """Print the settings of a preset beside our defaults, where they are printed, and remarks."""
    from intervae.models import MODELS
    from intervae.models.presets import find_preset

    ours = {row["name"]: row["default"] for row in list_settings(model)}
    chosen = find_preset(MODELS[model], preset)
    rows = [
        {"setting": name, "value": entry.value, "ours": ours[name], "source": entry.source}
        for name, entry in chosen.printed.items()
    ]
    if as_json:
        remarks = list(chosen.remarks)
        print(json.dumps({"paper": chosen.paper, "settings": rows, "remarks": remarks}, indent=2))
        return
    echo(chosen.paper, "bold")
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("setting", preset, "ours", "where it is printed"):
        grid.add_column(column, no_wrap=column == "setting")
    for row in rows:
        values = [Text(setting_text(row[key])) for key in ("value", "ours")]
        grid.add_row(Text(row["setting"], "bold"), *values, Text(row["source"]))
    out.print(grid)
    for remark in chosen.remarks:
        echo(f"- {remark}")


def _print_settings_table(rows: list[Row]) -> None:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("setting", "default", "type", "description"):
        grid.add_column(column, no_wrap=column in ("setting", "default"))
    for row in rows:
        default = Text(setting_text(row["default"]))
        grid.add_row(Text(row["name"], "bold"), default, Text(row["type"]), Text(row["help"]))
    out.print(grid)


def setting_text(value: Any) -> str:
    """Return a setting's value as `--set` accepts it, such as 32,64 or none or true."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _type_text(hint: Any) -> str:
    """Return a type in words: `int or none`, `conv or mlp`, `int,...`."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, arguments))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_type_text(argument) for argument in arguments)
    if typing.get_origin(hint) is tuple:
        return f"{_type_text(arguments[0])},..."
    names = {type(None): "none", bool: "true or false", str: "text"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))
