"""Muon (Jordan et al. 2024): the step of a weight matrix is its momentum with all singular values made alike, so that what shows rarely in the
gradients is learned as fast as what always shows. Everything that is no weight matrix moves by AdamW.

Why not torch.optim.Muon: it takes one matrix after another, and no AdamW beside it, and a captured step would keep the first learning rate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
STEP = 0.2  # root mean square of a matrix's step, in learning rates, where its momentum has full rank; AdamW's are two to three times as long
ITERATIONS = 5
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315  # of the authors, chosen to raise small singular values fast
SMALLEST = 1e-7  # norm that a matrix is divided by at least


def alike(matrices: Tensor) -> Tensor:
    """Matrices (k, m, n), m <= n, with the same singular vectors, and singular values of 0.68 to 1.21; those below 0.0015 of the norm remain smaller.

    X <- a X + b (X X') X + c (X X')^2 X, five times, which works on each singular value by itself. In half precision those that are 0 become noise,
    of up to 0.4 where most are.
    """
    found = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=SMALLEST)
    for _ in range(ITERATIONS):
        square = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(square, square, square, beta=CUBIC, alpha=QUINTIC), found, beta=LINEAR)
    return found


def weight_matrices(model: nn.Module) -> set[str]:
    """The names of the weights of fully connected layers, but for those with one input or output."""
    return {f"{name}.weight" for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and min(layer.weight.shape) > 1}


class Muon(torch.optim.AdamW):
    """AdamW, but that parameters in groups with `matrices=True` move by

    m <- 0.95 m + 0.05 g,  W <- (1 - rate decay) W - rate 0.2 sqrt(max(rows, columns)) alike(0.05 g + 0.95 m),

    `alike` in half precision on a GPU.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step; a matrix has no gradient afterwards, so that AdamW leaves it alone."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            if group.get("matrices"):
                self._move(group)
        super().step()
        return loss

    def _move(self, group: dict[str, Any]) -> None:
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}  # matrices and their steps, standing ones laid down
        for weight in group["params"]:
            if weight.grad is None:
                continue
            ahead = self._ahead(weight)
            weight.grad = None
            lying = (weight, ahead) if ahead.shape[0] <= ahead.shape[1] else (weight.mT, ahead.mT)
            by_shape.setdefault(tuple(lying[1].shape), []).append(lying)
        for shape, some in by_shape.items():
            steps = torch.stack([ahead for _, ahead in some])
            steps = alike(steps.bfloat16() if steps.is_cuda else steps).to(steps.dtype) * (STEP * shape[1] ** 0.5 * group["lr"])
            for (weight, _), step in zip(some, steps, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step)

    def _ahead(self, weight: Tensor) -> Tensor:
        """The momentum with this gradient in it, and what it would be with the same gradient once more."""
        state = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
            state["step"] = torch.zeros((), device=weight.device)  # which AdamW asks for when a state is copied or loaded
        assert weight.grad is not None
        momentum: Tensor = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
        return weight.grad.lerp(momentum, MOMENTUM)
