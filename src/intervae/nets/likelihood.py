"""Pixel likelihoods: -log p(x | decoder output), summed over everything but the batch axis."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Likelihood = Literal["bernoulli", "gaussian", "laplace"]


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
