"""Affine alignment: the map that makes latents look like draws of a structural equation model.

Training with the SEM as the prior then starts where the variables have their places (our recipe for the causal-prior VAE, whose ELBO
alone does not place them).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln
from torch import Tensor

from intervae.causal.sem import SEM
from intervae.errors import TrainingError, UsageError

NEIGHBOURS = 30  # of the entropy's estimate
DRAWS = 8192  # of the SEM, for the moments at which every start begins


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
    """T (m, m) and t (m,) that maximise the mean of log p_SEM(T mu + t) + log |det T| over the m variables `indices` of the SEM.

    All starts are climbed at once with Adam, the rate falling to 0 by a cosine, on the CPU in double precision: the same answer on every machine.
    Each start maps the latents to the mean and the covariance of the SEM and differs in the rotation in between: evenly
    spaced angles with and without a reflection for m = 2, random orthogonal matrices for other m.

    Arguments:
        means: (N, m) posterior means of the latents to map, column c for variable `indices[c]`.
        indices: the variables, in any order; with a variable its allowed causes must be among them.
        edges: (d, d) strengths, all allowed edges if not given.
        samples: at most so many rows of `means` are used, chosen by the seed.

    Returns:
        T and t in the dtype and on the device of `means`: z = T mu + t.
    """
    chosen = _check(means, sem, indices, starts)
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(sem).cpu().double().requires_grad_(False)
    strengths = None if edges is None else edges.detach().cpu().double()
    values = means.detach().cpu().double()
    if len(values) > samples:
        values = values[torch.randperm(len(values), generator=generator)[:samples]]
    with torch.no_grad():
        centre, unmix, _ = _moments(values)
        goal, _, mix = _moments(model.sample(DRAWS, generator, strengths)[:, chosen])
    white = (values - centre) @ unmix.mT  # mean 0, covariance I: the fit does not depend on the coordinates it is given
    turn = mix @ orthogonal_starts(starts, len(chosen), generator)  # (S, m, m)
    turn, shift = _climb(white, model, chosen, strengths, turn, goal.expand(starts, -1), steps, rate)
    best = int(objective(white, model, chosen, strengths, turn, shift).argmax())
    T = turn[best] @ unmix
    return T.to(means), (shift[best] - T @ centre).to(means)


@torch.no_grad()
def affine_score(
    means: Tensor, sem: SEM, indices: Sequence[int], T: Tensor, t: Tensor, *, edges: Tensor | None = None, neighbours: int = NEIGHBOURS
) -> float:
    """How much like draws of the SEM the mapped latents z = T mu + t are: an estimate of -KL(z || SEM) in nats, near 0 at best.

    The cross-entropy alone would favour latents that crowd on a line. It does not depend on the coordinates that the latents had, so it
    compares those of different trainings.
    """
    model = copy.deepcopy(sem).cpu().double()
    values, turn, shift = (tensor.detach().cpu().double() for tensor in (means, T, t))
    strengths = None if edges is None else edges.detach().cpu().double()
    centre, unmix, _ = _moments(values)
    white = (values - centre) @ unmix.mT
    cross = objective(values, model, indices, strengths, turn[None], shift[None])[0] - torch.linalg.slogdet(unmix).logabsdet
    return float(cross) + entropy(white.numpy(), neighbours)


def entropy(values: np.ndarray, neighbours: int = NEIGHBOURS) -> float:
    """Differential entropy of a sample (N, m) in nats, from the distances to the k-th neighbours (Kozachenko and Leonenko 1987).

    Many neighbours see through the grain of data that lie on a grid.
    """
    n, m = values.shape
    k = min(neighbours, n - 1)
    distances = cKDTree(values).query(values, k + 1)[0][:, -1]
    ball = 0.5 * m * math.log(math.pi) - gammaln(0.5 * m + 1)
    return float(digamma(n) - digamma(k) + ball + m * np.log(np.maximum(distances, np.finfo(np.float64).tiny)).mean())


def orthogonal_starts(count: int, m: int, generator: torch.Generator) -> Tensor:
    """(count, m, m) double orthogonal matrices, every second one with a reflection."""
    flip = torch.ones(count, m, dtype=torch.float64)
    flip[1::2, -1] = -1
    if m == 2:
        angles = 2 * math.pi * (torch.arange(count, dtype=torch.float64) // 2) / math.ceil(count / 2)
        rotation = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], dim=-1).reshape(count, 2, 2)
        return rotation * flip[:, None]
    drawn, triangle = torch.linalg.qr(torch.randn(count, m, m, generator=generator, dtype=torch.float64))
    drawn = drawn * triangle.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # uniform over the orthogonal group
    drawn = drawn * torch.cat([torch.linalg.det(drawn).sign()[:, None], torch.ones(count, m - 1, dtype=torch.float64)], dim=1)[:, None]
    return drawn * flip[:, None]


def objective(values: Tensor, sem: SEM, indices: Sequence[int], edges: Tensor | None, turn: Tensor, shift: Tensor) -> Tensor:
    """Mean of log p(T v + t) + log |det T| over values (N, m), for maps T (S, m, m) and t (S, m): (S,).

    Variables outside `indices` are held at 0 with no noise counted: they are no causes of those inside.
    """
    place = torch.eye(sem.d, dtype=values.dtype, device=values.device)[list(indices)]  # (m, d), where the m variables stand
    z = torch.tensordot(values, place.mT @ turn, dims=([1], [2])) + shift @ place  # (N, S, d), by one product
    squares = sem.noises(z, edges).square().mean(0) * torch.exp(-2 * sem.log_scales)  # (S, d)
    log_density = -0.5 * (squares + 2 * sem.log_scales + math.log(2 * math.pi)) @ place.sum(0)
    return log_density + torch.linalg.slogdet(turn).logabsdet


def _climb(
    values: Tensor, sem: SEM, chosen: list[int], edges: Tensor | None, turn: Tensor, shift: Tensor, steps: int, rate: float
) -> tuple[Tensor, Tensor]:
    turn, shift = turn.clone().requires_grad_(), shift.clone().requires_grad_()
    optimiser = torch.optim.Adam([turn, shift], lr=rate)
    with torch.enable_grad():
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            optimiser.zero_grad()
            (-objective(values, sem, chosen, edges, turn, shift).sum()).backward()
            optimiser.step()
    return turn.detach(), shift.detach()


def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (m,), and symmetric roots of the inverse covariance and of the covariance (m, m), of values (N, m)."""
    centre = values.mean(0)
    variances, axes = torch.linalg.eigh((values - centre).mT @ (values - centre) / len(values))
    if not variances[0] > 1e-12 * variances[-1]:
        raise TrainingError("the latents to align do not vary in every direction, so no affine map places them; train the first phase longer.")
    return centre, (axes * variances.rsqrt()) @ axes.mT, (axes * variances.sqrt()) @ axes.mT


def _check(means: Tensor, sem: SEM, indices: Sequence[int], starts: int) -> list[int]:
    chosen = [int(i) for i in indices]
    if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= i < sem.d for i in chosen):
        raise UsageError(f"the variables to align must be different ones of 0 to {sem.d - 1}, not {chosen}.")
    missing = sorted({int(j) for i in chosen for j in sem.allowed[:, i].nonzero()} - set(chosen))
    if missing:
        raise UsageError(f"the variables to align, {chosen}, have causes that are not among them: add {missing}.")
    if means.ndim != 2 or means.shape[1] != len(chosen) or len(means) <= len(chosen):
        raise UsageError(
            f"aligning {len(chosen)} variables needs more than {len(chosen)} rows of {len(chosen)} means, not shape {tuple(means.shape)}."
        )
    if not means.isfinite().all():
        raise TrainingError("the latents to align are not finite; lower the learning rate.")
    if starts < 1:
        raise UsageError(f"an alignment needs at least 1 start, not {starts}.")
    return chosen
