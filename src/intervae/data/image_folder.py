"""`load_folder`: a folder of images, with a `labels.csv` if they have labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset, restrict_graph
from intervae.data.column_kinds import decide_columns
from intervae.data.dataset import Dataset
from intervae.data.image_files import SUFFIXES, read_images
from intervae.data.image_paths import list_images, locate_images
from intervae.data.labels_csv import LabelTable, read_labels_csv, split_masks
from intervae.data.pixel_arrays import as_size
from intervae.errors import DataError, UsageError, unknown
from intervae.notes import Note

MINIMUM_ROWS = 4  # two for training, where a column must vary, and one each for the other splits


def load_folder(
    folder: str | Path,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    channels: int | None = None,
) -> Dataset:
    """Read a folder of images with `labels.csv` and, if present, the true graph in `graph.json`.

    Without a table all images are read, without labels.

    Arguments:
        size: resize every image to this many pixels, square or (height, width).
        variables: the columns to use, in this order; default all.
        kinds: column -> "continuous", "binary" or "categorical", instead of the inferred kind.
        validation, test: fractions; replaced by a column `split` if there is one.
        group: column such as `patient`: rows with the same value stay in the same split.
        channels: 1 to read everything as grey, 3 as colour.
    """
    if channels not in (None, 1, 3):
        raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
    root = Path(os.path.abspath(folder))
    has_table = os.path.lexists(root / "labels.csv")
    table = read_labels_csv(root / "labels.csv") if has_table else _table_of_images(root)
    if group is not None and group not in table.columns:
        raise unknown("group column", group, table.columns)
    paths, ignored = locate_images(root, table)
    table_notes = [*table.notes, *_ignored_note(ignored)]
    with _notes_on_errors(table_notes):
        if has_table:
            _check_row_count(table, len(ignored))
        columns = decide_columns(
            table.columns,
            rows=len(table),
            where=table.where,
            variables=variables,
            kinds=kinds,
            not_variables=[name for name in table.columns if name in ("split", group)],
        )
        groups = table.require_complete(group) if group is not None else None
        masks = split_masks(table, group) or {}
        images, image_notes = read_images(paths, table.files, size=as_size(size), channels=channels)
        names = [v.name for v in columns.variables]
        dataset = build_dataset(
            root.name,
            images,
            columns.labels,
            columns.variables,
            validation=masks.get("validation", validation),
            test=masks.get("test", test),
            seed=seed,
            groups=groups,
            graph=_true_graph(root / "graph.json", names) if has_table else None,
        )
    split_notes = []
    if masks:
        drawn = ", which names no validation rows: a part of train is drawn"
        text = "splits: given by the column 'split'" + ("" if "validation" in masks else drawn)
        split_notes.append(Note("predefined-splits", "split", text))
    notes = (*columns.notes, *table_notes, *image_notes, *split_notes)
    return replace(dataset, notes=notes)


def _ignored_note(ignored: Sequence[str]) -> list[Note]:
    if not ignored:
        return []
    text = f"images: {len(ignored)} not in labels.csv and ignored, such as {ignored[0]!r}"
    return [Note("ignored-images", "", text)]


@contextmanager
def _notes_on_errors(notes: Sequence[Note]) -> Iterator[None]:
    """Add the notes to a DataError: what was ignored may be its cause."""
    try:
        yield
    except DataError as error:
        for note in notes:
            error.add_note(note.text)
        raise


def _check_row_count(table: LabelTable, ignored: int) -> None:
    """Raise an error if the table has too few rows to split."""
    if len(table) < MINIMUM_ROWS:
        rows = (
            "a single row with an image"
            if len(table) == 1
            else f"{len(table)} rows with an image each"
        )
        beside = f" and {ignored} images without a row" if ignored else ""
        raise DataError(
            f"{table.path} has {rows}{beside}, but at least {MINIMUM_ROWS} rows are needed to "
            "split (two to train on, one to validate, one to test), and a model takes hundreds; "
            "add rows."
        )


def _table_of_images(root: Path) -> LabelTable:
    """Return a table of all images below `root`, by name, without columns."""
    files = sorted(list_images(root))
    if not files:
        raise DataError(
            f"there is no labels.csv in {root}, and no image ({', '.join(sorted(SUFFIXES))}) "
            "either; put images there, with a labels.csv if they have labels."
        )
    text = "labels: there is no labels.csv, so all images are taken, without labels"
    notes = [Note("no-labels", "", text)]
    if (root / "graph.json").exists():
        text = "graph: graph.json is ignored, as there are no labels"
        notes.append(Note("ignored-graph", "graph.json", text))
    return LabelTable(root / "labels.csv", files, list(range(len(files))), {}, notes)


def _true_graph(path: Path, names: list[str]) -> CausalGraph | None:
    """Return the graph of `graph.json` over these variables; None without such a file."""
    if not path.exists():
        return None
    try:
        graph = CausalGraph.from_json(path.read_text(encoding="utf-8"))
    except (DataError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: {error}") from None
    return restrict_graph(graph, names, path.name)
