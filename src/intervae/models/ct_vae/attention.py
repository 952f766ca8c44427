"""Attention along the edges of a graph, with a hand-written gradient.

Autograd would pass over the attention weights twice as often, which is most of the cost of a step.

Shapes: B images, M queries per image, n positions attended to, h heads of d features, w = h d.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SHORTEST = 1e-12  # smallest length that a query or key is divided by


def gated_attention(query: Tensor, key_value: Tensor, gates: Tensor, sharpness: Tensor) -> Tensor:
    """Return what each query reads from the positions whose gates are open, (B, M, w).

    read_i = sum_j g_ij e_ij v_j / (1 + sum_j g_ij e_ij),  e_ij = exp(sharpness q_i . k_j),

    with q_i and k_j of length 1, in each head. Gates multiply the weights, so a gate of 0 has a
    gradient; a query without open gates reads 0. Sums and the result are in single precision under
    autocast. Differentiable once; vmap over models works before differentiation, not after.

    Arguments:
        query: (B, M, w), of any length.
        key_value: (B, n, 2 w), keys of all heads, then values.
        gates: (B, M, n), the same for all heads.
        sharpness: (h, 1, 1), below 80, where exponentials overflow.
    """
    exact = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        read: Tensor = _GatedAttention.apply(
            *(part.to(exact) for part in (query, key_value, gates, sharpness))
        )[0]
    return read


class _GatedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        query: Tensor, key_value: Tensor, gates: Tensor, sharpness: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the result and tensors for the gradient; sharpness (h, 1, 1) or (B, h, 1, 1)."""
        heads = sharpness.shape[-3]
        unit_query, query_length = _unit(_by_head(query, heads))
        key, value = (_by_head(part, heads) for part in key_value.chunk(2, dim=2))
        unit_key, key_length = _unit(key)
        sharp, value = unit_key * sharpness, value.contiguous()  # (B, h, n, d)
        powers = (unit_query @ sharp.mT).exp_()  # (B, h, M, n)
        weights = powers * gates[:, None]
        total = weights.sum(3, keepdim=True).add_(1)
        read = torch.empty_like(query)
        torch.div(weights @ value, total, out=_by_head(read, heads))
        return read, unit_query, query_length, unit_key, key_length, sharp, value, powers, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, _, gates, sharpness = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gates, sharpness, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        """d/d(g_ij e_ij) = gradient_i . (v_j - read_i) / (1 + sum_j g_ij e_ij), then chain rule."""
        if gradient is None:
            return (None,) * 4
        with torch.autocast(gradient.device.type, enabled=False):
            return _gradients(gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Treat models as more images, each with its own sharpness."""
        models = info.batch_size
        query, key_value, gates, sharpness = (
            part.expand(models, *part.shape) if dim is None else part.movedim(dim, 0)
            for part, dim in zip(inputs, in_dims, strict=True)
        )
        each = sharpness[:, None].expand(-1, query.shape[1], -1, -1, -1)
        outputs = _GatedAttention.apply(
            *(part.flatten(0, 1) for part in (query, key_value, gates, each))
        )
        return tuple(part.unflatten(0, (models, -1)) for part in outputs), (0,) * len(outputs)


def _gradients(
    gradient: Tensor,
    gates: Tensor,
    sharpness: Tensor,
    read: Tensor,
    unit_query: Tensor,
    query_length: Tensor,
    unit_key: Tensor,
    key_length: Tensor,
    sharp: Tensor,
    value: Tensor,
    powers: Tensor,
    total: Tensor,
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key_value, gates and sharpness."""
    heads = sharpness.shape[-3]
    scaled = torch.empty_like(unit_query)
    torch.div(_by_head(gradient, heads), total, out=scaled)
    grad_scores = (
        (scaled @ value.mT).sub_((scaled * _by_head(read, heads)).sum(3, keepdim=True)).mul_(powers)
    )  # (B, h, M, n), as if all gates were 1
    grad_gates = grad_scores.sum(1)
    grad_scores.mul_(gates[:, None])
    grad_sharp = grad_scores.mT @ unit_query
    grad_query, grad_key_value = (
        torch.empty_like(read),
        value.new_empty(len(value), value.shape[2], 2 * read.shape[2]),
    )
    grad_key, grad_value = grad_key_value.chunk(2, dim=2)
    _through_unit(grad_scores @ sharp, unit_query, query_length, _by_head(grad_query, heads))
    _by_head(grad_value, heads).copy_((powers * gates[:, None]).mT @ scaled)
    grad_sharpness = (grad_sharp * unit_key).sum_to_size(sharpness.shape)
    _through_unit(grad_sharp.mul_(sharpness), unit_key, key_length, _by_head(grad_key, heads))
    return grad_query, grad_key_value, grad_gates, grad_sharpness


def _by_head(features: Tensor, heads: int) -> Tensor:
    """Return a view (B, h, N, d) of features (B, N, w)."""
    return features.unflatten(2, (heads, -1)).transpose(1, 2)


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return contiguous unit vectors (B, h, N, d) and the original lengths (B, h, N, 1)."""
    length = torch.linalg.vector_norm(vectors, dim=3, keepdim=True).clamp_(min=SHORTEST)
    unit = torch.empty(vectors.shape, dtype=vectors.dtype, device=vectors.device)
    return torch.div(vectors, length, out=unit), length


def _through_unit(gradient: Tensor, unit: Tensor, length: Tensor, out: Tensor) -> None:
    """Write the gradient of x, (g - (g . u) u) / |x|, given g of u = x / |x|, into `out`."""
    along = (gradient * unit).sum(3, keepdim=True)
    torch.div(torch.addcmul(gradient, unit, along, value=-1), length, out=out)
