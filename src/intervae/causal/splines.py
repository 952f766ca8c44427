"""Monotone rational-quadratic splines with linear tails (Durkan et al. 2019, Eqs. 4-8).

K bins on [-bound, bound]; in each the spline is a quotient of two quadratics with the values and
slopes of its knots. Outside it is the identity, with slope 1 at both ends. Parameters of zero are
the identity everywhere. No function synchronises with the host or branches on numbers, so that a
CUDA graph captures them and vmap maps them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

SMALLEST_BIN = 1e-2  # width and height of a bin, as a fraction of the interval
LARGEST_RATIO = 5.0  # of the slope at a knot and the harmonic mean of its bins' slopes, or inverse


class SplineKnots(NamedTuple):
    """Knots of splines, (..., K + 1) each: positions, values at them, slopes at them."""

    positions: Tensor
    values: Tensor
    slopes: Tensor


def parameter_count(bins: int) -> int:
    """Return the number of parameters of a spline: widths, heights and inner slopes."""
    return 3 * bins - 1


def spline_knots(parameters: Tensor, bound: float) -> SplineKnots:
    """Return the knots of unconstrained parameters (..., 3K - 1).

    The slope at an inner knot is a bounded multiple of the harmonic mean of the slopes of the
    chords of its two bins. Slopes that are free of the chords, as in the paper, can be 1e-6 within
    a bin, where single precision cannot invert the spline.
    """
    bins = (parameters.shape[-1] + 1) // 3
    widths, heights, ratios = parameters.split([bins, bins, bins - 1], dim=-1)
    positions, values = _cumulative(widths, bound), _cumulative(heights, bound)
    inverse_chords = positions.diff(dim=-1) / values.diff(dim=-1)  # (..., K)
    harmonic_mean = 2 / (inverse_chords[..., 1:] + inverse_chords[..., :-1])
    limit = math.log(LARGEST_RATIO)
    slopes = harmonic_mean * torch.exp(limit * torch.tanh(ratios / limit))
    return SplineKnots(positions, values, functional.pad(slopes, (1, 1), "constant", 1.0))


def apply_spline(inputs: Tensor, knots: SplineKnots) -> tuple[Tensor, Tensor]:
    """Return the splines at `inputs` (...), and their log-derivatives, (...) each."""
    left, right, inside = _bin(inputs, knots, knots.positions)
    width, height = right.positions - left.positions, right.values - left.values
    fraction = (_clamped(inputs, knots) - left.positions) / width
    rise, log_slope = _within_bin(fraction, height / width, left.slopes, right.slopes)
    outputs = left.values + height * rise
    return torch.where(inside, outputs, inputs), torch.where(inside, log_slope, 0.0)


def invert_spline(outputs: Tensor, knots: SplineKnots) -> tuple[Tensor, Tensor]:
    """Return the inverses of the splines at `outputs` (...), and their log-derivatives.

    Of the two forms of the root of the quadratic equation, the one without cancellation is used.
    """
    left, right, inside = _bin(outputs, knots, knots.values)
    width, height = right.positions - left.positions, right.values - left.values
    slope = height / width
    rise = (_clamped(outputs, knots) - left.values) / height
    bend = rise * (left.slopes + right.slopes - 2 * slope)
    a, b = slope - left.slopes + bend, left.slopes - bend  # a x^2 + b x = slope * rise
    root = (b.square() + 4 * a * slope * rise).clamp(min=0).sqrt()
    positive = b >= 0  # where it is not, a > slope > 0
    fraction = torch.where(
        positive,
        2 * slope * rise / torch.where(positive, b + root, 1.0),
        (root - b) / torch.where(positive, 1.0, 2 * a),
    )
    _, log_slope = _within_bin(fraction, slope, left.slopes, right.slopes)
    inputs = left.positions + width * fraction
    return torch.where(inside, inputs, outputs), torch.where(inside, -log_slope, 0.0)


def _within_bin(
    fraction: Tensor, slope: Tensor, first: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the rise (0 to 1) at a fraction of a bin, and the log-derivative of the spline there.

    `slope` is that of the chord of the bin, `first` and `last` those at its knots.
    """
    rest = 1 - fraction
    both = fraction * rest
    denominator = slope + (first + last - 2 * slope) * both
    rise = fraction * (slope * fraction + first * rest) / denominator
    numerator = last * fraction.square() + 2 * slope * both + first * rest.square()
    return rise, 2 * (slope / denominator).log() + numerator.log()


def _cumulative(parameters: Tensor, bound: float) -> Tensor:
    """Return increasing knots (..., K + 1) from -bound to bound for parameters (..., K)."""
    bins = parameters.shape[-1]
    sizes = SMALLEST_BIN + (1 - SMALLEST_BIN * bins) * parameters.softmax(-1)
    inner = sizes.cumsum(-1)[..., :-1] * (2 * bound) - bound
    # both ends exactly, which a sum of rounded sizes would miss
    return functional.pad(
        functional.pad(inner, (1, 0), "constant", -bound), (0, 1), "constant", bound
    )


def _bin(at: Tensor, knots: SplineKnots, axis: Tensor) -> tuple[SplineKnots, SplineKnots, Tensor]:
    """Return the knots left and right of each `at` (...) on an axis, and whether it is inside."""
    index = (at[..., None] >= axis[..., 1:-1]).sum(-1, keepdim=True)  # (..., 1)
    left, right = (
        SplineKnots(*(k.expand(*at.shape, -1).gather(-1, i).squeeze(-1) for k in knots))
        for i in (index, index + 1)
    )
    return left, right, (at > axis[..., 0]) & (at < axis[..., -1])


def _clamped(at: Tensor, knots: SplineKnots) -> Tensor:
    """Return `at` within the knots, so that the unused result of a tail has finite gradients."""
    return at.clamp(knots.positions[..., 0], knots.positions[..., -1])
