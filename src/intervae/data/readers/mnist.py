"""MNIST (LeCun et al. 1998): 60,000 + 10,000 handwritten digits of 28 x 28 grey pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.memory import check_memory
from intervae.data.pixel_arrays import as_size, resize_images
from intervae.data.readers.archives import check_end, open_bytes, read_exactly, read_numbers
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Variable

SOURCE = FileSource("MNIST", "mnist", "yann.lecun.com/exdb/mnist or one of its many mirrors")
SIDE = 28  # pixels
DIGIT = Variable("digit", "categorical", categories=tuple("0123456789"))
AXES_OF_MAGIC = {0x0803: 3, 0x0801: 1}  # magic number of unsigned bytes -> number of axes


def mnist(
    *,
    size: int | Sequence[int] = SIDE,
    samples: int | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Read MNIST with its published test split.

    Arguments:
        size: resize to this many pixels, square or (height, width).
        samples: number of images, drawn at random; default all 70,000.
        validation, seed: fraction of the training images for validation, drawn at random.
    """
    target = as_size(size) or (SIDE, SIDE)
    train_images, train_digits = read_part("train")
    test_images, test_digits = read_part("t10k")
    images = np.concatenate([train_images, test_images])
    digits = np.concatenate([train_digits, test_digits])
    is_test = np.arange(len(images)) >= len(train_images)
    rows = choose_rows(len(images), samples, seed)
    return build_dataset(
        "mnist",
        resize_images(images[rows][:, None], target),
        digits[rows][:, None],
        [DIGIT],
        validation=validation,
        test=is_test[rows],
        seed=seed,
    )


def read_part(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 28, 28) and digits (N,) of the part `train` or `t10k`."""
    images_path = _find(f"{part}-images-idx3-ubyte")
    digits_path = _find(f"{part}-labels-idx1-ubyte")
    images, digits = read_idx(images_path, 3), read_idx(digits_path, 1)
    if images.shape[1:] != (SIDE, SIDE):
        SOURCE.raise_broken(
            images_path,
            f"has images of {images.shape[2]} x {images.shape[1]} pixels "
            f"where {SIDE} x {SIDE} are expected",
        )
    if len(images) != len(digits):
        SOURCE.raise_broken(
            digits_path,
            f"has {len(digits)} labels for the {len(images)} images of {images_path.name}",
        )
    if len(digits) and digits.max() > 9:
        SOURCE.raise_broken(digits_path, f"has a label {digits.max()}, which is no digit")
    return images, digits


def _find(name: str) -> Path:
    dotted = name.replace("-idx", ".idx")  # as some mirrors spell it
    return SOURCE.require(f"{name}.gz", name, f"{dotted}.gz", dotted)


def read_idx(path: Path, axes: int) -> np.ndarray:
    """Read an idx file of unsigned bytes: magic number, length of each axis, values.

    All numbers are big-endian.
    """
    with open_bytes(SOURCE, path) as stream:
        (magic,) = read_numbers(SOURCE, path, stream, 1, ">I")
        if AXES_OF_MAGIC.get(magic) != axes:
            SOURCE.raise_broken(
                path,
                f"is no idx file of bytes with {axes} axes (its magic number is 0x{magic:08X})",
            )
        shape = read_numbers(SOURCE, path, stream, axes, ">I")
        count = math.prod(shape)
        check_memory(count, path.name, "its header is wrong")
        values = np.frombuffer(read_exactly(SOURCE, path, stream, count), np.uint8).reshape(shape)
        check_end(SOURCE, path, stream)
    return values
