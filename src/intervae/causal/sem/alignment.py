"""Affine alignment: the map z = T mu + t that makes latents most like draws of a SEM.

Our addition to the causal-prior VAE, whose ELBO alone does not identify the latents: training with
the SEM as the prior starts from aligned latents.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import scipy
import torch
from scipy.special import digamma, gammaln
from torch import Tensor

from intervae.causal.sem.equations import SEM
from intervae.errors import TrainingError, UsageError

NEIGHBOURS = 30  # k of the nearest-neighbour entropy estimate
DRAWS = 8192  # draws of the SEM for its mean and covariance


def fit_affine(
    means: Tensor,
    sem: SEM,
    indices: Sequence[int],
    *,
    edges: Tensor | None = None,
    starts: int = 24,
    steps: int = 120,
    rate: float = 0.03,
    seed: int = 0,
    samples: int = 4096,
) -> tuple[Tensor, Tensor]:
    """Fit T (m, m) and t (m,) that maximise the mean of log p_SEM(T mu + t) + log |det T|.

    All starts are optimised at once by Adam with a cosine schedule, on the CPU in double precision,
    so the result is the same on every machine. Each start maps the latents to the mean and the
    covariance of the SEM; starts differ by a rotation: evenly spaced angles with and without a
    reflection for m = 2, random orthogonal matrices otherwise.

    Arguments:
        means: (N, m) posterior means of the latents; column c is variable `indices[c]`.
        sem: the target density.
        indices: m variables of the SEM, in any order; it must include their allowed causes.
        edges: (d, d) edge strengths; None is all allowed edges.
        starts: number of starts.
        steps: steps of Adam.
        rate: initial learning rate.
        seed: seed of the draws and of the rows used.
        samples: maximum number of rows of `means` used.

    Returns:
        T and t in the dtype and on the device of `means`.
    """
    columns = _check(means, sem, indices, starts)
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(sem).cpu().double().requires_grad_(False)
    strengths = None if edges is None else edges.detach().cpu().double()
    values = means.detach().cpu().double()
    if len(values) > samples:
        values = values[torch.randperm(len(values), generator=generator)[:samples]]
    with torch.no_grad():
        centre, unmix, _ = _moments(values)
        target, _, mix = _moments(model.sample(DRAWS, generator, strengths)[:, columns])
    white = (values - centre) @ unmix.mT  # mean 0, covariance I
    linear = mix @ orthogonal_starts(starts, len(columns), generator)  # (S, m, m)
    linear, shift = _maximise(
        white, model, columns, strengths, linear, target.expand(starts, -1), steps, rate
    )
    best = int(objective(white, model, columns, strengths, linear, shift).argmax())
    T = linear[best] @ unmix
    return T.to(means), (shift[best] - T @ centre).to(means)


@torch.no_grad()
def affine_score(
    means: Tensor,
    sem: SEM,
    indices: Sequence[int],
    T: Tensor,
    t: Tensor,
    *,
    edges: Tensor | None = None,
    neighbours: int = NEIGHBOURS,
) -> float:
    """Estimate of -KL(z || SEM) of the mapped latents z = T mu + t, in nats; at best near 0.

    It does not depend on the coordinates of mu, so it compares different training runs. The
    cross-entropy alone would prefer latents that are concentrated on a line.
    """
    model = copy.deepcopy(sem).cpu().double()
    values, linear, shift = (tensor.detach().cpu().double() for tensor in (means, T, t))
    strengths = None if edges is None else edges.detach().cpu().double()
    centre, unmix, _ = _moments(values)
    white = (values - centre) @ unmix.mT
    cross = objective(values, model, indices, strengths, linear[None], shift[None])[0]
    return float(cross - torch.linalg.slogdet(unmix).logabsdet) + entropy(white.numpy(), neighbours)


def entropy(values: np.ndarray, neighbours: int = NEIGHBOURS) -> float:
    """Differential entropy of a sample (N, m) in nats (Kozachenko and Leonenko 1987).

    From the distances to the k-th neighbours; a large k smooths over data on a grid.
    """
    n, m = values.shape
    k = min(neighbours, n - 1)
    distances = scipy.spatial.cKDTree(values).query(values, k + 1)[0][:, -1]
    ball = 0.5 * m * math.log(math.pi) - gammaln(0.5 * m + 1)
    return float(
        digamma(n)
        - digamma(k)
        + ball
        + m * np.log(np.maximum(distances, np.finfo(np.float64).tiny)).mean()
    )


def orthogonal_starts(count: int, m: int, generator: torch.Generator) -> Tensor:
    """(count, m, m) double orthogonal matrices, every second one with a reflection."""
    flip = torch.ones(count, m, dtype=torch.float64)
    flip[1::2, -1] = -1
    if m == 2:
        angles = (
            2 * math.pi * (torch.arange(count, dtype=torch.float64) // 2) / math.ceil(count / 2)
        )
        rotation = torch.stack(
            [angles.cos(), -angles.sin(), angles.sin(), angles.cos()], dim=-1
        ).reshape(count, 2, 2)
        return rotation * flip[:, None]
    normal = torch.randn(count, m, m, generator=generator, dtype=torch.float64)
    matrices, triangle = torch.linalg.qr(normal)
    # uniform over the orthogonal group, then determinant 1
    matrices = matrices * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    signs = torch.ones(count, m, dtype=torch.float64)
    signs[:, 0] = torch.linalg.det(matrices).sign()
    return matrices * signs[:, None] * flip[:, None]


def objective(
    values: Tensor,
    sem: SEM,
    indices: Sequence[int],
    edges: Tensor | None,
    linear: Tensor,
    shift: Tensor,
) -> Tensor:
    """Mean over values v (N, m) of log p(T v + t) + log |det T|, for T (S, m, m), t (S, m): (S,).

    Variables outside `indices` are not causes of those inside; they are 0 and do not count.
    """
    embed = torch.eye(sem.d, dtype=values.dtype, device=values.device)[list(indices)]  # (m, d)
    z = torch.tensordot(values, embed.mT @ linear, dims=([1], [2])) + shift @ embed  # (N, S, d)
    squares = sem.noises(z, edges).square().mean(0) * torch.exp(-2 * sem.log_scales)  # (S, d)
    log_density = -0.5 * (squares + 2 * sem.log_scales + math.log(2 * math.pi)) @ embed.sum(0)
    return log_density + torch.linalg.slogdet(linear).logabsdet


def _maximise(
    values: Tensor,
    sem: SEM,
    columns: list[int],
    edges: Tensor | None,
    linear: Tensor,
    shift: Tensor,
    steps: int,
    rate: float,
) -> tuple[Tensor, Tensor]:
    """T (S, m, m) and t (S, m) after `steps` of Adam on `objective`, from `linear` and `shift`."""
    linear, shift = linear.clone().requires_grad_(), shift.clone().requires_grad_()
    optimiser = torch.optim.Adam([linear, shift], lr=rate)
    with torch.enable_grad():
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            optimiser.zero_grad()
            (-objective(values, sem, columns, edges, linear, shift).sum()).backward()
            optimiser.step()
    return linear.detach(), shift.detach()


def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (m,) and symmetric roots of the inverse covariance and the covariance, of (N, m)."""
    centre = values.mean(0)
    variances, axes = torch.linalg.eigh((values - centre).mT @ (values - centre) / len(values))
    if not variances[0] > 1e-12 * variances[-1]:
        raise TrainingError(
            "the latents to align do not vary in every direction, so no affine map aligns them; "
            "train the first phase longer."
        )
    return centre, (axes * variances.rsqrt()) @ axes.mT, (axes * variances.sqrt()) @ axes.mT


def _check(means: Tensor, sem: SEM, indices: Sequence[int], starts: int) -> list[int]:
    columns = [int(i) for i in indices]
    if not columns or len(set(columns)) != len(columns) or not all(0 <= i < sem.d for i in columns):
        raise UsageError(
            f"the variables to align must be different ones of 0 to {sem.d - 1}, not {columns}."
        )
    missing = sorted({int(j) for i in columns for j in sem.allowed[:, i].nonzero()} - set(columns))
    if missing:
        raise UsageError(
            f"the variables to align, {columns}, have causes outside of them: add {missing}."
        )
    if means.ndim != 2 or means.shape[1] != len(columns) or len(means) <= len(columns):
        raise UsageError(
            f"aligning {len(columns)} variables needs more than {len(columns)} rows of "
            f"{len(columns)} means, not shape {tuple(means.shape)}."
        )
    if not means.isfinite().all():
        raise TrainingError("the latents to align are not finite; lower the learning rate.")
    if starts < 1:
        raise UsageError(f"an alignment needs at least 1 start, not {starts}.")
    return columns
