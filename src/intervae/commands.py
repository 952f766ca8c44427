"""Commands that stand by themselves: `intervae discover` on a table without a run; `intervae report`, `graph` and `resume` on a run."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from intervae.errors import DataError, RunError, UsageError, unknown
from intervae.listing import out, say

if TYPE_CHECKING:
    from intervae.causal.graph import CausalGraph
    from intervae.data.base import Dataset
    from intervae.models.base import Model
    from intervae.training import Result

FORMATS = (".svg", ".png", ".dot", ".json")

Run = Annotated[Path, typer.Argument(help="The folder of a trained run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def discover(
    table: Annotated[Path, typer.Argument(help="A .csv with one row per sample and names in the first line.", show_default=False)],
    method: Annotated[str, typer.Option(help="independence, notears, notears-mlp, dagma, dagma-mlp, ges, ges-generalised, ...")] = "independence",
    path: Annotated[
        Path | None, typer.Option("--out", help="g.svg, g.png, g.dot or g.json; prints the edges in any case.", show_default=False)
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Use only these columns: a,b,c.", show_default=False)] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="column=continuous, binary or categorical, where the guess is wrong.", show_default=False)
    ] = None,
    knowledge: Annotated[
        Path | None, typer.Option(help='A JSON file: {"required": [["a", "b"]], "forbidden": [...], "tiers": [[...], [...]]}.', show_default=False)
    ] = None,
    resamples: Annotated[int, typer.Option("--bootstrap", min=0, help="Resamples for the confidence of edges; 50 is a good number.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Decides everything random.")] = 0,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, a setting of the method.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Find the causal graph of the columns of a table."""
    from intervae.discovery import UnitsWarning, bootstrap
    from intervae.discovery import discover as find
    from intervae.files import read_json
    from intervae.settings import parse_settings, plain_value

    if path is not None and path.suffix.lower() not in FORMATS:
        raise unknown("format of --out", path.suffix.lower() or str(path), FORMATS)
    frame = read_csv(table, columns)
    kinds = parse_settings(kind or [], "--kind")
    for name in kinds:
        if name not in frame.columns:
            raise unknown("column of --kind", name, list(frame.columns))
    how: dict[str, Any] = {key: plain_value(text) for key, text in parse_settings(settings or []).items()}
    if knowledge is not None:
        how["knowledge"] = read_json(knowledge, "what is known about the graph")
    if kinds:
        how["kinds"] = _kinds(frame, kinds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)  # the notes below say it
        sure = bootstrap(frame, method, resamples=resamples, seed=seed, **how) if resamples else None
        found = sure.found if sure is not None else find(frame, method, seed=seed, **how)
    confidence = None if sure is None else sure.confidence
    required = (how["knowledge"].get("required") or []) if isinstance(how.get("knowledge"), dict) else []
    if path is not None:
        _write(path, found.graph, confidence)
    rows = []
    for cause, effect, weight in found.graph.edges:
        row: dict[str, Any] = {"from": cause, "to": effect, "weight": weight, "ambiguous": (cause, effect) in found.ambiguous}
        if [cause, effect] in [list(edge) for edge in required]:
            row["given"] = True  # and not found
        if confidence is not None:
            row["confidence"] = float(confidence[found.graph.index(cause), found.graph.index(effect)])
        rows.append(row)
    if as_json:
        document = {"variables": list(found.graph.names), "edges": rows, "method": method, "seconds": found.seconds}
        print(json.dumps(document | {"assumptions": found.assumptions, "notes": list(found.notes)}, indent=2))
        return
    _print(rows, confidence is not None)
    for note in found.notes:
        say(f"note: {note}", "yellow")
    say(f"right if: {found.assumptions}", "dim")
    if path is not None:
        say(f"wrote {path}")


def read_csv(path: Path, columns: str | None) -> Any:
    """A DataFrame of the file, or of some of its columns."""
    import pandas as pd

    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; give a .csv table.")
    try:
        frame = pd.read_csv(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a table ({' '.join(str(error).split())}).") from None
    if columns is not None:
        chosen = [name.strip() for name in columns.split(",")]
        for name in chosen:
            if name not in frame.columns:
                raise unknown("column", name, list(frame.columns))
        frame = frame[chosen]
    for name in frame.columns:
        empty = frame[name].isna().to_numpy()
        if empty.any() and not empty.all():
            raise DataError(
                f"{path}, line {int(empty.argmax()) + 2}: {name!r} has no value ({int(empty.sum())} of {len(frame)} rows); "
                "fill it in, remove these rows, or leave the column out with --columns."
            )
    return frame


def _kinds(frame: Any, given: dict[str, str]) -> list[str]:
    """The kind of every column: as given, else as the table tells."""
    from intervae.discovery.base import read_table

    told = read_table(frame, None, None)[2]
    return [given.get(name, kind) for name, kind in zip(frame.columns, told, strict=True)]


def _write(path: Path, graph: CausalGraph, confidence: Any, undirected: Collection[tuple[str, str]] = ()) -> None:
    from intervae.files import write_json, write_text

    if path.suffix.lower() == ".dot":
        write_text(path, graph.to_dot())
    elif path.suffix.lower() == ".json":
        write_json(path, graph.to_json())
    else:
        from intervae import figures

        figures.draw_graph(path, graph, confidence=confidence, undirected=undirected)


def _print(rows: list[dict[str, Any]], sure: bool) -> None:
    if not rows:
        say("no edges")
        return
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("edge", "weight", *(["confidence"] if sure else []), ""):
        grid.add_column(name, justify="left" if name in ("edge", "") else "right")
    for row in rows:
        edge = f"{row['from']} {'--' if row['ambiguous'] else '->'} {row['to']}"
        shown = ["" if "given" in row else f"{row['confidence']:.0%}"] if sure else []
        grid.add_row(edge, f"{row['weight']:.3f}", *shown, "given" if "given" in row else "direction open" if row["ambiguous"] else "")
    out.print(grid)


def open_run(run: Path, device: str) -> tuple[Model, Dataset]:
    """A run's model and the data it was trained on."""
    from intervae.files import read_json
    from intervae.models import load
    from intervae.training import choose_device

    model = load(run, choose_device(device))
    return model, _data_of(run, read_json(run / "config.json", "the run's settings"), model)


@contextlib.contextmanager
def stoppable(run: Path | None = None) -> Iterator[None]:
    """Around the training of a run, Ctrl-C says how it goes on; where there is none yet, that nothing was written."""
    try:
        yield
    except KeyboardInterrupt:
        if run is None or not (run / "config.json").is_file():
            raise RunError("interrupted before anything of the run was written; give the same command again.") from None
        from intervae.models.storage import going_on

        raise RunError(f"interrupted; {going_on(run)}.") from None


def go_on(run: Path, device: str) -> tuple[Model, Dataset, Result]:
    """Train a run that was stopped to its end, as it was started."""
    from dataclasses import fields

    from intervae.files import read_json
    from intervae.models.storage import build_model, need_folder
    from intervae.training import Options, fit

    need_folder(run)
    config = read_json(run / "config.json", "the run's settings")
    model = build_model(config, run)
    seed, given = config.get("seed"), config.get("training")
    if not isinstance(seed, int) or not isinstance(given, dict) or given.keys() - {f.name for f in fields(Options)}:
        raise RunError(f"{run / 'config.json'} does not say how the run was trained; start it again with `intervae train ... --resume`.")
    data = _data_of(run, config, model)
    say(f"going on with {run}")
    return model, data, fit(model, data, seed=seed, out=run, device=device, resume=True, **given)


def _data_of(run: Path, config: dict[str, Any], model: Model) -> Dataset:
    from intervae.data.registry import reload
    from intervae.evaluation import same_data

    source = config.get("data")
    if not isinstance(source, dict):
        raise RunError(f"{run / 'config.json'} does not say on which data the run was trained, so it cannot be loaded again.")
    data = reload(source)
    if not same_data(data.spec, model.spec):
        raise RunError(
            f"{data.name} has changed since {run} was trained on it (its variables, their ranges or the images); put the old data back, "
            "or train again (`intervae train ... --overwrite`)."
        )
    return data


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run of cmcl.", show_default=False)],
    resamples: Annotated[
        int | None, typer.Option("--bootstrap", min=2, help="Resamples for the confidence of links.", show_default="25 to 100, about 20 s")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Which rows are drawn.")] = 0,
    device: Device = "auto",
) -> None:
    """Write report.html of a cmcl run again: what causes what, how sure that is, and what speaks against it."""
    from intervae.report import write_report

    model, data = open_run(run, device)
    say(f"wrote {write_report(model, data, run, resamples=resamples, seed=seed)}")


def graph(
    run: Run,
    path: Annotated[
        Path | None, typer.Option("--out", help="g.svg, g.png, g.dot or g.json; prints the edges without it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or draw the causal graph of a run; a -- b where the direction cannot be told."""
    from intervae.models import load

    suffix = path.suffix.lower() if path is not None else ""
    if path is not None and suffix not in FORMATS:
        raise unknown("format of --out", suffix or str(path), FORMATS)
    model = load(run)
    found, undirected = model.graph, model.undirected_edges
    if path is not None:
        _write(path, found, None, undirected)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    elif path is not None:
        say(f"wrote {path}")
    else:
        lines = [f"{cause} {'--' if (cause, effect) in undirected else '->'} {effect}  {weight:.3f}" for cause, effect, weight in found.edges]
        say("\n".join(lines) or "no edges")


def parse_shard(text: str) -> tuple[int, int]:
    """(2, 4) of "2/4"; all of it of ""."""
    if not text:
        return 1, 1
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if found is None:
        raise UsageError(f"--shard {text} must be like 2/4, the second of four parts.")
    return int(found[1]), int(found[2])
