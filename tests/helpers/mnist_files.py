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
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (train + test, 28, 28)).astype(np.uint8)
    images[:, 0, 0] = np.arange(train + test)
    digits = np.arange(train + test) % 10
    write_mnist(folder, images, digits, train, packed)
    return images, digits


def write_mnist(
    folder: Path, images: np.ndarray, digits: np.ndarray, train: int, packed: bool = True
) -> None:
    """Write images (N, 28, 28) and digits (N,), the first `train` of them for training."""
    folder.mkdir(exist_ok=True)
    for part, rows in (("train", slice(0, train)), ("t10k", slice(train, None))):
        for name, content in (
            (f"{part}-images-idx3-ubyte", idx(0x803, images[rows])),
            (f"{part}-labels-idx1-ubyte", idx(0x801, digits[rows])),
        ):
            (folder / f"{name}.gz" if packed else folder / name).write_bytes(
                gzip.compress(content) if packed else content
            )


def draw_strokes(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, 28, 28) strokes with round ends that differ in lean and width, and digits (n,)."""
    y, x = np.mgrid[:28, :28] - 13.5
    rng = np.random.default_rng(0)
    images = np.zeros((n, 28, 28))
    for image in images:
        angle, width = np.radians(rng.uniform(60, 120)), rng.uniform(2, 4)
        along = np.clip(x * np.cos(angle) + y * np.sin(angle), -7, 7)
        distance = np.hypot(x - along * np.cos(angle), y - along * np.sin(angle))
        image += 255 * np.clip(width / 2 + 0.5 - distance, 0, 1)
    return np.rint(images).astype(np.uint8), np.arange(n) % 10
