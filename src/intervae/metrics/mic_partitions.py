"""Partitions of one axis for MIC and TIC: ranks, equipartitions, clumps and superclumps.

The functions follow the algorithms of the supplement of Reshef et al. 2011, whose names they cite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from intervae.compilation import compiled, inner


class RankedVariables(NamedTuple):
    """What a table's V variables need for any partner: n samples, partitions into 2..R rows."""

    order: np.ndarray  # (V, n) int32: samples in ascending order
    rank: np.ndarray  # (V, n) int32: index of each sample's value among the distinct values
    starts: np.ndarray  # (V, n + 1) int32: where each distinct value starts in `order`, then n
    distinct: np.ndarray  # (V,) int32: number of distinct values
    # (V, 2 + 3 + ... + R) int32: ranks below row_ends[first_row(rows) + r] lie in rows 0..r
    row_ends: np.ndarray
    rows_used: np.ndarray  # (V, R - 1) int32: ties can leave fewer rows than requested
    entropy: np.ndarray  # (V, R - 1) int64: n H(Q), fixed point


def rank(table: np.ndarray, most_rows: int, scores: np.ndarray) -> RankedVariables:
    """Sort every column of `table` (n, V) and equipartition it into 2..most_rows rows."""
    columns = np.ascontiguousarray(table.T)  # (V, n)
    order = np.argsort(columns, axis=1, kind="stable").astype(np.int32)
    return _rank(columns, order, most_rows, scores)


@inner
def first_row(rows: int) -> int:
    """Index in `RankedVariables.row_ends` where the partition into `rows` rows begins."""
    return rows * (rows - 1) // 2 - 1


@inner
def equipartition(sizes, groups, rows, ends):
    """EquipartitionYAxis: distribute `groups` indivisible groups over at most `rows` rows.

    Writes ends[r], the number of groups in rows 0..r. Returns the number of rows used.
    """
    total = 0
    for i in range(groups):
        total += sizes[i]
    row = 0
    filled = 0  # points in the current row
    placed = 0
    target = total / rows
    for i in range(groups):
        size = sizes[i]
        if filled != 0 and abs(filled + size - target) >= abs(filled - target):
            ends[row] = i
            row += 1
            filled = 0
            target = (total - placed) / (rows - row)
        filled += size
        placed += size
    ends[row] = groups
    return row + 1


@compiled
def _rank(columns, order, most_rows, scores):
    variables, n = columns.shape
    ranks = np.empty((variables, n), np.int32)
    starts = np.empty((variables, n + 1), np.int32)
    distinct = np.empty(variables, np.int32)
    row_ends = np.zeros((variables, first_row(most_rows + 1)), np.int32)
    rows_used = np.empty((variables, most_rows - 1), np.int32)
    entropy = np.empty((variables, most_rows - 1), np.int64)
    sizes = np.empty(n, np.int32)
    for v in range(variables):
        count = 0
        for i in range(n):
            if i == 0 or columns[v, order[v, i]] != columns[v, order[v, i - 1]]:
                starts[v, count] = i
                count += 1
            ranks[v, order[v, i]] = count - 1
        starts[v, count] = n
        distinct[v] = count
        for j in range(count):
            sizes[j] = starts[v, j + 1] - starts[v, j]
        for rows in range(2, most_rows + 1):
            ends = row_ends[v, first_row(rows) :]
            used = equipartition(sizes, count, rows, ends)
            rows_used[v, rows - 2] = used
            value = scores[n]
            start = 0
            for r in range(used):
                value -= scores[starts[v, ends[r]] - start]
                start = starts[v, ends[r]]
            entropy[v, rows - 2] = value
    return RankedVariables(order, ranks, starts, distinct, row_ends, rows_used, entropy)


@inner
def same_partition(variable, j, y, z):
    """Whether ties make the partitions of variable j into y and z rows equal."""
    used = variable.rows_used[j, y - 2]
    same = used == variable.rows_used[j, z - 2]
    for r in range(used):
        same = (
            same
            and variable.row_ends[j, first_row(y) + r] == variable.row_ends[j, first_row(z) + r]
        )
    return same


@inner
def label_rows(variable, j, y, order, row_of_rank, labels):
    """Write the row of each sample in variable j's partition into y rows, along `order`."""
    start = 0
    for r in range(variable.rows_used[j, y - 2]):
        end = variable.row_ends[j, first_row(y) + r]
        for k in range(start, end):
            row_of_rank[k] = r
        start = end
    for i in range(labels.size):
        labels[i] = row_of_rank[variable.rank[j, order[i]]]


@inner
def find_clumps(labels, starts, distinct, ends):
    """GetClumpsPartition: runs of samples of one row; tied samples are never split.

    Writes ends[k], the number of samples in clumps 0..k. Returns the number of clumps.
    """
    clumps = 0
    last = -1
    for j in range(distinct):
        start = starts[j]
        row = labels[start]
        for i in range(start + 1, starts[j + 1]):
            if labels[i] != row:
                row = -1  # tied samples of several rows form a clump of their own
                break
        if j > 0 and (row < 0 or row != last):
            ends[clumps] = start
            clumps += 1
        last = row
    ends[clumps] = labels.size
    return clumps + 1


@inner
def merge_clumps(ends, clumps, max_clumps, sizes, merged):
    """GetSuperclumpsPartition: merge clumps into at most `max_clumps` of about equal size.

    Writes merged[k] and returns the number of superclumps, as `find_clumps` does for clumps.
    """
    for k in range(clumps):
        sizes[k] = ends[k] - (ends[k - 1] if k > 0 else 0)
        merged[k] = k + 1
    count = clumps
    if clumps > max_clumps:
        count = equipartition(sizes, clumps, max_clumps, merged)
    for k in range(count):
        merged[k] = ends[merged[k] - 1]
    return count


@inner
def cumulative_counts(labels, rows, ends, clumps):
    """Samples in the first t clumps, (1 + rows, 1 + clumps): of all rows first, then each row."""
    counts = np.zeros((rows + 1, clumps + 1), np.uint32)
    running = np.zeros(rows, np.uint32)
    start = 0
    for t in range(clumps):
        for i in range(start, ends[t]):
            running[labels[i]] += np.uint32(1)
        start = ends[t]
        counts[0, t + 1] = start
        for r in range(rows):
            counts[r + 1, t + 1] = running[r]
    return counts
