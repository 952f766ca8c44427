"""The linear structural layer (CausalVAE Eq. 1): z = A^T z + eps = (I - A^T)^-1 eps.

`weights[j, i]` = A_ji is the strength of j -> i. I - A^T has an inverse unless a cycle has gain 1;
`to_endogenous` then gives inf or NaN. A CUDA graph cannot capture the solvers of the GPU libraries,
so on a GPU the matrix is eliminated by plain tensor operations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def structural_matrix(weights: Tensor) -> Tensor:
    """Return I - A^T of weights (n, n)."""
    return torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device) - weights.mT


def to_endogenous(exogenous: Tensor, weights: Tensor) -> Tensor:
    """Solve (I - A^T) z = eps: noises eps (..., n, k) to variables z (..., n, k)."""
    exogenous = exogenous.to(torch.promote_types(exogenous.dtype, weights.dtype))
    system = structural_matrix(weights).to(exogenous.dtype)
    if exogenous.is_cuda:
        return inverse_and_log_det(system)[0] @ exogenous
    if torch.compiler.is_compiling():  # ONNX has no solver
        return eliminate(system)[0] @ exogenous
    columns = exogenous.movedim(-2, 0)  # (n, ..., k)
    solved = torch.linalg.solve_ex(system, columns.reshape(len(columns), -1)).result
    return solved.reshape(columns.shape).movedim(0, -2)


def to_exogenous(endogenous: Tensor, weights: Tensor) -> Tensor:
    """Return the noises eps = z - A^T z of variables z (..., n, k): abduction."""
    return endogenous - weights.mT @ endogenous


def inverse_and_log_det(system: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inverse C (n, n) of I - A^T and log |det(I - A^T)|, differentiable once."""
    return _Inverse.apply(system)


class _Inverse(torch.autograd.Function):
    """Inverse and log-determinant with dC = -C dM C and d log|det M| = tr(C dM)."""

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
        return inverse.mT @ (
            log_det_gradient[..., None, None] * eye - inverse_gradient @ inverse.mT
        )


def eliminate(system: Tensor) -> tuple[Tensor, Tensor]:
    """Return inverse and log |det| of (n, n) by Gauss-Jordan elimination without pivoting.

    Every leading minor of I - A^T of a DAG is 1, so no pivot is small. Weights with strong cycles
    lose digits.
    """
    n = len(system)
    eye = torch.eye(n, dtype=system.dtype, device=system.device)
    augmented = torch.cat([system, eye], dim=1)  # (n, 2n)
    pivots = []
    for i in range(n):
        pivot = augmented[i, i]
        row = augmented[i] / pivot
        factors = augmented[:, i] * (1 - eye[i])
        augmented = (
            augmented * (1 - eye[i])[:, None] - factors[:, None] * row + eye[i][:, None] * row
        )
        pivots.append(pivot)
    return augmented[:, n:].contiguous(), torch.stack(pivots).abs().log().sum()
