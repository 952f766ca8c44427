"""Rational-quadratic splines: inverse, log-derivative, tails, and vmap."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from intervae.causal.splines import (
    SplineKnots,
    apply_spline,
    invert_spline,
    parameter_count,
    spline_knots,
)
from normal_draws import draw

BOUND, BINS, ROWS = 4.0, 8, 4000


def knots(scale: float, dtype: torch.dtype = torch.float64, rows: int = ROWS) -> SplineKnots:
    return spline_knots(scale * draw(rows, parameter_count(BINS), seed=1, dtype=dtype), BOUND)


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers inside and outside of the interval."""
    return 2.5 * draw(ROWS, seed=2, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [(torch.float32, 0.5, 1e-5), (torch.float64, 0.5, 1e-12), (torch.float64, 4.0, 1e-10)],
)
def test_inverse_gives_back_the_inputs(dtype, scale, tolerance):
    splines, at = knots(scale, dtype), inputs(dtype)
    values, log_slope = apply_spline(at, splines)
    back, log_inverse_slope = invert_spline(values, splines)
    torch.testing.assert_close(back, at, rtol=0, atol=tolerance)
    torch.testing.assert_close(log_inverse_slope, -log_slope, rtol=0, atol=20 * tolerance)
    preimages, _ = invert_spline(at, splines)
    torch.testing.assert_close(apply_spline(preimages, splines)[0], at, rtol=0, atol=tolerance)


def test_extreme_parameters_stay_invertible_in_single_precision():
    """Slopes are 2e-4 to 200 here, so that an input is known to rounding / 2e-4."""
    splines, at = knots(4.0, torch.float32), inputs(torch.float32)
    values, log_slope = apply_spline(at, splines)
    back, _ = invert_spline(values, splines)
    assert (back - at).abs().max() < 2e-3
    torch.testing.assert_close(apply_spline(back, splines)[0], values, rtol=0, atol=1e-5)
    assert log_slope.min() > -9


def test_log_derivative_equals_autograd_and_finite_differences():
    splines, at = knots(1.0), inputs().requires_grad_()
    values, log_slope = apply_spline(at, splines)
    (slope,) = torch.autograd.grad(values.sum(), at)
    torch.testing.assert_close(log_slope, slope.log(), rtol=1e-9, atol=1e-9)
    step = 1e-6
    with torch.no_grad():
        ahead, behind = apply_spline(at + step, splines)[0], apply_spline(at - step, splines)[0]
    # the second derivative jumps at knots, so a few differences there are off
    error = ((ahead - behind) / (2 * step) - slope).abs() / slope
    assert error.quantile(0.99) < 1e-5


def test_spline_is_quadratic_over_quadratic_between_its_knots():
    """Eq. 4 of the paper at the middle of one bin, by hand."""
    splines = SplineKnots(*(torch.tensor([row]) for row in ([-1, 1.0], [-1, 1.0], [2.0, 0.5])))
    at = torch.tensor([0.0])  # fraction 1/2, chord slope 1
    rise = (1 * 0.25 + 2.0 * 0.25) / (1 + (0.5 + 2.0 - 2) * 0.25)
    assert apply_spline(at, splines)[0].item() == pytest.approx(-1 + 2 * rise, abs=1e-6)


def test_values_and_slopes_at_the_knots_are_those_of_the_knots():
    splines = knots(1.0, rows=5)
    for k in range(1, BINS):
        values, log_slope = apply_spline(splines.positions[:, k], splines)
        torch.testing.assert_close(values, splines.values[:, k])
        torch.testing.assert_close(log_slope.exp(), splines.slopes[:, k])


def test_tails_are_the_identity_and_join_smoothly():
    splines = knots(1.0)
    outside = torch.where(inputs() > 0, BOUND, -BOUND) * (1 + draw(ROWS, seed=3).abs())
    values, log_slope = apply_spline(outside, splines)
    assert torch.equal(values, outside)
    assert not log_slope.any()
    near = torch.full((ROWS,), BOUND - 1e-9, dtype=torch.float64)
    values, log_slope = apply_spline(near, splines)
    torch.testing.assert_close(values, near, rtol=0, atol=1e-7)
    assert log_slope.abs().max() < 1e-5


def test_zero_parameters_are_the_identity():
    identity = spline_knots(torch.zeros(parameter_count(BINS)), BOUND)
    at = inputs(torch.float32)
    values, log_slope = apply_spline(at, identity)
    torch.testing.assert_close(values, at, rtol=0, atol=1e-6)
    torch.testing.assert_close(log_slope, torch.zeros(ROWS), rtol=0, atol=1e-6)


def test_spline_increases():
    at = torch.linspace(-6, 6, 2001, dtype=torch.float64).expand(50, -1)
    splines = SplineKnots(*(each[:, None] for each in knots(3.0, rows=50)))
    values, _ = apply_spline(at, splines)
    assert (values.diff(dim=1) > 0).all()


def test_gradients_are_finite_in_the_tails_and_at_the_knots():
    parameters = draw(3, parameter_count(BINS)).requires_grad_()
    splines = spline_knots(parameters, BOUND)
    at = torch.tensor([-1e4, BOUND, 1e4], dtype=torch.float64)
    at = torch.stack([at, splines.positions[:, 3].detach()]).requires_grad_()
    forward, inverse = apply_spline(at, splines), invert_spline(at, splines)
    total = sum(each.sum() for each in (*forward, *inverse))
    assert all(g.isfinite().all() for g in torch.autograd.grad(total, [parameters, at]))


def test_vmap_equals_a_loop():
    parameters, at = draw(5, 7, parameter_count(BINS)), 2 * draw(5, 7, seed=2)

    def both_ways(row: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        splines = spline_knots(row, BOUND)
        return *apply_spline(values, splines), *invert_spline(values, splines)

    mapped = vmap(both_ways)(parameters, at)
    looped = [both_ways(row, values) for row, values in zip(parameters, at, strict=True)]
    for got, wanted in zip(mapped, zip(*looped, strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(wanted))
