"""`pack`: any source of `load_data` into a packed folder, atomically and with bounded memory."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from intervae.data.dataset import Dataset, Split
from intervae.data.loading import load_data
from intervae.data.packed.index import INDEX, SPLITS, PackedIndex, StoredFile
from intervae.data.packed.mapped_split import ROW, MappedSplit
from intervae.data.packed.read import is_packed
from intervae.data.packed.shard_sink import ShardSink
from intervae.data.progress import progress
from intervae.errors import RunError, UsageError
from intervae.files import as_path, new_folder
from intervae.settings import check_flags

SHARD_MB = 256
PACKED_AT_ONCE = 256  # images of a data set in memory


def pack(
    source: Any,
    out: str | os.PathLike,
    *,
    shard_mb: float = SHARD_MB,
    overwrite: bool = False,
    **options: Any,
) -> Dataset:
    """Write a data set as a packed folder, and return the data set that reads it from there.

    A folder of images, a torch Dataset, a Hugging Face data set and webdataset tars are streamed:
    one image after the other goes to the disk. Other sources are loaded into memory first. `out`
    is complete or does not exist: it is written under a temporary name, and removed after an error.

    Arguments:
        source: whatever `load_data` takes.
        out: the folder to write.
        shard_mb: size of a shard in MiB.
        overwrite: replace an earlier packed folder.
        options: those of `load_data`: size, variables, kinds, validation, test, seed, group, ...
    """
    check_flags(overwrite=overwrite)
    is_number = isinstance(shard_mb, int | float) and not isinstance(shard_mb, bool)
    if not is_number or not 0 < shard_mb <= 2**20:
        raise UsageError(
            f"shard_mb={shard_mb!r} (--shard-mb) must be a positive number of MiB, such as 256."
        )
    if options.pop("transitions", False):
        raise UsageError(
            "transitions= is not packed; pass it to load_data when you load the packed folder."
        )
    target = Path(os.path.abspath(as_path(out, "out").expanduser()))
    _check_target(source, target, overwrite)
    with new_folder(target, replace=overwrite) as folder:
        sink = ShardSink(folder, target, round(shard_mb * 2**20))
        with contextlib.closing(sink):
            dataset = load_data(source, sink=sink, **options)
            _write(dataset, sink, folder)
    return load_data(target)


def _check_target(source: Any, target: Path, overwrite: bool) -> None:
    """Raise an error for a target that is not ours to replace, or that holds the source."""
    if overwrite and target.is_dir() and any(target.iterdir()) and not is_packed(target):
        raise RunError(
            f"{target} is not a packed folder, so overwrite (--overwrite) does not replace it; "
            "choose another folder."
        )
    is_path = isinstance(source, str | os.PathLike) and Path(source).exists()
    if is_path and Path(source).resolve().is_relative_to(target.resolve()):
        raise UsageError(
            f"{target} holds the source {source}, which would be replaced; choose another folder "
            "for the packed data."
        )
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise RunError(
            f"{target} is not empty; choose another folder, or replace packed data with overwrite "
            "(--overwrite)."
        )


def _write(dataset: Dataset, sink: ShardSink, folder: Path) -> None:
    """Write what the sink does not have yet: images in memory, columns, names and the index."""
    splits = list(dataset.splits.values())
    if _is_streamed_into(sink, splits):
        rows = [split.fields[ROW].numpy() for split in splits]
    else:
        _write_images(splits, sink)
        rows = np.split(np.arange(sink.rows), np.cumsum([len(s) for s in splits])[:-1])
    columns: dict[str, np.ndarray] = {
        "splits": np.empty(sink.rows, np.uint8),
        **{name: _empty_column(splits, name, sink.rows) for name in _field_names(splits)},
    }
    for code, (split, where) in enumerate(zip(splits, rows, strict=True)):
        columns["splits"][where] = code
        for name, column in columns.items():
            if name != "splits":
                column[where] = split.fields[name].cpu().numpy()
    files = {name: _write_column(folder, name, column) for name, column in columns.items()}
    names, listed = list(splits[0].file_names), None
    if names and "file" in files:
        _write_json(folder / "file_names.json", names)
        listed = StoredFile.of(folder / "file_names.json", (len(names),), "json")
    assert sink.shape is not None
    described = progress(sink.describe(), len(sink.counts), "checksums")
    index = PackedIndex(
        dataset.name,
        sink.shape,
        {name: len(split) for name, split in zip(SPLITS, splits, strict=True)},
        dataset.variables,
        tuple(described),
        files,
        listed,
        dataset.graph,
        tuple(note for note in dataset.notes if note.kind != "packed"),
        dict(dataset.source),
    )
    _write_json(folder / INDEX, index.to_json(), indent=2)


def _is_streamed_into(sink: ShardSink, splits: list[Split]) -> bool:
    return bool(sink.counts) and all(isinstance(split, MappedSplit) for split in splits)


def _write_images(splits: list[Split], sink: ShardSink) -> None:
    """Append the images of the splits, one split after the other."""
    total = sum(map(len, splits))
    sink.counts.clear()
    sink.open(total, next(split.shape[1:] for split in splits if len(split)), "the data")
    for image in progress(_images_of(splits), total, "packing images"):
        sink.append(image)
    sink.finish()


def _images_of(splits: list[Split]) -> Iterator[np.ndarray]:
    for split in splits:
        for chunk in split.chunks(PACKED_AT_ONCE):
            yield from chunk.images[:].cpu().numpy()


def _field_names(splits: list[Split]) -> list[str]:
    """Return the fields of a batch but for the images, which a split may store in other fields."""
    split = next(split for split in splits if len(split))
    batch = split.batch(torch.zeros(1, dtype=torch.int64, device=split.device))
    return [name for name in split.fields if name in batch and name != "images"]


def _empty_column(splits: list[Split], name: str, rows: int) -> np.ndarray:
    first = next(split for split in splits if len(split)).fields[name][:1].cpu().numpy()
    return np.empty((rows, *first.shape[1:]), first.dtype)


def _write_column(folder: Path, name: str, column: np.ndarray) -> StoredFile:
    path = folder / f"{name}.npy"
    with _flushed(path) as file:
        np.save(file, column, allow_pickle=False)
    return StoredFile.of(path, column.shape, column.dtype.str)


def _write_json(path: Path, content: Any, indent: int | None = None) -> None:
    with _flushed(path) as file:
        file.write(json.dumps(content, indent=indent, allow_nan=False).encode("ascii") + b"\n")


@contextlib.contextmanager
def _flushed(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for writing, and flush it to the disk at the end."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
