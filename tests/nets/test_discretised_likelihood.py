"""Pixel likelihoods with a learned scale, against sums, integrals and torch.distributions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Laplace

from intervae.errors import UsageError
from intervae.nets.likelihood import (
    LEVELS,
    discretised_log_likelihood,
    draw_standard,
    location_scale_loss,
)

PIXELS = torch.arange(LEVELS) / (LEVELS - 1)
DISCRETISED = ["logistic", "gaussian"]
STANDARD_DEVIATION = {"logistic": math.pi / math.sqrt(3), "gaussian": 1.0, "laplace": math.sqrt(2)}


def density(values: Tensor, family: str) -> Tensor:
    """Return the density of the standard distribution."""
    if family == "logistic":
        return torch.sigmoid(values) * torch.sigmoid(-values)
    return torch.exp(-0.5 * values.square()) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("family", DISCRETISED)
@pytest.mark.parametrize("mean", [-0.3, 0.0, 0.4711, 1.0, 1.7])
@pytest.mark.parametrize("scale", [1 / 2550, 0.003, 0.05, 1.0, 3.0])
def test_probabilities_of_all_levels_sum_to_one(family: Any, mean: float, scale: float) -> None:
    log = discretised_log_likelihood(PIXELS, torch.tensor(mean), torch.tensor(scale), family)
    assert log.exp().sum().item() == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize("family", DISCRETISED)
@pytest.mark.parametrize(("mean", "scale"), [(0.3, 0.004), (0.3, 0.1), (0.62, 0.7)])
def test_probability_of_a_level_is_the_integral_of_the_density(
    family: Any, mean: float, scale: float
) -> None:
    log = discretised_log_likelihood(PIXELS, torch.tensor(mean), torch.tensor(scale), family)
    inside = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000 - 0.5  # midpoints of a bin
    for level in (60, 76, 77, 90):
        points = (level + inside) / (LEVELS - 1)
        mass = density((points - mean) / scale, family).mean() / scale / (LEVELS - 1)
        assert log[level].item() == pytest.approx(math.log(mass), abs=2e-4)
    outside = torch.linspace(-40 * scale, 0.5 / (LEVELS - 1), 400_001, dtype=torch.float64)
    below = torch.trapezoid(density((outside - mean) / scale, family), outside) / scale
    if below > 1e-9:  # the first level has all the mass below it
        assert log[0].exp().item() == pytest.approx(below.item(), rel=1e-3)


@pytest.mark.parametrize("family", DISCRETISED)
def test_single_precision_agrees_with_double_also_in_the_tails(family: Any) -> None:
    mean = torch.tensor([-1.0, 0.0, 0.2, 0.9, 2.0])[:, None, None]
    scale = torch.tensor([1 / 2550, 0.01, 0.3, 2.0])[:, None]
    values, slopes = [], []
    for dtype in (torch.float32, torch.float64):
        m, s = (t.to(dtype).requires_grad_() for t in (mean, scale))
        values.append(discretised_log_likelihood(PIXELS.to(dtype), m, s, family))
        slopes.append(torch.autograd.grad(values[-1].sum(), (m, s)))
    for single, double in zip((values[0], *slopes[0]), (values[1], *slopes[1]), strict=True):
        assert torch.isfinite(single).all()
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", DISCRETISED)
def test_gradient_points_to_the_pixel_however_far_the_mean_is(family: Any) -> None:
    mean = torch.tensor([-50.0, -1.0, 2.0, 50.0], requires_grad=True)
    images, scale = torch.full((4,), 0.5), torch.full((4,), 0.002)
    discretised_log_likelihood(images, mean, scale, family).sum().backward()
    assert mean.grad is not None
    assert torch.isfinite(mean.grad).all()
    assert mean.grad.sign().tolist() == [1, 1, -1, -1]


def test_black_pixels_are_certain_under_a_mean_below_zero() -> None:
    log = discretised_log_likelihood(
        torch.zeros(1), torch.tensor(-0.1), torch.tensor(0.005), "logistic"
    )
    assert log.item() == pytest.approx(0, abs=1e-6)


def test_laplace_loss_is_the_density_of_torch() -> None:
    images, mean, scale = torch.rand(3, 2, 5, 4), torch.randn(3, 2, 5, 4), torch.rand(3, 2, 5, 4)
    expected = -Laplace(mean, scale).log_prob(images).sum((1, 2, 3))
    loss = location_scale_loss(images, mean, scale, "laplace")
    torch.testing.assert_close(loss, expected)


def test_unknown_family_is_refused() -> None:
    wrong: Any = "cauchy"
    with pytest.raises(UsageError, match="cauchy"):
        location_scale_loss(PIXELS[None], PIXELS[None], PIXELS[None] + 1, wrong)


@pytest.mark.parametrize("family", ["logistic", "gaussian", "laplace"])
def test_standard_noise_has_the_moments_of_its_family(family: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = draw_standard(torch.zeros(200_000), family, generator)
    assert torch.isfinite(noise).all()
    assert noise.mean().item() == pytest.approx(0, abs=0.02)
    assert noise.std().item() == pytest.approx(STANDARD_DEVIATION[family], rel=0.01)
