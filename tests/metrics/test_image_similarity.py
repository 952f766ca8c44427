"""Image similarities against their formulas, window by window."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from intervae.errors import DataError, UsageError
from intervae.metrics.image_similarity import as_float_images, pixel_mae, psnr, ssim


def pair(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.uniform(size=shape)
    return (truth + rng.normal(0, 0.1, shape)).clip(0, 1), truth


def ssim_by_hand(x: np.ndarray, y: np.ndarray, window: int, sigma: float) -> float:
    """SSIM of one channel (H, W): the definition, one window after another, in double precision."""
    offset = np.arange(window) - window // 2
    weights = np.exp(-(offset[:, None] ** 2 + offset[None, :] ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    values = []
    for i, j in itertools.product(range(x.shape[0] - window + 1), range(x.shape[1] - window + 1)):
        a, b = x[i : i + window, j : j + window], y[i : i + window, j : j + window]
        mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
        var_a, var_b = (weights * (a - mean_a) ** 2).sum(), (weights * (b - mean_b) ** 2).sum()
        cov = (weights * (a - mean_a) * (b - mean_b)).sum()
        values.append(
            (2 * mean_a * mean_b + 1e-4)
            * (2 * cov + 9e-4)
            / ((mean_a**2 + mean_b**2 + 1e-4) * (var_a + var_b + 9e-4))
        )
    return float(np.mean(values))


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 16, 16), (3, 13, 20), (5, 11, 11)])
def test_ssim_equals_the_definition_for_any_size(channels: int, height: int, width: int) -> None:
    ours, truth = pair((3, channels, height, width))
    expected = [
        np.mean([ssim_by_hand(a, b, 11, 1.5) for a, b in zip(x, y, strict=True)])
        for x, y in zip(ours, truth, strict=True)
    ]
    np.testing.assert_allclose(ssim(ours, truth), expected, atol=1e-6)
    np.testing.assert_allclose(ssim(truth, ours), ssim(ours, truth), atol=1e-6)


@pytest.mark.parametrize(("side", "window"), [(8, 7), (7, 7), (1, 1)])
def test_small_images_use_the_largest_odd_window_that_fits(side: int, window: int) -> None:
    ours, truth = pair((1, 1, side, side + 3))
    np.testing.assert_allclose(
        ssim(ours, truth), ssim_by_hand(ours[0, 0], truth[0, 0], window, 1.5), atol=1e-6
    )


def test_ssim_of_equal_flat_and_inverted_images() -> None:
    _, truth = pair((70, 2, 12, 12))  # more images than are held at once
    np.testing.assert_allclose(ssim(truth, truth), 1, atol=1e-6)
    flat = [np.full((1, 1, 12, 12), value) for value in (0.2, 0.6)]
    np.testing.assert_allclose(
        ssim(*flat), (2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4), atol=1e-6
    )
    assert (ssim(1 - truth, truth) < 0).all()


def test_pixel_error_and_psnr_formulas() -> None:
    ours, truth = pair((4, 3, 9, 5))
    np.testing.assert_allclose(
        pixel_mae(ours, truth), np.abs(ours - truth).mean((1, 2, 3)), rtol=1e-5
    )
    np.testing.assert_allclose(
        psnr(ours, truth), 10 * np.log10(1 / ((ours - truth) ** 2).mean((1, 2, 3))), rtol=1e-5
    )
    np.testing.assert_allclose(
        psnr(np.full((1, 1, 4, 4), 0.5), np.full((1, 1, 4, 4), 0.4)), 20.0, atol=1e-4
    )
    assert psnr(truth, truth).tolist() == [100.0] * 4  # finite, so that a table can hold it


def test_uint8_floats_and_tensors_give_equal_results() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (2, 3, 12, 12), dtype=np.uint8)
    other = np.roll(grey, 1, axis=3)
    for measure in (pixel_mae, psnr, ssim):
        as_bytes, as_floats = (
            measure(grey, other),
            measure(grey / 255.0, torch.from_numpy(other).float() / 255),
        )
        np.testing.assert_allclose(as_bytes, as_floats, rtol=1e-5)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.zeros((3, 4, 4)), "N, C, H, W"),
        (np.zeros((0, 1, 4, 4)), "one image at least"),
        (np.full((1, 1, 4, 4), 2.0), "in \\[0, 1\\]"),
        (np.full((1, 1, 4, 4), np.nan), "finite"),
        (np.zeros((2, 1, 4, 4)), "same shape"),
    ],
)
def test_wrong_images_raise(bad: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        pixel_mae(bad, np.zeros((1, 1, 4, 4)))


def test_wrong_windows_raise_and_rounding_is_clipped() -> None:
    ours, truth = pair((1, 1, 12, 12))
    for bad in ({"window": 4}, {"window": 0}, {"sigma": 0.0}):
        with pytest.raises(UsageError, match="odd window"):
            ssim(ours, truth, **bad)  # type: ignore[arg-type]
    assert as_float_images(np.array([1.000001, -0.000001]).reshape(1, 1, 1, 2)).tolist() == [
        [[[1.0, 0.0]]]
    ]
