"""ArrowRows: a table of pyarrow whose images are read row by row, from files or `datasets`."""

from __future__ import annotations

import bisect
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError, unknown


@dataclass(frozen=True)
class ArrowRows:
    """Rows of a Hugging Face data set.

    Arguments:
        schema: of pyarrow; its metadata describe the features.
        read_column: name -> a whole column, a ChunkedArray.
        read_cell: (name, row) -> a value in Python, such as {"bytes": ..., "path": ...}.
    """

    count: int
    schema: Any
    read_column: Callable[[str], Any]
    read_cell: Callable[[str, int], Any]

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """Name -> description of a feature as `datasets` stores it; {} where there is none."""
        try:
            metadata = json.loads((self.schema.metadata or {})[b"huggingface"])
            features = metadata["info"]["features"]
        except (KeyError, TypeError, ValueError, RecursionError):
            features = {}
        described = features if isinstance(features, dict) else {}
        return {
            name: described[name] if isinstance(described.get(name), dict) else {}
            for name in self.schema.names
        }


def import_pyarrow() -> Any:
    """Return pyarrow, or raise an error that names the extra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "Hugging Face data sets and .parquet files need pyarrow; install it with "
            "`pip install 'intervae[datasets]'`."
        ) from None
    return pyarrow


# ---- sources ------------------------------------------------------------------------------------
def stream_rows(paths: Sequence[Path]) -> ArrowRows:
    """Return the rows of the .arrow files of a saved data set, which are mapped, not read."""
    arrow = import_pyarrow()
    tables = []
    for path in paths:
        try:
            tables.append(arrow.ipc.open_stream(arrow.memory_map(str(path), "r")).read_all())
        except (arrow.ArrowInvalid, OSError) as error:
            raise _unreadable(path, error) from None
    try:
        table = arrow.concat_tables(tables)
    except arrow.ArrowInvalid as error:
        raise _unreadable(paths[0].parent, error) from None
    return ArrowRows(
        len(table), table.schema, table.column, lambda name, row: table.column(name)[row].as_py()
    )


def parquet_rows(path: Path) -> ArrowRows:
    """Return the rows of a .parquet file; of images one group of rows at a time is in memory."""
    arrow = import_pyarrow()
    try:
        file = arrow.parquet.ParquetFile(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from None
    groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = [0, *itertools.accumulate(groups)]
    lock = threading.Lock()
    cached: dict[tuple[str, int], Any] = {}

    def read(function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (arrow.ArrowInvalid, OSError) as error:
            raise _unreadable(path, error) from None

    def read_cell(name: str, row: int) -> Any:
        group = bisect.bisect_right(starts, row) - 1
        with lock:  # threads decode rows of one group or of two
            if (name, group) not in cached:
                while len(cached) > 1:
                    del cached[next(iter(cached))]
                cached[name, group] = read(lambda: file.read_row_group(group, columns=[name]))[name]
            return cached[name, group][row - starts[group]].as_py()

    def read_column(name: str) -> Any:
        return read(lambda: file.read(columns=[name]).column(name))

    return ArrowRows(starts[-1], file.schema_arrow, read_column, read_cell)


def object_rows(dataset: Any) -> ArrowRows:
    """Return the rows of a `datasets.Dataset`."""
    rows, lock = dataset.with_format("arrow"), threading.Lock()

    def read_cell(name: str, row: int) -> Any:
        with lock:
            return rows[row].column(name)[0].as_py()

    schema = dataset.features.arrow_schema
    return ArrowRows(len(dataset), schema, lambda name: rows[:].column(name), read_cell)


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).partition("\n")[0].rstrip(".")[:200]
    return DataError(f"{path} cannot be read ({reason}); check that it is complete.")


# ---- columns ------------------------------------------------------------------------------------
def image_column(rows: ArrowRows, where: str, name: str | None = None) -> str:
    """Return the column of images: `name`, or the only one."""
    candidates = [key for key, feature in rows.features.items() if feature.get("_type") == "Image"]
    if not candidates:
        candidates = [field.name for field in rows.schema if _holds_bytes(field.type)]
    if name is not None:
        if name not in candidates:
            raise unknown("column of images", name, candidates)
        return name
    if len(candidates) != 1:
        many = f"several columns of images ({', '.join(candidates)}); choose one with image="
        none = f"no column of images, only {', '.join(rows.schema.names) or 'nothing'}"
        advice = " (--data-option image=NAME)." if candidates else "; give data that has one."
        raise DataError(f"{where} has {many if candidates else none}{advice}")
    return candidates[0]


def _holds_bytes(kind: Any) -> bool:
    types = import_pyarrow().types
    if types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return types.is_binary(kind) or types.is_large_binary(kind)


def label_columns(rows: ArrowRows, image: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return name -> column (N,) of numbers or texts, and the names of the columns of other types.

    Classes become their words.
    """
    table: dict[str, np.ndarray] = {}
    others = []
    for field in rows.schema:
        if field.name == image:
            continue
        column = _column(rows, field, rows.features[field.name].get("names"))
        if column is None:
            others.append(field.name)
        else:
            table[field.name] = column
    return table, others


def _column(rows: ArrowRows, field: Any, words: Any) -> np.ndarray | None:
    arrow, types = import_pyarrow(), import_pyarrow().types
    kind = field.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        values = rows.read_column(field.name)
        numbers = values.cast(arrow.float64(), safe=False).to_numpy().astype(np.float64)
        return numbers if not isinstance(words, list) else _words(numbers, words, field.name)
    if types.is_string(kind) or types.is_large_string(kind):
        values = rows.read_column(field.name).to_pylist()
        return np.array(["" if value is None else value for value in values])
    return None


def _words(codes: np.ndarray, words: list[Any], name: str) -> np.ndarray:
    """Return the words of class codes (N,), "" where there is none or the code is -1."""
    codes = np.where(np.isnan(codes), -1, codes).astype(np.int64)
    if codes.max(initial=-1) >= len(words) or codes.min(initial=-1) < -1:
        raise DataError(f"column {name!r} has a class without a name; correct its features.")
    return np.array(["", *map(str, words)])[codes + 1]
