"""MNIST (LeCun et al. 1998): 60,000 + 10,000 handwritten digits of 28 x 28 grey pixels in the idx format, with the published test split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import as_size, check_memory, resize_images
from intervae.data.readers.files import Home, at_end, choose_rows, open_bytes, read_numbers, take

HOME = Home("MNIST", "mnist", "yann.lecun.com/exdb/mnist or one of its many mirrors")
SIDE = 28  # pixels
DIGIT = Variable("digit", "categorical", categories=tuple("0123456789"))
AXES_OF_MAGIC = {0x0803: 3, 0x0801: 1}  # unsigned bytes with that many axes


def mnist(*, size: int | Sequence[int] = SIDE, samples: int | None = None, validation: float = 0.1, seed: int = 0) -> Dataset:
    """Read MNIST.

    Arguments:
        size: resize to this many pixels, square or (height, width).
        samples: keep only this many of the 70,000 images, drawn at random.
        validation, seed: the fraction of the training images that is kept for validation, drawn at random.
    """
    wanted = as_size(size) or (SIDE, SIDE)
    parts = [read_part("train"), read_part("t10k")]
    images, digits = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    is_test = np.arange(len(images)) >= len(parts[0][0])
    rows = choose_rows(len(images), samples, seed)
    pixels = resize_images(images[rows][:, None], wanted)
    return build_dataset("mnist", pixels, digits[rows][:, None], [DIGIT], validation=validation, test=is_test[rows], seed=seed)


def read_part(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 28, 28) and digits (N,) of the part `train` or `t10k`."""
    images_at, digits_at = (_find(f"{part}-{what}") for what in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    images, digits = read_idx(images_at, 3), read_idx(digits_at, 1)
    if images.shape[1:] != (SIDE, SIDE):
        HOME.broken(images_at, f"has images of {images.shape[2]} x {images.shape[1]} pixels where {SIDE} x {SIDE} are expected")
    if len(images) != len(digits):
        HOME.broken(digits_at, f"has {len(digits)} labels for the {len(images)} images of {images_at.name}")
    if len(digits) and digits.max() > 9:
        HOME.broken(digits_at, f"has a label {digits.max()}, which is no digit")
    return images, digits


def _find(name: str) -> Path:
    dotted = name.replace("-idx", ".idx")  # as some mirrors spell it
    return HOME.need(f"{name}.gz", name, f"{dotted}.gz", dotted)


def read_idx(path: Path, axes: int) -> np.ndarray:
    """An idx file of unsigned bytes: the magic number, one length per axis (all big-endian), then the bytes."""
    with open_bytes(HOME, path) as stream:
        (magic,) = read_numbers(HOME, path, stream, 1, ">I")
        if AXES_OF_MAGIC.get(magic) != axes:
            HOME.broken(path, f"is no idx file of bytes with {axes} axes (its magic number is 0x{magic:08X})")
        shape = read_numbers(HOME, path, stream, axes, ">I")
        needed = math.prod(shape)
        check_memory(needed, path.name, "its header is wrong")
        values = np.frombuffer(take(HOME, path, stream, needed), np.uint8).reshape(shape)
        at_end(HOME, path, stream)
    return values
