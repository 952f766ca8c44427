"""Search for a causal order in which the noise of each variable is independent of those before.

`PlacementScorer` scores a variable after a set of others; `OrderSearch` finds the best order by
dynamic programming over subsets.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from intervae.discovery.kernels import (
    CentredKernel,
    decades,
    gaussian_kernel,
    hsic_p_value,
    leave_one_out,
)
from intervae.discovery.knowledge import EdgeConstraints

Variables = frozenset[int]
KERNEL_BYTES = 600_000_000  # of the cached kernels, (N, N) each: 117 with 800 rows

LOW_RANK = 80  # of the regressions among neighbours


class Placement(NamedTuple):
    """A variable placed after a set of others."""

    parents: Variables
    cost: float  # decades of evidence for dependence, above the threshold
    score: float  # cost plus the penalty of the edges
    evidence: float  # all decades of evidence, to break ties


class PlacementScorer:
    """Regressions and independence tests of one table, with caches.

    Arguments:
        columns: (N, n) standardised variables.
        resolution: residual standard deviation, as a fraction of the variable's, below which a
            variable counts as determined by its parents.
        evidence_threshold: decades of p below which a dependence counts as chance.
        edge_penalty: decades of evidence that an edge must be worth.
        error_tolerance: standard errors by which a smaller parent set may be worse than the best.
        max_parents: size of the largest parent set tried, or of the required one if larger.
        constraints: allowed and required edges.
        neighbours: (n, n) of bool, symmetric, pairs that may have an edge: only neighbours are
            parents, and needless ones are eliminated one by one. By default all pairs, and all
            subsets of parents are tried.
    """

    def __init__(
        self,
        columns: np.ndarray,
        *,
        resolution: float,
        evidence_threshold: float,
        edge_penalty: float,
        error_tolerance: float,
        max_parents: int,
        constraints: EdgeConstraints,
        neighbours: np.ndarray | None = None,
    ) -> None:
        self.columns = columns
        self.neighbours: list[Variables] | None = None
        self.max_kernels = max(KERNEL_BYTES // (8 * len(columns) ** 2), 8)
        self.required, self.optional = [], []
        for i in range(columns.shape[1]):
            required = frozenset(np.flatnonzero(constraints.required[:, i]).tolist())
            allowed = frozenset(np.flatnonzero(constraints.allowed[:, i]).tolist())
            self.required.append(required)
            self.optional.append(allowed - required)
        self.resolution, self.max_parents = resolution, max_parents
        self.evidence_threshold = evidence_threshold
        self.edge_penalty, self.error_tolerance = edge_penalty, error_tolerance
        if neighbours is not None:
            linked = neighbours | constraints.required | constraints.required.T
            self.neighbours = [frozenset(np.flatnonzero(row).tolist()) for row in linked]
        self._parents: dict[tuple[Variables, int], Variables] = {}
        self._residuals: dict[tuple[Variables, int], np.ndarray] = {}
        self._errors: dict[tuple[Variables, int], float] = {}
        self._kernels: dict[object, CentredKernel] = {}
        self._p_values: dict[tuple[Variables, int, Variables], float] = {}

    def residuals(self, parents: Variables, variable: int) -> np.ndarray:
        """Return leave-one-out residuals (N,) of a variable given `parents`."""
        key = parents, variable
        if key not in self._residuals:
            # all parent sets are tried for all variables, or few for one
            targets = range(self.columns.shape[1]) if self.neighbours is None else [variable]
            whole = self.neighbours is None
            residuals = leave_one_out(
                self.columns[:, sorted(parents)],
                self.columns[:, targets],
                rank=300 if whole else LOW_RANK,
                whole_kernel=whole,
            )
            errors = (residuals**2).mean(axis=0)
            for k, target in enumerate(targets):
                self._residuals[parents, target] = residuals[:, k]
                self._errors[parents, target] = float(errors[k])
        return self._residuals[key]

    def error(self, parents: Variables, variable: int) -> float:
        """Return the mean squared leave-one-out error / variance of the variable."""
        self.residuals(parents, variable)
        return self._errors[parents, variable]

    def possible_parents(self, before: Variables, variable: int) -> Variables:
        """Return all required causes and those of `before` that are allowed."""
        return self.required[variable] | (before & self.optional[variable])

    def eliminate_parents(self, before: Variables, variable: int) -> Variables:
        """Return a small subset of `before` that predicts the variable well enough.

        The least useful parent is dropped until the rest predicts significantly worse than the
        best set so far. `parents` tries all subsets instead.
        """
        best = parents = self.possible_parents(before, variable)
        while parents > self.required[variable]:
            smaller = [parents - {i} for i in sorted(parents - self.required[variable])]
            candidate = min(smaller, key=lambda subset: self.error(subset, variable))
            best = min(best, candidate, key=lambda subset: self.error(subset, variable))
            if not self._is_sufficient(candidate, best, variable):
                break
            parents = candidate
        return parents

    def parents(self, before: Variables, variable: int) -> Variables:
        """Return the smallest subset of `before` that predicts the variable well enough.

        That is within the resolution, or not significantly worse than the best subset. Subsets
        have all required causes and no forbidden ones.
        """
        required, optional = self.required[variable], sorted(before & self.optional[variable])
        room = max(0, min(len(optional), self.max_parents - len(required)))
        candidates = [
            required.union(subset)
            for size in range(room + 1)
            for subset in combinations(optional, size)
        ]
        errors = [self.error(candidate, variable) for candidate in candidates]
        best = candidates[int(np.argmin(errors))]
        sufficient = [
            (len(candidate), errors[i], i)
            for i, candidate in enumerate(candidates)
            if self._is_sufficient(candidate, best, variable)
        ]
        return candidates[min(sufficient)[-1]]

    def _is_sufficient(self, parents: Variables, best: Variables, variable: int) -> bool:
        if parents == best or self.error(parents, variable) <= self.resolution**2:
            return True
        excess = self.residuals(parents, variable) ** 2 - self.residuals(best, variable) ** 2
        return bool(excess.mean() <= self.error_tolerance * excess.std() / np.sqrt(len(excess)))

    def dependence(self, parents: Variables, variable: int, before: Variables) -> float:
        """Return decades of evidence that the variable's noise depends on those before.

        Each of them is tested, and all (of its neighbours) jointly, with a Bonferroni correction.
        """
        if not before or self.error(parents, variable) <= self.resolution**2:
            return 0.0
        jointly = before if self.neighbours is None else before & self.neighbours[variable]
        subsets = {frozenset({v}) for v in before} | ({jointly} if jointly else set())
        smallest = min(self._p_value(parents, variable, subset) for subset in subsets)
        return decades(min(1.0, smallest * len(subsets)))

    def _p_value(self, parents: Variables, variable: int, subset: Variables) -> float:
        key = (parents, variable, subset)
        if key not in self._p_values:
            noise = self._kernel((parents, variable), self.residuals(parents, variable))
            predecessors = self._kernel(subset, self.columns[:, sorted(subset)])
            self._p_values[key] = hsic_p_value(noise, predecessors)
        return self._p_values[key]

    def _kernel(self, key: object, points: np.ndarray) -> CentredKernel:
        if key not in self._kernels:
            if len(self._kernels) >= self.max_kernels:
                del self._kernels[next(iter(self._kernels))]
            self._kernels[key] = CentredKernel.from_kernel(gaussian_kernel(points))
        return self._kernels[key]

    def place(self, before: Variables, variable: int) -> Placement:
        """Score the variable after the set `before`."""
        neighbours = before if self.neighbours is None else before & self.neighbours[variable]
        key = neighbours, variable
        if key not in self._parents:
            select = self.parents if self.neighbours is None else self.eliminate_parents
            self._parents[key] = select(neighbours, variable)
        return self.assess(self._parents[key], variable, before)

    def assess(self, parents: Variables, variable: int, before: Variables) -> Placement:
        """Score the variable after the set `before`, with given parents."""
        evidence = self.dependence(parents, variable, before)
        cost = max(0.0, evidence - self.evidence_threshold)
        return Placement(parents, cost, cost + self.edge_penalty * len(parents), evidence)


class OrderSearch:
    """Dynamic programming over subsets of variables, layer by layer; required causes come first.

    The search is exact if no layer has more than `beam` subsets; larger layers keep the best.
    """

    def __init__(self, scorer: PlacementScorer, variables: int, beam: int) -> None:
        self.all_variables: Variables = frozenset(range(variables))
        self.placements: dict[tuple[Variables, int], Placement] = {}
        # lowest (score, evidence) of any order of a set, and the last variable of that order
        self.best: dict[Variables, tuple[float, float]] = {frozenset(): (0.0, 0.0)}
        self.last: dict[Variables, int] = {}
        layer: list[Variables] = [frozenset()]
        for _ in range(variables):
            reached: set[Variables] = set()
            for before in layer:
                for variable in sorted(self.all_variables - before):
                    if scorer.required[variable] <= before:
                        reached.add(self._extend(scorer, before, variable))
            layer = sorted(reached, key=lambda s: (self.best[s], sorted(s)))[:beam]
        self.remaining = self._remaining_scores()

    def _extend(self, scorer: PlacementScorer, before: Variables, variable: int) -> Variables:
        """Place the variable after `before`; return the larger set."""
        placement = self.placements[before, variable] = scorer.place(before, variable)
        after = before | {variable}
        score, evidence = self.best[before]
        # rounded, so that equal sums compare equal in any order of addition
        total = round(score + placement.score, 9), evidence + placement.evidence
        if after not in self.best or total < self.best[after]:
            self.best[after], self.last[after] = total, variable
        return after

    def _remaining_scores(self) -> dict[Variables, float]:
        """Return the lowest score of placing all other variables after each set."""
        remaining: dict[Variables, float] = {self.all_variables: 0.0}
        for before, variable in sorted(self.placements, key=lambda step: -len(step[0])):
            score = self.placements[before, variable].score
            rest = remaining.get(before | {variable}, np.inf) + score
            remaining[before] = min(remaining.get(before, np.inf), rest)
        return remaining

    def order(self) -> list[int]:
        """Return the best order, causes first."""
        order: list[int] = []
        placed = self.all_variables
        while placed:
            order.append(self.last[placed])
            placed = placed - {order[-1]}
        return order[::-1]

    def score(self) -> float:
        """Return the score of the best order."""
        return self.best[self.all_variables][0]

    def reversed_score(self, cause: int, effect: int) -> float:
        """Return the lowest score of any order with `effect` before `cause`.

        Such an order passes through a set that has `effect` but not `cause`.
        """
        scores = [
            self.best[s][0] + rest
            for s, rest in self.remaining.items()
            if effect in s and cause not in s
        ]
        return min(scores, default=np.inf)
