"""Small MNIST files in the idx format."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np


def idx(magic: int, values: np.ndarray) -> bytes:
    """Return the content of an idx file."""
    return (
        struct.pack(f">I{values.ndim}I", magic, *values.shape) + values.astype(np.uint8).tobytes()
    )


def make_mnist(
    folder: Path, train: int = 40, test: int = 12, packed: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Write images whose first pixel is their row number, and digits, the row number modulo 10."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (train + test, 28, 28)).astype(np.uint8)
    images[:, 0, 0] = np.arange(train + test)
    digits = np.arange(train + test) % 10
    for part, rows in (("train", slice(0, train)), ("t10k", slice(train, None))):
        for name, content in (
            (f"{part}-images-idx3-ubyte", idx(0x803, images[rows])),
            (f"{part}-labels-idx1-ubyte", idx(0x801, digits[rows])),
        ):
            (folder / f"{name}.gz" if packed else folder / name).write_bytes(
                gzip.compress(content) if packed else content
            )
    return images, digits
