"""`build_from_files`: encoded images and columns of a container, such as a tar, to a Dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.column_kinds import decide_columns
from intervae.data.dataset import Dataset
from intervae.data.image_files import File, read_images
from intervae.data.image_sinks import ImageSink
from intervae.data.labels_csv import SPLIT_WORDS
from intervae.data.pixel_arrays import as_size
from intervae.data.variables import Spec
from intervae.errors import DataError, UsageError, unknown
from intervae.notes import Note


def build_from_files(
    name: str,
    files: Sequence[File],
    names: Sequence[str],
    table: Mapping[str, np.ndarray],
    *,
    size: int | Sequence[int] | None,
    channels: int | None,
    variables: Sequence[str] | None,
    kinds: Mapping[str, str] | None,
    validation: float,
    test: float,
    seed: int,
    group: str | None,
    like: Spec | None,
    sink: ImageSink | None,
    notes: Sequence[Note] = (),
    split_of_row: Sequence[str] | None = None,
) -> Dataset:
    """Decide the columns, decode the images into the sink, and split the rows.

    Arguments:
        files: the encoded images, N.
        names: how errors and `split.files` name them.
        table: name -> column (N,) of numbers or text.
        split_of_row: the split of each row, if it is known; the others are as in `load_folder`.
    """
    if channels not in (None, 1, 3):
        raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
    if not files:
        raise DataError(f"{name} has no images; give data that has some.")
    if group is not None and group not in table:
        raise unknown("group", group, table)
    columns = decide_columns(
        table,
        rows=len(files),
        where=lambda row: names[row],
        variables=variables,
        kinds=kinds,
        not_variables=() if group is None else (group,),
        like=like,
    )
    splits: dict[str, Any] = {"validation": validation, "test": test}
    more = list(notes)
    if split_of_row is not None and test != 1:
        known = np.array(split_of_row)
        for word in ("validation", "test"):
            if (known == word).any():
                splits[word] = known == word
        more.append(Note("predefined-splits", "", "splits: those of the source"))
    images, image_notes = read_images(
        files, names, size=as_size(size), channels=channels, advice="remove it", sink=sink
    )
    dataset = build_dataset(
        name,
        images,
        columns.labels,
        columns.variables,
        **splits,
        seed=seed,
        groups=None if group is None else table[group],
        fields={"file": np.arange(len(files))},
        rescale=like is None,
    )
    for split in dataset.splits.values():
        split.file_names = tuple(names)
    return replace(dataset, notes=(*columns.notes, *more, *image_notes))


def split_word(name: str) -> str | None:
    """Return train, validation or test for the name of a split, None for another name."""
    return SPLIT_WORDS.get(name.lower())
