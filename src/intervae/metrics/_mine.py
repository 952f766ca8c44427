"""Compiled core of MIC and TIC: the grids of Reshef et al. 2011 (supplement, algorithms 1 to 6), in exact fixed-point arithmetic.

A grid's mutual information with n points is (n H(Q) + sum of segment scores) / n, where Q is the equipartition of one axis and a column of
the other axis that holds n_i points of row i scores sum_i g(n_i) - g(sum_i n_i), g(k) = k ln k. Scores add up, so the best columns come from
a plain dynamic programme. Scores are 64-bit fixed-point numbers: integer sums do not depend on their order, which lets the compiler
vectorise them and makes every machine return the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

SCORE_BITS = 60  # |score| < 2^60, so that the sum of any two scores stays inside 64 bits
LOWEST = -(2**62)

LARGER_DIRECTION = 0  # every cell: the better of the two directions
LARGER_SIDE = 1  # the side with more bins is equipartitioned; square cells: the better of the two directions
LARGER_SIDE_FIRST = 2  # the same, but square cells always equipartition the first variable


_WITHOUT_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = njit(**_WITHOUT_WRAPPERS)  # for functions called from compiled code only: quicker to compile


def compiled(function: Callable[..., Any]) -> Any:
    """Compile to code that frees the interpreter lock, and keep it on disk where any cache folder can be written."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no writable folder, neither beside the package nor in the home folder
        return njit(nogil=True)(function)


class Ranked(NamedTuple):
    """Everything about a table's V variables that does not depend on their partner (n samples, partitions into 2..R rows)."""

    order: np.ndarray  # (V, n) int32: samples in ascending order
    rank: np.ndarray  # (V, n) int32: index of each sample's value among the distinct values
    starts: np.ndarray  # (V, n + 1) int32: where each distinct value starts in `order`, then n
    distinct: np.ndarray  # (V,) int32: number of distinct values
    row_ends: np.ndarray  # (V, 2 + 3 + ... + R) int32: ranks below row_ends[first_row(rows) + r] lie in rows 0..r
    rows_used: np.ndarray  # (V, R - 1) int32: ties can leave fewer rows than asked for
    entropy: np.ndarray  # (V, R - 1) int64: n H(Q), fixed point


def score_table(n: int) -> tuple[np.ndarray, float]:
    """g(k) = k ln k for k = 0..n as fixed-point numbers, and the value of one unit."""
    k = np.arange(n + 1, dtype=np.float64)
    values = k * np.log(np.maximum(k, 1.0))
    unit = 2.0 ** (math.ceil(math.log2(values[-1])) - SCORE_BITS)
    return np.rint(values / unit).astype(np.int64), unit


def rank(table: np.ndarray, most_rows: int, scores: np.ndarray) -> Ranked:
    """Sort every column of `table` (n, V) and equipartition it into 2..most_rows rows."""
    columns = np.ascontiguousarray(table.T)  # (V, n)
    order = np.argsort(columns, axis=1, kind="stable").astype(np.int32)
    return _rank(columns, order, most_rows, scores)


@inner
def _first_row(rows: int) -> int:
    """Where the partition into `rows` rows begins in `Ranked.row_ends`."""
    return rows * (rows - 1) // 2 - 1


@inner
def _equipartition(sizes, groups, rows, ends):
    """EquipartitionYAxis: spread `groups` indivisible groups over at most `rows` rows; ends[r] groups lie in rows 0..r; returns rows used."""
    total = 0
    for i in range(groups):
        total += sizes[i]
    row = 0
    filled = 0  # points in the current row
    placed = 0
    wanted = total / rows
    for i in range(groups):
        size = sizes[i]
        if filled != 0 and abs(filled + size - wanted) >= abs(filled - wanted):
            ends[row] = i
            row += 1
            filled = 0
            wanted = (total - placed) / (rows - row)
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
    row_ends = np.zeros((variables, _first_row(most_rows + 1)), np.int32)
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
            ends = row_ends[v, _first_row(rows) :]
            used = _equipartition(sizes, count, rows, ends)
            rows_used[v, rows - 2] = used
            value = scores[n]
            start = 0
            for r in range(used):
                value -= scores[starts[v, ends[r]] - start]
                start = starts[v, ends[r]]
            entropy[v, rows - 2] = value
    return Ranked(order, ranks, starts, distinct, row_ends, rows_used, entropy)


@inner
def _clumps(labels, starts, distinct, ends):
    """GetClumpsPartition: runs of samples of one row, never splitting tied samples; ends[k] samples lie in clumps 0..k; returns their number."""
    clumps = 0
    last = -1
    for j in range(distinct):
        start = starts[j]
        row = labels[start]
        for i in range(start + 1, starts[j + 1]):
            if labels[i] != row:
                row = -1  # tied samples of several rows are a clump of their own
                break
        if j > 0 and (row < 0 or row != last):
            ends[clumps] = start
            clumps += 1
        last = row
    ends[clumps] = labels.size
    return clumps + 1


@inner
def _superclumps(ends, clumps, most, sizes, merged):
    """GetSuperclumpsPartition: merge clumps into at most `most` of about equal size; as `_clumps`, into `merged`."""
    for k in range(clumps):
        sizes[k] = ends[k] - (ends[k - 1] if k > 0 else 0)
        merged[k] = k + 1
    count = clumps
    if clumps > most:
        count = _equipartition(sizes, clumps, most, merged)
    for k in range(count):
        merged[k] = ends[merged[k] - 1]
    return count


@inner
def _cumulative_counts(labels, rows, ends, clumps):
    """(1 + rows, 1 + clumps): samples in the first t clumps, of all rows (first line) and of each row."""
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


@inner
def _segment_scores(counts, t, scores, out):
    """out[s] = score of a column made of clumps s..t-1, for every s < t (at least two rows)."""
    rows = counts.shape[0] - 1
    a, b, c = counts[0], counts[1], counts[2]  # unsigned counts: no index check in the loops
    at, bt, ct = a[t], b[t], c[t]
    for s in range(t):
        out[s] = scores[bt - b[s]] + scores[ct - c[s]] - scores[at - a[s]]
    for r in range(3, rows, 2):
        a, b = counts[r], counts[r + 1]
        at, bt = a[t], b[t]
        for s in range(t):
            out[s] += scores[at - a[s]] + scores[bt - b[s]]
    if rows % 2 == 1:
        a = counts[rows]
        at = a[t]
        for s in range(t):
            out[s] += scores[at - a[s]]


@inner
def _largest_sums(best, first, second):
    """The largest best[s] + first[s] and best[s] + second[s]: two ends of a column share the reads of `best`."""
    largest_first = LOWEST
    largest_second = LOWEST
    for s in range(best.size):
        largest_first = max(largest_first, best[s] + first[s])
        largest_second = max(largest_second, best[s] + second[s])
    return largest_first, largest_second


@inner
def _best_two_columns(counts, scores):
    """OptimizeXAxis for two columns: only the segments at both ends of the axis are scored."""
    rows, clumps = counts.shape[0] - 1, counts.shape[1] - 1
    segment = np.empty(clumps + 1, np.int64)
    _segment_scores(counts, clumps, scores, segment)
    largest = LOWEST
    for t in range(1, clumps):
        total = segment[t] - scores[counts[0, t]]
        for r in range(1, rows + 1):
            total += scores[counts[r, t]]
        largest = max(largest, total)
    return largest


@inner
def _best_columns(counts, columns, scores, result):
    """OptimizeXAxis: the best total score of all clumps (at least two) cut into 2..columns columns.

    best[l, t] is the best score of the first t clumps in l columns: the largest best[l - 1, s] + score of clumps s..t-1. For each t one vector
    of segment scores serves all l, so no matrix over pairs of clumps is kept; t and t + 1 are computed together.
    """
    if columns == 2:
        result[0] = _best_two_columns(counts, scores)
        return
    clumps = counts.shape[1] - 1
    columns_used = min(columns, clumps)
    best = np.empty((columns_used + 1, clumps + 2), np.int64)
    first = np.empty(clumps + 2, np.int64)
    second = np.empty(clumps + 2, np.int64)
    for t in range(1, clumps + 1, 2):
        _segment_scores(counts, t, scores, first)
        _segment_scores(counts, min(t + 1, clumps), scores, second)
        best[1, t] = first[0]
        best[1, t + 1] = second[0]
        for level in range(2, min(columns_used, t) + 1):
            largest, larger = _largest_sums(best[level - 1, level - 1 : t], first[level - 1 : t], second[level - 1 : t])
            best[level, t] = largest
            best[level, t + 1] = max(larger, best[level - 1, t] + second[t])
        if t + 1 <= columns_used:
            best[t + 1, t + 1] = best[t, t] + second[t]
    for level in range(2, columns + 1):
        result[level - 2] = best[min(level, columns_used), clumps]


@inner
def _same_rows(variable, j, y, z):
    """Whether ties make the partitions of variable j into y and z rows equal."""
    used = variable.rows_used[j, y - 2]
    same = used == variable.rows_used[j, z - 2]
    for r in range(used):
        same = same and variable.row_ends[j, _first_row(y) + r] == variable.row_ends[j, _first_row(z) + r]
    return same


@inner
def _label(variable, j, y, order, row_of_rank, labels):
    """The rows of variable j's partition into y rows, read along `order`."""
    start = 0
    for r in range(variable.rows_used[j, y - 2]):
        end = variable.row_ends[j, _first_row(y) + r]
        for k in range(start, end):
            row_of_rank[k] = r
        start = end
    for i in range(labels.size):
        labels[i] = row_of_rank[variable.rank[j, order[i]]]


@inner
def _one_direction(free, i, equal, j, widest, most_clumps, scores, unit):
    """ApproxMaxMI for every grid: variable j of `equal` equipartitioned into y rows, variable i of `free` cut at will into x columns.

    Returns the normalised information at [y - 2, x - 2]; widest[y - 2] columns at most and most_clumps[y - 2] superclumps.
    """
    n = free.order.shape[1]
    result = np.zeros((widest.size, widest.size))
    if free.distinct[i] < 2 or equal.distinct[j] < 2:
        return result
    best = np.empty(widest.size, np.int64)  # the most columns are as many as the most rows
    row_of_rank = np.empty(n, np.int32)
    labels = np.empty(n, np.int32)
    ends, sizes, merged = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    clumps = 0
    known = 0  # the number of rows that `labels`, `ends` and `clumps` belong to
    for y in range(2, widest.size + 2):
        used = equal.rows_used[j, y - 2]
        if used < 2:
            continue
        if known == 0 or not _same_rows(equal, j, y, known):
            _label(equal, j, y, free.order[i], row_of_rank, labels)
            clumps = _clumps(labels, free.starts[i], free.distinct[i], ends)
        elif widest[y - 2] <= widest[known - 2] and min(clumps, most_clumps[y - 2]) == min(clumps, most_clumps[known - 2]):
            for x in range(widest[y - 2] - 1):
                result[y - 2, x] = result[known - 2, x]
            continue
        known = y
        count = _superclumps(ends, clumps, most_clumps[y - 2], sizes, merged)
        if count < 2:
            continue
        _best_columns(_cumulative_counts(labels, used, merged, count), widest[y - 2], scores, best)
        for x in range(2, widest[y - 2] + 1):
            information = (best[x - 2] + equal.entropy[j, y - 2]) * unit / n
            result[y - 2, x - 2] = min(max(information / math.log(min(x, used)), 0.0), 1.0)
    return result


@compiled
def score_pairs(left, right, pairs, allowed, widest, most_clumps, rule, scores, unit, out):
    """For each pair (i of `left`, j of `right`): the largest cell into out[:, 0], the sum of its cells into out[:, 1].

    With y rows, a grid may have allowed[y - 2] columns, of which widest[y - 2] are needed. rule: how the two directions make one cell.
    """
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        right_rows = _one_direction(left, i, right, j, widest, most_clumps, scores, unit)  # [rows of right, columns of left]
        left_rows = _one_direction(right, j, left, i, widest, most_clumps, scores, unit)  # [rows of left, columns of right]
        largest = 0.0
        total = 0.0
        for y in range(allowed.size):
            for x in range(allowed[y] - 1):
                if rule == LARGER_DIRECTION or (rule == LARGER_SIDE and x == y):
                    cell = max(right_rows[y, x], left_rows[x, y])
                elif x < y:
                    cell = right_rows[y, x]
                else:
                    cell = left_rows[x, y]
                largest = max(largest, cell)
                total += cell
        out[k, 0] = largest
        out[k, 1] = total
