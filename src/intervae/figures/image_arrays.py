"""Checked arrays of images, and their conversion to RGB pixels of a visible size."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from intervae.errors import DataError
from intervae.figures.canvas import SCALE
from intervae.figures.style import DIVERGING

TOLERANCE = 1e-4  # distance by which a float image may leave [0, 1]


def as_array(values: Any) -> np.ndarray:
    """Return an array or a tensor of any device and type as numpy."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    return np.asarray(values)


def as_images(images: Any, name: str) -> np.ndarray:
    """Return (N, C, H, W) or one (C, H, W), uint8 or in [0, 1], as (N, C, H, W) in [0, 1]."""
    array = as_array(images)
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or 0 in array.shape:
        raise DataError(
            f"{name} must be (images, channels, height, width), none of them zero, "
            f"not shape {array.shape}."
        )
    if array.dtype == np.uint8:
        return array.astype(np.float32) / 255
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{name} must be uint8 or floats in [0, 1], not {array.dtype}.")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise DataError(f"{name} must be finite, but hold NaN or infinite pixels.")
    if array.min() < -TOLERANCE or array.max() > 1 + TOLERANCE:
        raise DataError(
            f"{name} must lie in [0, 1], but reach from {array.min():.3g} to {array.max():.3g}; "
            "divide by 255, or pass uint8."
        )
    return array.clip(0, 1)


def check_shape(images: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return `as_images` of images of this shape (N, C, H, W); raise for another shape."""
    array = as_images(images, name)
    if array.shape != shape:
        raise DataError(f"{name} must have shape {shape}, as the originals do, not {array.shape}.")
    return array


def as_rgb(images: np.ndarray) -> np.ndarray:
    """Return (N, C, H, W) in [0, 1] as (N, H, W, 3) uint8: three channels, or the first."""
    shown = images[:, :3] if images.shape[1] >= 3 else images[:, :1].repeat(3, axis=1)
    return np.rint(shown * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def signed_change(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return after (N, C, H, W) - before (1, C, H, W) as (N, H, W, 3) uint8.

    Blue is darker, red brighter, white equal.
    """
    change = (after - before).mean(1)  # (N, H, W)
    largest = max(float(np.abs(change).max()), 1e-6)
    return np.rint(DIVERGING(0.5 + 0.5 * change / largest)[..., :3] * 255).astype(np.uint8)


def cell_size(shape: tuple[int, ...], target: int) -> tuple[float, float]:
    """Return the canvas (width, height) of a cell of about `target` pixels of the file.

    Small images are enlarged by an integer factor, large ones shrunk.
    """
    height, width = shape[-2:]
    longest = max(height, width)
    factor = max(1, round(target / longest)) if longest <= 1.5 * target else target / longest
    return max(1, round(width * factor)) / SCALE, max(1, round(height * factor)) / SCALE


def shrink(pixels: np.ndarray, width: float, height: float) -> np.ndarray:
    """Average (h, w, 3) uint8 down to a cell of canvas (width, height), unless it is smaller."""
    size = (round(width * SCALE), round(height * SCALE))
    if pixels.shape[1] <= size[0]:
        return pixels
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
