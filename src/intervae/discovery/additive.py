"""Causal additive models (Bühlmann, Peters & Ernest 2014): greedy likelihood over sums of splines.

Every variable is a sum of smooth curves of its causes plus Gaussian noise; of a binary or
categorical variable the logits are that sum. The edge with the largest gain in likelihood is
added until none is left that is strong enough and closes no cycle. Every fit has a closed form
or few Newton steps, so the search can be repeated on a hundred resampled tables.
Shapes: N rows, n variables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery
from intervae.discovery.design_matrix import one_hot
from intervae.discovery.knowledge import EdgeConstraints, Knowledge
from intervae.discovery.multinomial import RIDGE, fit_logits

ASSUMPTIONS = (
    "Every variable is a sum of smooth functions of its causes plus Gaussian noise (the logits "
    "of a binary or categorical one are that sum), variables without causes are Gaussian, there "
    "are no hidden common causes and no cycles; linear relations have no identifiable direction."
)
KNOTS = 4  # inside the range of a continuous cause; its curve has KNOTS + 3 parameters
AMBIGUOUS_NATS = 2.0  # margin below which both directions count as equally likely


@dataclass(frozen=True)
class AdditiveFit:
    """Fit of one variable on some causes."""

    gain: float  # log-likelihood over no cause, less the number of parameters (AIC)
    parameters: int
    strengths: tuple[float, ...]  # per cause: std of its curve over that of the effect, or logits


class AdditiveRegressions:
    """Additive regressions among the columns of one table; products are computed once.

    Arguments:
        columns: (N, n), checked.
        kinds: (n,) continuous, binary or categorical.
    """

    def __init__(self, columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> None:
        self.kinds, self.rows = tuple(kinds), len(columns)
        self.bic_penalty = 0.5 * math.log(self.rows) - 1.0  # per parameter, beyond the AIC's 1
        blocks = [
            curve_basis(column, kind, name)
            for column, kind, name in zip(columns.T, kinds, names, strict=True)
        ]
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        self.slices = [slice(a, b) for a, b in pairwise(ends)]
        self.basis = np.concatenate(blocks, axis=1)  # (N, P)
        values = np.where(np.array(kinds) == "continuous", columns, 0.0)
        std = values.std(axis=0)
        self.values = (values - values.mean(axis=0)) / np.where(std > 0, std, 1.0)  # (N, n)
        self.products = self.basis.T @ self.basis
        self.projected = self.basis.T @ self.values  # (P, n)
        self.targets = {
            i: one_hot(names[i], columns[:, i])
            for i, kind in enumerate(kinds)
            if kind != "continuous"
        }

    def fit(self, causes: Sequence[int], effect: int) -> AdditiveFit:
        """Fit a sum of lines or of curves of the causes, whichever has the better BIC."""
        curves = [np.arange(self.basis.shape[1])[self.slices[j]] for j in causes]
        lines = [
            block[:1] if self.kinds[j] == "continuous" else block
            for j, block in zip(causes, curves, strict=True)
        ]
        fit = self._fit_value if self.kinds[effect] == "continuous" else self._fit_logits
        return max(
            (fit(lines, effect), fit(curves, effect)),
            key=lambda result: result.gain - self.bic_penalty * result.parameters,
        )

    def _fit_value(self, blocks: list[np.ndarray], effect: int) -> AdditiveFit:
        at = np.concatenate(blocks)
        products, projected = self.products[np.ix_(at, at)], self.projected[at, effect]
        ridge = RIDGE * self.rows * np.eye(len(at))
        factor = cho_factor(products + ridge, check_finite=False)
        weights = cho_solve(factor, projected, check_finite=False)
        explained = (2 * weights @ projected - weights @ products @ weights) / self.rows
        gain = -0.5 * self.rows * math.log(max(1.0 - explained, 1e-12))
        return AdditiveFit(gain - len(at), len(at), self._strengths(blocks, weights[:, None]))

    def _fit_logits(self, blocks: list[np.ndarray], effect: int) -> AdditiveFit:
        at = np.concatenate(blocks)
        weights, gain = fit_logits(self.basis[:, at], self.targets[effect])
        parameters = len(at) * (weights.shape[1] - 1)
        return AdditiveFit(gain - parameters, parameters, self._strengths(blocks, weights))

    def _strengths(self, blocks: list[np.ndarray], weights: np.ndarray) -> tuple[float, ...]:
        """Standard deviation of the curve of each cause, root mean square over K outputs."""
        ends = np.cumsum([len(block) for block in blocks])[:-1]
        squares = [
            float(np.einsum("pk,pq,qk->", w, self.products[np.ix_(at, at)], w))
            / (self.rows * w.shape[1])
            for at, w in zip(blocks, np.split(weights, ends), strict=True)
        ]
        return tuple(math.sqrt(max(square, 0.0)) for square in squares)


def curve_basis(column: np.ndarray, kind: str, name: str = "") -> np.ndarray:
    """Centred basis (N, q) of a column (N,): cubic splines, or one input per category."""
    if kind == "continuous":
        inner = np.unique(np.quantile(column, np.linspace(0, 1, KNOTS + 2)))
        if len(inner) < 4:  # too few values for a spline
            block = column[:, None] - column.mean()
            return block / block.std()
        knots = np.concatenate([[inner[0]] * 3, inner, [inner[-1]] * 3])
        splines = scipy.interpolate.BSpline.design_matrix(
            np.clip(column, inner[0], inner[-1]), knots, 3
        ).toarray()
        line = (column[:, None] - column.mean()) / column.std()  # the ridge hardly shrinks it
        block = np.concatenate([line, splines[:, 2:]], axis=1)
    else:
        block = one_hot(name, column)[:, 1:]
    block = block - block.mean(axis=0)
    return block / np.maximum(block.std(axis=0), 1e-9)


def discover_additive(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    threshold: float = 0.3,
) -> Discovery:
    """Find the graph of largest likelihood by greedy search; columns of any kind.

    The weight of an edge is the standard deviation of the cause's curve, relative to that of the
    effect (squared: its share of the variance), or in logits.

    Arguments:
        columns: (N, n); the result does not depend on their units.
        seed: unused, the method is deterministic.
        knowledge: required and forbidden edges, and tiers.
        threshold: smallest weight of an edge.
    """
    started = time.perf_counter()
    constraints = Knowledge.parse(knowledge).constraints(names)
    table = AdditiveRegressions(columns, names, kinds)
    weights, margins = greedy_search(table, constraints, threshold)
    graph = CausalGraph(tuple(names), weights)
    return Discovery(
        graph=graph,
        order=tuple(graph.topological_order),
        cost=(0.0,) * len(names),
        method="additive",
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[(names[j], names[i]) for (j, i), m in margins.items() if m < AMBIGUOUS_NATS],
    )


def greedy_search(
    table: AdditiveRegressions, constraints: EdgeConstraints, threshold: float
) -> tuple[np.ndarray, dict[tuple[int, int], float]]:
    """Add the edge of largest gain until none is left.

    Returns:
        (n, n) weights, and for each edge its margin in nats over the reversed edge, infinite
        where that is not allowed.
    """
    n = len(table.kinds)
    parents: list[list[int]] = [
        [int(j) for j in np.flatnonzero(constraints.required[:, i])] for i in range(n)
    ]
    weights, margins = np.zeros((n, n)), {}
    reaches = np.eye(n, dtype=bool)  # [j, i]: a directed path from j to i
    for i in range(n):
        for j in parents[i]:
            reaches |= np.outer(reaches[:, j], reaches[i])
    fits = [table.fit(parents[i], i) if parents[i] else AdditiveFit(0.0, 0, ()) for i in range(n)]
    candidates = {
        (j, i): table.fit([*parents[i], j], i)
        for j, i in np.argwhere(constraints.allowed & ~constraints.required)
    }

    def edge_gain(edge: tuple[int, int]) -> float:
        """Gain in nats; -inf for an edge that is weak, not significant, or closes a cycle."""
        (j, i), fit = edge, candidates[edge]
        gain = fit.gain - fits[i].gain
        penalty = table.bic_penalty * (fit.parameters - fits[i].parameters)
        if fit.strengths[-1] < threshold or gain <= penalty or reaches[i, j]:
            return -math.inf
        return gain

    while candidates:
        best = max(candidates, key=edge_gain)
        gain = edge_gain(best)
        if gain == -math.inf:
            break
        j, i = best
        margins[j, i] = gain - (edge_gain((i, j)) if (i, j) in candidates else -math.inf)
        parents[i].append(j)
        fits[i] = candidates.pop(best)
        reaches |= np.outer(reaches[:, j], reaches[i])
        candidates = {
            (a, b): table.fit([*parents[i], a], i) if b == i else fit
            for (a, b), fit in candidates.items()
            if not reaches[b, a]
        }
    for i in range(n):
        for j, strength in zip(parents[i], fits[i].strengths, strict=True):
            weights[j, i] = max(strength, 1e-3)
    return weights, margins


def forbid_weak_pairs(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    allowed: np.ndarray,
    smallest: float,
) -> Knowledge:
    """Forbid every pair whose strength by a single curve is below `smallest`.

    It saves time on resampled tables. `allowed` (n, n) of 0 and 1 are the possible edges.
    """
    table = AdditiveRegressions(columns, names, kinds)
    strong = np.zeros((len(names), len(names)), dtype=bool)
    for j, i in np.argwhere(allowed):
        strong[j, i] = table.fit([j], i).strengths[0] >= smallest
    candidates = (strong | strong.T) & allowed.astype(bool) | np.eye(len(names), dtype=bool)
    return Knowledge(forbidden=tuple((names[j], names[i]) for j, i in np.argwhere(~candidates)))


def adjusted_r_squared(cause: np.ndarray, effect: np.ndarray, *, linear: bool = False) -> float:
    """Adjusted R^2 of a continuous effect (N,) on a curve, or on a line, of a cause (N,)."""
    basis = (cause[:, None] - cause.mean()) if linear else curve_basis(cause, "continuous")
    centred = effect - effect.mean()
    try:
        weights = np.linalg.lstsq(basis, centred, rcond=None)[0]
    except LinAlgError:
        return 0.0
    squares = float(np.square(centred - basis @ weights).sum())
    unexplained = squares / max(len(centred) - basis.shape[1] - 1, 1)
    return 1.0 - unexplained / float(np.square(centred).sum() / max(len(centred) - 1, 1))
