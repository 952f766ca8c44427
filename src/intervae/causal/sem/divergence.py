"""KL(q || p) of a Gaussian posterior q from a structural equation model p (causal-prior VAE).

Exact for a linear SEM, linearised (Theorem 3) or sampled for others; and the paper's closest match.

The posterior is N(mean, L L^T): mean (B, d), factor L (B, d, d) lower triangular with a positive
diagonal. A is the Jacobian of the mechanisms, row = child, so I - A is unit lower triangular; its
inverse is never formed. Theorem 3 has two readings:

- tangent: the noise of the linearised equations stays random;
- local: the noise is that of the pivot z°, so the local Gaussian at z° is
  N(z°, (I - A)^-1 diag(sigma^2) (I - A)^-T).

Pivots drawn from the SEM count the noise twice under the local reading: for a linear SEM the
mixture has twice its covariance. `tau` splits the noise: pivots are drawn with noise
sqrt(1 - tau^2) sigma, local Gaussians have scales tau sigma. The linear case is then exact.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from intervae.causal.gaussian import log_normal
from intervae.causal.sem.equations import SEM
from intervae.causal.sem.linearised import identity_like, linearise, solve_lower
from intervae.errors import UsageError, unknown

DivergenceKind = Literal["tangent", "local_min", "local_mix", "mc", "mc_mix"]


def sem_divergence(
    kind: DivergenceKind,
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
    """KL of the posterior from the SEM, (B,), by one of five estimators.

    Arguments:
        kind: "tangent": linearised at the posterior mean;
            "local_min": the closest of the local Gaussians at random pivots (the paper; not a
            bound, too low by up to the log of their number);
            "local_mix": variational upper bound on the KL from their mixture;
            "mc": log q(z) - log p(z) at one draw z, unbiased;
            "mc_mix": the same with their mixture as p.
        mean, factor: the posterior.
        z: (B, d), the draw mean + L noise; for "mc" and "mc_mix".
        edges: (d, d) edge strengths; None is all allowed edges.
        generator: random generator of the pivots.
        pivots: number of pivots.
        tau: see above; None is the paper's reading.
        noise: (B, d), the noise of z; saves a solve for it.
        double: whether the local kinds are computed in double precision.
        log_det: (B,), log |det L|. With it L may be any square factor; then "mc" and "mc_mix" need
            `noise` too.
    """
    if kind not in get_args(DivergenceKind):
        raise unknown("divergence from a SEM", kind, get_args(DivergenceKind))
    if kind == "tangent":
        return kl_tangent(mean, factor, sem, edges, log_det=log_det)
    if kind in ("local_min", "local_mix"):
        local = kl_local_min if kind == "local_min" else kl_local_mix
        return local(
            mean,
            factor,
            sem,
            draw_pivots(sem, pivots, edges, generator, tau=tau),
            edges,
            double=double,
            tau=tau,
            log_det=log_det,
        )
    if z is None:
        raise UsageError(f"the divergence {kind!r} needs a draw of the posterior; pass it as z.")
    if kind == "mc":
        return kl_monte_carlo(z, mean, factor, sem, edges, noise=noise, log_det=log_det)
    return kl_monte_carlo_mix(
        z,
        mean,
        factor,
        sem,
        draw_pivots(sem, pivots, edges, generator, tau=tau),
        edges,
        noise=noise,
        tau=tau,
        log_det=log_det,
    )


# ---- tangent: equations linearised at the posterior mean ---------------------------------------
def kl_tangent(
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    edges: Tensor | None = None,
    *,
    log_det: Tensor | None = None,
) -> Tensor:
    """KL from the SEM linearised at the posterior mean, (B,); exact for a linear SEM.

    1/2 (sum_i [(mu_i - f_i(mu))^2 + |row_i of (I - A) L|^2] / sigma_i^2 - d + sum log sigma^2)
    - sum log diag L
    """
    A, f = linearise(sem, mean, edges)
    spread = (factor - _batch_product(A, factor)).square().sum(-1)  # (B, d)
    scaled = ((mean - f).square() + spread) * torch.exp(-2 * sem.log_scales)
    return 0.5 * (scaled - 1).sum(-1) + sem.log_scales.sum() - _log_det(factor, log_det)


# ---- local Gaussians at pivots drawn from the SEM ----------------------------------------------
def draw_pivots(
    sem: SEM,
    count: int,
    edges: Tensor | None = None,
    generator: torch.Generator | None = None,
    *,
    tau: float | None = None,
) -> Tensor:
    """(count, d) pivots z° by ancestral sampling, differentiable in f, sigma and edges."""
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
    """KL(q_b || N_k) of every posterior from the local Gaussian at every pivot (K, d), (B, K).

    With P_k = (I - A_k)^T diag(sigma^-2) (I - A_k) it is one (B, d^2) by (d^2, K) product,
    1/2 (<Sigma_b + mu_b mu_b^T, P_k> - 2 mu_b^T P_k z°_k + z°_k^T P_k z°_k - d + sum log sigma^2)
    - sum log diag L_b. It subtracts large numbers where sigma is small: use `double` there.
    """
    dtype = mean.dtype
    A, log_scales = sem.jacobian(pivots, edges), _local_log_scales(sem, tau)
    if double:
        mean, factor, pivots, A, log_scales = (
            values.double() for values in (mean, factor, pivots, A, log_scales)
        )
    whitening = (identity_like(A) - A) * torch.exp(-log_scales)[:, None]  # (K, d, d)
    precision = whitening.mT @ whitening
    scaled_pivots = (precision @ pivots[..., None]).squeeze(-1)  # P_k z°_k, (K, d)
    moment = factor @ factor.mT + mean[:, :, None] * mean[:, None, :]  # (B, d, d)
    squares = (
        moment.flatten(1) @ precision.flatten(1).mT
        - 2 * mean @ scaled_pivots.mT
        + (scaled_pivots * pivots).sum(-1)
    )
    return (
        0.5 * (squares - mean.shape[-1]) + log_scales.sum() - _log_det(factor, log_det)[:, None]
    ).to(dtype)


def kl_local_min(
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    pivots: Tensor,
    edges: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """min_k KL(q || N_k), (B,): the paper's closest match.

    It ignores the density of the pivots, so it cannot compare models. Options as in `kl_local`.
    """
    return kl_local(mean, factor, sem, pivots, edges, **options).amin(1)


def kl_local_mix(
    mean: Tensor,
    factor: Tensor,
    sem: SEM,
    pivots: Tensor,
    edges: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """-log(1/K sum_k exp(-KL(q || N_k))), (B,).

    An upper bound on the KL from the mixture of the local Gaussians. Options as in `kl_local`.
    """
    divergences = kl_local(mean, factor, sem, pivots, edges, **options)
    return math.log(len(pivots)) - torch.logsumexp(-divergences, dim=1)


# ---- Monte Carlo: at one draw of the posterior -------------------------------------------------
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
    """log q(z) - log p(z) at a draw z (B, d) of the posterior, (B,): unbiased for any SEM."""
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
    """log q(z) - log(1/K sum_k N_k(z)) at a draw z (B, d), (B,).

    Unbiased for the KL from the mixture of the local Gaussians.
    """
    offset = z[:, None] - pivots  # (B, K, d)
    residual = offset - _apply(sem.jacobian(pivots, edges), offset)
    log_densities = log_normal(residual, 0.0, 2 * _local_log_scales(sem, tau)).sum(-1)  # (B, K)
    return (
        log_posterior(z, mean, factor, noise, log_det)
        - torch.logsumexp(log_densities, dim=1)
        + math.log(len(pivots))
    )


def log_posterior(
    z: Tensor,
    mean: Tensor,
    factor: Tensor,
    noise: Tensor | None = None,
    log_det: Tensor | None = None,
) -> Tensor:
    """log N(z; mean, L L^T), (B,); `noise` is L^-1 (z - mean) if known."""
    if noise is None:
        noise = solve_lower(factor, (z - mean)[..., None]).squeeze(-1)
    return log_normal(noise, 0.0, 0.0).sum(-1) - _log_det(factor, log_det)


# ---- helpers -----------------------------------------------------------------------------------
def _check_tau(tau: float | None) -> None:
    if tau is not None and not 0 < tau <= 1:
        raise UsageError(
            f"tau={tau} must be larger than 0 and at most 1: "
            "it splits the noise between pivots and local Gaussians."
        )


def _local_log_scales(sem: SEM, tau: float | None) -> Tensor:
    _check_tau(tau)
    return sem.log_scales if tau is None else sem.log_scales + math.log(tau)


def _log_det(factor: Tensor, log_det: Tensor | None) -> Tensor:
    """`log_det` (B,) if known, else log |det L| of a triangular factor L (B, d, d)."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) if log_det is None else log_det


def _batch_product(left: Tensor, right: Tensor) -> Tensor:
    """(B, d, d) by (B, d, d); on a GPU always in full precision, without TF32."""
    return (left[..., None] * right[..., None, :, :]).sum(-2) if left.is_cuda else left @ right


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """(K, d, d) times (B, K, d) to (B, K, d); on a GPU always in full precision."""
    if vectors.is_cuda:
        return (matrices * vectors[..., None, :]).sum(-1)
    return torch.einsum("kij,bkj->bki", matrices, vectors)
