"""Causal additive models (Bühlmann, Peters & Ernest 2014): edges by greedy likelihood over sums of curves, each fit in closed form and quick.

Every variable is a sum of smooth curves of its causes plus Gaussian noise (of a binary or categorical one, its logits are the sum). Starting
without edges, the edge that gains most likelihood is added as long as it closes no cycle and is strong enough. It is the likelihood of CMCL's
and NOTEARS-MLP's graph with `noise="free"`, without their search by gradients, so that it can be done again on a hundred resampled tables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery
from intervae.discovery.design import one_hot
from intervae.discovery.knowledge import Allowed, Knowledge

ASSUMPTIONS = (
    "Every variable is a sum of smooth functions of its causes plus Gaussian noise (of a binary or categorical one, its logits are the sum), what "
    "has no cause is Gaussian, no common cause is left out, and there are no cycles; straight relations do not tell cause from effect."
)
KNOTS = 4  # inside the range of a continuous cause; its curve has KNOTS + 3 free numbers
RIDGE = 1e-4  # share of the rows, against curves where there are no data
STEPS, ENOUGH = 12, 0.05  # of the logits' fit, which ends when a step gains less nats
MOST_NEWTON = 80  # free numbers of logits, above which their curvature is bounded and not computed
OPEN = 2.0  # nats below which two directions count as equally likely


@dataclass(frozen=True)
class Fit:
    """How well some causes predict one variable."""

    gain: float  # log-likelihood over no cause at all, less one for each free number (Akaike)
    free: int  # free numbers
    strengths: tuple[float, ...]  # of each cause: spread of its own curve, of the standardised effect or of its logits


class Regressions:
    """Additive regressions among the columns of one table; those of continuous effects come from one matrix of products.

    Arguments:
        columns: (N, n) checked.
        kinds: (n,) continuous, binary or categorical.
    """

    def __init__(self, columns: np.ndarray, names: Sequence[str], kinds: Sequence[str]) -> None:
        self.kinds, self.rows = tuple(kinds), len(columns)
        self.dear = 0.5 * math.log(self.rows) - 1.0  # what a free number must gain by Schwarz beyond Akaike's one
        blocks = [curve_basis(column, kind, name) for column, kind, name in zip(columns.T, kinds, names, strict=True)]
        ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
        self.slices = [slice(a, b) for a, b in pairwise(ends)]
        self.basis = np.concatenate(blocks, axis=1)  # (N, P)
        values = np.where(np.array(kinds) == "continuous", columns, 0.0)
        spread = values.std(axis=0)
        self.values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)  # (N, n)
        self.products = self.basis.T @ self.basis
        self.projected = self.basis.T @ self.values  # (P, n)
        self.targets = {i: one_hot(names[i], columns[:, i]) for i, kind in enumerate(kinds) if kind != "continuous"}

    def fit(self, causes: Sequence[int], effect: int) -> Fit:
        """The best sum of straight lines of the causes, or of curves where these are better by Schwarz: so a straight relation has no direction."""
        curves = [np.arange(self.basis.shape[1])[self.slices[j]] for j in causes]
        lines = [block[:1] if self.kinds[j] == "continuous" else block for j, block in zip(causes, curves, strict=True)]
        fit = self._fit_value if self.kinds[effect] == "continuous" else self._fit_logits
        return max((fit(lines, effect), fit(curves, effect)), key=lambda found: found.gain - self.dear * found.free)

    def _fit_value(self, blocks: list[np.ndarray], effect: int) -> Fit:
        at = np.concatenate(blocks)
        products, projected = self.products[np.ix_(at, at)], self.projected[at, effect]
        weights = cho_solve(cho_factor(products + RIDGE * self.rows * np.eye(len(at)), check_finite=False), projected, check_finite=False)
        explained = (2 * weights @ projected - weights @ products @ weights) / self.rows
        gain = -0.5 * self.rows * math.log(max(1.0 - explained, 1e-12))
        return Fit(gain - len(at), len(at), self._strengths(blocks, weights[:, None]))

    def _fit_logits(self, blocks: list[np.ndarray], effect: int) -> Fit:
        at = np.concatenate(blocks)
        weights, gain = fit_logits(self.basis[:, at], self.targets[effect])
        free = len(at) * (weights.shape[1] - 1)
        return Fit(gain - free, free, self._strengths(blocks, weights))

    def _strengths(self, blocks: list[np.ndarray], weights: np.ndarray) -> tuple[float, ...]:
        """The spread of each cause's own curve, the root of the mean square over the outputs K of weights (q, K)."""
        ends = np.cumsum([len(block) for block in blocks])[:-1]
        parts = zip(blocks, np.split(weights, ends), strict=True)
        squares = [float(np.einsum("pk,pq,qk->", w, self.products[np.ix_(at, at)], w)) / (self.rows * w.shape[1]) for at, w in parts]
        return tuple(math.sqrt(max(square, 0.0)) for square in squares)


def curve_basis(column: np.ndarray, kind: str, name: str = "") -> np.ndarray:
    """(N,) values to the centred columns (N, q) whose sums are the curves tried: cubic splines between quantiles, or one column for a category."""
    if kind == "continuous":
        inner = np.unique(np.quantile(column, np.linspace(0, 1, KNOTS + 2)))
        if len(inner) < 4:  # few values: a straight line between them is all there is to say
            block = column[:, None] - column.mean()
            return block / block.std()
        knots = np.concatenate([[inner[0]] * 3, inner, [inner[-1]] * 3])
        block = BSpline.design_matrix(np.clip(column, inner[0], inner[-1]), knots, 3).toarray()[:, 1:]
        block = np.concatenate([(column[:, None] - column.mean()) / column.std(), block[:, 1:]], axis=1)  # the line is never shrunk away
    else:
        block = one_hot(name, column)[:, 1:]
    block = block - block.mean(axis=0)
    return block / np.maximum(block.std(axis=0), 1e-9)


def fit_logits(basis: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights (q, K) of logits over a centred basis (N, q) for one-hot targets (N, K), and the log-likelihood gained over the shares alone.

    Newton's steps, each halved until it helps; for many categories the curvature is bounded by Böhning's (1992) instead of computed.
    """
    rows, classes = targets.shape
    inputs = np.concatenate([basis, np.ones((rows, 1))], axis=1)
    ridge = RIDGE * rows * np.append(np.ones(basis.shape[1]), 1e-6)[:, None]
    products = inputs.T @ inputs
    bound = cho_factor(0.5 * products + np.diag(ridge[:, 0]), check_finite=False)
    weights = np.zeros((inputs.shape[1], classes))
    weights[-1] = np.log(targets.mean(axis=0))

    def likelihood(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = inputs @ w
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        return float((targets * logits).sum() - np.log(total).sum() - 0.5 * (ridge * w * w).sum()), odds / total

    start, chances = likelihood(weights)
    now = start
    newton = inputs.shape[1] * classes <= MOST_NEWTON
    for _ in range(STEPS if newton else 4 * STEPS):
        slope = inputs.T @ (targets - chances) - ridge * weights
        step = newton_step(inputs, chances, slope, ridge) if newton else cho_solve(bound, slope, check_finite=False)
        size = 1.0
        while (tried := likelihood(weights + size * step))[0] < now and size > 1e-3:
            size /= 2
        if tried[0] - now < ENOUGH:
            break
        weights, (now, chances) = weights + size * step, tried
    curves = weights[:-1]
    return curves - curves.mean(axis=1, keepdims=True), now + 0.5 * float((ridge * weights * weights).sum()) - start


def newton_step(inputs: np.ndarray, chances: np.ndarray, slope: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """(q, K): the slope of a multinomial log-likelihood divided by its curvature."""
    size, classes = slope.shape
    curvature = np.zeros((classes, size, classes, size))
    for a in range(classes):
        for b in range(a + 1):
            block = inputs.T @ (inputs * (chances[:, a] * ((a == b) - chances[:, b]))[:, None])
            curvature[a, :, b] = curvature[b, :, a] = block
    flat = curvature.reshape(classes * size, classes * size)
    flat[np.diag_indices_from(flat)] += np.tile(ridge[:, 0], classes)
    return np.linalg.solve(flat, slope.T.reshape(-1)).reshape(classes, size).T


def additive(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    threshold: float = 0.3,
) -> Discovery:
    """The graph that greedy likelihood finds among sums of curves; columns of any kind.

    An edge's weight is the spread of the cause's own curve, of the standardised effect (squared: the share of its variance) or of its logits.

    Arguments:
        columns: (N, n); the answer does not depend on their units.
        seed: nothing here is random.
        knowledge: required and forbidden edges and tiers.
        threshold: weaker edges are not added.
    """
    started = time.perf_counter()
    allowed = Knowledge.of(knowledge).over(names)
    weights, margins = grow(Regressions(columns, names, kinds), allowed, threshold)
    graph = CausalGraph(tuple(names), weights)
    return Discovery(
        graph=graph,
        order=tuple(graph.topological_order),
        cost=(0.0,) * len(names),
        method="additive",
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[(names[j], names[i]) for (j, i), margin in margins.items() if margin < OPEN],
    )


def grow(table: Regressions, allowed: Allowed, threshold: float) -> tuple[np.ndarray, dict[tuple[int, int], float]]:
    """The weights (n, n), and by how many nats each edge was better than the same edge turned round (infinite where that is not allowed)."""
    n = len(table.kinds)
    parents: list[list[int]] = [[int(j) for j in np.flatnonzero(allowed.required[:, i])] for i in range(n)]
    weights, margins = np.zeros((n, n)), {}
    reaches = np.eye(n, dtype=bool)
    for i in range(n):
        for j in parents[i]:
            reaches |= np.outer(reaches[:, j], reaches[i])
    base = [table.fit(parents[i], i) if parents[i] else Fit(0.0, 0, ()) for i in range(n)]
    trial = {(j, i): table.fit([*parents[i], j], i) for j, i in np.argwhere(allowed.edges & ~allowed.required)}

    def worth(edge: tuple[int, int]) -> float:
        """Nats that an edge gains; minus infinity where it is too weak, not surely there, or closes a cycle."""
        (j, i), fit = edge, trial[edge]
        gain = fit.gain - base[i].gain
        too_weak = fit.strengths[-1] < threshold or gain <= table.dear * (fit.free - base[i].free)
        return -math.inf if too_weak or reaches[i, j] else gain

    while trial:
        best = max(trial, key=worth)
        gain = worth(best)
        if gain == -math.inf:
            break
        j, i = best
        back = worth((i, j)) if (i, j) in trial else -math.inf
        margins[j, i] = gain - back
        parents[i].append(j)
        base[i] = trial.pop(best)
        reaches |= np.outer(reaches[:, j], reaches[i])
        trial = {
            (a, b): table.fit([*parents[i], a], i) if b == i and not reaches[b, a] else fit for (a, b), fit in trial.items() if not reaches[b, a]
        }
    for i in range(n):
        for j, strength in zip(parents[i], base[i].strengths, strict=True):
            weights[j, i] = max(strength, 1e-3)
    return weights, margins


def plausible(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str], allowed: np.ndarray, smallest: float) -> Knowledge:
    """What is left to try on resampled tables: pairs that one curve alone links with at least `smallest` strength; all others are forbidden.

    Arguments:
        allowed: (n, n) of 0 and 1, the edges that may be at all.
    """
    table, strong = Regressions(columns, names, kinds), np.zeros((len(names), len(names)), dtype=bool)
    for j, i in np.argwhere(allowed):
        strong[j, i] = table.fit([j], i).strengths[0] >= smallest
    kept = (strong | strong.T) & allowed.astype(bool) | np.eye(len(names), dtype=bool)
    return Knowledge(forbidden=tuple((names[j], names[i]) for j, i in np.argwhere(~kept)))


def explained(cause: np.ndarray, effect: np.ndarray, *, straight: bool = False) -> float:
    """The share of a continuous effect's variance that a curve of a continuous cause explains, or a straight line, adjusted for free numbers."""
    basis = (cause[:, None] - cause.mean()) if straight else curve_basis(cause, "continuous")
    value = effect - effect.mean()
    try:
        weights = np.linalg.lstsq(basis, value, rcond=None)[0]
    except LinAlgError:
        return 0.0
    left = float(np.square(value - basis @ weights).sum()) / max(len(value) - basis.shape[1] - 1, 1)
    return 1.0 - left / float(np.square(value).sum() / max(len(value) - 1, 1))
