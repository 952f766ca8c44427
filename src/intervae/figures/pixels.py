"""Arrays of images as people have them, checked and made into RGB pixels of a size that can be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from intervae.errors import DataError
from intervae.figures.style import DIVERGING, SCALE

LIMIT = 1e-4  # how far a float image may leave [0, 1] by rounding


def as_array(values: Any) -> np.ndarray:
    """An array or a tensor of any device and type as numpy."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    return np.asarray(values)


def as_images(images: Any, what: str) -> np.ndarray:
    """(N, C, H, W) or one (C, H, W), uint8 or floats in [0, 1], to (N, C, H, W) floats in [0, 1]."""
    array = as_array(images)
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or 0 in array.shape:
        raise DataError(f"{what} must be (images, channels, height, width), none of them zero, not shape {array.shape}.")
    if array.dtype == np.uint8:
        return array.astype(np.float32) / 255
    if array.dtype != np.bool_ and not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{what} must be uint8 or floats in [0, 1], not {array.dtype}.")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise DataError(f"{what} must be finite, but hold NaN or infinite pixels.")
    if array.min() < -LIMIT or array.max() > 1 + LIMIT:
        raise DataError(f"{what} must lie in [0, 1], but reach from {array.min():.3g} to {array.max():.3g}; divide by 255, or pass uint8.")
    return array.clip(0, 1)


def like(images: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """`as_images`, refused unless of this shape (N, C, H, W)."""
    array = as_images(images, what)
    if array.shape != shape:
        raise DataError(f"{what} must have shape {shape}, as the originals do, not {array.shape}.")
    return array


def as_rgb(images: np.ndarray) -> np.ndarray:
    """(N, C, H, W) floats in [0, 1] to (N, H, W, 3) uint8: of many channels the first three are shown, of two the first."""
    shown = images[:, :3] if images.shape[1] >= 3 else images[:, :1].repeat(3, axis=1)
    return np.rint(shown * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def signed_change(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Pictures (N, C, H, W) less one (1, C, H, W), as (N, H, W, 3) uint8: blue where darker, red where brighter, white where equal."""
    change = (after - before).mean(1)  # (N, H, W)
    largest = max(float(np.abs(change).max()), 1e-6)
    return np.rint(DIVERGING(0.5 + 0.5 * change / largest)[..., :3] * 255).astype(np.uint8)


def cell_size(shape: tuple[int, ...], target: int) -> tuple[float, float]:
    """Canvas (width, height) of a cell near `target` pixels of the file: a whole multiple of a small image's pixels, or a large one shrunk."""
    height, width = shape[-2:]
    longest = max(height, width)
    factor = max(1, round(target / longest)) if longest <= 1.5 * target else target / longest
    return max(1, round(width * factor)) / SCALE, max(1, round(height * factor)) / SCALE


def shrink(pixels: np.ndarray, width: float, height: float) -> np.ndarray:
    """(h, w, 3) uint8 averaged down to a cell of canvas (width, height); small images stay as they are."""
    size = (round(width * SCALE), round(height * SCALE))
    return pixels if pixels.shape[1] <= size[0] else np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
