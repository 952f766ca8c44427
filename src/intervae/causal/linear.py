"""The linear structural layer: z = A^T z + eps = (I - A^T)^-1 eps (CausalVAE Eq. 1), with `weights[j, i]` = A_ji the strength of j -> i.

Both directions are exact inverses of one another for any weights without a cycle of gain 1 (where I - A^T has no inverse and
`to_endogenous` gives inf or NaN); a DAG has none. Nothing asks the host, so a CUDA graph can capture them: the GPU libraries' own
solvers can not be captured, so there the few rows of I - A^T are eliminated by plain tensor operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def structural_matrix(weights: Tensor) -> Tensor:
    """I - A^T, of weights (n, n)."""
    return torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device) - weights.mT


def to_endogenous(exogenous: Tensor, weights: Tensor) -> Tensor:
    """Noises eps (..., n, k) to variables z (..., n, k): solve (I - A^T) z = eps for all samples and latent dims with one factorisation."""
    exogenous = exogenous.to(torch.promote_types(exogenous.dtype, weights.dtype))
    system = structural_matrix(weights).to(exogenous.dtype)
    if exogenous.is_cuda:
        return inverse_and_log_det(system)[0] @ exogenous
    columns = exogenous.movedim(-2, 0)  # (n, ..., k)
    solved = torch.linalg.solve_ex(system, columns.reshape(len(columns), -1)).result
    return solved.reshape(columns.shape).movedim(0, -2)


def to_exogenous(endogenous: Tensor, weights: Tensor) -> Tensor:
    """Variables z (..., n, k) to the noises that made them, eps = z - A^T z (..., n, k): abduction."""
    return endogenous - weights.mT @ endogenous


def inverse_and_log_det(system: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse C (n, n) of I - A^T and log |det (I - A^T)|, differentiable once."""
    return _Inverse.apply(system)


class _Inverse(torch.autograd.Function):
    """dC = -C dM C and d log|det M| = tr(C dM): the backward pass is two products with C, whatever the forward pass did."""

    generate_vmap_rule = True

    @staticmethod
    def forward(system: Tensor) -> tuple[Tensor, Tensor]:
        if system.is_cuda:
            return eliminate(system)
        return torch.linalg.inv_ex(system).inverse, torch.linalg.slogdet(system).logabsdet

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, inverse_gradient: Tensor, log_det_gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        eye = torch.eye(inverse.shape[-1], dtype=inverse.dtype, device=inverse.device)
        return inverse.mT @ (log_det_gradient[..., None, None] * eye - inverse_gradient @ inverse.mT)


def eliminate(system: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse and log |det| of (n, n) by Gauss-Jordan elimination without pivoting.

    For a DAG in any order of its variables every leading minor of I - A^T is 1, so no pivot is ever small; weights with strong cycles,
    which only a graph at the start of its learning has, lose digits here.
    """
    n = len(system)
    eye = torch.eye(n, dtype=system.dtype, device=system.device)
    both = torch.cat([system, eye], dim=1)  # (n, 2n)
    pivots = []
    for i in range(n):
        pivot = both[i, i]
        row = both[i] / pivot
        others = both[:, i] * (1 - eye[i])
        both = both * (1 - eye[i])[:, None] - others[:, None] * row + eye[i][:, None] * row
        pivots.append(pivot)
    return both[:, n:].contiguous(), torch.stack(pivots).abs().log().sum()
