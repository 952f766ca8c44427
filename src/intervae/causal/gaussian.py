"""Gaussian divergences of CausalVAE's ELBO (Eq. 10), among them the exact one of a posterior pushed through the causal layer, and sampling.

Shapes: a batch comes first, (B, ...); every divergence is summed over the rest and comes back as (B,).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from intervae.causal.linear import inverse_and_log_det, structural_matrix


def reparametrise(mean: Tensor, log_variance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A draw from N(mean, exp(log_variance)) through which gradients flow, in the shape of `mean`."""
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + torch.exp(0.5 * log_variance) * noise


def log_normal(values: Tensor, mean: Tensor | float, log_variance: Tensor | float) -> Tensor:
    """log N(values; mean, exp(log_variance)) of each number, in the shape that the three broadcast to."""
    log_variance = _tensor(log_variance, values)
    return -0.5 * ((values - mean).square() * torch.exp(-log_variance) + log_variance + math.log(2 * math.pi))


def kl_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(0, I)), of (B, ...) to (B,)."""
    return _total(0.5 * (mean.square() + log_variance.exp() - 1 - log_variance))


def kl_diagonal(mean: Tensor, log_variance: Tensor, prior_mean: Tensor | float, prior_log_variance: Tensor | float) -> Tensor:
    """KL between two factorised Gaussians, of (B, ...) to (B,); the prior may be anything that broadcasts, 0.0 included."""
    prior_log_variance = _tensor(prior_log_variance, mean)
    distance = (mean - prior_mean).square() * torch.exp(-prior_log_variance)
    log_ratio = log_variance - prior_log_variance
    return _total(0.5 * (distance + log_ratio.exp() - 1 - log_ratio))


def kl_pushed_forward(
    exogenous_mean: Tensor,
    exogenous_log_variance: Tensor,
    weights: Tensor,
    prior_mean: Tensor | float,
    prior_log_variance: Tensor | float,
) -> Tensor:
    """KL(q(z) || p(z)) where z = C eps, C = (I - A^T)^-1, q(eps) = N(m, diag s^2), p(z) = N(prior_mean, diag exp(prior_log_variance)).

    q(z) is not diagonal: its covariance is C diag(s^2) C^T in each of the k latent dims. Against a factorised prior only its diagonal,
    (C∘C) s^2, and its determinant, prod s^2 / det(I - A^T)^2, are needed, so C is computed once and not per sample. The determinant is 1
    for a DAG, but not while a graph with cycles is being learned.

    Arguments:
        exogenous_mean, exogenous_log_variance: (B, n, k).
        weights: (n, n), A.
        prior_mean, prior_log_variance: anything that broadcasts to (B, n, k).

    Returns:
        (B,)
    """
    prior_log_variance = _tensor(prior_log_variance, exogenous_mean)
    push, log_det = inverse_and_log_det(structural_matrix(weights))  # C (n, n)
    variance = push.square() @ exogenous_log_variance.exp()  # (B, n, k), the variance of each z_i
    distance = (push @ exogenous_mean - prior_mean).square()
    terms = (variance + distance) * torch.exp(-prior_log_variance) - 1 + prior_log_variance - exogenous_log_variance
    return _total(0.5 * terms) + exogenous_mean.shape[-1] * log_det


def _total(terms: Tensor) -> Tensor:
    return terms.reshape(len(terms), -1).sum(1)


def _tensor(value: Tensor | float, like: Tensor) -> Tensor:
    """A number as a tensor made on the device (a copy from the host would break a CUDA graph)."""
    return value if isinstance(value, Tensor) else like.new_full((), value)
