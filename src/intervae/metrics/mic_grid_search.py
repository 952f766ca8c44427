"""Compiled search over the grids of MIC and TIC (Reshef et al. 2011, supplement), in fixed point.

A grid's mutual information with n points is (n H(Q) + sum of segment scores) / n. Q is the
equipartition of one axis. A column of the other axis with n_i points of row i has the score
sum_i g(n_i) - g(sum_i n_i), g(k) = k ln k. Scores are additive, so dynamic programming finds the
best columns. Scores are 64-bit fixed-point numbers: integer sums do not depend on their order, so
they vectorise and every machine returns the same value.
"""

from __future__ import annotations

import math

import numpy as np

from intervae.compilation import compiled, inner
from intervae.metrics.mic_partitions import (
    cumulative_counts,
    find_clumps,
    label_rows,
    merge_clumps,
    same_partition,
)

SCORE_BITS = 60  # |score| < 2^60, so that the sum of any two scores stays inside 64 bits
LOWEST = -(2**62)

# rules that combine the two directions of a cell
LARGER_DIRECTION = 0  # the larger of the two directions
LARGER_SIDE = 1  # equipartition the side with more bins; square cells: the larger direction
LARGER_SIDE_FIRST = 2  # the same, but square cells equipartition the first variable


def score_table(n: int) -> tuple[np.ndarray, float]:
    """Return g(k) = k ln k for k = 0..n as fixed-point numbers, and the value of one unit."""
    k = np.arange(n + 1, dtype=np.float64)
    values = k * np.log(np.maximum(k, 1.0))
    unit = 2.0 ** (math.ceil(math.log2(values[-1])) - SCORE_BITS)
    return np.rint(values / unit).astype(np.int64), unit


@inner
def _segment_scores(counts, t, scores, out):
    """Write out[s], the score of a column of clumps s..t-1, for every s < t (two rows or more)."""
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
    """Return max(best[s] + first[s]) and max(best[s] + second[s]) in one pass over `best`."""
    largest_first = LOWEST
    largest_second = LOWEST
    for s in range(best.size):
        largest_first = max(largest_first, best[s] + first[s])
        largest_second = max(largest_second, best[s] + second[s])
    return largest_first, largest_second


@inner
def _best_two_columns(counts, scores):
    """OptimizeXAxis for two columns: score only the segments at both ends of the axis."""
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
    """OptimizeXAxis: the best total score of at least two clumps cut into 2..columns columns.

    best[l, t] is the best score of the first t clumps in l columns: the maximum over s of
    best[l - 1, s] + score of clumps s..t-1. One vector of segment scores per t serves all l, so no
    matrix over pairs of clumps is stored. Steps t and t + 1 are computed together.
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
            largest, larger = _largest_sums(
                best[level - 1, level - 1 : t], first[level - 1 : t], second[level - 1 : t]
            )
            best[level, t] = largest
            best[level, t + 1] = max(larger, best[level - 1, t] + second[t])
        if t + 1 <= columns_used:
            best[t + 1, t + 1] = best[t, t] + second[t]
    for level in range(2, columns + 1):
        result[level - 2] = best[min(level, columns_used), clumps]


@inner
def _one_direction(free, i, equal, j, widest, max_clumps, scores, unit):
    """ApproxMaxMI for every grid of one direction.

    Variable j of `equal` is equipartitioned into y rows; the x columns of variable i of `free` are
    optimised, at most widest[y - 2] columns over at most max_clumps[y - 2] superclumps. Returns
    the normalised information at [y - 2, x - 2].
    """
    n = free.order.shape[1]
    result = np.zeros((widest.size, widest.size))
    if free.distinct[i] < 2 or equal.distinct[j] < 2:
        return result
    best = np.empty(widest.size, np.int64)  # there are at most as many columns as rows
    row_of_rank = np.empty(n, np.int32)
    labels = np.empty(n, np.int32)
    ends, sizes, merged = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    clumps = 0
    cached = 0  # number of rows that `labels`, `ends` and `clumps` were computed for
    for y in range(2, widest.size + 2):
        used = equal.rows_used[j, y - 2]
        if used < 2:
            continue
        if cached == 0 or not same_partition(equal, j, y, cached):
            label_rows(equal, j, y, free.order[i], row_of_rank, labels)
            clumps = find_clumps(labels, free.starts[i], free.distinct[i], ends)
        elif widest[y - 2] <= widest[cached - 2] and min(clumps, max_clumps[y - 2]) == min(
            clumps, max_clumps[cached - 2]
        ):
            for x in range(widest[y - 2] - 1):
                result[y - 2, x] = result[cached - 2, x]
            continue
        cached = y
        count = merge_clumps(ends, clumps, max_clumps[y - 2], sizes, merged)
        if count < 2:
            continue
        _best_columns(cumulative_counts(labels, used, merged, count), widest[y - 2], scores, best)
        for x in range(2, widest[y - 2] + 1):
            information = (best[x - 2] + equal.entropy[j, y - 2]) * unit / n
            result[y - 2, x - 2] = min(max(information / math.log(min(x, used)), 0.0), 1.0)
    return result


@compiled
def score_pairs(left, right, pairs, allowed, widest, max_clumps, rule, scores, unit, out):
    """For each pair (i of `left`, j of `right`): write the largest cell and the sum of cells.

    They go into out[:, 0] and out[:, 1]. With y rows a grid has at most allowed[y - 2] columns, of
    which widest[y - 2] are optimised. `rule` combines the two directions of a cell.
    """
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        # [rows of right, columns of left] and [rows of left, columns of right]
        right_rows = _one_direction(left, i, right, j, widest, max_clumps, scores, unit)
        left_rows = _one_direction(right, j, left, i, widest, max_clumps, scores, unit)
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
