"""The linear structural layer: z = A^T z + eps = (I - A^T)^-1 eps (CausalVAE Eq. 1), with `weights[j, i]` = A_ji the strength of j -> i.

Both directions are exact inverses of one another for any weights without a cycle of gain 1 (where I - A^T has no inverse and
`to_endogenous` gives inf or NaN); a DAG has none. Nothing asks the host, so a CUDA graph can capture them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def structural_matrix(weights: Tensor) -> Tensor:
    """I - A^T, of weights (n, n)."""
    return torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device) - weights.mT


def to_endogenous(exogenous: Tensor, weights: Tensor) -> Tensor:
    """Noises eps (..., n, k) to variables z (..., n, k): solve (I - A^T) z = eps for all samples and latent dims with one factorisation."""
    exogenous = exogenous.to(torch.promote_types(exogenous.dtype, weights.dtype))
    columns = exogenous.movedim(-2, 0)  # (n, ..., k)
    solved = torch.linalg.solve_ex(structural_matrix(weights).to(exogenous.dtype), columns.reshape(len(columns), -1)).result
    return solved.reshape(columns.shape).movedim(0, -2)


def to_exogenous(endogenous: Tensor, weights: Tensor) -> Tensor:
    """Variables z (..., n, k) to the noises that made them, eps = z - A^T z (..., n, k): abduction."""
    return endogenous - weights.mT @ endogenous
