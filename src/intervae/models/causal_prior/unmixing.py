"""Independent noises: the rotation that the Gaussian prior of the causal-prior VAE leaves open.

Our addition to the paper. The prior does not change when the standardised noises of latents without
effects are rotated, z' = f(z) + S R S^-1 (z - f(z)) with S the diagonal matrix of the noise scales,
so training leaves the noise of an effect mixed with other latents. The true sources are rarely
Gaussian: FastICA on the noises of training images finds R. No labels are used.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import scipy
import torch
from torch import Tensor

from intervae.causal.sem.linearised import identity_like
from intervae.models.decompositions import fast_ica

if TYPE_CHECKING:
    from intervae.data import Dataset
    from intervae.models.causal_prior.model import CausalPriorVAE

IMAGES = 8192  # training images whose noises are separated
STARTS = 8  # of FastICA, of which the most non-Gaussian result is taken
ACTIVE_VARIANCE = 0.1  # minimum variance over images of a standardised noise that holds a source
ITERATIONS, TOLERANCE = 500, 1e-7  # of FastICA
LOG_COSH_OF_NORMAL = 0.374567  # E log cosh of N(0, 1)


@torch.no_grad()
def unmix(model: CausalPriorVAE, data: Dataset, seed: int) -> None:
    """Set the rotation of the model to the one with the most independent noises."""
    model.rotation.copy_(identity_like(model.rotation))
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.train), generator=generator)[:IMAGES]
    images = data.train[rows.to(data.train.device)].images
    means, draws = (
        (model.sem.noises(z, model.edges) / model.noise_scales).cpu().double()
        for z in (model.encode(images)[..., 0], model.draw_posterior(images, seed))
    )
    chosen = (model.sem.allowed.sum(1).cpu() == 0).nonzero().flatten()  # without effects
    rotation = independent_rotation(means[:, chosen], draws[:, chosen], seed)
    model.rotation[chosen[:, None], chosen] = rotation.to(model.rotation)


def independent_rotation(means: Tensor, draws: Tensor, seed: int) -> Tensor:
    """Orthogonal R (n, n) that makes the columns of draws (N, n) @ R^T most independent.

    Noises are read where the means (N, n) vary, since one source is often spread over latents; the
    other directions hold none. The draws have nearly the covariance of the prior, which R keeps. Of
    all orders and signs of the components the ones closest to the identity.
    """
    variances, axes = torch.linalg.eigh(means.T.cov().reshape(len(means.T), -1))
    active, rest = axes[:, variances > ACTIVE_VARIANCE], axes[:, variances <= ACTIVE_VARIANCE]
    directions = active.T
    if active.shape[1] > 1:
        values = (draws - draws.mean(0)) @ active
        scales, basis = torch.linalg.eigh(values.T.cov())
        whitening = (basis * scales.rsqrt()) @ basis.T
        white = values @ whitening
        results = [
            fast_ica(white, seed=seed + start, tolerance=TOLERANCE, iterations=ITERATIONS).rotation
            for start in range(STARTS)
        ]
        best = max(results, key=lambda rotation: non_gaussianity(white @ rotation.T)) @ whitening
        left, _, right = torch.linalg.svd(best / best.norm(dim=1, keepdim=True))
        directions = left @ right @ active.T  # the nearest orthogonal ones
    rotation = torch.cat([directions, rest.T])
    order = scipy.optimize.linear_sum_assignment(-rotation.abs().T.numpy())[1]
    rotation = rotation[torch.from_numpy(order)]
    return rotation * torch.where(rotation.diagonal() < 0, -1.0, 1.0)[:, None]


def non_gaussianity(sources: Tensor) -> float:
    """Sum over columns of (E log cosh y - E log cosh n)^2 with n ~ N(0, 1); 0 if Gaussian."""
    logs = (sources.abs() + torch.log1p(torch.exp(-2 * sources.abs())) - math.log(2)).mean(0)
    return float((logs - LOG_COSH_OF_NORMAL).square().sum())


def rotate(model: CausalPriorVAE, z: Tensor, rotation: Tensor) -> Tensor:
    """Latents (B, d) with rotated standardised noises; the identity changes no bit."""
    scales = model.noise_scales
    noises = model.sem.noises(z, model.edges) / scales
    return z + scales * (noises @ (rotation - identity_like(rotation)).T)
