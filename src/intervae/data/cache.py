"""Cache of arrays that take minutes to make: one checked `.npz` per key, below INTERVAE_CACHE."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intervae.files import open_regular, write_bytes

ABOUT = "about"  # the array that holds key and checksum as JSON text
Arrays = dict[str, np.ndarray]


def checksum(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def read_cached(path: Path, key: Mapping[str, Any]) -> tuple[Arrays | None, str]:
    """Return the arrays of a cache file, or None and why it cannot be used.

    The reason is "" if there is no such file.
    """
    try:
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop(ABOUT).tobytes())
        stored, digest = about["key"], about["checksum"]
    except FileNotFoundError:
        return None, ""
    except MemoryError:
        raise
    except Exception:  # a damaged file may raise nearly anything
        return None, "cannot be read"
    if stored != dict(key):
        return None, "was made from other data or by another version"
    if digest != checksum(arrays):
        return None, "is damaged (its checksum differs)"
    return arrays, ""


def write_cached(path: Path, key: Mapping[str, Any], arrays: Arrays) -> None:
    """Write arrays with their key (JSON values) and checksum, compressed and atomically."""
    about = json.dumps({"key": dict(key), "checksum": checksum(arrays)}).encode()
    content = io.BytesIO()
    members: dict[str, Any] = {ABOUT: np.frombuffer(about, np.uint8), **arrays}
    np.savez_compressed(content, **members)
    write_bytes(path, content.getvalue())
