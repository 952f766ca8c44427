"""Printed output: lists, settings of models, tables and notes, as text or JSON."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from intervae.notes import Note

if TYPE_CHECKING:
    from intervae.data import Dataset, Spec
    from intervae.experiments.page import Page
    from intervae.metrics.base import Measurement
    from intervae.models.intervention_values import InterventionValues

out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)
Row = dict[str, Any]
MAX_CATEGORIES = 12  # shown per variable


def echo(text: str, style: str | None = None) -> None:
    """Print text as it is: brackets in names and paths are not markup."""
    out.print(text, style=style, markup=False, highlight=False)


def print_notes(notes: Iterable[Note | str], console: Console = out) -> None:
    """Print one line per note."""
    for note in notes:
        text = note.text if isinstance(note, Note) else note
        console.print(f"note: {text}", style="yellow", markup=False, highlight=False)


def print_rows(rows: list[Row], columns: tuple[str, ...], as_json: bool) -> None:
    """Print these columns of the rows, the first in bold; or all of them as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    grid = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        cells = [Text(str(row[column]), "" if i else "bold") for i, column in enumerate(columns)]
        grid.add_row(*cells)
    out.print(grid)


def print_changes(before: dict[str, float], after: dict[str, float], as_json: bool) -> None:
    """Print the variables of a clip before and after do(), changes in bold.

    Without any change a single column of values is printed.
    """
    rows = [
        {"variable": name, "before": old, "after": after[name], "changed": old != after[name]}
        for name, old in before.items()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ["before", "after", "change"] if before != after else ["value"]
    grid = Table("variable", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        grid.add_column(column, justify="right")
    for name, old in before.items():
        new = after[name]
        cells = (f"{old:.4g}", f"{new:.4g}", f"{new - old:+.4g}" if new != old else "")
        style = "bold" if new != old else ""
        grid.add_row(Text(name), *cells[: len(columns)], style=style)
    out.print(grid)


def print_intervention(
    values: InterventionValues,
    spec: Spec,
    true: dict[str, tuple[float, float]] | None,
    as_json: bool,
) -> None:
    """Print what one picture showed, what do() set, and what its counterfactual shows.

    `true`: name -> value before and after do(), from a simulator.
    """
    from intervae.models.intervention_values import format_value

    truth = true or {}
    rows: list[Row] = []
    for i, name in enumerate(values.names):
        tables = {"before": values.before, "set": values.target, "after": values.after}
        row: Row = {key: float(table[0, i]) for key, table in tables.items()}
        if name in truth:
            row |= {"true_before": truth[name][0], "true_after": truth[name][1]}
        rows.append({"variable": name, **row, "changed": bool(values.moved[0, i])})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = ["before", "set", "after", *(["true_before", "true_after"] if truth else [])]
    grid = Table("variable", box=None, pad_edge=False, header_style="dim")
    for column in columns:
        grid.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        name = row["variable"]
        cells = [format_value(spec, name, row[c]) if c in row else "" for c in columns]
        grid.add_row(Text(name), *map(Text, cells), style="bold" if row["changed"] else "")
    out.print(grid)


def print_page(page: Page) -> None:
    """Print a results page: rendered and without its long table if to a terminal."""
    from rich.markdown import Markdown

    if not out.is_terminal:
        print(page.text)
        return
    summary = page.summary
    if page.all_numbers:
        summary += "All numbers are in the file."
    out.print(Markdown(summary), width=max(out.width, 120))


# ---- data and measurements ----------------------------------------------------------------------
def print_data(data: Dataset) -> None:
    """Print size, variables and notes of a data set; no note that the table of variables holds."""
    echo(str(data))
    grid = Table(box=None, pad_edge=False, header_style="dim")
    reasons = {note.subject: note.reason for note in data.notes if note.kind == "column-kind"}
    in_table = {name for name, reason in reasons.items() if ":" not in reason}
    for column in ("variable", "kind", "range", *(["because of"] if reasons else [])):
        grid.add_column(column)
    for v in data.variables:
        cells = [v.name, v.kind, v.describe_values(MAX_CATEGORIES)]
        cells += [reasons.get(v.name, "").partition(":")[0]] if reasons else []
        grid.add_row(*map(Text, cells))
    if data.variables:
        out.print(grid)
    print_notes(
        note for note in data.notes if note.kind != "column-kind" or note.subject not in in_table
    )


def print_measurements(measurements: list[Measurement]) -> None:
    """Print the value of every metric, then its values for each variable."""
    from intervae.evaluation import headlines, poor_answers, variable_tables

    header = ["metric on the test split", "value", "images", "details"]
    _print_table(header, headlines(measurements), text_columns=(0, 3))
    for header, rows in variable_tables(measurements):
        _print_table(header, rows)
    print_notes(poor_answers(measurements))


def print_comparison(results: dict[str, list[Measurement]]) -> None:
    """Print the values of several runs side by side, the best of each metric marked."""
    metrics = list(dict.fromkeys(m.metric for ms in results.values() for m in ms))
    by_run = {run: {m.metric: m for m in ms} for run, ms in results.items()}
    rows = []
    for metric in metrics:
        measured = {run: ms[metric] for run, ms in by_run.items() if metric in ms}
        better = next(iter(measured.values())).higher_is_better
        values = [m.value for m in measured.values()]
        best = None if better is None else max(values) if better else min(values)
        cells = []
        for run in results:
            value = measured[run].value if run in measured else None
            mark = " *" if value == best and len(values) > 1 and len(set(values)) > 1 else ""
            cells.append("" if value is None else f"{value:.4g}{mark}")
        rows.append([metric, *cells])
    _print_table(["* best", *results], rows)


def _print_table(
    header: list[str], rows: list[list[str]], text_columns: tuple[int, ...] = (0,)
) -> None:
    """Print a table; columns of numbers are aligned to the right."""
    grid = Table(header_style="bold")
    for i, column in enumerate(header):
        justify: typing.Literal["left", "right"] = "left" if i in text_columns else "right"
        grid.add_column(Text(column), justify=justify, overflow="fold", no_wrap=i == 0)
    for row in rows:
        grid.add_row(*map(Text, row))
    out.print(grid)
