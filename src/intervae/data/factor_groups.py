"""Groups of images that agree in every factor but one, and batches of such groups.

DC-IGN (Kulkarni et al. 2015) trains on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intervae.data.dataset import Batch, Split
from intervae.data.variables import Variable

MAX_VALUES = 128  # of a continuous variable; one with more values is binned
ROWS_PER_VALUE = 8  # of a continuous variable on average; one with fewer is binned
SMALLEST_SHARE = 0.1  # of a factor's variance within groups, for it to vary independently
LARGEST_KEY = 2**40


@dataclass(frozen=True)
class RowGroups:
    """Groups of rows, concatenated."""

    rows: Tensor  # (R,) row numbers
    start: Tensor  # (G,) index in `rows` at which a group starts
    size: Tensor  # (G,) at least 2
    share: float = 0.0  # variance of the factor within groups, relative to that in all rows

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True)
class FactorGroups:
    """The factors of a table of labels that vary independently."""

    factors: dict[int, RowGroups]  # column of a factor -> groups in which only it varies
    rest: RowGroups  # groups in which no factor varies
    bound: tuple[int, ...]  # columns that follow from others


def label_codes(labels: Tensor, variables: Sequence[Variable], bins: int) -> Tensor:
    """Return labels (N, n) as whole numbers (N, n).

    A number stands for a value, or for one of `bins` quantile bins of a variable with many values.
    """
    columns = []
    for variable, column in zip(variables, labels.T, strict=True):
        values, codes = torch.unique(column, return_inverse=True)
        if variable.kind == "continuous" and len(values) > min(
            MAX_VALUES, len(column) // ROWS_PER_VALUE
        ):
            edges = column.sort().values[
                (torch.arange(1, bins, device=column.device) * len(column)) // bins
            ]
            codes = torch.searchsorted(edges.contiguous(), column.contiguous(), right=True)
        columns.append(codes)
    return torch.stack(columns, dim=1)


def group_rows(codes: Tensor, equal: Sequence[int], values: Tensor | None = None) -> RowGroups:
    """Return groups of rows with equal codes (N, n) in the `equal` columns.

    Groups have two rows or more; with `values` (N,), only groups in which these vary.
    """
    n = len(codes)
    key, largest = torch.zeros(n, dtype=torch.int64, device=codes.device), 1
    for column in equal:
        count = int(codes[:, column].max()) + 1
        key, largest = key * count + codes[:, column], largest * count
        if largest > LARGEST_KEY:
            key = torch.unique(key, return_inverse=True)[1]
            largest = int(key.max()) + 1
    _, group, size = torch.unique(key, return_inverse=True, return_counts=True)
    selected, share = size > 1, 0.0
    if values is not None:
        mean = (
            torch.zeros(len(size), dtype=torch.float64, device=codes.device).index_add_(
                0, group, values.double()
            )
            / size
        )
        squares = torch.zeros_like(mean).index_add_(
            0, group, (values.double() - mean[group]).square()
        )
        largest_value = values.new_full((len(size),), -torch.inf).scatter_reduce_(
            0, group, values, "amax"
        )
        selected = largest_value > values.new_full((len(size),), torch.inf).scatter_reduce_(
            0, group, values, "amin"
        )
        within = squares[selected].sum() / size[selected].sum().clamp(min=1)
        share = float(within / values.double().var(correction=0).clamp(min=1e-30))
    order = group.argsort(stable=True)
    sizes = size[selected]
    return RowGroups(order[selected[group[order]]], sizes.cumsum(0) - sizes, sizes, share)


def find_factors(
    labels: Tensor, variables: Sequence[Variable], *, intrinsic: Sequence[int] = (), bins: int = 10
) -> FactorGroups:
    """Return the variables that vary while the others are constant, with their groups of rows.

    If labels follow from each other (a shadow from a rod and a light), no rows differ in one alone.
    Then the variable with the smallest share of variance is dropped, until all others vary.

    Arguments:
        labels: (N, n).
        intrinsic: columns that are constant while a factor varies, but are not factors.
        bins: quantile bins of a variable with many values.
    """
    codes = label_codes(labels, variables, bins)
    free, bound = [i for i in range(len(variables)) if i not in intrinsic], []
    groups: dict[int, RowGroups] = {}
    while free:
        groups = {
            i: group_rows(codes, [j for j in (*free, *intrinsic) if j != i], labels[:, i])
            for i in free
        }
        least = min(free, key=lambda i: groups[i].share)
        if groups[least].share >= SMALLEST_SHARE:
            break
        free.remove(least)
        bound.append(least)
        groups = {}
    return FactorGroups(groups, group_rows(codes, free), tuple(sorted(bound)))


class GroupedSplit(Split):
    """Groups of a split's images as samples: a batch of b rows is b groups of `group_size` images.

    Images of a group are adjacent. A batch also holds `active` (b * group_size, latents), the
    latents that a group's variation belongs to. A row determines the kind of variation; group and
    images (with replacement) are drawn from a hash of the batch's rows, without any state.

    Arguments:
        pool: the images.
        kinds: groups of each kind of variation.
        active: (kinds, latents) booleans.
        weights: relative frequency of each kind; within a kind, groups are drawn by their size.
    """

    def __init__(
        self,
        pool: Split,
        kinds: Sequence[RowGroups],
        active: Tensor,
        weights: Sequence[float],
        group_size: int,
    ) -> None:
        device = pool.device
        count = torch.tensor([len(groups.rows) for groups in kinds])
        first = count.cumsum(0) - count  # start of each kind in the table of rows
        entries = max(len(pool) // group_size, len(kinds))  # one pass over the pool
        bounds = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)
        kind = torch.searchsorted(
            bounds, (torch.arange(entries, dtype=torch.float64) + 0.5) / entries
        )
        spans = [
            torch.stack([g.start + offset, g.size], dim=1).repeat_interleave(g.size, 0)
            for g, offset in zip(kinds, first.tolist(), strict=True)
        ]
        self.pool, self.fields, self.group_size = pool, pool.fields, group_size
        self.tables = {
            # (E, 3) kind, start of its rows, number of its rows
            "entries": torch.stack([kind, first[kind], count[kind]], dim=1),
            "rows": torch.cat([groups.rows for groups in kinds]),  # (R,) rows of the pool
            "spans": torch.cat(spans),  # (R, 2) start and size of the group of each row
            "active": active,
        }
        self.tables = {name: table.to(device) for name, table in self.tables.items()}

    @property
    def images(self) -> Tensor:
        return self.pool.images

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pool.shape

    def __len__(self) -> int:
        return len(self.tables["entries"])

    def __getitem__(self, rows: Any) -> GroupedSplit:
        return self._with(self.pool, {**self.tables, "entries": self.tables["entries"][rows]})

    def to(self, device: torch.device | str) -> GroupedSplit:
        return self._with(
            self.pool.to(device), {name: table.to(device) for name, table in self.tables.items()}
        )

    def _with(self, pool: Split, tables: dict[str, Tensor]) -> GroupedSplit:
        split = object.__new__(GroupedSplit)
        split.pool, split.fields = pool, pool.fields
        split.group_size, split.tables = self.group_size, tables
        return split

    def batch(self, rows: Tensor) -> Batch:
        tables = self.tables
        kind, first, count = tables["entries"].index_select(0, rows).unbind(1)
        drawn = _hash_rows(rows, 1 + self.group_size)  # (b, 1 + group_size)
        start, size = tables["spans"].index_select(0, first + drawn[:, 0] % count).unbind(1)
        members = tables["rows"].index_select(
            0, (start[:, None] + drawn[:, 1:] % size[:, None]).flatten()
        )
        active = tables["active"].index_select(0, kind)[:, None].expand(-1, self.group_size, -1)
        return {**self.pool.batch(members), "active": active.flatten(0, 1)}


def _hash_rows(rows: Tensor, columns: int) -> Tensor:
    """Return pseudo-random whole numbers (b, columns) from all `rows` (b,) and their order."""
    position = torch.arange(len(rows), device=rows.device)
    # products and sums wrap around
    total = _mix(rows * 0x1E3779B97F4A7C15 + position * 0x3F58476D1CE4E5B9).sum()
    mixed = (total + position * 0x14D049BB133111EB)[:, None] + torch.arange(
        columns, device=rows.device
    ) * 0x2545F4914F6CDD1D
    return (_mix(_mix(mixed)) >> 17) & (2**46 - 1)


def _mix(numbers: Tensor) -> Tensor:
    return (numbers ^ ((numbers >> 29) & (2**35 - 1))) * 0x3C79AC492BA7B653
