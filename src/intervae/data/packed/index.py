"""The index of a packed folder, `packed.json`: its content, and checks of one that is read.

The folder is untrusted, as any file of a user: names cannot leave it, links are refused, and every
size is compared with the file before anything is mapped.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.column_kinds import MAX_COLUMNS
from intervae.data.packed.shards import check_npy
from intervae.data.variables import KINDS, Variable
from intervae.errors import DataError, IntervaeError
from intervae.files import open_regular, parse_json
from intervae.notes import Note

INDEX = "packed.json"
FORMAT, VERSION = "intervae-packed", 1
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # of a file in the folder
SPLITS = ("train", "validation", "test")  # codes 0, 1, 2 of splits.npy
LARGEST_INDEX = 2**27  # bytes
END = 2**16  # bytes at either end of a file whose CRC is compared at every load
AGAIN = "copy the packed folder again, or pack the data anew"


@dataclass(frozen=True)
class StoredFile:
    """A file of a packed folder.

    Arguments:
        shape, dtype: of the array in an .npy file; (n,) and "json" of a list.
        ends: CRC-32 of the first and last 64 KiB, compared at every load.
        sha256: of all bytes, compared by `intervae pack --check`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    ends: int
    sha256: str

    @classmethod
    def of(cls, path: Path, shape: tuple[int, ...], dtype: str) -> StoredFile:
        """Describe a file that was written."""
        with open_regular(path) as file:
            size, ends = os.fstat(file.fileno()).st_size, end_checksum(file)
        return cls(path.name, shape, dtype, size, ends, full_checksum(path))


@dataclass(frozen=True)
class PackedIndex:
    """Content of `packed.json`.

    Arguments:
        image_shape: (C, H, W), or (T, C, H, W) of clips.
        splits: number of rows of the training, validation and test split.
        shards: the files of images, in order.
        columns: files with one row per image: `labels`, `splits` and further fields by name.
        file_names: the file that lists the images' own names, if they have any.
        source: what was packed, for information.
    """

    name: str
    image_shape: tuple[int, ...]
    splits: dict[str, int]
    variables: tuple[Variable, ...]
    shards: tuple[StoredFile, ...]
    columns: dict[str, StoredFile]
    file_names: StoredFile | None
    graph: CausalGraph | None
    notes: tuple[Note, ...]
    source: dict[str, Any]

    @property
    def rows(self) -> int:
        return sum(self.splits.values())

    @property
    def files(self) -> list[StoredFile]:
        more = [] if self.file_names is None else [self.file_names]
        return [*self.shards, *self.columns.values(), *more]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            **asdict(self),
            "graph": None if self.graph is None else self.graph.to_json(),
            "notes": [note._asdict() for note in self.notes],
        }


# ---- reading ------------------------------------------------------------------------------------
def read_index(folder: Path) -> PackedIndex:
    """Return the checked index of a packed folder; its files are not opened."""
    path = folder / INDEX
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_INDEX:
                raise DataError(f"{path} is larger than any index; {AGAIN}.")
            parsed = parse_json(file.read(), path, "index of packed data")
    except FileNotFoundError:
        raise DataError(f"{folder} has shards of packed data but no {INDEX}; {AGAIN}.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    except IntervaeError as error:
        raise DataError(str(error)) from None
    if not isinstance(parsed, dict) or parsed.get("format") != FORMAT:
        raise DataError(f"{path} is not an index of packed data; {AGAIN}.")
    if parsed.get("version") != VERSION:
        raise DataError(
            f"{path} has version {parsed.get('version')!r} of the format, and this intervae reads "
            f"version {VERSION}; pack the data anew, or update intervae."
        )
    try:
        return _checked(parsed)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, IntervaeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")[:200]
        raise DataError(f"{path} is damaged ({type(error).__name__}: {reason}); {AGAIN}.") from None


def _checked(parsed: Mapping[str, Any]) -> PackedIndex:
    """Return the index, or raise any error for one that contradicts itself."""
    shape = tuple(_whole(side, 1) for side in parsed["image_shape"])
    splits = {name: _whole(parsed["splits"][name], 0) for name in SPLITS}
    rows = sum(splits.values())
    variables = tuple(_variable(each) for each in parsed["variables"])
    shards = tuple(_file(each) for each in parsed["shards"])
    columns = {str(key): _file(each) for key, each in parsed["columns"].items()}
    names = parsed["file_names"] and _file(parsed["file_names"])
    _require(len(shape) in (3, 4), f"image_shape is {shape}")
    _require(len(variables) <= MAX_COLUMNS, f"{len(variables)} variables")
    _require(len({v.name for v in variables}) == len(variables), "a variable appears twice")
    for shard in shards:
        _require(shard.dtype == "|u1" and shard.shape[1:] == shape, f"shape of {shard.name}")
    _require(sum(shard.shape[0] for shard in shards) == rows, "rows of the shards")
    _require({"labels", "splits"} <= columns.keys(), "no labels or splits")
    _require(columns["labels"].shape == (rows, len(variables)), "shape of the labels")
    _require(columns["splits"].shape == (rows,), "shape of the splits")
    for key, column in columns.items():
        _require(key.isidentifier() and column.shape[:1] == (rows,), f"column {key!r}")
        _require(np.dtype(column.dtype).kind in "biuf", f"type of {key!r}")
    used = [*shards, *columns.values(), *([names] if names else [])]
    _require(len({each.name for each in used}) == len(used), "a file is named twice")
    graph = parsed["graph"] and CausalGraph.from_json(parsed["graph"])
    return PackedIndex(
        str(parsed["name"]),
        shape,
        splits,
        variables,
        shards,
        columns,
        names or None,
        graph or None,
        tuple(Note(*(str(note[key]) for key in Note._fields)) for note in parsed["notes"]),
        dict(parsed["source"]),
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _whole(value: Any, minimum: int) -> int:
    _require(type(value) is int and minimum <= value < 2**48, f"{value!r} as a number of rows")
    return value


def _variable(parsed: Any) -> Variable:
    variable = Variable.from_json(parsed)
    scale = (variable.mean, variable.std, variable.low, variable.high)
    _require(isinstance(variable.name, str) and bool(variable.name), "a variable without a name")
    _require(variable.kind in KINDS, f"kind of {variable.name!r}")
    _require(all(isinstance(word, str) for word in variable.categories), "categories")
    _require(isinstance(variable.ordered, bool), f"order of {variable.name!r}")
    _require(
        all(isinstance(x, int | float) and math.isfinite(x) for x in scale),
        f"scale of {variable.name!r}",
    )
    return variable


def _file(parsed: Mapping[str, Any]) -> StoredFile:
    name, dtype = parsed["name"], parsed["dtype"]
    _require(isinstance(name, str) and NAME.fullmatch(name) is not None, f"file name {name!r}")
    _require(name != INDEX and isinstance(dtype, str), f"file {name!r}")
    shape = tuple(_whole(side, 0) for side in parsed["shape"])
    _require(isinstance(parsed["sha256"], str), f"checksum of {name!r}")
    return StoredFile(
        name, shape, dtype, _whole(parsed["bytes"], 0), _whole(parsed["ends"], 0), parsed["sha256"]
    )


# ---- files --------------------------------------------------------------------------------------
def check_files(folder: Path, index: PackedIndex) -> None:
    """Compare size, header and both ends of every file with the index."""
    for stored in index.files:
        path = folder / stored.name
        try:
            if path.is_symlink():
                raise DataError(f"{path} is a link, which is refused as unsafe; copy the file.")
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != stored.bytes:
                    raise DataError(
                        f"{path} has {size} bytes but the index says {stored.bytes}, so it is "
                        f"truncated or another file; {AGAIN}."
                    )
                if stored.dtype != "json":
                    check_npy(file, stored.name, stored.shape, np.dtype(stored.dtype))
                if end_checksum(file) != stored.ends:
                    raise DataError(
                        f"{path} differs from the file that was packed (its checksum differs); "
                        f"{AGAIN}."
                    )
        except FileNotFoundError:
            raise DataError(f"{path} is missing from the packed folder; {AGAIN}.") from None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None


def end_checksum(file: IO[bytes]) -> int:
    """Return the CRC-32 of the first and last `END` bytes of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(END)
    file.seek(max(END, size - END))
    return zlib.crc32(file.read(END), zlib.crc32(first))


def full_checksum(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file; `advance` is called with the bytes of each part."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while part := file.read(2**20):
            digest.update(part)
            if advance is not None:
                advance(len(part))
    return digest.hexdigest()
