"""The page without a server: its files, and answers on a grid of values as scripts.

A browser does not let a page from disk fetch files, so that every answer is a script that calls
`INTERVAE_EXPORT.receive(key, answer)`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

import intervae
from intervae.errors import IntervaeError, UsageError
from intervae.files import write_bytes, write_text
from intervae.serve import browse, clips, counterfactuals, latents, schemas, transitions
from intervae.serve.app import static_files
from intervae.serve.describe import settable_variables
from intervae.serve.results import ResultsFolder
from intervae.serve.served_runs import ServedRun, ServedRuns

PICTURES = 8  # exported of each run, evenly over the test split
GRID = 9  # values of a continuous variable
TIMES, STEPS = 4, 4  # applications of an action, frames after a clip
FRAME_VARIABLES = 8  # latents of a clip that can be set
PLACEHOLDER = "<!-- export -->"
MANIFEST = '<script src="data/manifest.js"></script>'

Entry = tuple[str, Callable[[], Any]]  # key, function that returns the answer


def export_site(runs: ServedRuns, folder: Path, results: Path | None = None) -> int:
    """Write the static site to a new or empty folder; return the number of files.

    A run that cannot be loaded is listed with its error.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--export {folder} exists and is not an empty folder; choose another.")
    runs.load_all()
    tables = ResultsFolder(results)
    manifest: dict[str, Any] = {
        "version": intervae.__version__,
        "runs": [as_json(run.description) for run in runs.runs],
        "pictures": {},
        "pairs": {},
        "grid": {},
        "results": as_json(tables.listing()),
        "files": {},
    }
    for name, path in static_files().items():
        if name != "index.html":
            write_bytes(folder / "static" / name, path.read_bytes())
    ready = [run for run in runs.runs if run.state == "ready"]
    entries: list[Entry] = []
    for run in ready:
        number, indices = str(run.number), exported_indices(run)
        listed = browse.list_pictures(run, 0, 1)
        listed.pictures = browse.thumbnails(run, indices)
        manifest["pictures"][number] = as_json(listed)
        manifest["pairs"][number] = as_json(browse.list_pairs(run, 0, PICTURES))
        manifest["grid"][number] = grid(run)
        entries += run_entries(run, indices)
    entries += [(f"results/{i}", _table(tables, i)) for i in range(len(tables.tables))]
    for key, query in entries:
        try:
            answer = query()
        except IntervaeError:  # this model refuses this value; the page has no such entry
            continue
        name = f"data/{len(manifest['files'])}.js"
        call = f"window.INTERVAE_EXPORT.receive({script(key)}, {script(as_json(answer))});\n"
        write_text(folder / name, call)
        manifest["files"][key] = name
    write_text(folder / "data/manifest.js", f"window.INTERVAE_EXPORT = {script(manifest)};\n")
    page = static_files()["index.html"].read_text(encoding="utf-8")
    write_text(folder / "index.html", page.replace(PLACEHOLDER, MANIFEST))
    return len(manifest["files"]) + len(static_files()) + 1


def exported_indices(run: ServedRun) -> list[int]:
    """Return the test pictures that are exported."""
    count = 0 if run.data is None else len(run.data.test)
    return sorted({int(i) for i in np.linspace(0, count - 1, PICTURES).round()}) if count else []


def grid(run: ServedRun) -> dict[str, list[float]]:
    """Return the values of do() that are exported for each variable."""
    values = {}
    variables = settable_variables(run)
    if run.model.spec.frames is not None:
        variables = variables[:FRAME_VARIABLES]
    for variable, _, _ in variables:
        if variable.kind == "continuous":
            numbers = np.linspace(variable.low, variable.high, GRID)
            values[variable.name] = [float(f"{number:.6g}") for number in numbers]
        else:
            values[variable.name] = [float(code) for code in range(round(variable.high) + 1)]
    return values


def run_entries(run: ServedRun, indices: list[int]) -> Iterator[Entry]:
    """Yield the keys of a run and how to compute each."""
    able, n = set(run.description.capabilities), run.number
    for index in indices:
        picture = schemas.Picture(index=index)
        if "do" in able:
            yield f"do/{n}/{index}/", _do(run, picture, {})
            for name, values in grid(run).items():
                yield f"do/{n}/{index}/{name}", _over(_do, run, picture, name, values)
        if "clip" in able:
            yield f"clip/{n}/{index}/", _clip(run, picture, {})
            for name, values in grid(run).items():
                yield f"clip/{n}/{index}/{name}", _over(_clip, run, picture, name, values)
        for action in run.description.actions if "act" in able else []:
            yield f"act/{n}/{index}/{action}", _act(run, picture, action)
        for latent in run.description.latents:
            if "traverse" in able:
                yield f"traverse/{n}/{index}/{latent.name}", _traverse(run, picture, latent.name)
            if "heat_map" in able:
                yield f"heat_map/{n}/{index}/{latent.name}", _heat_map(run, picture, latent.name)
    if "attribute" in able:
        for pair in range(min(PICTURES, run.description.pairs)):
            yield f"attribute/{n}/{pair}", _attribute(run, pair)
    if "findings" in able:
        yield f"findings/{n}", lambda: latents.findings(run)


# ---- one entry each ----------------------------------------------------------------------------
def _do(run: ServedRun, picture: schemas.Picture, do: dict[str, Any]) -> Callable[[], Any]:
    request = schemas.InterventionRequest(pictures=[picture], do=do)
    return lambda: counterfactuals.intervene(run, request)


def _clip(run: ServedRun, picture: schemas.Picture, do: dict[str, Any]) -> Callable[[], Any]:
    request = schemas.ClipRequest(picture=picture, do=do, steps=STEPS)
    return lambda: clips.clip(run, request)


def _over(
    query: Callable[..., Callable[[], Any]],
    run: ServedRun,
    picture: schemas.Picture,
    name: str,
    values: list[float],
) -> Callable[[], Any]:
    """Return the answers at each value of one variable; a value that the model refuses is None."""

    def answer(value: float) -> Any:
        try:
            return as_json(query(run, picture, {name: value})())
        except IntervaeError:
            return None

    return lambda: {"values": values, "answers": [answer(value) for value in values]}


def _act(run: ServedRun, picture: schemas.Picture, action: str) -> Callable[[], Any]:
    request = schemas.ActRequest(picture=picture, action=action, times=TIMES)
    return lambda: transitions.act(run, request)


def _attribute(run: ServedRun, pair: int) -> Callable[[], Any]:
    return lambda: transitions.attribute(run, schemas.AttributeRequest(pair=pair))


def _traverse(run: ServedRun, picture: schemas.Picture, latent: str) -> Callable[[], Any]:
    request = schemas.TraverseRequest(picture=picture, latent=latent, count=GRID)
    return lambda: latents.traverse(run, request)


def _heat_map(run: ServedRun, picture: schemas.Picture, latent: str) -> Callable[[], Any]:
    request = schemas.HeatMapRequest(pictures=[picture], latent=latent)
    return lambda: latents.heat_maps(run, request)


def _table(tables: ResultsFolder, number: int) -> Callable[[], Any]:
    def table() -> schemas.TableAnswer:
        answer = tables.table(number)
        for figure in answer.figures:
            figure.png = base64.b64encode(tables.figure(number, figure.id)).decode("ascii")
        return answer

    return table


def as_json(answer: Any) -> Any:
    """Return an answer as the API sends it."""
    if isinstance(answer, BaseModel):
        return json.loads(answer.model_dump_json(by_alias=True))
    return answer


def script(value: Any) -> str:
    """Return JSON that is safe inside a script: no tag can end it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
