"""Rows of pictures and tables, as CMCL trains with them: what the encoders make of them, their largest variance, a column exchanged between them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

TRIES = 8  # other samples looked at for a value that differs


def bounded(log_variance: Tensor) -> Tensor:
    """Within [-12, 8]; hardtanh is a clamp whose gradient is one operation."""
    return functional.hardtanh(log_variance, -12.0, 8.0)


class Look(NamedTuple):
    """What one pass of the encoders makes of a batch."""

    u: Tensor  # (B, P)
    z0: Tensor  # (B, m0), drawn
    embedding: tuple[Tensor, Tensor]  # q(z0 | x): mean and log-variance (B, m0)
    seen: Tensor  # (B, 1), whether q(z | z0, u) saw u
    posterior: tuple[Tensor, Tensor]  # q(z | z0, u): mean and log-variance (B, m)
    z: Tensor  # (B, m), drawn
    unseen: tuple[Tensor, Tensor]  # q(z | z0) where q can do without u, else as `posterior`


class Acted(NamedTuple):
    """What the contrast compares: do(u_i) of a cause in the first half of the rows, do(u_n) of an effect in the second, where z stays."""

    u: Tensor  # (2 B, P)
    z: Tensor  # (2 B, m)


def largest_variance(rows: Tensor, steps: int = 50) -> Tensor:
    """The largest variance of rows (N, k) in any one direction, by power iteration from the direction of their variances."""
    centred = rows - rows.mean(0)
    direction = centred.var(0, correction=0)
    for _ in range(steps):
        direction = centred.T @ (centred @ functional.normalize(direction, dim=0))
    return direction.norm() / len(rows)


def exchange_column(u: Tensor, among: Tensor, owner: Tensor, generator: torch.Generator | None) -> Tensor:
    """u (B, P) with a column of each row, drawn from its `among` (B, d) or (d,) of 0 and 1, taken from another row where it has another value.

    `owner` (d, P) tells which inputs are a column's.
    """
    rows = len(u)
    chosen = (torch.rand(rows, len(owner), device=u.device, generator=generator) + among).argmax(1)
    mask = owner[chosen] > 0  # (B, P)
    tried = torch.randint(rows, (TRIES, rows), device=u.device, generator=generator)
    differs = ((u[tried] != u) & mask).any(2)  # (TRIES, B)
    picked = tried.gather(0, differs.byte().argmax(0, keepdim=True))[0]  # some row that differs, if any of those does
    return torch.where(mask, u[picked], u)
