"""How close two pictures are: mean absolute error, PSNR, and SSIM (Wang et al. 2004), each per image, for any size and channel count."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from intervae.errors import DataError, UsageError

SMALLEST_ERROR = 1e-10  # mean squared error below which two pictures count as equal: PSNR ends at 100 dB, not at infinity
LUMINANCE, CONTRAST = 0.01**2, 0.03**2  # C1 and C2 of SSIM for values in [0, 1]
AT_ONCE = 64  # images whose local means are held at one time
TOLERANCE = 1e-5  # by which a picture may leave [0, 1] through rounding


def as_pictures(images: Any, what: str = "images") -> np.ndarray:
    """uint8, or floats in [0, 1], of shape (N, C, H, W), as float32 in [0, 1]; anything else is refused by name."""
    array = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    if array.ndim != 4 or not len(array):
        raise DataError(f"{what} must be (N, C, H, W) with one image at least, not of shape {array.shape}.")
    if array.dtype == np.uint8:
        return array.astype(np.float32) / 255
    array = array.astype(np.float32)
    if not (np.isfinite(array).all() and array.min() >= -TOLERANCE and array.max() <= 1 + TOLERANCE):
        raise DataError(f"{what} must be uint8, or finite floats in [0, 1]; divide by 255, or clip.")
    return array.clip(0, 1)


def pixel_mae(pictures: Any, truth: Any) -> np.ndarray:
    """(N,): mean over channels and pixels of |picture - truth|, values in [0, 1]."""
    ours, theirs = _pair(pictures, truth)
    return np.abs(ours - theirs).mean((1, 2, 3), dtype=np.float64)


def psnr(pictures: Any, truth: Any) -> np.ndarray:
    """(N,) peak signal-to-noise ratio in dB: 10 log10(1 / mean squared error), values in [0, 1]; 100 for equal pictures."""
    ours, theirs = _pair(pictures, truth)
    error = np.square(ours - theirs, dtype=np.float64).mean((1, 2, 3))
    return -10 * np.log10(np.maximum(error, SMALLEST_ERROR))


def ssim(pictures: Any, truth: Any, *, window: int = 11, sigma: float = 1.5) -> np.ndarray:
    """(N,) structural similarity, at most 1.

    In every window, with gaussian weights of width `sigma`, means m, variances v and the covariance c of the two pictures:
    (2 m1 m2 + C1)(2 c + C2) / ((m1^2 + m2^2 + C1)(v1 + v2 + C2)), C1 = 0.01^2, C2 = 0.03^2; the mean over all windows that fit
    in the image and over the channels. A picture smaller than the window is compared in the largest odd window that fits.
    """
    ours, theirs = _pair(pictures, truth)
    if window < 1 or window % 2 == 0 or not sigma > 0:
        raise UsageError(f"ssim takes an odd window and a positive sigma, not window={window}, sigma={sigma}; 11 and 1.5 are usual.")
    smaller = min(ours.shape[2:])
    window = min(window, smaller - 1 + smaller % 2)
    weights = np.exp(-np.square(np.arange(window) - window // 2) / (2 * sigma**2))
    rows, columns = (_sliding(weights / weights.sum(), side) for side in ours.shape[2:])
    parts = range(0, len(ours), AT_ONCE)
    return np.concatenate([_ssim(ours[i : i + AT_ONCE], theirs[i : i + AT_ONCE], rows, columns) for i in parts])


def _sliding(weights: np.ndarray, side: int) -> np.ndarray:
    """(windows that fit, side): each row holds the weights where its window lies, so that a product with it is a weighted local mean."""
    windows = side - len(weights) + 1
    matrix = np.zeros((windows, side))
    for i in range(windows):
        matrix[i, i : i + len(weights)] = weights
    return matrix


def _ssim(ours: np.ndarray, theirs: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    x, y = ours.astype(np.float64), theirs.astype(np.float64)  # a flat area's variance is the small difference of two large numbers

    def local_mean(values: np.ndarray) -> np.ndarray:
        return rows @ values @ columns.T

    x_mean, y_mean = local_mean(x), local_mean(y)
    variance = local_mean(x * x + y * y) - x_mean**2 - y_mean**2
    covariance = local_mean(x * y) - x_mean * y_mean
    closeness = (2 * x_mean * y_mean + LUMINANCE) / (x_mean**2 + y_mean**2 + LUMINANCE)
    return (closeness * (2 * covariance + CONTRAST) / (variance + CONTRAST)).mean((1, 2, 3))


def _pair(pictures: Any, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    ours, theirs = as_pictures(pictures, "pictures"), as_pictures(truth, "true pictures")
    if ours.shape != theirs.shape:
        raise DataError(f"pictures {ours.shape} and true pictures {theirs.shape} must have the same shape.")
    return ours, theirs
