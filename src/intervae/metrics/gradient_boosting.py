"""Compiled gradient boosting of shallow trees (Friedman 2001), for the importances of DCI.

Losses, splits, leaf values and impurity importances are those of scikit-learn's
GradientBoostingClassifier and GradientBoostingRegressor; ties are broken at random. Every column is
sorted once; one pass over it tries all thresholds of all nodes of a level. Test rows pass through
the trees while these grow, so trees are not stored.
"""

from __future__ import annotations

import numpy as np

from intervae.compilation import compiled, inner

NO_GAIN = 1e-12  # smallest gain, as a fraction of the squared residuals; less is rounding
TIE = 1e-9  # relative difference below which two gains are equal


@compiled
def boost(table, order, target, classes, rounds, depth, rate, turns):
    """Fit on the first len(target) rows of `table` (d, rows).

    Arguments:
        order: (d, training rows) int64, the training rows of each column in ascending order.
        target: (training rows,) float64, class numbers, or values where `classes` is 0.
        turns: (rounds * trees per round * depth, d) int64, the order in which columns are tried;
            the first of equally good columns is chosen.

    Returns:
        importance: (d,) fraction of the reduction of squared residuals due to each column, over
            all trees; all 0 where no tree has a split.
        raw: (scores, rows) predicted values, log odds of class 1 (two classes), or unnormalised
            log probabilities.
    """
    columns, rows = table.shape
    trained = len(target)
    scores = 1 if classes <= 2 else classes
    raw = np.zeros((scores, rows))
    start = _start(target, classes, scores)
    for k in range(scores):
        raw[k, :] = start[k]
    values = np.empty(order.shape)  # (d, training rows), ascending
    for j in range(columns):
        values[j] = table[j][order[j]]
    importance = np.zeros(columns)
    residual = np.empty((scores, trained))
    curvature = np.ones((scores, trained))
    factor = rate * (classes - 1) / classes if classes > 2 else rate
    for r in range(rounds):
        _residuals(raw, target, classes, residual, curvature)
        for k in range(scores):
            turn = (r * scores + k) * depth
            _grow(
                table,
                order,
                values,
                residual[k],
                curvature[k],
                turns[turn : turn + depth],
                factor,
                raw[k],
                importance,
            )
    total = importance.sum()
    if total > 0:
        importance /= total
    return importance, raw


@inner
def _start(target, classes, scores):
    start = np.zeros(scores)
    if classes == 0:
        start[0] = target.mean()
    elif classes == 2:
        share = target.mean()
        start[0] = np.log(share / (1 - share))
    else:
        for k in range(scores):
            start[k] = np.log(max((target == k).sum() / len(target), 1e-15))
    return start


@inner
def _residuals(raw, target, classes, residual, curvature):
    """Write the negative gradients of squared error or log loss, and the second derivatives."""
    scores, trained = residual.shape
    for i in range(trained):
        if classes == 0:
            residual[0, i] = target[i] - raw[0, i]
            continue
        total = 0.0
        if classes == 2:
            residual[0, i] = 1 / (1 + np.exp(-raw[0, i]))
            total = 1.0
        else:
            largest = raw[:, i].max()
            for k in range(scores):
                residual[k, i] = np.exp(raw[k, i] - largest)
                total += residual[k, i]
        for k in range(scores):
            probability = residual[k, i] / total
            curvature[k, i] = probability * (1 - probability)
            is_class = target[i] == k if classes > 2 else target[i] == 1
            residual[k, i] = (1.0 if is_class else 0.0) - probability


@inner
def _grow(table, order, values, residual, curvature, turns, factor, raw, importance):
    """Grow one tree; add its reduction of squared residuals to `importance`, its steps to `raw`."""
    rows, depth = table.shape[1], len(turns)
    trained = len(residual)
    node = np.zeros(rows, dtype=np.int64)
    smallest = NO_GAIN * (residual**2).sum()
    for level in range(depth):
        nodes = 1 << level
        sums, counts = np.zeros(nodes), np.zeros(nodes)
        for i in range(trained):
            sums[node[i]] += residual[i]
            counts[node[i]] += 1
        best_gain, best_column, best_cut = (
            np.full(nodes, smallest),
            np.full(nodes, -1),
            np.zeros(nodes),
        )
        for j in turns[level]:
            _try_column(
                j,
                order[j],
                values[j],
                residual,
                node,
                sums,
                counts,
                best_gain,
                best_column,
                best_cut,
            )
        for a in range(nodes):
            if best_column[a] >= 0:
                importance[best_column[a]] += best_gain[a]
        for i in range(rows):  # a node that is not split passes its rows to its left child
            a = node[i]
            goes_right = best_column[a] >= 0 and table[best_column[a], i] > best_cut[a]
            node[i] = 2 * a + (1 if goes_right else 0)
    leaves = 1 << depth
    numerator, denominator = np.zeros(leaves), np.zeros(leaves)
    for i in range(trained):
        numerator[node[i]] += residual[i]
        denominator[node[i]] += curvature[i]
    for i in range(rows):
        if denominator[node[i]] > 1e-150:
            raw[i] += factor * numerator[node[i]] / denominator[node[i]]


@inner
def _try_column(j, order, values, residual, node, sums, counts, best_gain, best_column, best_cut):
    """Update the best splits with thresholds of column j, midway between neighbouring values."""
    nodes = len(sums)
    left, passed, last = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    for t in range(len(order)):
        i, value = order[t], values[t]
        a = node[i]
        if value > last[a] and passed[a] > 0:
            difference = left[a] * counts[a] - sums[a] * passed[a]
            gain = difference * difference / (passed[a] * (counts[a] - passed[a]) * counts[a])
            if gain > best_gain[a] * (1 + TIE):
                cut = (last[a] + value) / 2
                best_gain[a], best_column[a], best_cut[a] = gain, j, cut if cut < value else last[a]
        left[a] += residual[i]
        passed[a] += 1
        last[a] = value
