"""ImageShards: rows of images in several memory-mapped .npy files, read with bounded memory."""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intervae.data.unpacked_size import read_npy_header
from intervae.errors import DataError
from intervae.files import open_regular

MAPPED = 2**26  # bytes read before the pages of the maps are released
READ_AT_ONCE = 2**24  # bytes copied at a time
MOST_OPEN = 256  # maps; each holds a file descriptor


class ImageShards:
    """Images (N, C, H, W), or clips (N, T, C, H, W), uint8, in files that follow each other.

    A map is opened when one of its rows is first read. Pages that were read count as memory of the
    process, so they are released after every `MAPPED` bytes; the system keeps them cached while it
    has room. Several threads may read.

    Arguments:
        paths: one .npy file for each shard.
        rows: number of images of each.
        shape: of one image or clip.
    """

    def __init__(self, paths: Sequence[Path], rows: Sequence[int], shape: Sequence[int]) -> None:
        self.paths, self.shape = list(paths), tuple(int(side) for side in shape)
        self.starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]).astype(np.int64)
        self.row_bytes = math.prod(self.shape)
        self._maps: dict[int, tuple[mmap.mmap, np.ndarray]] = {}
        self._unreleased = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self.starts[-1])

    def read(self, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the images of rows (B,), into `out` if it is not None."""
        images = np.empty((len(rows), *self.shape), np.uint8) if out is None else out
        step = max(1, READ_AT_ONCE // self.row_bytes)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            self._read_part(rows[part], images[part])
        return images

    def _read_part(self, rows: np.ndarray, out: np.ndarray) -> None:
        shard = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(shard).tolist():
            places = np.flatnonzero(shard == number)
            out[places] = self._mapped(number)[rows[places] - self.starts[number]]
        self._release(len(rows) * self.row_bytes)

    def _mapped(self, number: int) -> np.ndarray:
        with self._lock:
            if number not in self._maps:
                if len(self._maps) >= MOST_OPEN:
                    del self._maps[next(iter(self._maps))]
                rows = int(self.starts[number + 1] - self.starts[number])
                self._maps[number] = map_shard(self.paths[number], (rows, *self.shape))
            return self._maps[number][1]

    def _release(self, count: int) -> None:
        """Give back the pages of all maps once `MAPPED` bytes were read."""
        with self._lock:
            self._unreleased += count
            if self._unreleased < MAPPED or not hasattr(mmap, "MADV_DONTNEED"):
                return
            self._unreleased = 0
            for content, _ in self._maps.values():
                content.madvise(mmap.MADV_DONTNEED)


def map_shard(path: Path, shape: tuple[int, ...]) -> tuple[mmap.mmap, np.ndarray]:
    """Map an .npy file of this shape for reading; raise a DataError for any other file."""
    try:
        with open_regular(path) as file:
            start = check_npy(file, path.name, shape, np.dtype(np.uint8))
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    array = np.frombuffer(content, np.uint8, count=math.prod(shape), offset=start)
    return content, array.reshape(shape)


def check_npy(file: object, name: str, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Return where the values of an open .npy file start, after checking its header and size."""
    try:
        written, is_fortran, stored = read_npy_header(file)  # type: ignore[arg-type]
    except Exception as error:  # a damaged header may raise nearly anything
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise DataError(
            f"{name} is not an .npy file ({reason[:200]}); copy the packed folder again, or pack "
            "the data anew."
        ) from None
    start = file.tell()  # type: ignore[attr-defined]
    if written != shape or stored != dtype or is_fortran:
        raise DataError(
            f"{name} holds {stored} of shape {written}, but the index says {dtype} of shape "
            f"{shape}; it belongs to another packed folder: copy this folder again, or pack "
            "the data anew."
        )
    size = file.seek(0, 2) - start  # type: ignore[attr-defined]
    if size != math.prod(shape) * dtype.itemsize:
        raise DataError(
            f"{name} has {size} bytes of values but its header promises "
            f"{math.prod(shape) * dtype.itemsize}; copy the packed folder again, or pack the data "
            "anew."
        )
    return start
