"""Where the published files are (below INTERVAE_DATA), and how to open them without trusting them: gzip, zip, npy inside npz."""

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
from typing import IO, NoReturn, cast

import numpy as np

from intervae.data.images import File
from intervae.errors import DataError, IntervaeError, UsageError

VARIABLE = "INTERVAE_DATA"
LARGEST_TEXT = 2**28  # bytes of a table inside a zip
LARGEST_PICTURE = 2**26  # bytes of a picture inside a zip


@dataclass(frozen=True)
class Home:
    """Where a data set lies (`folder` below INTERVAE_DATA, or that folder itself) and on which public page it is to be had."""

    title: str
    folder: str
    page: str

    def root(self, wanted: str) -> Path:
        """The folder that INTERVAE_DATA names; `wanted` is the file that a person has to get where it names none."""
        named = os.environ.get(VARIABLE, "")
        if not named:
            raise DataError(
                f"{self.title} is read from your disk: get {wanted} from {self.page}, put it into {self.folder}/ in a folder of your choice, "
                f"and set the environment variable {VARIABLE} to that folder."
            )
        root = Path(os.path.abspath(Path(named).expanduser()))
        if not root.is_dir():
            raise DataError(f"{VARIABLE} is {named!r}, which is not a folder; set it to the one that holds {self.folder}/{wanted}.")
        return root

    def find(self, *names: str) -> Path | None:
        """The first of these files that is there."""
        root = self.root(names[0])
        places = [folder / name for name in names for folder in (root / self.folder, root)]
        return next((path for path in places if os.path.isfile(path)), None)

    def need(self, *names: str) -> Path:
        """The first of these files that is there; an error that says where to get it where there is none."""
        return self.find(*names) or self.missing(names[0])

    def missing(self, wanted: str) -> NoReturn:
        raise DataError(f"there is no {wanted} in {self.root(wanted) / self.folder}; get it from {self.page} and put it there.")

    def broken(self, path: Path, what: str) -> NoReturn:
        """Refuse a file that is not what it should be."""
        raise DataError(f"{path.name} {what}; get it again from {self.page}.")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Whatever a damaged file raises, as one sentence."""
        try:
            yield
        except (IntervaeError, MemoryError):
            raise
        except Exception as error:  # a damaged file may raise nearly anything
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            self.broken(path, f"cannot be read ({reason})")


def choose_rows(n: int, samples: int | None, seed: int) -> np.ndarray:
    """`samples` of n row numbers at random, sorted; all of them without it."""
    if samples is None:
        return np.arange(n)
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or not 1 <= samples <= n:
        raise UsageError(f"samples={samples!r} must be a whole number from 1 to {n}, the number of images that there are.")
    return np.sort(np.random.default_rng([seed, 1]).choice(n, int(samples), replace=False))


# ---- plain or gzipped bytes ---------------------------------------------------------------------------------------------
@contextmanager
def open_bytes(home: Home, path: Path) -> Iterator[IO[bytes]]:
    """A file to read from, unpacked on the way where it is gzipped, whatever its name says."""
    with home.reading(path), path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.open(raw) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield raw


def read_numbers(home: Home, path: Path, stream: IO[bytes], count: int, kind: str) -> tuple[int, ...]:
    """`count` header numbers of the struct code `kind`, such as ">I"."""
    return struct.unpack(f"{kind[0]}{count}{kind[1]}", take(home, path, stream, count * struct.calcsize(kind)))


def take(home: Home, path: Path, stream: IO[bytes], count: int) -> bytes:
    """Exactly `count` bytes."""
    found = stream.read(count)
    if len(found) != count:
        home.broken(path, f"ends too early ({len(found)} bytes where {count} are needed)")
    return found


def at_end(home: Home, path: Path, stream: IO[bytes]) -> None:
    if stream.read(1):
        home.broken(path, "is longer than its header says")


# ---- arrays in an .npz --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Npy:
    """An array inside an .npz that is read a few rows at a time: the whole need not fit into memory."""

    home: Home
    path: Path
    stream: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype

    def rows(self, at_once: int) -> Iterator[tuple[int, np.ndarray]]:
        """(first row, (<= at_once, ...) rows), in the order of the file; the zip's checksum is tested at its end."""
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        for start in range(0, self.shape[0], at_once):
            count = min(at_once, self.shape[0] - start)
            taken = take(self.home, self.path, self.stream, count * size)
            yield start, np.frombuffer(taken, self.dtype).reshape(count, *self.shape[1:])
        at_end(self.home, self.path, self.stream)


@contextmanager
def open_npz(home: Home, path: Path) -> Iterator[Callable[[str], Npy]]:
    """An .npz whose arrays are opened by name, none of them unpickled."""
    with home.reading(path), zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]

        def open_array(name: str) -> Npy:
            if name not in names:
                home.broken(path, f"has no array {name!r}, only {', '.join(sorted(names)) or 'nothing'}")
            stream = archive.open(f"{name}.npy")
            version = np.lib.format.read_magic(stream)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = header(stream)
            if dtype.hasobject or fortran or not shape:
                home.broken(path, f"has an array {name!r} of Python objects, or one that is not stored row by row")
            return Npy(home, path, stream, shape, dtype)

        yield open_array


def read_array(array: Npy) -> np.ndarray:
    """All of a small array."""
    return next((rows.copy() for _, rows in array.rows(max(array.shape[0], 1))), np.empty(array.shape, array.dtype))


# ---- pictures and tables in a folder or a zip ---------------------------------------------------------------------------
@dataclass(frozen=True)
class Picture:
    """An image file of a folder or a zip: what the groups of a pattern caught of its name, how errors name it, how to get it."""

    parts: tuple[str, ...]
    name: str
    file: File


@contextmanager
def open_pictures(home: Home, path: Path, pattern: re.Pattern[str]) -> Iterator[list[Picture]]:
    """The files of a folder or a zip whose path ends as `pattern` says, sorted; those of a zip are read by name, never unpacked to disk."""
    if path.is_dir():
        walked = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        relative = sorted(Path(found).relative_to(path.parent).as_posix() for found in walked)
        yield [Picture(m.groups(), name, path.parent / name) for name in relative if (m := pattern.search(name))]
        return
    with home.reading(path), zipfile.ZipFile(path) as archive:

        def fetch(name: str) -> Callable[[], bytes]:
            return lambda: _unpack(archive, name, LARGEST_PICTURE)

        names = sorted(archive.namelist())
        yield [Picture(m.groups(), f"{path.name}: {name}", fetch(name)) for name in names if (m := pattern.search(name))]


def read_text(home: Home, path: Path, name: str) -> str:
    """The text file `path`, or the one called `name` inside it where it is a zip."""
    with home.reading(path):
        if path.suffix != ".zip":
            return path.read_text(encoding="utf-8")
        with zipfile.ZipFile(path) as archive:
            inside = next((found for found in archive.namelist() if found.rpartition("/")[2] == name), None)
            if inside is None:
                home.broken(path, f"has no {name} inside")
            return _unpack(archive, inside, LARGEST_TEXT).decode("utf-8")


def _unpack(archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > largest:
        raise ValueError(f"{name} unpacks to {size} bytes, which is refused as unsafe")
    return archive.read(name)
