"""Counterfactual pictures at the size of the original, against a simulator's truth."""

from __future__ import annotations

import numpy as np
import torch

from intervae.data.pixel_arrays import resize_image
from intervae.data.simulators import Pendulum
from intervae.models.own_size import paint_own_size, to_uint8


def as_tensor(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(images.astype(np.float32) / 255)


def test_exact_model_keeps_grain_that_it_cannot_paint() -> None:
    """A model that is right at 32 pixels, pictures of 64 with grain: better than enlarging."""
    simulator, rng = Pendulum(), np.random.default_rng(0)
    noises = simulator.sample_exogenous(20, rng)
    values = simulator.simulate(noises)
    after = simulator.simulate(noises, {"light": 70.0})
    small, small_after = (as_tensor(simulator.render(v, noises, size=32)) for v in (values, after))
    large, truth = (simulator.render(v, noises, size=64).astype(float) for v in (values, after))
    grain = rng.normal(0, 10, large.shape)
    large, truth = ((picture + grain).clip(0, 255) for picture in (large, truth))
    painted = np.stack(
        [
            paint_own_size(own.astype(np.uint8), unchanged, answer)
            for own, unchanged, answer in zip(large, small, small_after, strict=True)
        ]
    )
    enlarged = np.stack([resize_image(to_uint8(answer), (64, 64)) for answer in small_after])
    error, naive, nothing = (
        float(np.abs(pictures - truth).mean()) for pictures in (painted, enlarged, large)
    )
    assert error < 0.4 * naive
    assert error < 0.4 * nothing


def test_without_a_change_the_original_stays_to_the_bit() -> None:
    rng = np.random.default_rng(1)
    original = rng.integers(0, 256, (3, 50, 70), dtype=np.uint8)
    blurred = torch.rand(3, 16, 16)
    np.testing.assert_array_equal(paint_own_size(original, blurred, blurred.clone()), original)


def test_small_changes_are_kept_and_large_ones_painted() -> None:
    original = np.full((1, 40, 40), 100, np.uint8)
    unchanged = torch.full((1, 8, 8), 0.3)
    faint = paint_own_size(original, unchanged, unchanged + 0.04)
    np.testing.assert_allclose(faint, 100 + 0.04 * 255, atol=1)
    strong = paint_own_size(original, unchanged, unchanged + 0.5)
    np.testing.assert_allclose(strong, 0.8 * 255, atol=1)
    same_size = torch.rand(1, 40, 40)
    np.testing.assert_array_equal(
        paint_own_size(original, unchanged, same_size), to_uint8(same_size)
    )
