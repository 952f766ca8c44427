"""`load_packed`: a packed folder as a Dataset; `check_packed`: all its checksums."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae.data.build import restrict_graph
from intervae.data.column_kinds import check_variables, decide_columns
from intervae.data.dataset import Dataset, Split
from intervae.data.ordered_categories import describe_kind, has_kind
from intervae.data.packed.index import (
    AGAIN,
    INDEX,
    SPLITS,
    PackedIndex,
    StoredFile,
    check_files,
    full_checksum,
    read_index,
)
from intervae.data.packed.mapped_split import ROW, FileNames, MappedSplit
from intervae.data.packed.shards import ImageShards
from intervae.data.pixel_arrays import as_size
from intervae.data.progress import progress
from intervae.data.variables import Spec, Variable
from intervae.errors import DataError, UsageError
from intervae.files import open_regular
from intervae.notes import Note


def is_packed(folder: Path) -> bool:
    """Whether a folder holds packed data, complete or not."""
    if os.path.lexists(folder / INDEX):
        return True
    return os.path.lexists(folder / "images-00000.npy")


def load_packed(
    path: str | Path,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    like: Spec | None = None,
) -> Dataset:
    """Load a folder that `pack` wrote: labels into memory, images mapped.

    Arguments:
        size: must be that of the packed images.
        variables: the variables to use, in this order; default all.
        kinds, group: decided when the data were packed.
        validation, test, seed: the splits are those that were packed, except that test=1.0 takes
            everything.
        like: what a trained model knows: its variables are read, with their kinds and codes.
    """
    folder = Path(os.path.abspath(path))
    index = read_index(folder)
    _check_options(folder, index, size, kinds, group)
    check_files(folder, index)
    columns = {key: _read_column(folder, stored) for key, stored in index.columns.items()}
    codes, labels = columns.pop("splits"), columns.pop("labels")
    counts = np.bincount(codes, minlength=3) if len(codes) and codes.max() < 3 else np.zeros(3)
    if counts.tolist() != list(index.splits.values()):
        raise DataError(f"{folder}: the rows of the splits are not those of the index; {AGAIN}.")
    if np.isinf(labels).any():
        raise DataError(f"{folder}: a label is infinite; pack the data anew.")
    described, notes = index.variables, index.notes
    if like is not None:
        labels, described, notes = _columns_like(index, labels, like)
    elif variables is not None:
        check_variables(variables, [v.name for v in described])
        names = [v.name for v in described]
        chosen = [names.index(name) for name in variables]
        labels, described = labels[:, chosen], tuple(described[i] for i in chosen)
    shards = ImageShards(
        [folder / shard.name for shard in index.shards],
        [shard.shape[0] for shard in index.shards],
        index.image_shape,
    )
    everything = np.arange(index.rows)
    splits: dict[str, Split] = {}
    for code, name in enumerate(SPLITS):
        rows = np.flatnonzero(codes == code) if test != 1 else everything[: 0 if code < 2 else None]
        fields = {key: torch.from_numpy(column[rows]) for key, column in columns.items()}
        values = torch.from_numpy(labels[rows].astype(np.float32))
        splits[name] = MappedSplit(shards, labels=values, **{ROW: torch.from_numpy(rows)}, **fields)
        if index.file_names is not None:
            splits[name].file_names = FileNames(
                folder / index.file_names.name, index.file_names.shape[0]
            )
    if test == 1 and like is None:  # the scale is that of all rows, as for unpacked data
        described = tuple(
            v.with_scale_of(labels[:, i].astype(np.float64)) for i, v in enumerate(described)
        )
    return Dataset(
        index.name,
        **splits,  # type: ignore[arg-type]
        variables=described,
        graph=_graph(index, [v.name for v in described], folder),
        notes=(*notes, Note("packed", "", f"images: {index.rows} packed, read from the disk")),
    )


def _graph(index: PackedIndex, names: list[str], folder: Path) -> Any:
    """Return the true graph over its latents and these variables."""
    if index.graph is None:
        return None
    known = [v.name for v in index.variables]
    latents = [node for node in index.graph.names if node not in known]
    return restrict_graph(index.graph, [*latents, *names], str(folder))


def _check_options(
    folder: Path,
    index: PackedIndex,
    size: int | Sequence[int] | None,
    kinds: Mapping[str, str] | None,
    group: str | None,
) -> None:
    """Raise a UsageError for what was decided when the data were packed."""
    shape = index.image_shape[-2:]
    if as_size(size) not in (None, shape):
        raise UsageError(
            f"{folder} holds images of {shape[0]} x {shape[1]} (height x width), which cannot be "
            "resized when they are loaded; pack the data anew with --size, or leave it out."
        )
    if group is not None:
        raise UsageError(
            f"group={group!r} has no effect on {folder}, whose splits are packed; pass it to "
            "`intervae pack` (--group)."
        )
    variable_of = {v.name: v for v in index.variables}
    check_variables(list(kinds or ()), variable_of)
    for name, kind in (kinds or {}).items():
        if not has_kind(variable_of[name], kind):
            raise UsageError(
                f"column {name!r} of {folder} was packed as {describe_kind(variable_of[name])}; "
                f"pack the data anew with --kind {shlex.quote(f'{name}={kind}')}."
            )


def _read_column(folder: Path, stored: StoredFile) -> np.ndarray:
    try:
        with open_regular(folder / stored.name) as file:
            return np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise DataError(f"{folder / stored.name} cannot be read ({reason}); {AGAIN}.") from None


def _columns_like(
    index: PackedIndex, labels: np.ndarray, like: Spec
) -> tuple[np.ndarray, tuple[Variable, ...], tuple[Note, ...]]:
    """Return the labels in the kinds and codes of a trained model."""
    table = {v.name: _words(v, labels[:, i]) for i, v in enumerate(index.variables)}
    columns = decide_columns(
        table, rows=index.rows, where=lambda row: f"{index.name}, image {row}", like=like
    )
    return columns.labels, columns.variables, columns.notes


def _words(variable: Variable, values: np.ndarray) -> np.ndarray:
    """Return a column as it was before packing: the words of codes, "" where one is missing."""
    if not variable.categories:
        return values.astype(np.float64)
    words = np.array(["", *variable.categories])
    codes = np.where(np.isnan(values), -1, values).astype(np.int64)
    if codes.max(initial=0) >= len(variable.categories):
        raise DataError(f"column {variable.name!r} has a code without a word; pack the data anew.")
    return words[codes + 1]


def check_packed(path: str | Path) -> PackedIndex:
    """Compare every byte of a packed folder with its checksums; return its index."""
    folder = Path(os.path.abspath(path))
    index = read_index(folder)
    check_files(folder, index)
    for stored in progress(index.files, len(index.files), "checking files"):
        if full_checksum(folder / stored.name) != stored.sha256:
            raise DataError(
                f"{folder / stored.name} is damaged (its SHA-256 differs from the index); {AGAIN}."
            )
    return index
