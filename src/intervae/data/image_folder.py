"""`load_folder`: a folder of images, with a `labels.csv` if they have labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset, restrict_graph, split_rows
from intervae.data.column_kinds import decide_columns
from intervae.data.dataset import Dataset
from intervae.data.image_files import SUFFIXES, read_images
from intervae.data.image_paths import list_images, locate_images
from intervae.data.image_sinks import ImageSink
from intervae.data.labels_csv import LabelTable, read_labels_csv, split_masks
from intervae.data.missing_labels import UNLABELLED_IMAGES
from intervae.data.pixel_arrays import as_size
from intervae.data.variables import Spec
from intervae.errors import DataError, UsageError, unknown
from intervae.files import read_text
from intervae.notes import Note

UNLABELLED = ("ignore", "keep")  # what to do with images without a row
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
    unlabelled: str = "ignore",
    like: Spec | None = None,
    sink: ImageSink | None = None,
) -> Dataset:
    """Read a folder of images with `labels.csv` and, if present, the true graph in `graph.json`.

    Without a table all images are read, without labels.

    Arguments:
        size: resize every image to this many pixels, square or (height, width).
        variables: the columns to use, in this order; default all.
        kinds: column -> "continuous", "binary", "categorical" or "ordinal" (ordered numbers), or an
            order of texts, "small < medium < large", instead of the inferred kind.
        validation, test: fractions; replaced by a column `split` if there is one.
        group: column such as `patient`: rows with the same value stay in the same split.
        channels: 1 to read everything as grey, 3 as colour.
        unlabelled: "keep" to add the images without a row to the training split, all their labels
            missing; "ignore" to leave them out.
        like: what a trained model knows: its columns, kinds and codes are used.
        sink: where the images go; default memory.
    """
    if unlabelled not in UNLABELLED:
        raise unknown("unlabelled= (--data-option unlabelled=)", str(unlabelled), UNLABELLED)
    if channels not in (None, 1, 3):
        raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
    root = Path(os.path.abspath(folder))
    has_table = os.path.lexists(root / "labels.csv")
    table = read_labels_csv(root / "labels.csv") if has_table else _table_of_images(root)
    if group is not None and group not in table.columns:
        raise unknown("group column", group, table.columns)
    paths, without_row = locate_images(root, table)
    added = dict(sorted(without_row.items())) if unlabelled == "keep" else {}
    table_notes = [*table.notes, *_row_notes(without_row, keep=bool(added))]
    with _notes_on_errors(table_notes):
        if has_table and test != 1:
            _check_row_count(table, len(without_row))
        columns = decide_columns(
            table.columns,
            rows=len(table),
            where=table.where,
            variables=variables,
            kinds=kinds,
            not_variables=[name for name in table.columns if name in ("split", group)],
            like=like,
        )
        groups = table.require_complete(group) if group is not None else None
        masks = (split_masks(table, group) or {}) if test != 1 else {}
        splits: dict[str, Any] = {
            "validation": masks.get("validation", validation),
            "test": masks.get("test", test),
            "seed": seed,
            "groups": groups,
        }
        labels = columns.labels
        if added:
            _check_no_group(group, len(added))
            labels = np.vstack([labels, np.full((len(added), labels.shape[1]), np.nan)])
            splits = _splits_with_more(len(table), len(added), splits)
        images, image_notes = read_images(
            [*paths, *added.values()],
            [*table.files, *added],
            size=as_size(size),
            channels=channels,
            sink=sink,
        )
        names = [v.name for v in columns.variables]
        dataset = build_dataset(
            root.name,
            images,
            labels,
            columns.variables,
            **splits,
            graph=_true_graph(root / "graph.json", names) if has_table else None,
            fields={"file": np.arange(len(images))},
            rescale=like is None,
        )
    for split in dataset.splits.values():
        split.file_names = (*table.files, *added)
    split_notes = []
    if masks:
        drawn = ", which names no validation rows: a part of train is drawn"
        text = "splits: given by the column 'split'" + ("" if "validation" in masks else drawn)
        split_notes.append(Note("predefined-splits", "split", text))
    notes = (*columns.notes, *table_notes, *image_notes, *split_notes)
    return replace(dataset, notes=notes)


def _row_notes(without_row: Mapping[str, Path], *, keep: bool) -> list[Note]:
    """Return the note on images without a row, which are ignored or kept."""
    if not without_row:
        return []
    use = "taken into the training split without labels" if keep else "ignored"
    first = next(iter(without_row))
    text = f"images: {len(without_row)} not in labels.csv and {use}, such as {first!r}"
    return [Note(UNLABELLED_IMAGES if keep else "ignored-images", "", text)]


def _check_no_group(group: str | None, images: int) -> None:
    """Raise an error if images without a row are kept, whose group is unknown."""
    if group is not None:
        raise DataError(
            f"the {group!r} of {images} images without a row is unknown, so they cannot be kept in "
            f"the split of their group; give them rows with their {group} and empty labels, or "
            "leave unlabelled= out."
        )


def _splits_with_more(rows: int, more: int, splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return masks (rows + more,) of the split of `rows`, with `more` in the training split."""
    _, validation, test = split_rows(rows, **splits)
    numbers = np.arange(rows + more)
    return {"validation": np.isin(numbers, validation), "test": np.isin(numbers, test)}


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
    if not os.path.lexists(path):
        return None
    try:
        graph = CausalGraph.from_json(read_text(path))
    except (DataError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    return restrict_graph(graph, names, path.name)
