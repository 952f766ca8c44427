"""Linear structural equations as a Gaussian (Theorem 2) and linearisation at a pivot (Theorem 3).

Theorems of the causal-prior VAE. A is the Jacobian of the mechanisms, row = child, so I - A is unit
lower triangular; its inverse is never formed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from intervae.causal.sem.equations import SEM


def propagate_linear(A: Tensor, b: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (..., d) and covariance (..., d, d) of z = A z + b + n, n ~ N(0, diag variances).

    A (..., d, d) is strictly lower triangular. The log det of the covariance is the sum of log
    variances, its inverse (I - A)^T diag(1 / variances) (I - A).
    """
    system = identity_like(A) - A
    scales = torch.diag_embed(variances.sqrt().expand_as(b))
    root = solve_lower(system, scales)  # (I - A)^-1 diag sigma
    return solve_lower(system, b[..., None]).squeeze(-1), root @ root.mT


def solve_lower(system: Tensor, right: Tensor) -> Tensor:
    """Solve `system` x = `right` for (..., d, d) lower triangular and (..., d, r).

    On a GPU by `substitute_forward`, which a CUDA graph can capture.
    """
    if system.is_cuda:
        return substitute_forward(system, right)
    return torch.linalg.solve_triangular(system, right, upper=False)


def substitute_forward(system: Tensor, right: Tensor) -> Tensor:
    """Forward substitution, row by row, with plain tensor operations."""
    rows: list[Tensor] = []
    for i in range(system.shape[-1]):
        total = sum(
            (system[..., i, j, None] * rows[j] for j in range(i)),
            start=torch.zeros_like(right[..., i, :]),
        )
        rows.append((right[..., i, :] - total) / system[..., i, i, None])
    return torch.stack(torch.broadcast_tensors(*rows), dim=-2)


def linearise(sem: SEM, pivots: Tensor, edges: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Jacobians A (K, d, d) and values f (K, d) of the mechanisms at pivots (K, d), Theorem 3."""
    return sem.jacobian(pivots, edges), sem.mean(pivots, edges)


def identity_like(matrix: Tensor) -> Tensor:
    """(d, d) identity in the dtype and on the device of `matrix` (..., d, d)."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
