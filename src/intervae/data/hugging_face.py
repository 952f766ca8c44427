"""Hugging Face data sets: saved to disk, .parquet files, and `datasets` objects in Python.

    load_data("saved_folder")    # what Dataset.save_to_disk or DatasetDict.save_to_disk wrote
    load_data("train.parquet")
    load_data(datasets.load_dataset("mnist"))

Files are read with pyarrow (the extra `[datasets]`), images as the bytes that are stored in them.
An image of which only a path is stored is read for an object in Python, never for a file.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from intervae.data.arrow_columns import (
    ArrowRows,
    image_column,
    label_columns,
    object_rows,
    parquet_rows,
    stream_rows,
)
from intervae.data.dataset import Dataset
from intervae.data.image_rows import build_from_files, split_word
from intervae.data.image_sinks import ImageSink
from intervae.data.variables import Spec
from intervae.errors import DataError, IntervaeError, UsageError
from intervae.files import check_regular, open_regular, parse_json
from intervae.notes import Note

STATE, SPLITS = "state.json", "dataset_dict.json"  # of a Dataset, and of a DatasetDict


def is_hugging_face(source: Any) -> bool:
    return type(source).__module__.partition(".")[0] == "datasets"


def is_saved_dataset(folder: Path) -> bool:
    """Whether `save_to_disk` of `datasets` wrote a folder."""
    return (folder / SPLITS).is_file() or (
        (folder / STATE).is_file() and (folder / "dataset_info.json").is_file()
    )


def load_saved_dataset(
    path: str | Path,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    channels: int | None = None,
    image: str | None = None,
    like: Spec | None = None,
    sink: ImageSink | None = None,
) -> Dataset:
    """Read a folder that `save_to_disk` wrote, or a .parquet file with images.

    Arguments:
        size, variables, kinds, validation, test, seed, group, channels, like: as in `load_folder`;
            splits that are stored as train, validation and test are used.
        image: column of the images, if there are several.
        sink: where the images go; default memory.
    """
    root = Path(os.path.abspath(path))
    if root.suffix.lower() == ".parquet":
        _require_file(root)
        tables = {"": parquet_rows(root)}
    elif (root / SPLITS).is_file():
        names = _read_list(root / SPLITS, "splits")
        tables = {name: stream_rows(_arrow_files(root / _plain(name, root))) for name in names}
    else:
        tables = {"": stream_rows(_arrow_files(root))}
    return _load(tables, root.stem, trusted=False, **_options(locals()))


def load_hugging_face(
    source: Any,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    channels: int | None = None,
    image: str | None = None,
    like: Spec | None = None,
    sink: ImageSink | None = None,
) -> Dataset:
    """Read a `datasets.Dataset` or `DatasetDict`; for the arguments see `load_saved_dataset`."""
    splits = dict(source) if isinstance(source, Mapping) else {"": source}
    for name, part in splits.items():
        if not hasattr(part, "with_format") or not hasattr(part, "num_rows"):
            raise UsageError(
                f"load_data cannot read a {type(part).__name__} of the package datasets"
                f"{f' (split {name!r})' if name else ''}; give a Dataset or a DatasetDict, such as "
                "load_dataset(...) without streaming=True."
            )
    tables = {str(name): object_rows(part) for name, part in splits.items()}
    return _load(tables, type(source).__name__, trusted=True, **_options(locals()))


def _options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a loader from its local variables."""
    names = inspect.signature(load_saved_dataset).parameters
    return {name: arguments[name] for name in names if name != "path"}


def _load(
    tables: Mapping[str, ArrowRows], name: str, *, trusted: bool, image: str | None, **options: Any
) -> Dataset:
    """Join the rows of the tables, which are the splits if they are called so."""
    words = {part: split_word(part) for part in tables}
    if len(tables) > 1 and (None in words.values() or len(set(words.values())) < len(words)):
        raise DataError(
            f"{name} has the splits {', '.join(tables)}; known are train, validation and test; "
            "give one of the splits, or rename them."
        )
    files, columns, split_of_row, names = [], [], [], []
    others: list[str] = []
    for part, rows in tables.items():
        pictures = image_column(rows, name, image)
        where = f"{name}, {part} " if part else f"{name}, "
        table, others = label_columns(rows, pictures)
        columns.append(table)
        names += [f"{where}row {row}" for row in range(rows.count)]
        files += [partial(_encoded, rows, pictures, row, trusted) for row in range(rows.count)]
        split_of_row += [words[part] or ""] * rows.count
    if any(table.keys() != columns[0].keys() for table in columns):
        raise DataError(f"the splits of {name} have different columns; make them alike.")
    joined = {key: np.concatenate([table[key] for table in columns]) for key in columns[0]}
    notes = [
        Note("column-left-out", key, f"column {key!r}: left out, neither numbers nor text")
        for key in others
    ]
    return build_from_files(
        name,
        files,
        names,
        joined,
        notes=notes,
        split_of_row=split_of_row if len(tables) > 1 else None,
        **options,
    )


def _encoded(rows: ArrowRows, column: str, row: int, trusted: bool) -> bytes:
    """Return the bytes of the file of an image."""
    value = rows.read_cell(column, row)
    if isinstance(value, bytes):
        return value
    content, path = (value.get(key) for key in ("bytes", "path")) if value else (None, None)
    if content is not None:
        return content
    if path and trusted:
        with open_regular(path) as file:
            return file.read()
    raise ValueError("only its path is stored" if path else "there is no image in this row")


# ---- files --------------------------------------------------------------------------------------
def _arrow_files(folder: Path) -> list[Path]:
    """Return the .arrow files that `state.json` names, all inside the folder."""
    names = [
        each.get("filename") if isinstance(each, dict) else None
        for each in _read_list(folder / STATE, "_data_files")
    ]
    paths = [folder / _plain(name, folder) for name in names]
    if not paths:
        raise DataError(f"{folder / STATE} names no files; save the data set again.")
    for path in paths:
        _require_file(path)
    return paths


def _plain(name: Any, folder: Path) -> str:
    """Return the name of a file or folder below `folder`; raise an error for one elsewhere."""
    is_plain = isinstance(name, str) and name not in ("", ".", "..")
    if not is_plain or Path(name).name != name or "\\" in name or "\0" in name:
        raise DataError(f"{folder}: {str(name)[:80]!r} is not a name inside the folder.")
    return name


def _require_file(path: Path) -> None:
    try:
        check_regular(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    if path.is_symlink():
        raise DataError(f"{path} is a link, which is refused as unsafe; copy the file.")


def _read_list(path: Path, key: str) -> list[Any]:
    """Return a list of a JSON file of `datasets`."""
    try:
        with open_regular(path) as file:
            parsed = parse_json(file.read(), path, "of a saved data set")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    except IntervaeError as error:
        raise DataError(str(error)) from None
    values = parsed.get(key) if isinstance(parsed, dict) else None
    if not isinstance(values, list):
        raise DataError(f"{path} has no list {key!r}; save the data set again.")
    return values
