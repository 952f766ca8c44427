"""Lines of Python and of the command line that repeat a view of the page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intervae.causal.do import Change
from intervae.serve.schemas import Code, Picture

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun

UPLOAD = "picture.png"  # the name of an upload in the lines


def repeat(run: ServedRun, pictures: Sequence[Picture], query: str, cli: str | None) -> Code:
    """Return the lines for one run.

    Arguments:
        query: the last line of Python; `images` and `model` are defined before it.
        cli: words after `intervae`, with {run} and {picture} to be filled in; None for no command.
    """
    lines = [*model_lines(run), *image_lines(run, pictures), query]
    return Code(python="\n".join(lines) + "\n", cli=_command(run, pictures, cli))


def model_lines(run: ServedRun) -> list[str]:
    if run.folder is None:
        return ["import intervae", "", "# `model` and `data` as they were in model.serve(data)"]
    return ["import intervae", "", f"model = intervae.load({str(run.folder)!r})"]


def image_lines(run: ServedRun, pictures: Sequence[Picture]) -> list[str]:
    """Return the lines that define `images` (and `rows`, of the test split)."""
    channels, height, width = run.model.spec.image_shape
    if not pictures:
        return []
    if pictures[0].index is None:
        return [
            "from pathlib import Path",
            "from intervae.data.image_files import read_images",
            f"images, _ = read_images([Path({UPLOAD!r})], [{UPLOAD!r}], "
            f"size=({height}, {width}), channels={channels})",
        ]
    lines = []
    if run.folder is not None:
        lines = [f"data = {_load_data(run.config.get('data', {}))}"]
    indices = [picture.index for picture in pictures]
    return [*lines, f"rows = data.test[{indices}]", "images = rows.images"]


def _load_data(source: Mapping[str, Any]) -> str:
    where = source.get("name") or source.get("path")
    options = dict(source.get("options", {}))
    if source.get("variables") is not None:
        options["variables"] = source["variables"]
    arguments = [repr(where), *(f"{name}={value!r}" for name, value in options.items())]
    return f"intervae.load_data({', '.join(arguments)})"


def extra_arguments(options: Mapping[str, Any]) -> str:
    """Return the keyword arguments of a query beside the images, as code."""
    places = {"labels": "rows.labels", "background": 'rows.fields["background"]'}
    return "".join(f", {name}={places[name]}" for name in options)


def python_do(do: Mapping[str, float | Change]) -> str:
    """Return do() as Python code."""
    entries = []
    for name, value in do.items():
        text = repr(value)
        if isinstance(value, Change):
            text = f"lambda v: v {value.operator} {value.amount!r}"
        entries.append(f"{name!r}: {text}")
    return "{" + ", ".join(entries) + "}"


def cli_do(do: Mapping[str, float | Change]) -> str:
    """Return do() as options of the command line."""
    words = []
    for name, value in do.items():
        if isinstance(value, Change):
            text = f"{name}={value.operator}{value.amount:.10g}"
        else:
            text = f"{name}={value:.10g}"
        words.append(f" --do {shlex.quote(text)}")
    return "".join(words)


def _command(run: ServedRun, pictures: Sequence[Picture], cli: str | None) -> str | None:
    if cli is None or run.folder is None:
        return None
    picture = ""
    if pictures:
        index = pictures[0].index
        picture = f"--image {UPLOAD}" if index is None else f"--index {index}"
    folder = shlex.quote(str(run.folder))
    return f"intervae {cli.replace('{run}', folder).replace('{picture}', picture)}"
