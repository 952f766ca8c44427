"""`intervae intervene --images`: counterfactuals of a folder of images, and a table of values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from intervae.cli.output import echo, err, print_notes
from intervae.cli.runs import load_run
from intervae.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from intervae.causal.do import Change
    from intervae.data.support import LabelSupport
    from intervae.models.intervention_values import InterventionValues
    from intervae.notes import Note

AT_ONCE = 16  # pictures in memory at their own size
TABLE = "counterfactuals.csv"
IN_MONTAGE = 8  # pictures
LISTED = 10  # broken files that are named
Do = dict[str, "float | Change"]


class Answers(NamedTuple):
    """Counterfactuals of some pictures."""

    pictures: list[np.ndarray]  # (C, h, w) uint8, each at its own size
    values: InterventionValues | None  # None of a model that cannot measure its variables
    change: list[float]  # mean change of each picture, pixels in [0, 1]


def intervene_on_folder(
    run: Path, folder: Path, out: Path | None, do: list[str], device: str, as_json: bool
) -> None:
    """Write the counterfactual of every image of a folder, and counterfactuals.csv.

    `out` appears when all is written. Broken images are named and left out, with exit code 1. If
    `out` ends like a figure, it is a montage of the first images.
    """
    from intervae.causal.do import parse_do
    from intervae.data.support import LabelSupport
    from intervae.figures.canvas import FORMATS
    from intervae.files import new_folder

    files = _list_folder(folder, out)
    is_montage = out is not None and out.suffix.lower() in FORMATS and not out.is_dir()
    assert out is not None
    model: Any = load_run(run, device)
    if model.spec.frames is not None:
        raise UsageError(f"--images: {model.name} was trained on clips, not on single images.")
    values = parse_do(do, model.spec.categories)
    support = LabelSupport.read(run, model.spec.variables)
    if is_montage:
        _draw_montage(model, files, values, support, out, as_json)
        return
    rows: list[list[str]] = []
    measured: list[InterventionValues] = []
    broken: list[DataError] = []
    notes: list[Note] = []
    names = list(files)
    with new_folder(out) as place, ThreadPool() as pool:
        for start in _chunks(len(names)):
            some = names[start : start + AT_ONCE]
            read, more = _read(model, [files[name] for name in some], broken)
            notes += more
            done = [name for name, pixels in zip(some, read, strict=True) if pixels is not None]
            if not done:
                continue
            originals = [pixels for pixels in read if pixels is not None]
            answers = _answer(model, originals, values, pool)
            jobs = zip([place / name for name in done], answers.pictures, strict=True)
            pool.starmap(_write_picture, jobs)
            outside = _outside(model, answers.values, values, support)
            rows += _rows(model, done, answers, outside)
            measured += [answers.values] if answers.values is not None else []
        if not rows:
            raise broken[0]
        header = _header(model, bool(measured))
        (place / TABLE).write_bytes(_csv([header, *rows]))
    _report(model, values, support, _merged(measured), notes, broken)
    if as_json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=2))
    else:
        echo(f"wrote {len(rows)} pictures and {TABLE} to {out}")
    if broken:
        raise DataError(
            f"{len(broken)} of {len(names)} pictures could not be read and were left out; the "
            f"others are in {out}."
        )


def _draw_montage(
    model: Any,
    files: dict[str, Path],
    do: Do,
    support: LabelSupport | None,
    path: Path,
    as_json: bool,
) -> None:
    """Draw the counterfactuals of the first images above the images, at the model's size."""
    from intervae import figures
    from intervae.cli.intervene import label_of
    from intervae.data.query_images import read_pictures
    from intervae.models.capabilities import MeasuresVariables
    from intervae.models.intervention_values import intervention_values

    names = list(files)[:IN_MONTAGE]
    images, notes = read_pictures([files[name] for name in names], model.spec.image_shape)
    after = model.counterfactual(images, do).cpu()
    row = figures.InterventionRow(label_of(model, do), after)
    figures.interventions(path, [row], images)
    can_measure = isinstance(model, MeasuresVariables)
    values = intervention_values(model, images, do, after) if can_measure else None
    _report(model, do, support, values, notes, [])
    if as_json:
        change = (after - model.counterfactual(images, {}).cpu()).abs().mean((1, 2, 3)).tolist()
        answers = Answers([], values, change)
        rows = _rows(model, names, answers, _outside(model, values, do, support))
        header = _header(model, can_measure)
        print(json.dumps([dict(zip(header, cells, strict=True)) for cells in rows], indent=2))
    else:
        echo(f"wrote {path}: the first {len(names)} of {len(files)} pictures")


def _list_folder(folder: Path, out: Path | None) -> dict[str, Path]:
    """Return name -> path of the images of a folder; check that `out` lies outside."""
    from intervae.data.image_paths import list_images

    if out is None:
        raise UsageError("--images needs --out, the folder for the counterfactuals.")
    if not folder.is_dir():
        raise UsageError(f"--images {folder} is not a folder; for a single file use --image.")
    if out.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"--out {out} lies in the folder of --images; choose another folder.")
    files = list_images(folder)
    if not files:
        raise DataError(f"{folder} has no images; give a folder of PNG, JPEG or similar files.")
    return files


def _chunks(total: int) -> Iterator[int]:
    from intervae.data.progress import progress

    starts = range(0, total, AT_ONCE)
    return progress(starts, len(starts), "intervening")


def _read(
    model: Any, paths: list[Path], broken: list[DataError]
) -> tuple[list[np.ndarray | None], list[Note]]:
    """Return pictures (C, h, w) at their own size, None for a broken one, and notes."""
    from intervae.data.image_files import decode_images
    from intervae.data.query_images import ADVICE, picture_notes, to_channels

    shape = model.spec.image_shape
    pictures: list[np.ndarray | None] = []
    notes: list[Note] = []
    for path, decoded in zip(paths, decode_images(paths, advice=ADVICE), strict=True):
        if isinstance(decoded, DataError):
            broken.append(decoded)
            pictures.append(None)
            continue
        notes += picture_notes(str(path), *decoded, shape)
        pictures.append(to_channels(decoded[0], shape[0]))
    return pictures, notes


def _answer(model: Any, originals: list[np.ndarray], do: Do, pool: ThreadPool) -> Answers:
    import numpy as np

    from intervae.data.query_images import to_shape
    from intervae.models.capabilities import MeasuresVariables
    from intervae.models.intervention_values import intervention_values
    from intervae.models.own_size import paint_own_size

    shape = model.spec.image_shape
    images = np.stack(pool.map(lambda pixels: to_shape(pixels, shape), originals))
    after, unchanged = model.counterfactual(images, do), model.counterfactual(images, {})
    painted = pool.starmap(paint_own_size, zip(originals, unchanged, after, strict=True))
    change = (after - unchanged).abs().mean((1, 2, 3)).tolist()
    if not isinstance(model, MeasuresVariables):
        return Answers(painted, None, change)
    shown = np.stack(pool.map(lambda pixels: to_shape(pixels, shape), painted))
    return Answers(painted, intervention_values(model, images, do, shown), change)


def _write_picture(path: Path, pixels: np.ndarray) -> None:
    from intervae.data.image_files import encode_image

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_image(pixels, path))


def _outside(
    model: Any, values: InterventionValues | None, do: Do, support: LabelSupport | None
) -> list[bool]:
    from intervae.models.intervention_values import off_support

    return [] if values is None else off_support(model, values, do, support).tolist()


# ---- table and messages -------------------------------------------------------------------------
def _header(model: Any, measures: bool) -> list[str]:
    if not measures:
        return ["file", "change"]
    columns = [
        f"{name}_{when}" for name in model.latent_names for when in ("before", "set", "after")
    ]
    return ["file", *columns, "off_support"]


def _rows(model: Any, names: list[str], answers: Answers, outside: list[bool]) -> list[list[str]]:
    from intervae.models.intervention_values import format_value

    values = answers.values
    if values is None:
        return [[name, f"{change:.6g}"] for name, change in zip(names, answers.change, strict=True)]
    rows = []
    for b, name in enumerate(names):
        cells = [
            format_value(model.spec, variable, table[b, i], digits=7)
            for i, variable in enumerate(values.names)
            for table in (values.before, values.target, values.after)
        ]
        rows.append([name, *cells, str(int(outside[b]))])
    return rows


def _csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _merged(values: list[InterventionValues]) -> InterventionValues | None:
    """Return the values of several chunks as one."""
    import numpy as np

    if not values:
        return None
    tables = [np.concatenate(tables) for tables in zip(*(v[1:] for v in values), strict=True)]
    return type(values[0])(values[0].names, *tables)


def _report(
    model: Any,
    do: Do,
    support: LabelSupport | None,
    values: InterventionValues | None,
    notes: list[Note],
    broken: list[DataError],
) -> None:
    """Print what was converted, what lies outside the training data, and what was broken."""
    from intervae.cli.intervene import range_notes
    from intervae.models.intervention_values import not_shown_notes, off_support_note

    by_kind: dict[str, list[str]] = {}
    for note in notes:
        by_kind.setdefault(note.kind, []).append(note.text)
    lines = [
        texts[0] + (f" (and {len(texts) - 1} more like it)" if len(texts) > 1 else "")
        for texts in by_kind.values()
    ]
    lines += range_notes(model, do, values)
    if values is not None:
        lines += off_support_note(model, values, do, support)
        lines += not_shown_notes(values, model.spec)
    lines += [str(error) for error in broken[:LISTED]]
    print_notes(lines, err)
