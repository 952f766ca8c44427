"""KL(q || p) of a Gaussian posterior from a structural equation model (causal-prior VAE, Theorems 2 and 3 and its "closest match").

It is exact for a linear SEM, and linearised or sampled for others.

The posterior is N(mean, L L^T): mean (B, d) and factor L (B, d, d), lower triangular with a positive diagonal. A is the jacobian of the
mechanisms, row = child, so I - A is unit lower triangular and everything is written in it: its inverse is never formed.
Two readings of Theorem 3: *tangent*, where the noise of the linearised equations stays random, and *local*, where it is the noise
of the pivot z°, so that the local Gaussian is N(z°, (I-A)^-1 diag(sigma^2) (I-A)^-T). Pivots drawn from the SEM count the noise twice
under the latter: for a linear SEM the mixture has twice its covariance. `tau` splits it: pivots are drawn with noise sqrt(1 - tau^2) sigma
and the local Gaussians have tau sigma, which makes the linear case exact.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from intervae.causal.gaussian import log_normal
from intervae.causal.sem import SEM
from intervae.errors import UsageError, unknown

Kind = Literal["tangent", "local_min", "local_mix", "mc", "mc_mix"]


def divergence(
    kind: Kind,
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    *,
    z: Tensor | None = None,
    edges: Tensor | None = None,
    generator: torch.Generator | None = None,
    pivots: int = 100,
    tau: float | None = None,
    noise: Tensor | None = None,
    double: bool = True,
    log_det: Tensor | None = None,
) -> Tensor:
    """The divergence of the posterior from the SEM by one of five estimates, (B,).

    Arguments:
        kind: "tangent", linearised at the posterior mean; "local_min", the closest of the local Gaussians at drawn pivots (the paper;
            no bound, too low by up to log of their number); "local_mix", the variational bound on the divergence from their mixture; "mc",
            unbiased, log q(z) - log p(z) at one draw; "mc_mix", the same with their mixture as p.
        z: (B, d), the draw mean + L noise that "mc" and "mc_mix" look at.
        edges: (d, d) strengths, all allowed edges if not given.
        pivots: how many are drawn.
        tau: see above; the paper's reading if not given.
        noise: (B, d), what z was made of; it saves the solve for it.
        log_det: (B,), log |det L| where it is known; L may then be any square factor, not only a lower-triangular one with a positive
            diagonal (for "mc" and "mc_mix" pass `noise` as well).
        double: whether the products of the local kinds are in double precision, as they subtract large numbers where sigma is small.
    """
    if kind not in get_args(Kind):
        raise unknown("divergence from a SEM", kind, get_args(Kind))
    if kind == "tangent":
        return kl_tangent(mean, factor, sem, edges, log_det=log_det)
    if kind in ("local_min", "local_mix"):
        local = kl_local_min if kind == "local_min" else kl_local_mix
        return local(mean, factor, sem, draw_pivots(sem, pivots, edges, generator, tau=tau), edges, double=double, tau=tau, log_det=log_det)
    if z is None:
        raise UsageError(f"the divergence {kind!r} is an estimate at a draw; pass it as z.")
    if kind == "mc":
        return kl_monte_carlo(z, mean, factor, sem, edges, noise=noise, log_det=log_det)
    return kl_monte_carlo_mix(z, mean, factor, sem, draw_pivots(sem, pivots, edges, generator, tau=tau), edges, noise=noise, tau=tau, log_det=log_det)


# ---- linear equations (Theorem 2) -----------------------------------------------------------------------------------
def propagate_linear(A: Tensor, b: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (..., d) and covariance (..., d, d) of z = A z + b + n, n ~ N(0, diag variances), for A (..., d, d) strictly lower triangular.

    log det of the covariance is the sum of log variances, and its inverse (I-A)^T diag(1 / variances) (I-A).
    """
    system = _identity(A) - A
    root = solve_lower(system, torch.diag_embed(variances.sqrt().expand_as(b)))  # (I-A)^-1 diag sigma
    return solve_lower(system, b[..., None]).squeeze(-1), root @ root.mT


def solve_lower(system: Tensor, right: Tensor) -> Tensor:
    """x of `system` x = `right`, (..., d, d) lower triangular and (..., d, r): a CUDA graph captures it."""
    return substitute_forward(system, right) if system.is_cuda else torch.linalg.solve_triangular(system, right, upper=False)


def substitute_forward(system: Tensor, right: Tensor) -> Tensor:
    """`solve_lower` row after row with plain tensor operations."""
    rows: list[Tensor] = []
    for i in range(system.shape[-1]):
        known = sum((system[..., i, j, None] * rows[j] for j in range(i)), start=torch.zeros_like(right[..., i, :]))
        rows.append((right[..., i, :] - known) / system[..., i, i, None])
    return torch.stack(torch.broadcast_tensors(*rows), dim=-2)


def linearise(sem: SEM, pivots: Tensor, edges: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The jacobians A (K, d, d) and the values f (K, d) of the mechanisms at pivots (K, d) (Theorem 3)."""
    return sem.jacobian(pivots, edges), sem.mean(pivots, edges)


# ---- tangent: the linearised equations, noise left random ------------------------------------------------------------
def kl_tangent(mean: Tensor, factor: Tensor, sem: SEM, edges: Tensor | None = None, *, log_det: Tensor | None = None) -> Tensor:
    """KL from the SEM linearised at the posterior mean, (B,): exact for a linear SEM, first order for others.

    1/2 (sum_i [(mu_i - f_i(mu))^2 + |row_i of (I - A) L|^2] / sigma_i^2 - d + sum log sigma^2) - sum log diag L
    """
    A, f = linearise(sem, mean, edges)
    spread = (factor - _batch_product(A, factor)).square().sum(-1)  # (B, d)
    scaled = ((mean - f).square() + spread) * torch.exp(-2 * sem.log_scales)
    return 0.5 * (scaled - 1).sum(-1) + sem.log_scales.sum() - _log_det(factor, log_det)


# ---- local Gaussians at pivots drawn from the SEM --------------------------------------------------------------------
def draw_pivots(sem: SEM, count: int, edges: Tensor | None = None, generator: torch.Generator | None = None, *, tau: float | None = None) -> Tensor:
    """(count, d) by ancestral sampling, through which f, sigma and edges get gradients."""
    if count < 1:
        raise UsageError(f"the local divergences need at least 1 pivot, not {count}.")
    _check_tau(tau)
    noises = sem.draw_noises(count, generator)
    return sem.from_noises(noises if tau is None else math.sqrt(1 - tau**2) * noises, edges)


def kl_local(
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    pivots: Tensor,
    edges: Tensor | None = None,
    *,
    double: bool = False,
    tau: float | None = None,
    log_det: Tensor | None = None,
) -> Tensor:
    """KL(q_b || N_k) of every posterior from the local Gaussian at every pivot (K, d), as (B, K).

    With P_k = (I-A_k)^T diag(sigma^-2) (I-A_k) it is one (B, d^2) by (d^2, K) product,
    1/2 (<Sigma_b + mu_b mu_b^T, P_k> - 2 mu_b^T P_k z°_k + z°_k^T P_k z°_k - d + sum log sigma^2) - sum log diag L_b,
    which subtracts large numbers where sigma is small: `double` computes it in double precision.
    """
    kept = mean.dtype
    A, log_scales = sem.jacobian(pivots, edges), _local_log_scales(sem, tau)
    if double:
        mean, factor, pivots, A, log_scales = (values.double() for values in (mean, factor, pivots, A, log_scales))
    whitening = (_identity(A) - A) * torch.exp(-log_scales)[:, None]  # (K, d, d)
    precision = whitening.mT @ whitening
    pulled = (precision @ pivots[..., None]).squeeze(-1)  # P_k z°_k, (K, d)
    moment = factor @ factor.mT + mean[:, :, None] * mean[:, None, :]  # (B, d, d)
    squares = moment.flatten(1) @ precision.flatten(1).mT - 2 * mean @ pulled.mT + (pulled * pivots).sum(-1)
    return (0.5 * (squares - mean.shape[-1]) + log_scales.sum() - _log_det(factor, log_det)[:, None]).to(kept)


def kl_local_min(mean: Tensor, factor: Tensor, sem: SEM, pivots: Tensor, edges: Tensor | None = None, **how: Any) -> Tensor:
    """min_k KL(q || N_k), (B,): the paper's closest match. It ignores how dense the prior is, so it must not be used to compare models.

    how: double, tau and log_det of `kl_local`.
    """
    return kl_local(mean, factor, sem, pivots, edges, **how).amin(1)


def kl_local_mix(mean: Tensor, factor: Tensor, sem: SEM, pivots: Tensor, edges: Tensor | None = None, **how: Any) -> Tensor:
    """-log(1/K sum_k exp(-KL(q || N_k))), (B,): an upper bound on the divergence from the mixture of the local Gaussians.

    how: double, tau and log_det of `kl_local`.
    """
    each = kl_local(mean, factor, sem, pivots, edges, **how)
    return math.log(len(pivots)) - torch.logsumexp(-each, dim=1)


# ---- Monte Carlo: at one draw of the posterior -----------------------------------------------------------------------
def kl_monte_carlo(
    z: Tensor,
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    edges: Tensor | None = None,
    *,
    noise: Tensor | None = None,
    log_det: Tensor | None = None,
) -> Tensor:
    """log q(z) - log p(z) at z (B, d), (B,): unbiased for any SEM where z is a draw of the posterior."""
    return log_posterior(z, mean, factor, noise, log_det) - sem.log_density(z, edges)


def kl_monte_carlo_mix(
    z: Tensor,
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    pivots: Tensor,
    edges: Tensor | None = None,
    *,
    noise: Tensor | None = None,
    tau: float | None = None,
    log_det: Tensor | None = None,
) -> Tensor:
    """log q(z) - log(1/K sum_k N_k(z)) at z (B, d), (B,): unbiased for the divergence from the mixture of the local Gaussians."""
    offset = z[:, None] - pivots  # (B, K, d)
    residual = offset - _apply(sem.jacobian(pivots, edges), offset)
    each = log_normal(residual, 0.0, 2 * _local_log_scales(sem, tau)).sum(-1)  # (B, K)
    return log_posterior(z, mean, factor, noise, log_det) - torch.logsumexp(each, dim=1) + math.log(len(pivots))


def log_posterior(z: Tensor, mean: Tensor, factor: Tensor, noise: Tensor | None = None, log_det: Tensor | None = None) -> Tensor:
    """log N(z; mean, L L^T), (B,); `noise` is L^-1 (z - mean) where it is known."""
    if noise is None:
        noise = solve_lower(factor, (z - mean)[..., None]).squeeze(-1)
    return log_normal(noise, 0.0, 0.0).sum(-1) - _log_det(factor, log_det)


# ---- pieces ---------------------------------------------------------------------------------------------------------
def _check_tau(tau: float | None) -> None:
    if tau is not None and not 0 < tau <= 1:
        raise UsageError(f"tau={tau} splits no noise between pivots and local Gaussians; use a number above 0 and up to 1.")


def _local_log_scales(sem: SEM, tau: float | None) -> Tensor:
    _check_tau(tau)
    return sem.log_scales if tau is None else sem.log_scales + math.log(tau)


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _log_det(factor: Tensor, known: Tensor | None) -> Tensor:
    """log |det L|, (B,): the one that is known, or of a lower-triangular factor with a positive diagonal."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) if known is None else known


def _batch_product(left: Tensor, right: Tensor) -> Tensor:
    """(B, d, d) by (B, d, d); on a GPU in full precision, whatever its matrix units are set to."""
    return (left[..., None] * right[..., None, :, :]).sum(-2) if left.is_cuda else left @ right


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """(K, d, d) times (B, K, d), as (B, K, d); on a GPU in full precision."""
    if vectors.is_cuda:
        return (matrices * vectors[..., None, :]).sum(-1)
    return torch.einsum("kij,bkj->bki", matrices, vectors)
