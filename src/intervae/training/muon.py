"""Muon (Jordan et al. 2024): steps of weight matrices with all singular values made equal.

Directions that occur rarely in the gradients are thereby learned as fast as frequent ones. All
other parameters are trained by AdamW. torch.optim.Muon is not used: it updates one matrix after
another, has no AdamW for the rest, and a captured step would keep the first learning rate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from intervae.training.eager_optimisers import AdamW

MOMENTUM = 0.95
STEP = 0.2  # root mean square of a full-rank matrix's step in learning rates; AdamW's is 2-3 times
ITERATIONS = 5
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315  # of the authors, to raise small values fast
MIN_NORM = 1e-7


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (k, m, n), m <= n, with the same singular vectors and equal singular values.

    Newton-Schulz: X <- a X + b (X X') X + c (X X')^2 X, five times, acts on each singular value
    separately. The result's are 0.68 to 1.21; those below 0.0015 of the norm remain smaller. In
    half precision zero ones become noise, of up to 0.4 if most are zero.
    """
    x = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=MIN_NORM)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=CUBIC, alpha=QUINTIC)
        x = torch.baddbmm(x, polynomial, x, beta=LINEAR)
    return x


def weight_matrices(model: nn.Module) -> set[str]:
    """Return the names of the weights of linear layers with more than one input and output."""
    return {
        f"{name}.weight"
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and min(layer.weight.shape) > 1
    }


class Muon(AdamW):
    """AdamW whose groups with `matrices=True` are updated by

    m <- 0.95 m + 0.05 g
    W <- (1 - rate decay) W - rate 0.2 sqrt(max(rows, columns)) orthogonalise(0.05 g + 0.95 m)

    with `orthogonalise` in half precision on a GPU.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step; gradients of matrices are removed, so that AdamW skips them."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            if group.get("matrices"):
                self._update_matrices(group)
        super().step()
        return loss

    def _update_matrices(self, group: dict[str, Any]) -> None:
        # (weight, momentum) by shape, transposed if taller than wide
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
        for weight in group["params"]:
            if weight.grad is None:
                continue
            momentum = self._nesterov_momentum(weight)
            weight.grad = None
            tall = momentum.shape[0] > momentum.shape[1]
            pair = (weight.mT, momentum.mT) if tall else (weight, momentum)
            by_shape.setdefault(tuple(pair[1].shape), []).append(pair)
        for shape, pairs in by_shape.items():
            steps = torch.stack([momentum for _, momentum in pairs])
            steps = orthogonalise(steps.bfloat16() if steps.is_cuda else steps).to(steps.dtype) * (
                STEP * shape[1] ** 0.5 * group["lr"]
            )
            for (weight, _), step in zip(pairs, steps, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step)

    def _nesterov_momentum(self, weight: Tensor) -> Tensor:
        """Update the momentum by the gradient; return it with the gradient added once more."""
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
            # AdamW needs it to copy or load a state
            state["step"] = torch.zeros((), device=weight.device)
        assert weight.grad is not None
        momentum: Tensor = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
        return weight.grad.lerp(momentum, MOMENTUM)
