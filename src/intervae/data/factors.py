"""Groups of images that agree in every labelled factor but one, and batches made of such groups (DC-IGN's mini-batches, Kulkarni et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intervae.data.base import Batch, Split, Variable

MOST_VALUES = 128  # a continuous variable with more values, or with fewer than VALUES_RECUR rows for each, is cut into bins
VALUES_RECUR = 8
LEAST_SHARE = 0.1  # a factor that varies less than this inside the groups, compared with its whole variance, does not vary by itself
LARGEST_KEY = 2**40


@dataclass(frozen=True)
class Groups:
    """Rows that belong together, group after group."""

    rows: Tensor  # (R,) row numbers
    start: Tensor  # (G,) where a group begins in `rows`
    size: Tensor  # (G,) at least 2
    share: float = 0.0  # mean variance of the factor inside the groups, relative to its variance in all rows

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True)
class FactorGroups:
    """What varies by itself in a table of labels."""

    factors: dict[int, Groups]  # column of a factor -> groups in which only it varies
    rest: Groups  # groups in which no factor varies: what else the pictures differ in
    bound: tuple[int, ...]  # columns that do not vary by themselves, as they follow from others


def label_codes(labels: Tensor, variables: Sequence[Variable], bins: int) -> Tensor:
    """(N, n) labels to (N, n) whole numbers: a number for each value, or for each of `bins` quantile bins of a variable with many values."""
    columns = []
    for variable, column in zip(variables, labels.T, strict=True):
        values, codes = torch.unique(column, return_inverse=True)
        if variable.kind == "continuous" and len(values) > min(MOST_VALUES, len(column) // VALUES_RECUR):
            edges = column.sort().values[(torch.arange(1, bins, device=column.device) * len(column)) // bins]
            codes = torch.searchsorted(edges.contiguous(), column.contiguous(), right=True)
        columns.append(codes)
    return torch.stack(columns, dim=1)


def group_rows(codes: Tensor, held: Sequence[int], values: Tensor | None = None) -> Groups:
    """Groups of rows with equal `codes` (N, n) in the `held` columns: those in which `values` (N,) varies, or those of two rows or more."""
    n = len(codes)
    key, largest = torch.zeros(n, dtype=torch.int64, device=codes.device), 1
    for column in held:
        count = int(codes[:, column].max()) + 1
        key, largest = key * count + codes[:, column], largest * count
        if largest > LARGEST_KEY:
            key = torch.unique(key, return_inverse=True)[1]
            largest = int(key.max()) + 1
    _, group, size = torch.unique(key, return_inverse=True, return_counts=True)
    kept, share = size > 1, 0.0
    if values is not None:
        mean = torch.zeros(len(size), dtype=torch.float64, device=codes.device).index_add_(0, group, values.double()) / size
        squares = torch.zeros_like(mean).index_add_(0, group, (values.double() - mean[group]).square())
        largest_value = values.new_full((len(size),), -torch.inf).scatter_reduce_(0, group, values, "amax")
        kept = largest_value > values.new_full((len(size),), torch.inf).scatter_reduce_(0, group, values, "amin")
        within = squares[kept].sum() / size[kept].sum().clamp(min=1)
        share = float(within / values.double().var(correction=0).clamp(min=1e-30))
    order = group.argsort(stable=True)
    return Groups(order[kept[group[order]]], size[kept].cumsum(0) - size[kept], size[kept], share)


def find_factors(labels: Tensor, variables: Sequence[Variable], *, intrinsic: Sequence[int] = (), bins: int = 10) -> FactorGroups:
    """Which variables vary while the others stay, and in which rows.

    Where labels follow from each other (a shadow from a rod and a light) no rows differ in one of them alone. Then the variable that varies least
    by itself is given up and no longer held, until every other one varies by itself.

    Arguments:
        labels: (N, n).
        intrinsic: columns that are held while a factor varies, but are no factors themselves: their variation belongs to the rest.
    """
    codes = label_codes(labels, variables, bins)
    free, bound = [i for i in range(len(variables)) if i not in intrinsic], []
    found: dict[int, Groups] = {}
    while free:
        found = {i: group_rows(codes, [j for j in (*free, *intrinsic) if j != i], labels[:, i]) for i in free}
        least = min(free, key=lambda i: found[i].share)
        if found[least].share >= LEAST_SHARE:
            break
        free.remove(least)
        bound.append(least)
        found = {}
    return FactorGroups(found, group_rows(codes, free), tuple(sorted(bound)))


class GroupedSplit(Split):
    """Groups of a split's images instead of single ones: a row is a group, and a batch of b rows is b groups of `group_size` images each.

    Besides the images' own fields a batch holds `active` (b * group_size, latents), which latents a group's variation belongs to. Images of
    one group follow each other. A row says what varies; which group, and with replacement which of its images, is drawn from the rows of the
    batch alone: the same rows give the same images, and a shuffled epoch gives others, without any state.

    Arguments:
        pool: the images.
        kinds: the groups of each kind of variation.
        active: (kinds, latents) booleans.
        weights: how often each kind is drawn; a group is drawn as often as it has images.
    """

    def __init__(self, pool: Split, kinds: Sequence[Groups], active: Tensor, weights: Sequence[float], group_size: int) -> None:
        device = pool.device
        count = torch.tensor([len(groups.rows) for groups in kinds])
        first = count.cumsum(0) - count  # where each kind begins in the rows of all
        entries = max(len(pool) // group_size, len(kinds))  # one pass over the pool
        bounds = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)
        kind = torch.searchsorted(bounds, (torch.arange(entries, dtype=torch.float64) + 0.5) / entries)
        spans = [torch.stack([g.start + offset, g.size], dim=1).repeat_interleave(g.size, 0) for g, offset in zip(kinds, first.tolist(), strict=True)]
        self.pool, self.fields, self.group_size = pool, pool.fields, group_size
        self.tables = {
            "entries": torch.stack([kind, first[kind], count[kind]], dim=1),  # (E, 3) kind, where its rows begin, how many
            "rows": torch.cat([groups.rows for groups in kinds]),  # (R,) rows of the pool, group after group, kind after kind
            "spans": torch.cat(spans),  # (R, 2) where the group of each begins, and its size
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
        return self._with(self.pool.to(device), {name: table.to(device) for name, table in self.tables.items()})

    def _with(self, pool: Split, tables: dict[str, Tensor]) -> GroupedSplit:
        other = object.__new__(GroupedSplit)
        other.pool, other.fields, other.group_size, other.tables = pool, pool.fields, self.group_size, tables
        return other

    def batch(self, rows: Tensor) -> Batch:
        tables = self.tables
        kind, first, count = tables["entries"].index_select(0, rows).unbind(1)
        drawn = _scramble(rows, 1 + self.group_size)  # (b, 1 + S)
        start, size = tables["spans"].index_select(0, first + drawn[:, 0] % count).unbind(1)  # a group, by one of its images
        members = tables["rows"].index_select(0, (start[:, None] + drawn[:, 1:] % size[:, None]).flatten())
        active = tables["active"].index_select(0, kind)[:, None].expand(-1, self.group_size, -1)
        return {**self.pool.batch(members), "active": active.flatten(0, 1)}


def _scramble(rows: Tensor, columns: int) -> Tensor:
    """(b, columns) whole numbers, 0 or more, that look random, from all `rows` (b,) and their order."""
    place = torch.arange(len(rows), device=rows.device)
    whole = _mix(rows * 0x1E3779B97F4A7C15 + place * 0x3F58476D1CE4E5B9).sum()  # products and sums wrap around
    mixed = (whole + place * 0x14D049BB133111EB)[:, None] + torch.arange(columns, device=rows.device) * 0x2545F4914F6CDD1D
    return (_mix(_mix(mixed)) >> 17) & (2**46 - 1)


def _mix(numbers: Tensor) -> Tensor:
    return (numbers ^ ((numbers >> 29) & (2**35 - 1))) * 0x3C79AC492BA7B653
