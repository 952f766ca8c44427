"""Pixel likelihoods: -log p(x | decoder output), summed over everything but the batch axis.

Bernoulli, Gaussian and Laplace of a fixed scale; logistic, Gaussian and Laplace of a learned scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from intervae.errors import unknown

Likelihood = Literal["bernoulli", "gaussian", "laplace"]
PixelFamily = Literal["logistic", "gaussian", "laplace"]
LEVELS = 256  # of a pixel; level k is the value k / 255
SMALLEST_LOG_RATIO = 1e-7  # of two values of a CDF; keeps the logarithm of their difference finite


def negative_log_likelihood(
    output: Tensor, images: Tensor, likelihood: Likelihood, scale: float
) -> Tensor:
    """Return -log p(x) in nats, (B,).

    Arguments:
        output: (B, ...) decoder output. bernoulli: logits; grey values count as probabilities.
            gaussian, laplace: sigmoid(output) is the mean.
        images: (B, ...) in [0, 1].
        scale: standard deviation (gaussian) or scale parameter (laplace).
    """
    if likelihood == "bernoulli":
        loss = functional.binary_cross_entropy_with_logits(output, images, reduction="none")
    elif likelihood == "gaussian":
        log_normaliser = math.log(scale * math.sqrt(2 * math.pi))
        loss = ((torch.sigmoid(output) - images) / scale).square() / 2 + log_normaliser
    else:
        loss = (torch.sigmoid(output) - images).abs() / scale + math.log(2 * scale)
    return loss.flatten(1).sum(1)


def absolute_error(outputs: Tensor, images: Tensor) -> Tensor:
    """Return the sum over pixels of |output - image|, (B,).

    It penalises blur that a Bernoulli likelihood hardly penalises near 0 and 1.
    """
    return (outputs - images).abs().flatten(1).sum(1)


# ---- learned location and scale ------------------------------------------------------------------
def location_scale_loss(images: Tensor, mean: Tensor, scale: Tensor, family: PixelFamily) -> Tensor:
    """Return -log p(x) in nats, (B,), of pixels with their own mean and scale.

    Arguments:
        images, mean, scale: (B, ...); images in [0, 1], the mean anywhere.
        family: "logistic", "gaussian": probabilities of the 256 levels. "laplace": a density.
    """
    if family == "laplace":
        loss = (images - mean).abs() / scale + torch.log(2 * scale)
    else:
        loss = -discretised_log_likelihood(images, mean, scale, family)
    return loss.flatten(1).sum(1)


def discretised_log_likelihood(
    images: Tensor, mean: Tensor, scale: Tensor, family: PixelFamily
) -> Tensor:
    """Return the log-probability of each pixel's level, in the shape of `images`.

    Level k has the mass of ((k - 1/2) / 255, (k + 1/2) / 255); the first and the last level also
    have the mass below and above (Salimans et al. 2017). log(F(b) - F(a)) is computed from log F
    on the side of the smaller tail, so neither it nor its gradient overflows in single precision.

    Arguments:
        images: levels / 255; a value between two levels counts as the centre of its own interval.
        family: "logistic" or "gaussian".
    """
    log_cdf = _log_cdf(family)
    half = 0.5 / (LEVELS - 1) / scale
    distance = (images - mean) / scale
    lowest, highest = images < 0.5 / (LEVELS - 1), images > 1 - 0.5 / (LEVELS - 1)
    tail = -distance.abs()  # both families are symmetric
    log_upper = log_cdf(torch.where(lowest, distance, torch.where(highest, -distance, tail)) + half)
    log_ratio = (log_upper - log_cdf(tail - half)).clamp(min=SMALLEST_LOG_RATIO)
    below = torch.log(-torch.expm1(-log_ratio))  # log(1 - F(a) / F(b))
    return log_upper + below.masked_fill(lowest | highest, 0.0)


def _log_cdf(family: PixelFamily) -> Callable[[Tensor], Tensor]:
    if family == "logistic":
        return functional.logsigmoid
    if family == "gaussian":
        return _log_normal_cdf
    raise unknown("discretised likelihood", family, ("logistic", "gaussian"))


def _log_normal_cdf(values: Tensor) -> Tensor:
    """log Phi; the gradient of `torch.special.log_ndtr` is 5 % off at -1000 in single precision."""
    lower, upper = values.clamp(max=0) / math.sqrt(2), values.clamp(min=0) / math.sqrt(2)
    return torch.where(
        values < 0,
        torch.log(torch.special.erfcx(-lower)) - math.log(2) - lower.square(),
        torch.log1p(-0.5 * torch.erfc(upper)),
    )


def draw_standard(
    like: Tensor, family: PixelFamily, generator: torch.Generator | None = None
) -> Tensor:
    """Draw noise of location 0 and scale 1, in the shape and on the device of `like`.

    Noise is drawn on the generator's device, so that a CPU generator gives the same on a GPU.
    """
    options: dict[str, Any] = {"dtype": like.dtype, "generator": generator}
    options["device"] = like.device if generator is None else generator.device
    if family == "gaussian":
        return torch.randn(like.shape, **options).to(like.device)
    uniform = torch.rand(like.shape, **options).to(like.device)
    tiny = torch.finfo(like.dtype).eps
    uniform = uniform.clamp(tiny, 1 - tiny)
    if family == "logistic":
        return torch.logit(uniform)
    return -torch.sign(uniform - 0.5) * torch.log1p(-2 * (uniform - 0.5).abs())
