"""Rows of pictures and tables, as CMCL trains with them: their largest variance in one direction, and a column exchanged between them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

TRIES = 8  # other samples looked at for a value that differs


def largest_variance(rows: Tensor, steps: int = 50) -> Tensor:
    """The largest variance of rows (N, k) in any one direction, by power iteration from the direction of their variances."""
    centred = rows - rows.mean(0)
    direction = centred.var(0, correction=0)
    for _ in range(steps):
        direction = centred.T @ (centred @ functional.normalize(direction, dim=0))
    return direction.norm() / len(rows)


def exchange_column(u: Tensor, among: Tensor, owner: Tensor, generator: torch.Generator | None) -> Tensor:
    """u (B, P) with one column, drawn for each row from `among` (d,) of 0 and 1, taken from another row where it has another value.

    `owner` (d, P) tells which inputs are a column's.
    """
    chosen = (torch.rand(len(u), len(among), device=u.device, generator=generator) + among).argmax(1)
    mask = (torch.arange(len(among), device=u.device) == chosen[:, None]).to(u.dtype) @ owner > 0  # (B, P)
    order = torch.rand(len(u), device=u.device, generator=generator).argsort()
    other = u[order]
    for shift in range(1, TRIES):
        same = ((other == u) | ~mask).all(1, keepdim=True)
        other = torch.where(same, u[order.roll(shift)], other)
    return torch.where(mask, other, u)
