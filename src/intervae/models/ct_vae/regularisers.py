"""Graph regularisation of CT-VAE (Gendron et al. 2023, Eq. 11-15), from the edges' log-odds."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def bernoulli_kl(logits: Tensor, prior: float) -> Tensor:
    """Return KL(Bernoulli(sigmoid(logits)) || Bernoulli(prior)) of each edge (Eq. 11-13)."""
    probability = torch.sigmoid(logits)
    present, absent = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    return probability * (present - math.log(prior)) + (1 - probability) * (
        absent - math.log1p(-prior)
    )


def log_no_parents(logits: Tensor) -> Tensor:
    """Return log prod_j (1 - sigmoid(logits_ij)) of each node: (..., n, n) to (..., n)."""
    return functional.logsigmoid(-logits).sum(-1)


def dependency_loss(logits: Tensor) -> Tensor:
    """Return sum_i -log P(node i has a parent), in place of Eq. 15: (..., n, n) to (...).

    In log space it neither underflows nor loses its gradient.
    """
    empty = log_no_parents(logits).clamp(max=-1e-6)
    return -torch.log(-torch.expm1(empty)).sum(-1)


def squared_no_parents(logits: Tensor) -> Tensor:
    """Return sum_i P(node i has no parent)^2, Eq. 15 as printed: (..., n, n) to (...).

    With many variables it underflows: 4e-19 at probabilities of 1/2 and n = 64 before squaring.
    """
    return (2 * log_no_parents(logits)).exp().sum(-1)
