"""Graph from nothing by independent noises: the order of least dependence between residuals and predecessors, exactly, over subsets.

A variable is placed after the set S of those placed before it. Its parents are the smallest part of S that predicts it as well as
any part does; what they leave unexplained must not depend on S, for in a causal order it is the variable's own noise (Hoyer et al.
2009, Peters et al. 2014). A variable that its parents determine has no noise to test. Every order is scored by the evidence
against that independence plus a fee per edge, and dynamic programming over the subsets finds the best of the n! orders.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, random_rows, require_continuous
from intervae.discovery.design import unsettled
from intervae.discovery.kernels import Centred, decades, dependence_p, gaussian_kernel, leave_one_out, standardise
from intervae.discovery.knowledge import Allowed, Knowledge
from intervae.errors import UsageError

ASSUMPTIONS = (
    "Every variable is a smooth function of its causes plus an independent noise (or no noise at all), no common cause is left out, "
    "and there are no cycles; linear relations with Gaussian noise have no direction, and such edges are listed as ambiguous."
)
Set = frozenset[int]
KERNELS_KEPT = 48  # of (N, N) numbers each: 250 MB with 800 rows


class Placement(NamedTuple):
    """What it takes to place one variable after a set of others."""

    parents: Set
    cost: float  # decades of evidence beyond `evidence` that its noise depends on its predecessors
    score: float  # the cost plus the fee for its edges
    raw: float  # all decades of evidence: settles ties


class Judge:
    """Regressions and dependence tests of one table, each done once.

    Arguments:
        columns: (N, n) standardised variables.
        resolution: a variable is determined by others when they miss it by less than this share of its standard deviation.
        evidence: decades of p below which a dependence is taken for chance.
        fee: decades of evidence that one more edge must be worth.
        worse: standard errors by which a smaller parent set may miss more than the best one and still count as good as it.
        max_parents: size of the largest parent set tried (or of the required one, where that is larger).
        allowed: which edges may and must be there.
    """

    def __init__(
        self, columns: np.ndarray, *, resolution: float, evidence: float, fee: float, worse: float, max_parents: int, allowed: Allowed
    ) -> None:
        self.columns = columns
        self.required = [frozenset(np.flatnonzero(allowed.required[:, i]).tolist()) for i in range(columns.shape[1])]
        self.optional = [frozenset(np.flatnonzero(allowed.edges[:, i]).tolist()) - self.required[i] for i in range(columns.shape[1])]
        self.resolution, self.evidence, self.fee, self.worse, self.max_parents = resolution, evidence, fee, worse, max_parents
        self._residuals: dict[Set, np.ndarray] = {}
        self._errors: dict[Set, np.ndarray] = {}
        self._kernels: dict[object, Centred] = {}
        self._tests: dict[tuple[Set, int, Set], float] = {}

    def residuals(self, parents: Set) -> np.ndarray:
        """(N, n) leave-one-out residuals of every variable given `parents`."""
        if parents not in self._residuals:
            self._residuals[parents] = leave_one_out(self.columns[:, sorted(parents)], self.columns)
            self._errors[parents] = (self._residuals[parents] ** 2).mean(axis=0)
        return self._residuals[parents]

    def error(self, parents: Set, variable: int) -> float:
        """Mean squared leave-one-out error, as a share of the variable's variance."""
        self.residuals(parents)
        return float(self._errors[parents][variable])

    def parents(self, before: Set, variable: int) -> Set:
        """The smallest part of `before` that predicts the variable within the resolution or not significantly worse than the best part.

        Only parts with all required causes and no forbidden one are tried.
        """
        required, optional = self.required[variable], sorted(before & self.optional[variable])
        room = max(0, min(len(optional), self.max_parents - len(required)))
        candidates = [required.union(c) for size in range(room + 1) for c in combinations(optional, size)]
        errors = [self.error(c, variable) for c in candidates]
        best = candidates[int(np.argmin(errors))]
        good = [(len(c), e, i) for i, (c, e) in enumerate(zip(candidates, errors, strict=True)) if self._as_good(c, best, variable)]
        return candidates[min(good)[-1]]

    def _as_good(self, parents: Set, best: Set, variable: int) -> bool:
        if parents == best or self.error(parents, variable) <= self.resolution**2:
            return True
        excess = self.residuals(parents)[:, variable] ** 2 - self.residuals(best)[:, variable] ** 2
        return bool(excess.mean() <= self.worse * excess.std() / np.sqrt(len(excess)))

    def dependence(self, parents: Set, variable: int, before: Set) -> float:
        """Decades of evidence that the noise of `variable` given `parents` depends on `before`: on one of them, or on all jointly."""
        if not before or self.error(parents, variable) <= self.resolution**2:
            return 0.0
        against = {frozenset({b}) for b in before} | {before}
        smallest = min(self._test(parents, variable, other) for other in against)
        return decades(min(1.0, smallest * len(against)))

    def _test(self, parents: Set, variable: int, other: Set) -> float:
        key = (parents, variable, other)
        if key not in self._tests:
            noise = self._kernel((parents, variable), self.residuals(parents)[:, variable])
            self._tests[key] = dependence_p(noise, self._kernel(other, self.columns[:, sorted(other)]))
        return self._tests[key]

    def _kernel(self, key: object, points: np.ndarray) -> Centred:
        if key not in self._kernels:
            if len(self._kernels) >= KERNELS_KEPT:
                del self._kernels[next(iter(self._kernels))]
            self._kernels[key] = Centred.of(gaussian_kernel(points))
        return self._kernels[key]

    def place(self, before: Set, variable: int) -> Placement:
        parents = self.parents(before, variable)
        raw = self.dependence(parents, variable, before)
        cost = max(0.0, raw - self.evidence)
        return Placement(parents, cost, cost + self.fee * len(parents), raw)


class Lattice:
    """Dynamic programming over the subsets of the variables, from none placed to all placed, layer by layer; required causes come first.

    With at most `beam` subsets in every layer the search is exact; in a larger problem each layer keeps only its best `beam`.
    """

    def __init__(self, judge: Judge, variables: int, beam: int) -> None:
        self.everything: Set = frozenset(range(variables))
        self.placements: dict[tuple[Set, int], Placement] = {}
        self.arrived: dict[Set, tuple[float, float]] = {frozenset(): (0.0, 0.0)}  # least (score, raw) of any order of the set
        self.last: dict[Set, int] = {}  # the variable that this order places last
        layer: list[Set] = [frozenset()]
        for _ in range(variables):
            reached: set[Set] = set()
            for before in layer:
                for variable in sorted(v for v in self.everything - before if judge.required[v] <= before):
                    reached.add(self._step(judge, before, variable))
            layer = sorted(reached, key=lambda s: (self.arrived[s], sorted(s)))[:beam]
        self.remaining = self._least_remaining()

    def _least_remaining(self) -> dict[Set, float]:
        """For every set, the least score of placing all the others after it."""
        remaining: dict[Set, float] = {self.everything: 0.0}
        for before, variable in sorted(self.placements, key=lambda step: -len(step[0])):
            rest = remaining.get(before | {variable}, np.inf) + self.placements[before, variable].score
            remaining[before] = min(remaining.get(before, np.inf), rest)
        return remaining

    def _step(self, judge: Judge, before: Set, variable: int) -> Set:
        placement = self.placements[before, variable] = judge.place(before, variable)
        after = before | {variable}
        total = _sum(self.arrived[before], placement)
        if after not in self.arrived or total < self.arrived[after]:
            self.arrived[after], self.last[after] = total, variable
        return after

    def order(self) -> list[int]:
        """The best order, first placed first."""
        order: list[int] = []
        placed = self.everything
        while placed:
            order.append(self.last[placed])
            placed = placed - {order[-1]}
        return order[::-1]

    def reversed_score(self, cause: int, effect: int) -> float:
        """The least score of any order that places `effect` before `cause`; such an order passes through a set with one but not the other."""
        through = [self.arrived[s][0] + rest for s, rest in self.remaining.items() if effect in s and cause not in s]
        return min(through, default=np.inf)


def _sum(total: tuple[float, float], placement: Placement) -> tuple[float, float]:
    """Scores are rounded so that equal ones compare equal however they were added up."""
    return round(total[0] + placement.score, 9), total[1] + placement.raw


def independence(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    samples: int = 800,
    resolution: float = 0.05,
    evidence: float = 1.5,
    fee: float = 1.0,
    worse: float = 2.5,
    beam: int = 70,
    max_parents: int | None = None,
) -> Discovery:
    """The graph whose noises are independent of their variables' predecessors. For continuous variables only.

    An edge's weight is the share of the effect's variance that is lost, leave-one-out, when that parent alone is taken away.

    Arguments:
        columns: (N, n) variables; the answer does not depend on their units.
        knowledge: required and forbidden edges and tiers; a required cause is placed before its effect, a forbidden one is never a parent.
        samples: at most this many random rows are used; the time grows with their square.
        resolution: a variable is determined by others when they miss it by less than this share of its standard deviation.
        evidence: decades of p (1.5 is p = 0.03) below which a dependence is taken for chance.
        fee: decades of evidence that one more edge must be worth.
        worse: standard errors by which a smaller parent set may miss more than the best one and still count as good as it.
        beam: sets kept for each number of placed variables; the default is exact up to 8 variables.
        max_parents: size of the largest parent set tried; by default any up to 8 variables, 3 beyond.
    """
    started = time.perf_counter()
    require_continuous("independence", names, kinds)
    if not 0.0 < resolution < 1.0 or samples < 50 or beam < 1:
        raise UsageError(f"resolution must lie between 0 and 1, samples be 50 or more and beam 1 or more, not {resolution}, {samples} and {beam}.")
    variables = len(names)
    limit = max_parents if max_parents is not None else (variables - 1 if variables <= 8 else 3)
    table = standardise(random_rows(columns, samples, seed))
    allowed = Knowledge.of(knowledge).over(names)
    judge = Judge(table, resolution=resolution, evidence=evidence, fee=fee, worse=worse, max_parents=limit, allowed=allowed)
    lattice = Lattice(judge, variables, beam)
    order = lattice.order()
    placements = {v: lattice.placements[frozenset(order[:i]), v] for i, v in enumerate(order)}
    score = lattice.arrived[lattice.everything][0]
    edges = [(cause, effect) for effect in range(variables) for cause in sorted(placements[effect].parents)]
    return Discovery(
        graph=CausalGraph(tuple(names), _strengths(judge, placements, edges)),
        order=tuple(names[v] for v in order),
        cost=tuple(placements[v].cost for v in order),
        method="independence",
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[(names[c], names[e]) for c, e in edges if lattice.reversed_score(c, e) <= score + 1e-6],
        notes=unsettled(columns, names, kinds),
    )


def _strengths(judge: Judge, placements: dict[int, Placement], edges: Iterable[tuple[int, int]]) -> np.ndarray:
    """(n, n) share of the effect's variance lost without the cause; never below a thousandth, so that no edge vanishes."""
    weights = np.zeros((len(placements), len(placements)))
    for cause, effect in edges:
        parents = placements[effect].parents
        lost = judge.error(parents - {cause}, effect) - judge.error(parents, effect)
        weights[cause, effect] = max(lost, 1e-3)
    return weights
