"""Arrays of pixels: sizes, resizing, and conversion to uint8 (N, C, H, W)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool

import numpy as np
from PIL import Image

from intervae.data.progress import progress
from intervae.errors import DataError, UsageError
from intervae.notes import Note

MAXIMUM_CHANNELS = 16
MAXIMUM_SIDE = 16_384
CHUNK = 1024  # images converted at a time
Size = tuple[int, int]  # height, width
BLACK_AND_WHITE = Note("converted-images", "", "images: only 0 and 1, taken for black and white")


def as_size(size: object) -> Size | None:
    """Return `64` or `(48, 64)` as a checked pair (height, width); None stays None."""
    if size is None:
        return None
    pair = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size, size)
    if len(pair) != 2 or not all(
        isinstance(side, int | np.integer) and not isinstance(side, bool) and side > 0
        for side in pair
    ):
        raise UsageError(
            f"size={size!r} must be a whole number of pixels such as 64, or a pair (height, width)."
        )
    if max(pair) > MAXIMUM_SIDE:
        raise UsageError(f"size={size!r} is more than {MAXIMUM_SIDE} pixels a side; give less.")
    return int(pair[0]), int(pair[1])


def resize_images(images: np.ndarray, size: Size) -> np.ndarray:
    """Resize (N, C, H, W) uint8 with antialiasing."""
    if images.shape[2:] == size:
        return images
    resized = np.empty((*images.shape[:2], *size), np.uint8)

    def resize(index: int) -> None:
        resized[index] = resize_image(images[index], size)

    with ThreadPool(os.cpu_count() or 1) as pool:
        done = pool.imap_unordered(resize, range(len(images)), chunksize=32)
        for _ in progress(done, len(images), "resizing images"):
            pass
    return resized


def resize_image(image: np.ndarray, size: Size) -> np.ndarray:
    """Resize (C, H, W) uint8 with antialiasing, each channel separately."""
    if image.shape[1:] == size:
        return image
    return np.stack(
        [
            np.asarray(Image.fromarray(plane).resize((size[1], size[0]), Image.Resampling.LANCZOS))
            for plane in image
        ]
    )


def array_to_pixels(images: np.ndarray, where: str) -> tuple[np.ndarray, list[Note]]:
    """Convert an array of images to (N, C, H, W) uint8.

    Arguments:
        images: (N, H, W), (N, H, W, C) or (N, C, H, W), uint8 or floats in [0, 1]. Of the second
            and the last axis the shorter is the channels.
        where: how errors name the array.

    Returns:
        images (N, C, H, W) uint8, and notes on conversions.
    """
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise DataError(
            f"{where}: images must be (N, H, W), (N, H, W, C) or (N, C, H, W), "
            f"not of shape {images.shape}."
        )
    if images.ndim == 3:
        images = images[:, None]
    elif min(images.shape[1], images.shape[3]) > MAXIMUM_CHANNELS:
        raise DataError(
            f"{where}: images of shape {images.shape} have no axis of at most {MAXIMUM_CHANNELS} "
            "channels, neither second nor last; transpose them."
        )
    elif images.shape[3] < images.shape[1]:
        images = images.transpose(0, 3, 1, 2)
    if images.dtype == np.uint8:
        return spread_black_and_white(np.ascontiguousarray(images))
    pixels = np.empty(images.shape, np.uint8)
    for start in range(0, len(images), CHUNK):
        pixels[start : start + CHUNK] = to_bytes(images[start : start + CHUNK], f"{where}: images")
    text = f"images: {images.dtype} in [0, 1], rounded to 256 levels"
    return pixels, [Note("converted-images", "", text)]


def to_bytes(values: np.ndarray, where: str) -> np.ndarray:
    """Return uint8 unchanged, floats in [0, 1] and booleans scaled to 0..255."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind not in "fb":
        raise DataError(
            f"{where} are {values.dtype}; store them as uint8 from 0 to 255, "
            "or as floats in [0, 1]."
        )
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):  # also catches NaN
        raise DataError(
            f"{where} are {values.dtype} from {low:g} to {high:g}; floats must lie in [0, 1], "
            "without normalisation, or else store uint8."
        )
    return np.rint(values * np.float32(255)).astype(np.uint8)


def spread_black_and_white(images: np.ndarray) -> tuple[np.ndarray, list[Note]]:
    """Scale uint8 images of nothing but 0 and 1, as some data sets store masks, to 0 and 255."""
    if images.max() > 1:
        return images, []
    return images * np.uint8(255), [BLACK_AND_WHITE]
