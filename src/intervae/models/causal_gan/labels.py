"""Labels at the networks of CausalGAN: inputs of the generator, losses of the labelers."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

# a binary label enters the generator as the logit of 0.5 +- (CERTAINTY + noise), where the noise
# is exponential of rate NOISE_RATE, truncated at NOISE_LIMIT
CERTAINTY = 0.2
NOISE_RATE, NOISE_LIMIT = 10.0, 0.25


def label_inputs(labels: Tensor, is_binary: Tensor, position: Tensor | None = None) -> Tensor:
    """Return the generator's label inputs (B, n).

    Continuous labels enter unchanged. Binary labels enter as the logit of a probability, 0.3 or
    0.7 moved away from 0.5 by truncated exponential noise; soft labels lie in between.

    Arguments:
        labels: (B, n), normalised.
        is_binary: (n,).
        position: (B, n), quantiles of the noise; None sets the noise to its mean.
    """
    largest = 1 - math.exp(-NOISE_RATE * NOISE_LIMIT)
    mean = 1 / NOISE_RATE - NOISE_LIMIT * (1 - largest) / largest
    noise = mean if position is None else -torch.log1p(-largest * position) / NOISE_RATE
    logits = torch.logit(0.5 + labels.clamp(-1, 1) * (CERTAINTY + noise))
    return torch.where(is_binary, logits, labels)


def label_loss(outputs: Tensor, labels: Tensor, is_binary: Tensor) -> Tensor:
    """Return a labeler's loss, (B,), from outputs and normalised labels (B, n).

    Cross-entropy for binary labels (outputs are logits), squared error for continuous ones.
    """
    cross_entropy = functional.softplus(-labels * outputs)
    return torch.where(is_binary, cross_entropy, (outputs - labels).square()).sum(1)
