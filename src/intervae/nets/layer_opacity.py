"""Opacity of painted layers: bounded logits whose gradient leads back, split from the colours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Bounded(torch.autograd.Function):
    """Clamp to [-limit, limit]; the gradient is dropped only where a step would leave the bounds.

    A value beyond a bound still gets the gradient that leads back. With tanh or a plain clamp that
    gradient vanishes, and a layer that is closed everywhere stays closed.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, limit: Tensor) -> Tensor:
        return torch.maximum(torch.minimum(values, limit), -limit)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        values, limit = ctx.saved_tensors
        outward = ((values > limit) & (gradient < 0)) | ((values < -limit) & (gradient > 0))
        return gradient.masked_fill(outward, 0), None


def limit_opacity(logits: Tensor, limit: Tensor | float) -> Tensor:
    """Colour and opacity logits (..., C + 1, P) with opacities between -limit and limit."""
    bound = limit if isinstance(limit, Tensor) else logits.new_full((), limit)
    colours, opacity = split_opacity(logits)
    return torch.cat([colours, Bounded.apply(opacity, bound)], dim=-2)


def split_opacity(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (..., C + 1, P) to those of colours (..., C, P) and of opacity (..., 1, P).

    The gradient of a split is one concatenation; that of two slices fills the whole twice.
    """
    colours, opacity = logits.split([logits.shape[-2] - 1, 1], dim=-2)
    return colours, opacity
