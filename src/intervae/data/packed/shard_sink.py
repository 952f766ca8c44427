"""ShardSink: writes images one after the other into .npy shards, and keeps none in memory."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from torch import Tensor

from intervae.data.packed.index import StoredFile
from intervae.data.packed.mapped_images import MappedImages
from intervae.data.packed.shards import ImageShards, map_shard
from intervae.errors import RunError

MOST_SHARDS = 99_999
HEADER = 192  # bytes; a shape of any length fits
ROWS_AT_ONCE = 256  # images rewritten at a time


class ShardSink:
    """An `ImageSink` whose images end in files of about `shard_bytes` in `folder`.

    Nothing is kept in memory: an image is written when it comes.

    Arguments:
        folder: a temporary folder, removed by the caller after an error.
        target: the folder that it will become, for errors.
    """

    def __init__(self, folder: Path, target: Path, shard_bytes: int) -> None:
        self.folder, self.target, self.shard_bytes = folder, target, shard_bytes
        self.shape: tuple[int, ...] | None = None
        self.counts: list[int] = []  # rows of each shard
        self._file: IO[bytes] | None = None

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def paths(self) -> list[Path]:
        return [self.folder / f"images-{i:05}.npy" for i in range(len(self.counts))]

    def open(self, total: int | None, shape: tuple[int, ...], name: str) -> None:
        self.shape = shape
        if total is not None:
            needed = total * math.prod(shape)
            free = shutil.disk_usage(self.folder).free
            if needed > free:
                raise RunError(
                    f"no space to write {self.target}: {total} images need "
                    f"{needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free, so nothing was "
                    "written; free some space, or pass a smaller size= (--size)."
                )

    def append(self, pixels: np.ndarray) -> None:
        assert self.shape is not None
        if len(pixels) > self.shape[0] == 1:  # colour after grey
            self._to_colour()
        if pixels.shape != self.shape:
            pixels = np.broadcast_to(pixels, self.shape)
        if self._file is None or self.counts[-1] * math.prod(self.shape) >= self.shard_bytes:
            self._next_shard()
        assert self._file is not None
        self._file.write(np.ascontiguousarray(pixels).data)
        self.counts[-1] += 1

    def finish(self, factor: int = 1) -> Tensor:
        """Close the last shard and return the images, which stay on the disk."""
        self._close_shard()
        if factor != 1:
            self._rewrite(lambda images: images * np.uint8(factor))
        return MappedImages(self.mapped(), np.arange(self.rows))

    def close(self) -> None:
        """Close the file that is being written, if an error left one open."""
        if self._file is not None:
            self._file.close()

    def mapped(self) -> ImageShards:
        assert self.shape is not None
        return ImageShards(self.paths, self.counts, self.shape)

    def describe(self) -> Iterator[StoredFile]:
        """Yield the description of each shard; it is read for its checksum."""
        assert self.shape is not None
        for path, count in zip(self.paths, self.counts, strict=True):
            yield StoredFile.of(path, (count, *self.shape), "|u1")

    # ---- files ----------------------------------------------------------------------------------
    def _next_shard(self) -> None:
        self._close_shard()
        if len(self.counts) >= MOST_SHARDS:
            raise RunError(
                f"{self.target} would have more than {MOST_SHARDS} shards, so nothing was written; "
                "give a larger shard_mb= (--shard-mb)."
            )
        self.counts.append(0)
        self._file = open(self.paths[-1], "wb")  # noqa: SIM115
        self._file.write(bytes(HEADER))

    def _close_shard(self) -> None:
        """Write the header, whose shape is known now, and flush the file to the disk."""
        if self._file is None:
            return
        assert self.shape is not None
        with self._file as file:
            self._file = None
            file.seek(0)
            file.write(npy_header((self.counts[-1], *self.shape)))
            file.flush()
            os.fsync(file.fileno())

    def _to_colour(self) -> None:
        """Repeat the grey channel of what was written."""
        assert self.shape is not None
        self._close_shard()
        self._rewrite(lambda images: np.repeat(images, 3, axis=1))
        self.shape = (3, *self.shape[1:])

    def _rewrite(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        """Replace the images of every shard by `change(images)`, ROWS_AT_ONCE at a time."""
        assert self.shape is not None
        for path, count in zip(self.paths, self.counts, strict=True):
            _, images = map_shard(path, (count, *self.shape))
            temporary = path.with_suffix(".new")
            with open(temporary, "wb") as file:
                changed = change(images[:1])
                file.write(npy_header((count, *changed.shape[1:])))
                for start in range(0, count, ROWS_AT_ONCE):
                    file.write(change(images[start : start + ROWS_AT_ONCE]).data)
                file.flush()
                os.fsync(file.fileno())
            del images
            os.replace(temporary, path)


def npy_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file of uint8 in C order, HEADER bytes long."""
    text = repr({"descr": "|u1", "fortran_order": False, "shape": shape})
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + text.encode("ascii").ljust(HEADER - 11) + b"\n"
