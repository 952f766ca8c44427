"""Acyclicity penalties: trace of the exponential (NOTEARS 2018), polynomial (CausalVAE Eq. 13),
log-determinant (DAGMA 2022).

Each takes weights (..., n, n), `weights[j, i]` the strength of j -> i, and returns h(M) (...,) of
M = W∘W: 0 for a DAG, positive with a cycle. The gradient is dh/dW = 2 W ∘ R^T, where R is a
matrix function of M from the forward pass. Second derivatives are available.

The first two add non-negative numbers only. They are exactly 0 on a DAG, also in float32,
accurate to a few rounding errors for any cycle, and inf, never NaN, on overflow. A CUDA graph
captures them, forward and backward; of log_det it captures one matrix after a warm-up call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from intervae.errors import UsageError, unknown


def trace_exponential(weights: Tensor) -> Tensor:
    """Return tr exp(W∘W) - n of weights (..., n, n).

    Second derivatives use torch.matrix_exp, which a CUDA graph cannot capture.
    """
    return _penalty(weights, _Exponential())


def trace_exponential_of_squares(squares: Tensor) -> Tensor:
    """Return tr exp(M) - n of M = W∘W (..., n, n), for strengths W that are norms.

    A norm has no derivative at 0, its square has one. First derivatives only.
    """
    return _SquaresPenalty.apply(squares)[0]


def polynomial(weights: Tensor, c: float = 1.0) -> Tensor:
    """Return tr((I + c/n W∘W)^n) - n of weights (..., n, n): Eq. 13, with n for the printed m."""
    if not c > 0:
        raise UsageError(f"polynomial(c={c}) measures no cycles; c must be positive.")
    return _penalty(weights, _Polynomial(float(c)))


def log_det(weights: Tensor, s: float = 1.0) -> Tensor:
    """Return -log det(sI - W∘W) + n log s of weights (..., n, n).

    Its domain, which contains every DAG, is where s exceeds the spectral radius of W∘W; elsewhere
    the value is inf and the gradient NaN. On a DAG it is 0 up to rounding (below 1e-9 unless
    strengths multiply along a path to more than about 1e6).
    """
    if not s > 0:
        raise UsageError(f"log_det(s={s}) has no domain; s must be positive.")
    return _penalty(weights, _LogDeterminant(float(s)))


def value_and_slope(squares: Tensor, measure: str) -> tuple[Tensor, Tensor]:
    """Return h and dh/dM (n, n) at M, without autograd; inf and NaN outside log_det's domain.

    Arguments:
        squares: M = W∘W (n, n).
        measure: "exponential", "polynomial" or "log_det", with c or s of 1.
    """
    if measure not in _RULES:
        raise unknown("measure of acyclicity", measure, _RULES)
    penalty, response = _RULES[measure].evaluate(squares[None])
    return penalty[0], response[0].mT


class _Rule(Protocol):
    def evaluate(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        """Return the penalty (b,) and R (b, n, n) of M (b, n, n), where dh/dM = R^T."""

    def adjoint(self, squares: Tensor, response: Tensor, direction: Tensor) -> Tensor:
        """Return the gradient (..., n, n) of <direction, R(M)> in M, for second derivatives."""


def _penalty(weights: Tensor, rule: _Rule) -> Tensor:
    if (
        weights.ndim < 2
        or weights.shape[-1] != weights.shape[-2]
        or not weights.is_floating_point()
    ):
        raise UsageError(
            "weights must be a float tensor of shape (..., n, n), "
            f"not {weights.dtype} {tuple(weights.shape)}."
        )
    return _Penalty.apply(weights, rule)[0]


class _Penalty(torch.autograd.Function):
    """h(W∘W) with its gradient; R is a second output, so that the gradient is differentiable."""

    @staticmethod
    def forward(weights: Tensor, rule: _Rule) -> tuple[Tensor, Tensor]:
        with torch.autocast(weights.device.type, enabled=False):
            flat = weights.reshape(-1, *weights.shape[-2:])
            penalty, response = rule.evaluate(flat * flat)
        return penalty.reshape(weights.shape[:-2]), response.reshape(weights.shape)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, _Rule], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.rule = inputs[1]
        ctx.save_for_backward(inputs[0], output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, None]:
        weights, response = ctx.saved_tensors
        to_penalty, to_response = grads
        to_squares = None if to_penalty is None else to_penalty[..., None, None] * response.mT
        if to_response is not None:
            more = ctx.rule.adjoint(weights * weights, response, to_response)
            to_squares = more if to_squares is None else to_squares + more
        return (None if to_squares is None else 2 * weights * to_squares), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, None], weights: Tensor, rule: _Rule
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        assert in_dims[0] is not None  # vmap calls this only when the tensor argument is mapped
        return _Penalty.apply(weights.movedim(in_dims[0], 0), rule), (0, 0)


class _SquaresPenalty(torch.autograd.Function):
    """h(M) of the exponential with its gradient R^T."""

    @staticmethod
    def forward(squares: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(squares.device.type, enabled=False):
            penalty, response = _Exponential().evaluate(squares.reshape(-1, *squares.shape[-2:]))
        return penalty.reshape(squares.shape[:-2]), response.reshape(squares.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0][..., None, None] * ctx.saved_tensors[0].mT

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int], squares: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return _SquaresPenalty.apply(squares.movedim(in_dims[0], 0)), (0, 0)


@dataclass(frozen=True)
class _Exponential:
    """exp(M) - I by scaling and squaring, with a fixed number of products."""

    def evaluate(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        # The Taylor polynomial of degree 16 at M / 2^s has a relative error in M^k of at most
        # 2^s (k choose 17) / 2^(17 s): below rounding up to k = 100 in single and 500 in double
        # precision, about the range in which they can represent e^|M|.
        halvings = 9 if squares.dtype == torch.float64 else 6
        growth = _saturate(_exponential_taylor(_saturate(squares * 2.0**-halvings)))
        for _ in range(halvings):
            # exp(2X) - I = (exp(X) - I)^2 + 2 (exp(X) - I)
            growth = _saturate(torch.baddbmm(growth, growth, growth, beta=2))
        return _or_inf(_trace(growth), growth), growth + _eye(squares)

    def adjoint(self, squares: Tensor, response: Tensor, direction: Tensor) -> Tensor:
        return _corner(torch.matrix_exp(_blocks(squares.mT, direction)))


@dataclass(frozen=True)
class _Polynomial:
    c: float

    def evaluate(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        n = squares.shape[-1]
        step = _saturate(squares * (self.c / n))  # X
        eye = _eye(squares)
        base = step + eye  # I + X
        growth = step if n > 1 else torch.zeros_like(step)  # G = (I + X)^m - I, at m = 1 (or 0)
        for bit in f"{n - 1:b}"[1:]:  # the bits of n - 1 from the top: double m, then add the bit
            growth = _saturate(torch.baddbmm(growth, growth, growth, beta=2))
            if bit == "1":
                growth = _saturate(torch.baddbmm(step, growth, base))
        # tr(G (I + X) + X) = tr((I + X)^n) - n
        penalty = (growth * base.mT).sum((-2, -1)) + _trace(step)
        return _or_inf(penalty, growth if n > 1 else step), _saturate((growth + eye) * self.c)

    def adjoint(self, squares: Tensor, response: Tensor, direction: Tensor) -> Tensor:
        n = squares.shape[-1]
        base = (_eye(squares) + squares * (self.c / n)).mT
        return _corner(torch.linalg.matrix_power(_blocks(base, direction), n - 1)) * (self.c**2 / n)


@dataclass(frozen=True)
class _LogDeterminant:
    s: float

    def evaluate(self, squares: Tensor) -> tuple[Tensor, Tensor]:
        n = squares.shape[-1]
        eye = _eye(squares).double()
        factors, pivots, _ = torch.linalg.lu_factor_ex(self.s * eye - squares)
        inverse = torch.linalg.lu_solve(factors, pivots, eye.expand_as(factors))
        penalty = n * math.log(self.s) - factors.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
        # sI - M is an M-matrix if and only if the x with (sI - M) x = 1 is positive
        inside = (inverse.sum(-1) > 0).all(-1)
        penalty = torch.where(inside, penalty.clamp_min(0), math.inf)
        inverse = torch.where(inside[..., None, None], inverse, math.nan)
        return penalty.to(squares.dtype), inverse.to(squares.dtype)

    def adjoint(self, squares: Tensor, response: Tensor, direction: Tensor) -> Tensor:
        return response.mT @ direction @ response.mT


_RULES: dict[str, _Rule] = {
    "exponential": _Exponential(),
    "polynomial": _Polynomial(1.0),
    "log_det": _LogDeterminant(1.0),
}


def _exponential_taylor(x: Tensor) -> Tensor:
    """Return x + x^2/2! + ... + x^16/16! of (b, n, n), in six products (Paterson-Stockmeyer)."""
    square = torch.bmm(x, x)
    powers = (x, square, torch.bmm(square, x), torch.bmm(square, square))

    def four_terms(start: int) -> Tensor:
        """Return the sum of x^p / (start + p)! over p = 1..4."""
        terms = powers[0] / math.factorial(start + 1)
        for p in (2, 3, 4):
            terms.add_(powers[p - 1], alpha=1 / math.factorial(start + p))
        return terms

    total = four_terms(12)
    for start in (8, 4, 0):
        total = torch.baddbmm(four_terms(start), powers[3], total)
    return total


def _saturate(x: Tensor) -> Tensor:
    """Replace inf by the largest number, in place: inf times 0 would be NaN."""
    return x.clamp_(max=torch.finfo(x.dtype).max)


def _or_inf(penalty: Tensor, growth: Tensor) -> Tensor:
    """Return the penalty, or inf if a saturated number lies on a cycle."""
    saturated = (growth >= torch.finfo(growth.dtype).max) & (growth.mT > 0)
    return torch.where(saturated.flatten(1).any(1), math.inf, penalty)


def _trace(x: Tensor) -> Tensor:
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)


def _eye(x: Tensor) -> Tensor:
    return torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _blocks(x: Tensor, direction: Tensor) -> Tensor:
    """Return [[x, direction], [0, x]].

    The upper right corner of a matrix function of it is the derivative in that direction.
    """
    return torch.cat([torch.cat([x, direction], -1), torch.cat([torch.zeros_like(x), x], -1)], -2)


def _corner(x: Tensor) -> Tensor:
    n = x.shape[-1] // 2
    return x[..., :n, n:]
