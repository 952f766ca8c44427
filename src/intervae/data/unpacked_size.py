"""Checks of compressed arrays before they are unpacked: size in the header, size when unpacked."""

from __future__ import annotations

import math
import zipfile
from typing import IO

import numpy as np

from intervae.data.memory import check_memory
from intervae.errors import DataError

SMALL = 2**28  # bytes that are unpacked whatever the compression
LARGEST_RATIO = 500  # dSprites, black and white, has 120; zeros reach 1,030


def read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Return shape, whether it is in Fortran order, and type of the .npy at the stream's place."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def check_npz_array(archive: zipfile.ZipFile, key: str, where: str) -> None:
    """Raise a DataError for an array of an .npz whose header or unpacked size is not plausible."""
    member = archive.getinfo(f"{key}.npy")
    with archive.open(member) as stream:
        shape, _, dtype = read_npy_header(stream)
        content = member.file_size - stream.tell()
    if dtype.hasobject:
        raise DataError(
            f"{where}: {key!r} is an array of Python objects, which is refused as unsafe; "
            "store numbers or text."
        )
    if math.prod(shape) * dtype.itemsize != content:
        raise DataError(
            f"{where}: {key!r} has {content} bytes, but its header says {dtype} of shape {shape}; "
            "the file is damaged, save it again."
        )
    check_unpacked_size(member.compress_size, member.file_size, key, where)


def check_unpacked_size(stored: int, unpacked: int, key: str, where: str) -> None:
    """Raise a DataError for an array that does not fit into memory or is a decompression bomb.

    Arguments:
        stored, unpacked: bytes in the file and after unpacking.
    """
    check_memory(unpacked, where, "store smaller arrays")
    if unpacked > SMALL and unpacked > LARGEST_RATIO * stored:
        raise DataError(
            f"{where}: {key!r} would unpack from {stored / 2**20:.1f} MiB to "
            f"{unpacked / 2**30:.1f} GiB, which is refused as unsafe; save it uncompressed "
            "(numpy.savez), or as uint8."
        )
