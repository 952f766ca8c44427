"""Pixel likelihoods: -log p(x | decoder output), summed over everything but the batch axis."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Likelihood = Literal["bernoulli", "gaussian", "laplace"]


def negative_log_likelihood(output: Tensor, images: Tensor, likelihood: Likelihood, scale: float) -> Tensor:
    """(B, ...) decoder output and images in [0, 1] to (B,) nats.

    bernoulli: the output is a logit, and grey values count as probabilities. gaussian, laplace: sigmoid(output) is the mean,
    `scale` the standard deviation or the Laplace width.
    """
    if likelihood == "bernoulli":
        loss = functional.binary_cross_entropy_with_logits(output, images, reduction="none")
    elif likelihood == "gaussian":
        loss = ((torch.sigmoid(output) - images) / scale).square() / 2 + math.log(scale * math.sqrt(2 * math.pi))
    else:
        loss = (torch.sigmoid(output) - images).abs() / scale + math.log(2 * scale)
    return loss.flatten(1).sum(1)


def absolute_error(pictures: Tensor, images: Tensor) -> Tensor:
    """(B,) sum over pixels of |picture - image|: what a person sees as blur, and a Bernoulli likelihood hardly punishes near 0 and 1."""
    return (pictures - images).abs().flatten(1).sum(1)
