"""Statistics of a batch of Gaussian latents, shared by the disentangling VAEs.

The decomposition of the KL to the prior (Chen et al. 2018), dims permuted over the batch (Kim and
Mnih 2018, Alg. 1), the covariance (Kumar et al. 2018), and samples with their log-densities.
Shapes: B samples, D latent dims.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from intervae.causal.gaussian import log_normal
from intervae.errors import QueryError

Sampling = Literal["weighted", "stratified"]


class KLDecomposition(NamedTuple):
    """Terms of log q(z | x) - log p(z) per sample, (B,); their sum is exact for any q(z)."""

    mutual_information: Tensor  # log q(z | x) - log q(z)
    total_correlation: Tensor  # log q(z) - sum_d log q(z_d)
    dimension_kl: Tensor  # sum_d [log q(z_d) - log p(z_d)]


def mixture_log_weights(batch: int, samples: Tensor, sampling: Sampling) -> Tensor:
    """Return log-weights (B, B) of the estimate q(z_i) ~ sum_j w[i, j] q(z_i | x_j).

    Arguments:
        batch: B.
        samples: N, the size of the training data, 0-dim.
        sampling: "weighted": w = 1 / (B N), biased by a constant. "stratified", unbiased: with
            M = B - 1, w = 1 / N for the sample itself, (N - M) / (N M) for the next one and 1 / M
            for the others.
    """
    total = samples.clamp(min=batch)  # a batch of other data may exceed the training data
    if sampling == "weighted":
        return (-torch.log(batch * total)).expand(batch, batch)
    others = max(batch - 1, 1)
    own = torch.eye(batch, dtype=torch.bool, device=samples.device)
    following = (total - others) / (total * others)
    return torch.log(
        torch.where(own, 1 / total, torch.where(own.roll(1, 1), following, 1 / others))
    )


def decompose_kl(
    z: Tensor, mean: Tensor, log_variance: Tensor, log_weights: Tensor
) -> KLDecomposition:
    """Split log q(z | x) - log p(z) into its three terms, with p = N(0, I).

    All B x B x D log-densities are in memory at once.

    Arguments:
        z, mean, log_variance: (B, D), z drawn from N(mean, exp(log_variance)).
        log_weights: (B, B), see `mixture_log_weights`.
    """
    pairs = log_normal(z[:, None], mean[None], log_variance[None])  # log q(z_i,d | x_j), (B, B, D)
    conditional = log_normal(z, mean, log_variance).sum(1)
    joint = torch.logsumexp(log_weights + pairs.sum(2), dim=1)
    marginals = torch.logsumexp(log_weights[..., None] + pairs, dim=1).sum(1)
    prior = log_normal(z, 0.0, 0.0).sum(1)
    return KLDecomposition(conditional - joint, joint - marginals, marginals - prior)


def permute_dims(z: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Permute every column of z (B, D) independently: same marginals, independent dims."""
    order = torch.rand(z.shape, generator=generator, device=z.device).argsort(0)
    return z.gather(0, order)


def covariance(values: Tensor) -> Tensor:
    """Return the covariance (D, D) of values (B, D), normalised by B."""
    centred = values - values.mean(0)
    return centred.T @ centred / len(values)


def draw_samples(
    shape: tuple[int, ...], samples: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Return standard normal noise (samples, *shape), as `Model.log_weights` requires.

    A CPU generator draws sample after sample; a generator of the GPU draws all samples at once.
    """
    if samples < 1:
        raise QueryError(f"log_weights needs at least one sample, not {samples}.")
    if generator is not None and generator.device.type == device.type != "cpu":
        return torch.randn(samples, *shape, generator=generator, device=device)
    return torch.stack([torch.randn(shape, generator=generator) for _ in range(samples)]).to(device)


def draw_with_log_ratio(
    mean: Tensor,
    log_variance: Tensor,
    prior_log_variance: Tensor | float,
    samples: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Draw z from q and return it with log p(z) - log q(z).

    Arguments:
        mean, log_variance: of q, (B, n, k).
        prior_log_variance: of p = N(0, exp(prior_log_variance)).

    Returns:
        z (samples, B, n, k) and the log-ratio (samples, B).
    """
    noise = draw_samples(tuple(mean.shape), samples, generator, mean.device)
    z = mean + torch.exp(0.5 * log_variance) * noise
    log_posterior = -0.5 * (noise.square() + log_variance + math.log(2 * math.pi))
    return z, (log_normal(z, 0.0, prior_log_variance) - log_posterior).sum((2, 3))
