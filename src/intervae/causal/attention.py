"""Attention along the edges of a graph, with a gradient written out: what autograd finds passes over the weights twice as often, and their traffic
is most of what a step costs.

Shapes: B pictures, M questions of each, n places that are read, h heads of d features, w = h d.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SHORTEST = 1e-12  # length that a query or key is divided by at least


def gated_attention(query: Tensor, key_value: Tensor, gates: Tensor, sharpness: Tensor) -> Tensor:
    """What each question reads from the places whose gates are open, (B, M, w).

    read_i = sum_j g_ij e_ij v_j / (1 + sum_j g_ij e_ij),  e_ij = exp(sharpness q_i . k_j),  q_i and k_j of length 1, in each head.

    Gates are multiplied, so that one that is 0 has a gradient; where all are 0, nothing is read. Exponentials are summed in single precision, and
    that is what comes out of half precision. It can be differentiated once, and mapped over many models (vmap) before that, not after.

    Arguments:
        query: (B, M, w), of any length.
        key_value: (B, n, 2 w), the keys of all heads and then the values.
        gates: (B, M, n), the same for all heads.
        sharpness: (h, 1, 1), below 80, where exponentials overflow.
    """
    exact = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        read: Tensor = _GatedAttention.apply(*(part.to(exact) for part in (query, key_value, gates, sharpness)))[0]
    return read


class _GatedAttention(torch.autograd.Function):
    @staticmethod
    def forward(query: Tensor, key_value: Tensor, gates: Tensor, sharpness: Tensor) -> tuple[Tensor, ...]:
        """What is read, and what the gradient needs besides; sharpness (h, 1, 1), or (B, h, 1, 1)."""
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
        """d/d(g_ij e_ij) = (gradient_i . v_j - gradient_i . read_i) / (1 + sum_j g_ij e_ij); the rest is the chain rule."""
        if gradient is None:  # nobody asked
            return (None,) * 4
        with torch.autocast(gradient.device.type, enabled=False):
            return _gradients(gradient, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Many models at once are more pictures, each with its sharpness."""
        many = info.batch_size
        query, key_value, gates, sharpness = (
            part.expand(many, *part.shape) if dim is None else part.movedim(dim, 0) for part, dim in zip(given, in_dims, strict=True)
        )
        each = sharpness[:, None].expand(-1, query.shape[1], -1, -1, -1)
        found = _GatedAttention.apply(*(part.flatten(0, 1) for part in (query, key_value, gates, each)))
        return tuple(part.unflatten(0, (many, -1)) for part in found), (0,) * len(found)


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
    """Of query, key_value, gates and sharpness."""
    heads = sharpness.shape[-3]
    each = torch.empty_like(unit_query)
    torch.div(_by_head(gradient, heads), total, out=each)
    of_scores = (each @ value.mT).sub_((each * _by_head(read, heads)).sum(3, keepdim=True)).mul_(powers)  # (B, h, M, n), where gates are 1
    of_gates = of_scores.sum(1)
    of_scores.mul_(gates[:, None])
    of_sharp = of_scores.mT @ unit_query
    of_query, of_key_value = torch.empty_like(read), value.new_empty(len(value), value.shape[2], 2 * read.shape[2])
    of_key, of_value = of_key_value.chunk(2, dim=2)
    _through_unit(of_scores @ sharp, unit_query, query_length, _by_head(of_query, heads))
    _by_head(of_value, heads).copy_((powers * gates[:, None]).mT @ each)
    of_sharpness = (of_sharp * unit_key).sum_to_size(sharpness.shape)
    _through_unit(of_sharp.mul_(sharpness), unit_key, key_length, _by_head(of_key, heads))
    return of_query, of_key_value, of_gates, of_sharpness


def _by_head(features: Tensor, heads: int) -> Tensor:
    """(B, N, w) as (B, h, N, d), the same memory."""
    return features.unflatten(2, (heads, -1)).transpose(1, 2)


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (B, h, N, d) of length 1, one head after the other in memory, and the length that they had (B, h, N, 1)."""
    length = torch.linalg.vector_norm(vectors, dim=3, keepdim=True).clamp_(min=SHORTEST)
    unit = torch.empty(vectors.shape, dtype=vectors.dtype, device=vectors.device)
    return torch.div(vectors, length, out=unit), length


def _through_unit(gradient: Tensor, unit: Tensor, length: Tensor, out: Tensor) -> None:
    """The gradient of x, given that of u = x / |x|, into `out`: (gradient - (gradient . u) u) / |x|."""
    along = (gradient * unit).sum(3, keepdim=True)
    torch.div(torch.addcmul(gradient, unit, along, value=-1), length, out=out)
