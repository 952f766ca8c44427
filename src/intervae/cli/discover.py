"""`intervae discover`: the causal graph of the columns of a CSV file."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from intervae.cli.evaluate import check_graph_format, write_graph
from intervae.cli.options import AsJson, Kinds, Seed
from intervae.cli.output import echo, out, print_notes
from intervae.errors import DataError, UsageError, unknown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from intervae.discovery import Discovery


def discover(
    table: Annotated[
        Path,
        typer.Argument(
            help="A .csv file with one row per sample and column names in the first line.",
            show_default=False,
        ),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="independence, notears, notears-mlp, dagma, dagma-mlp, ges, ges-generalised, ..."
        ),
    ] = "independence",
    path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File to write: .svg, .png, .dot or .json; the edges are printed in any case.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to use: a,b,c.", show_default=False)
    ] = None,
    kinds: Kinds = None,
    knowledge: Annotated[
        Path | None,
        typer.Option(
            help='JSON file: {"required": [["a", "b"]], "forbidden": [...], "tiers": [[...]]}.',
            show_default=False,
        ),
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(
            "--bootstrap", min=0, help="Bootstrap resamples for the confidence of edges, say 50."
        ),
    ] = 0,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE, a setting of the method.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Discover the causal graph of the columns of a table."""
    from intervae.discovery import UnitsWarning, bootstrap
    from intervae.discovery import discover as discover_graph
    from intervae.files import read_json
    from intervae.settings import parse_settings, plain_value

    check_graph_format(path)
    frame = read_csv(table, columns)
    options: dict[str, Any] = {}
    column_kinds = _column_kinds(frame, kinds or [])
    for key, text in parse_settings(settings or []).items():
        options[key] = plain_value(text)
    if knowledge is not None:
        options["knowledge"] = read_json(knowledge, "what is known about the graph")
    if column_kinds is not None:
        options["kinds"] = column_kinds
    confidence = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)  # result.notes has it too
        if resamples:
            resampled = bootstrap(frame, method, resamples=resamples, seed=seed, **options)
            result, confidence = resampled.result, resampled.confidence
        else:
            result = discover_graph(frame, method, seed=seed, **options)
    if path is not None:
        write_graph(path, result.graph, confidence=confidence)
    rows = _edge_rows(result, confidence, options.get("knowledge"))
    if as_json:
        document = {
            "variables": list(result.graph.names),
            "edges": rows,
            "method": method,
            "seconds": result.seconds,
            "assumptions": result.assumptions,
            "notes": [note.text for note in result.notes],
        }
        print(json.dumps(document, indent=2))
        return
    _print_edges(rows, confidence is not None)
    print_notes(result.notes)
    echo(f"correct if: {result.assumptions}", "dim")
    if path is not None:
        echo(f"wrote {path}")


def read_csv(path: Path, columns: str | None) -> pd.DataFrame:
    """Return the table of a CSV file, or some of its columns; empty cells raise a DataError."""
    import pandas as pd

    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; give a .csv table.")
    try:
        frame = pd.read_csv(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read as a table ({' '.join(str(error).split())})."
        ) from None
    if columns is not None:
        names = [name.strip() for name in columns.split(",")]
        for name in names:
            if name not in frame.columns:
                raise unknown("column", name, list(frame.columns))
        frame = frame[names]
    for name in frame.columns:
        empty = frame[name].isna().to_numpy()
        if empty.any() and not empty.all():
            raise DataError(
                f"{path}, line {int(empty.argmax()) + 2}: {name!r} has no value "
                f"({int(empty.sum())} of {len(frame)} rows); fill it in, remove these rows, or "
                "leave the column out with --columns."
            )
    return frame


def _column_kinds(frame: pd.DataFrame, texts: list[str]) -> list[str] | None:
    """Return the kind of every column, as --kind says or as detected; None without --kind."""
    from intervae.discovery.base import read_table
    from intervae.settings import parse_settings

    kinds = parse_settings(texts, "--kind")
    for name in kinds:
        if name not in frame.columns:
            raise unknown("column of --kind", name, list(frame.columns))
    if not kinds:
        return None
    detected = read_table(frame, None, None)[2]
    return [kinds.get(name, kind) for name, kind in zip(frame.columns, detected, strict=True)]


def _edge_rows(
    result: Discovery, confidence: np.ndarray | None, knowledge: Any
) -> list[dict[str, Any]]:
    """Return one row per edge; `given` marks edges that were required, not discovered."""
    required = (knowledge.get("required") or []) if isinstance(knowledge, dict) else []
    required_edges = {tuple(edge) for edge in required}
    directions = {(d.cause, d.effect): d.confidence for d in result.directions}
    rows = []
    for cause, effect, weight in result.graph.edges:
        row: dict[str, Any] = {
            "from": cause,
            "to": effect,
            "weight": weight,
            "ambiguous": (cause, effect) in result.ambiguous,
            "open": (cause, effect) in result.open_directions,
        }
        if (cause, effect) in directions:
            row["direction_confidence"] = round(directions[cause, effect], 3)
        if (cause, effect) in required_edges:
            row["given"] = True
        if confidence is not None:
            pair = result.graph.index(cause), result.graph.index(effect)
            row["confidence"] = float(confidence[pair])
        rows.append(row)
    return rows


def _print_edges(rows: list[dict[str, Any]], with_confidence: bool) -> None:
    if not rows:
        echo("no edges")
        return
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("edge", "weight", *(["confidence"] if with_confidence else []), ""):
        grid.add_column(name, justify="left" if name in ("edge", "") else "right")
    for row in rows:
        cells = [f"{row['from']} {'--' if row['open'] else '->'} {row['to']}"]
        cells.append(f"{row['weight']:.3f}")
        if with_confidence:
            cells.append("" if "given" in row else f"{row['confidence']:.0%}")
        comment = "direction unknown" if row["ambiguous"] else "direction open"
        comment = comment if row["open"] else ""
        grid.add_row(*cells, "given" if "given" in row else comment)
    out.print(grid)
