"""Safe reading of published files: gzip, zip, and arrays inside an .npz."""

from __future__ import annotations

import gzip
import math
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from intervae import files
from intervae.data.image_files import File
from intervae.data.readers.file_source import FileSource
from intervae.data.unpacked_size import read_npy_header
from intervae.files import open_regular

LARGEST_TEXT = 2**28  # bytes of a table inside a zip
LARGEST_IMAGE = 2**26  # bytes of an image inside a zip


# ---- plain or gzipped bytes -----------------------------------------------------------------
@contextmanager
def open_bytes(source: FileSource, path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading; a gzipped one is decompressed, whatever its name."""
    with source.reading(path), open_regular(path) as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if is_gzip:
            with gzip.open(raw) as decompressed:
                yield cast(IO[bytes], decompressed)
        else:
            yield raw


def read_numbers(
    source: FileSource, path: Path, stream: IO[bytes], count: int, code: str
) -> tuple[int, ...]:
    """Read `count` header numbers of the struct code, such as ">I"."""
    size = count * struct.calcsize(code)
    return struct.unpack(f"{code[0]}{count}{code[1]}", read_exactly(source, path, stream, size))


def read_exactly(source: FileSource, path: Path, stream: IO[bytes], count: int) -> bytes:
    """Read exactly `count` bytes, or raise an error."""
    content = stream.read(count)
    if len(content) != count:
        source.raise_broken(path, f"ends too early ({len(content)} bytes where {count} are needed)")
    return content


def check_end(source: FileSource, path: Path, stream: IO[bytes]) -> None:
    """Raise an error unless the stream is at its end."""
    if stream.read(1):
        source.raise_broken(path, "is longer than its header says")


# ---- arrays in an .npz ----------------------------------------------------------------------
@dataclass(frozen=True)
class NpzArray:
    """An array inside an .npz, read a few rows at a time."""

    source: FileSource
    path: Path
    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype

    def chunks(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, chunk of at most `rows` rows); the end checks the zip's checksum."""
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        for start in range(0, self.shape[0], rows):
            count = min(rows, self.shape[0] - start)
            content = read_exactly(self.source, self.path, self.stream, count * row_bytes)
            yield start, np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])
        check_end(self.source, self.path, self.stream)

    def read(self) -> np.ndarray:
        """Read the array at once."""
        chunks = self.chunks(max(self.shape[0], 1))
        return next((chunk.copy() for _, chunk in chunks), np.empty(self.shape, self.dtype))


@contextmanager
def open_npz(source: FileSource, path: Path) -> Iterator[Callable[[str], NpzArray]]:
    """Open an .npz: a function from name to array, which unpickles nothing."""
    with source.reading(path), open_regular(path) as raw, zipfile.ZipFile(raw) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]

        def open_array(name: str) -> NpzArray:
            if name not in names:
                source.raise_broken(
                    path, f"has no array {name!r}, only {', '.join(sorted(names)) or 'nothing'}"
                )
            stream = archive.open(f"{name}.npy")
            shape, fortran, dtype = read_npy_header(stream)
            if dtype.hasobject or fortran or not shape:
                source.raise_broken(
                    path,
                    f"has an array {name!r} of Python objects, "
                    "or one that is not stored row by row",
                )
            return NpzArray(source, path, stream, shape, dtype)

        yield open_array


# ---- images and tables in a folder or a zip -------------------------------------------------
@dataclass(frozen=True)
class ImageEntry:
    """An image file of a folder or a zip.

    Arguments:
        groups: what the groups of the pattern matched in its path.
        name: how errors name it.
        file: its path, or a function that returns its bytes.
    """

    groups: tuple[str, ...]
    name: str
    file: File


@contextmanager
def open_images(
    source: FileSource, path: Path, pattern: re.Pattern[str]
) -> Iterator[list[ImageEntry]]:
    """List the files of a folder or a zip whose path matches, sorted; a zip is not unpacked."""
    if path.is_dir():
        files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        relative = sorted(file.relative_to(path.parent).as_posix() for file in files)
        yield [
            ImageEntry(match.groups(), name, path.parent / name)
            for name in relative
            if (match := pattern.search(name))
        ]
        return
    with source.reading(path), open_regular(path) as raw, zipfile.ZipFile(raw) as archive:

        def fetch(name: str) -> Callable[[], bytes]:
            return lambda: _read_member(archive, name, LARGEST_IMAGE)

        yield [
            ImageEntry(match.groups(), f"{path.name}: {name}", fetch(name))
            for name in sorted(archive.namelist())
            if (match := pattern.search(name))
        ]


def read_text(source: FileSource, path: Path, name: str) -> str:
    """Read the text file `path`, or the one called `name` inside it if it is a zip."""
    with source.reading(path):
        if path.suffix != ".zip":
            return files.read_text(path)
        with open_regular(path) as raw, zipfile.ZipFile(raw) as archive:
            members = archive.namelist()
            member = next((m for m in members if m.rpartition("/")[2] == name), None)
            if member is None:
                source.raise_broken(path, f"has no {name} inside")
            return _read_member(archive, member, LARGEST_TEXT).decode("utf-8")


def _read_member(archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > largest:
        raise ValueError(f"{name} unpacks to {size} bytes, which is refused as unsafe")
    return archive.read(name)
