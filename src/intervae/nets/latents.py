"""Statistics of a batch of Gaussian latents that the disentangling VAEs share: the three parts of their divergence from the prior
(Chen et al. 2018), dims shuffled against each other (Kim and Mnih 2018, Alg. 1), their covariance (Kumar et al. 2018), and draws
with their densities.

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


class Divergence(NamedTuple):
    """The parts of log q(z | x) - log p(z) of each sample, (B,); they add up to it exactly, whatever the estimate of q(z)."""

    mutual_information: Tensor  # log q(z | x) - log q(z)
    total_correlation: Tensor  # log q(z) - sum_d log q(z_d)
    dimension_kl: Tensor  # sum_d [log q(z_d) - log p(z_d)]


def mixture_log_weights(batch: int, samples: Tensor, sampling: Sampling) -> Tensor:
    """(B, B) log-weights w[i, j] with which q(z_i) ~ sum_j w[i, j] q(z_i | x_j) is estimated from a batch of `batch` out of N = `samples` (0-dim).

    weighted: 1 / (B N); too small by the factor N where the batch is the whole data, a constant in the loss.
    stratified: with M = B - 1, 1 / N for the sample itself, (N - M) / (N M) for the next one, 1 / M for the others. They sum to 1,
    and over random batches the estimate is unbiased.
    """
    total = samples.clamp(min=batch)  # a batch of other data may be larger than what the model was trained on
    if sampling == "weighted":
        return (-torch.log(batch * total)).expand(batch, batch)
    others = max(batch - 1, 1)
    own = torch.eye(batch, dtype=torch.bool, device=samples.device)
    following = (total - others) / (total * others)
    return torch.log(torch.where(own, 1 / total, torch.where(own.roll(1, 1), following, 1 / others)))


def split_divergence(z: Tensor, mean: Tensor, log_variance: Tensor, log_weights: Tensor) -> Divergence:
    """Mutual information, total correlation and dimension-wise KL of z (B, D) drawn from N(mean, exp(log_variance)), prior N(0, I).

    log_weights: (B, B), see `mixture_log_weights`. All B x B x D densities are held at once.
    """
    pairs = log_normal(z[:, None], mean[None], log_variance[None])  # log q(z_i,d | x_j), (B, B, D)
    conditional = log_normal(z, mean, log_variance).sum(1)
    joint = torch.logsumexp(log_weights + pairs.sum(2), dim=1)
    marginals = torch.logsumexp(log_weights[..., None] + pairs, dim=1).sum(1)
    return Divergence(conditional - joint, joint - marginals, marginals - log_normal(z, 0.0, 0.0).sum(1))


def permute_dims(z: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(B, D) with every column in an order of its own: the same marginals, no dependence between the dims."""
    order = torch.rand(z.shape, generator=generator, device=z.device).argsort(0)
    return z.gather(0, order)


def covariance(values: Tensor) -> Tensor:
    """(B, D) to (D, D), the mean over the batch of the products of deviations."""
    centred = values - values.mean(0)
    return centred.T @ centred / len(values)


def draw_samples(shape: tuple[int, ...], samples: int, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Standard normal noise (samples, *shape), drawn sample after sample on the CPU, as `Model.log_weights` has to.

    A generator of a GPU draws all samples there at once, which is faster.
    """
    if samples < 1:
        raise QueryError(f"log_weights was asked for {samples} samples; ask for one at least.")
    if generator is not None and generator.device.type == device.type != "cpu":
        return torch.randn(samples, *shape, generator=generator, device=device)
    return torch.stack([torch.randn(shape, generator=generator) for _ in range(samples)]).to(device)


def draw_with_log_ratio(
    mean: Tensor, log_variance: Tensor, prior_log_variance: Tensor | float, samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """z (samples, B, n, k) from N(mean, exp(log_variance)), and log p(z) - log q(z) (samples, B) for p = N(0, exp(prior_log_variance))."""
    noise = draw_samples(tuple(mean.shape), samples, generator, mean.device)
    z = mean + torch.exp(0.5 * log_variance) * noise
    log_posterior = -0.5 * (noise.square() + log_variance + math.log(2 * math.pi))
    return z, (log_normal(z, 0.0, prior_log_variance) - log_posterior).sum((2, 3))
