"""Gaussian sampling, densities and KL divergences of CausalVAE's ELBO (Eq. 10).

Shapes: arguments are (B, ...); every divergence is summed over all but the batch, (B,).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from intervae.causal.linear import inverse_and_log_det, structural_matrix


def reparametrise(
    mean: Tensor, log_variance: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Draw from N(mean, exp(log_variance)) with gradients, in the shape of `mean`.

    Noise is drawn on the generator's device, so that a CPU generator gives the same on a GPU.
    """
    device = mean.device if generator is None else generator.device
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=device)
    return mean + torch.exp(0.5 * log_variance) * noise.to(mean.device)


def log_normal(values: Tensor, mean: Tensor | float, log_variance: Tensor | float) -> Tensor:
    """Return log N(values; mean, exp(log_variance)) elementwise; the arguments broadcast."""
    log_variance = _tensor(log_variance, values)
    return -0.5 * (
        (values - mean).square() * torch.exp(-log_variance) + log_variance + math.log(2 * math.pi)
    )


def kl_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return KL(N(mean, exp(log_variance)) || N(0, I)), of (B, ...) to (B,)."""
    return _total(0.5 * (mean.square() + log_variance.exp() - 1 - log_variance))


def kl_diagonal(
    mean: Tensor,
    log_variance: Tensor,
    prior_mean: Tensor | float,
    prior_log_variance: Tensor | float,
) -> Tensor:
    """Return KL between two factorised Gaussians, of (B, ...) to (B,); the prior broadcasts."""
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
    """Return KL(q(z) || p(z)) of a posterior pushed through the linear causal layer.

    z = C eps with C = (I - A^T)^-1, q(eps) = N(m, diag s^2), p(z) = N(prior_mean, diag v).
    The covariance of q(z) is C diag(s^2) C^T in each of the k latent dims. A factorised prior
    needs only its diagonal, (C∘C) s^2, and its determinant, prod s^2 / det(I - A^T)^2, which
    is not 1 while the graph has cycles.

    Arguments:
        exogenous_mean, exogenous_log_variance: m and log s^2, (B, n, k).
        weights: A, (n, n).
        prior_mean, prior_log_variance: prior mean and log v; they broadcast to (B, n, k).

    Returns:
        (B,)
    """
    prior_log_variance = _tensor(prior_log_variance, exogenous_mean)
    push, log_det = inverse_and_log_det(structural_matrix(weights))  # C (n, n)
    variance = push.square() @ exogenous_log_variance.exp()  # (B, n, k), the variance of each z_i
    distance = (push @ exogenous_mean - prior_mean).square()
    terms = (
        (variance + distance) * torch.exp(-prior_log_variance)
        - 1
        + prior_log_variance
        - exogenous_log_variance
    )
    return _total(0.5 * terms) + exogenous_mean.shape[-1] * log_det


def _total(terms: Tensor) -> Tensor:
    """Sum (B, ...) over all but the batch."""
    return terms.reshape(terms.shape[0], -1).sum(1)


def _tensor(value: Tensor | float, like: Tensor) -> Tensor:
    """Return a number as a tensor created on the device; a CUDA graph allows no host copies."""
    return value if isinstance(value, Tensor) else like.new_full((), value)
