"""`intervae discover`: the causal graph of the columns of a CSV file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from intervae.cli.evaluate import check_graph_format, write_graph
from intervae.cli.options import AsJson, Kinds, Seed
from intervae.cli.output import echo, err, out, print_notes
from intervae.errors import DataError, UsageError, unknown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from intervae.discovery import Discovery


def discover(
    table: Annotated[
        Path,
        typer.Argument(
            help="A .csv file with one row per sample and column names in the first line, or a "
            "folder of images with a labels.csv.",
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
            "--bootstrap",
            min=0,
            max=10_000,
            help="Bootstrap resamples for the confidence of edges, say 50.",
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
    options: dict[str, Any] = {}
    if is_labels_csv(table):
        frame, column_kinds = read_labels(table, columns, kinds or [])
    else:
        frame = read_csv(table, columns)
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


def is_labels_csv(path: Path) -> bool:
    """Whether a path is a folder of images with a table, or such a table: it names image files."""
    from intervae.data.image_files import SUFFIXES
    from intervae.data.labels_csv import read_labels_csv

    if path.is_dir():
        return True
    if path.name != "labels.csv" or not path.is_file():
        return False
    files = read_labels_csv(path).files
    return any(Path(file).suffix.lower() in SUFFIXES for file in files)


def read_labels(
    path: Path, columns: str | None, kinds: list[str]
) -> tuple[pd.DataFrame, list[str] | None]:
    """Return the variables of a labels.csv (or of its folder) as codes, and their kinds.

    As in `load_data`, the column of files and `split` are no variables, and ids are left out.
    """
    import pandas as pd

    from intervae.data.column_kinds import decide_columns
    from intervae.data.labels_csv import read_labels_csv
    from intervae.settings import parse_settings

    table = read_labels_csv(path / "labels.csv" if path.is_dir() else path)
    decided = decide_columns(
        table.columns,
        rows=len(table),
        where=table.where,
        variables=[name.strip() for name in columns.split(",")] if columns else None,
        kinds=parse_settings(kinds, "--kind") or None,
        not_variables=("split",),
    )
    left_out = [note for note in decided.notes if note.kind != "column-kind"]
    print_notes(left_out, err)
    names = [v.name for v in decided.variables]
    frame = pd.DataFrame(decided.labels, columns=names)
    _check_no_gaps(frame, path, table.lines)
    return frame, [v.kind for v in decided.variables]


def read_csv(path: Path, columns: str | None) -> pd.DataFrame:
    """Return the table of a CSV file, or some of its columns; empty cells raise a DataError."""
    import pandas as pd

    from intervae.data.column_kinds import check_count
    from intervae.files import open_regular

    try:
        with open_regular(path) as file:
            frame = pd.read_csv(file)
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file; give a .csv table.") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror or error}); give a .csv table."
        ) from None
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
    check_count(list(frame.columns), "--columns")
    _check_no_gaps(frame, path, range(2, len(frame) + 2))
    return frame


def _check_no_gaps(frame: pd.DataFrame, path: Path, lines: Sequence[int]) -> None:
    """Raise a DataError for the first column with some empty cells; `lines` of the rows."""
    for name in frame.columns:
        empty = frame[name].isna().to_numpy()
        if empty.any() and not empty.all():
            raise DataError(
                f"{path}, line {lines[int(empty.argmax())]}: {name!r} has no value "
                f"({int(empty.sum())} of {len(frame)} rows); fill it in, remove these rows, or "
                "leave the column out with --columns."
            )


def _column_kinds(frame: pd.DataFrame, texts: list[str]) -> list[str] | None:
    """Return the kind of every column, as --kind says or as detected; None without --kind.

    No method uses an order: ordered categories are categorical.
    """
    from intervae.data.ordered_categories import is_ordered
    from intervae.discovery.base import read_table
    from intervae.settings import parse_settings

    kinds = parse_settings(texts, "--kind")
    for name in kinds:
        if name not in frame.columns:
            raise unknown("column of --kind", name, list(frame.columns))
    if not kinds:
        return None
    detected = read_table(frame, None, None)[2]
    kinds = {name: "categorical" if is_ordered(kind) else kind for name, kind in kinds.items()}
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
