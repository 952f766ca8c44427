"""Similarity of images: mean absolute error, PSNR and SSIM (Wang et al. 2004), per image."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from intervae.errors import DataError, UsageError

SMALLEST_ERROR = 1e-10  # floor of the mean squared error, so that PSNR is at most 100 dB
LUMINANCE, CONTRAST = 0.01**2, 0.03**2  # C1 and C2 of SSIM for values in [0, 1]
IMAGES_AT_ONCE = 64  # images in memory for SSIM
TOLERANCE = 1e-5  # distance by which a float image may leave [0, 1]


def as_float_images(images: Any, name: str = "images") -> np.ndarray:
    """Return images (N, C, H, W), uint8 or floats in [0, 1], as float32 in [0, 1]."""
    array = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    if array.ndim != 4 or not len(array):
        raise DataError(
            f"{name} must be (N, C, H, W) with one image at least, not of shape {array.shape}."
        )
    if array.dtype == np.uint8:
        return array.astype(np.float32) / 255
    array = array.astype(np.float32)
    if not (
        np.isfinite(array).all() and array.min() >= -TOLERANCE and array.max() <= 1 + TOLERANCE
    ):
        raise DataError(
            f"{name} must be uint8, or finite floats in [0, 1]; divide by 255, or clip."
        )
    return array.clip(0, 1)


def pixel_mae(images: Any, truth: Any) -> np.ndarray:
    """Return (N,) means over channels and pixels of |image - truth|, values in [0, 1]."""
    x, y = _check_pair(images, truth)
    return np.abs(x - y).mean((1, 2, 3), dtype=np.float64)


def psnr(images: Any, truth: Any) -> np.ndarray:
    """Return (N,) peak signal-to-noise ratios in dB, at most 100.

    10 log10(1 / mean squared error), values in [0, 1].
    """
    x, y = _check_pair(images, truth)
    error = np.square(x - y, dtype=np.float64).mean((1, 2, 3))
    return -10 * np.log10(np.maximum(error, SMALLEST_ERROR))


def ssim(images: Any, truth: Any, *, window: int = 11, sigma: float = 1.5) -> np.ndarray:
    """Return (N,) structural similarities, at most 1.

    In every window, with Gaussian weights of width `sigma`, means m, variances v and covariance c:
    (2 m1 m2 + C1)(2 c + C2) / ((m1^2 + m2^2 + C1)(v1 + v2 + C2)), C1 = 0.01^2, C2 = 0.03^2; the
    mean over all windows inside the image and over channels. An image smaller than the window gets
    the largest odd window that fits.
    """
    x, y = _check_pair(images, truth)
    if window < 1 or window % 2 == 0 or not sigma > 0:
        raise UsageError(
            f"ssim takes an odd window and a positive sigma, not window={window}, sigma={sigma}; "
            "11 and 1.5 are usual."
        )
    smaller = min(x.shape[2:])
    window = min(window, smaller - 1 + smaller % 2)
    weights = np.exp(-np.square(np.arange(window) - window // 2) / (2 * sigma**2))
    rows, columns = (_sliding_weights(weights / weights.sum(), side) for side in x.shape[2:])
    return np.concatenate(
        [
            _ssim(x[i : i + IMAGES_AT_ONCE], y[i : i + IMAGES_AT_ONCE], rows, columns)
            for i in range(0, len(x), IMAGES_AT_ONCE)
        ]
    )


def _sliding_weights(weights: np.ndarray, side: int) -> np.ndarray:
    """Return a matrix (windows, side) whose product with an image gives weighted local means."""
    windows = side - len(weights) + 1
    matrix = np.zeros((windows, side))
    for i in range(windows):
        matrix[i, i : i + len(weights)] = weights
    return matrix


def _ssim(
    images: np.ndarray, truth: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    # double precision, as the variance of a flat area is a small difference of large numbers
    x, y = images.astype(np.float64), truth.astype(np.float64)

    def local_mean(values: np.ndarray) -> np.ndarray:
        return rows @ values @ columns.T

    x_mean, y_mean = local_mean(x), local_mean(y)
    variance = local_mean(x * x + y * y) - x_mean**2 - y_mean**2
    covariance = local_mean(x * y) - x_mean * y_mean
    luminance = (2 * x_mean * y_mean + LUMINANCE) / (x_mean**2 + y_mean**2 + LUMINANCE)
    return (luminance * (2 * covariance + CONTRAST) / (variance + CONTRAST)).mean((1, 2, 3))


def _check_pair(images: Any, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = as_float_images(images, "images"), as_float_images(truth, "true images")
    if x.shape != y.shape:
        raise DataError(f"images {x.shape} and true images {y.shape} must have the same shape.")
    return x, y
