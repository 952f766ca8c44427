"""Greedy equivalence search (Chickering 2002): grow, then shrink, a class of DAGs by the best-scoring insertion or deletion of an edge.

Two scores: BIC of linear Gaussian relations, and the generalised score of `generalised_score.py` for any relations and kinds of variables. Edges
that the class leaves undirected are the result's `ambiguous` ones. With prior knowledge pairs that are forbidden either way are never scored, the
rest directs the edges of the class and whatever follows from that (Meek 1995); only where the class has no DAG that keeps to the knowledge does a
greedy search over single DAGs go on from it, in which every step does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, random_rows
from intervae.discovery.design import one_hot, refuse_collinear, refuse_same_categories
from intervae.discovery.generalised_score import FOLDS, GeneralisedScore
from intervae.discovery.kernels import standardise as to_unit_variance
from intervae.discovery.knowledge import Allowed, Knowledge
from intervae.discovery.patterns import directed_by, member_of, pattern_of
from intervae.errors import DataError, UsageError

Score = Callable[[int, Sequence[int]], float]  # (variable, parents) -> lower is better
SMALLEST_GAIN = 1e-9
ASSUMPTIONS = (
    "No common cause is left out, there are no cycles, and what is independent in the data has no path in the graph; {relations}. "
    "Only a class of graphs can be told from independences, so the direction of the ambiguous edges is open."
)


class GaussianBIC:
    """N/2 log(residual variance) + price/2 log(N) per parent, of a linear regression on standardised (N, n) columns; lower is better."""

    def __init__(self, columns: np.ndarray, price: float = 1.0) -> None:
        self.rows, self.price = len(columns), price
        self.correlation = np.corrcoef(columns.T)
        self._scores: dict[tuple[int, tuple[int, ...]], float] = {}

    def __call__(self, variable: int, parents: Sequence[int]) -> float:
        key = (variable, tuple(sorted(parents)))
        if key not in self._scores:
            left = max(self.unexplained(variable, key[1]), 1e-12)
            self._scores[key] = 0.5 * self.rows * math.log(left) + 0.5 * self.price * math.log(self.rows) * len(key[1])
        return self._scores[key]

    def unexplained(self, variable: int, parents: Sequence[int]) -> float:
        return 1.0 - float(self.correlation[variable, list(parents)] @ self.coefficients(variable, parents)) if len(parents) else 1.0

    def coefficients(self, variable: int, parents: Sequence[int]) -> np.ndarray:
        """Standardised regression weights."""
        given = list(parents)
        return np.linalg.solve(self.correlation[np.ix_(given, given)], self.correlation[given, variable])


class Move(NamedTuple):
    """An edge cause -> effect put in or taken out, with the neighbours of `effect` that it directs."""

    gain: float
    cause: int
    effect: int
    others: tuple[int, ...]


class Search:
    """The class of DAGs on its way, as a pattern (n, n); only `pairs` (n, n), symmetric, may get an edge."""

    def __init__(self, score: Score, variables: int, max_parents: int, pairs: np.ndarray) -> None:
        self.score, self.n, self.max_parents, self.pairs = score, variables, max_parents, pairs
        self.pattern = np.zeros((variables, variables), dtype=bool)

    def run(self) -> np.ndarray:
        """Grow to the best, then shrink to the best; returns the pattern."""
        for moves, apply in ((self._insertions, self._insert), (self._deletions, self._delete)):
            while True:
                for move in sorted(moves(), key=lambda m: (-m.gain, m.cause, m.effect, m.others)):
                    changed = apply(move)
                    if changed is not None:
                        self.pattern = changed
                        break
                else:
                    break
        return self.pattern

    def _around(self, cause: int, effect: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Neighbours of `effect` adjacent to `cause`, those not, and the parents of `effect`."""
        p = self.pattern
        lines = p[effect] & p[:, effect]
        adjacent = p[cause] | p[:, cause]
        lines[cause] = False
        return np.flatnonzero(lines & adjacent), np.flatnonzero(lines & ~adjacent), [int(v) for v in np.flatnonzero(p[:, effect] & ~p[effect])]

    def _insertions(self) -> Iterator[Move]:
        for cause, effect in np.argwhere(~(self.pattern | self.pattern.T) & self.pairs & ~np.eye(self.n, dtype=bool)):
            common, apart, parents = self._around(cause, effect)
            room = self.max_parents - len(common) - len(parents) - 1
            for size in range(min(len(apart), room) + 1):
                for chosen in combinations(apart.tolist(), size):
                    given = {*common.tolist(), *chosen, *parents}
                    gain = self.score(int(effect), sorted(given)) - self.score(int(effect), sorted({*given, int(cause)}))
                    if gain > SMALLEST_GAIN:
                        yield Move(gain, int(cause), int(effect), chosen)

    def _insert(self, move: Move) -> np.ndarray | None:
        common, _, _ = self._around(move.cause, move.effect)
        between = [*common.tolist(), *move.others]
        if not self._clique(between) or self._reaches(move.effect, move.cause, set(between)):
            return None
        changed = self.pattern.copy()
        changed[move.cause, move.effect] = True
        changed[move.effect, list(move.others)] = False
        return self._completed(changed)

    def _deletions(self) -> Iterator[Move]:
        for cause, effect in np.argwhere(self.pattern):
            common, _, parents = self._around(cause, effect)
            for size in range(len(common) + 1):
                for chosen in combinations(common.tolist(), size):
                    given = {*common.tolist(), *parents} - {*chosen, int(cause)}
                    gain = self.score(int(effect), sorted({*given, int(cause)})) - self.score(int(effect), sorted(given))
                    if gain > SMALLEST_GAIN:
                        yield Move(gain, int(cause), int(effect), chosen)

    def _delete(self, move: Move) -> np.ndarray | None:
        common, _, _ = self._around(move.cause, move.effect)
        if not self._clique([v for v in common.tolist() if v not in move.others]):
            return None
        changed = self.pattern.copy()
        changed[move.cause, move.effect] = changed[move.effect, move.cause] = False
        for other in move.others:
            changed[other, move.effect] = False  # effect -> other, and cause -> other where that edge has no direction
            if changed[move.cause, other]:
                changed[other, move.cause] = False
        return self._completed(changed)

    def _clique(self, nodes: list[int]) -> bool:
        joined = self.pattern | self.pattern.T
        return all(joined[a, b] for a, b in combinations(nodes, 2))

    def _reaches(self, start: int, end: int, barred: set[int]) -> bool:
        """Whether a path that goes along no arrow backwards leads from start to end, round the barred nodes."""
        seen, stack = {start}, [start]
        while stack:
            for step in np.flatnonzero(self.pattern[stack.pop()]).tolist():
                if step == end:
                    return True
                if step not in seen and step not in barred:
                    seen.add(step)
                    stack.append(step)
        return False

    def _completed(self, changed: np.ndarray) -> np.ndarray | None:
        dag = member_of(changed)
        return None if dag is None else pattern_of(dag)


def climb(score: Score, dag: np.ndarray, allowed: Allowed, max_parents: int) -> np.ndarray:
    """Insert, delete or turn the edge that gains most, within what is allowed, until none does; from a DAG (n, n) that keeps to it."""
    dag = dag.copy()

    def gain(effect: int, before: set[int], after: set[int]) -> float:
        return score(effect, sorted(before)) - score(effect, sorted(after))

    def moves() -> Iterator[tuple[float, int, int, str]]:
        parents = [{int(v) for v in np.flatnonzero(dag[:, i])} for i in range(len(dag))]
        for j, i in np.argwhere(allowed.edges & ~dag & ~dag.T).tolist():
            if len(parents[i]) < max_parents:
                yield gain(i, parents[i], parents[i] | {j}), j, i, "insert"
        for j, i in np.argwhere(dag & ~allowed.required).tolist():
            lost = gain(i, parents[i], parents[i] - {j})
            yield lost, j, i, "delete"
            if allowed.edges[i, j] and len(parents[j]) < max_parents:
                yield lost + gain(j, parents[j], parents[j] | {i}), j, i, "turn"

    def applied(move: tuple[float, int, int, str]) -> np.ndarray | None:
        _, j, i, kind = move
        changed = dag.copy()
        changed[j, i] = kind == "insert"
        changed[i, j] = kind == "turn"
        return changed if _is_acyclic(changed) else None

    while True:
        better = sorted((m for m in moves() if m[0] > SMALLEST_GAIN), key=lambda m: (-m[0], m[1:]))
        changed = next((c for c in map(applied, better) if c is not None), None)
        if changed is None:
            return dag
        dag = changed


def _is_acyclic(dag: np.ndarray) -> bool:
    return CausalGraph(tuple(map(str, range(len(dag)))), dag.astype(float)).is_acyclic


def ges(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    price: float = 1.0,
    max_parents: int | None = None,
) -> Discovery:
    """Linear Gaussian GES by BIC; an edge's weight is its standardised regression weight, `cost` the variance left unexplained.

    Units play no part. A binary column enters as a number.

    Arguments:
        columns: (N, n).
        knowledge: required and forbidden edges and tiers.
        price: of a parent, as a multiple of BIC's log(N) / 2.
        max_parents: of one variable; any number without.
    """
    started = time.perf_counter()
    for name, kind in zip(names, kinds, strict=True):
        if kind == "categorical":
            raise DataError(f"method 'ges' cannot use the categorical column {name!r}; leave it out or use 'ges-generalised'.")
    refuse_collinear(columns, names, kinds)
    score = GaussianBIC(columns, price)
    dag, pattern = _search(score, names, knowledge, max_parents)
    weights = np.zeros(dag.shape)
    for effect in range(len(dag)):
        parents = np.flatnonzero(dag[:, effect]).tolist()
        if parents:
            weights[parents, effect] = score.coefficients(effect, parents)
    left = [score.unexplained(v, np.flatnonzero(dag[:, v]).tolist()) for v in range(len(dag))]
    assumptions = ASSUMPTIONS.format(relations="relations are linear and noises Gaussian")
    return _discovery("ges", names, dag, pattern, weights, left, assumptions, score, started)


def ges_generalised(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    samples: int = 1000,
    max_parents: int = 5,
) -> Discovery:
    """GES by the generalised score, for any relations and kinds; an edge's weight is what the score per row loses without it.

    `cost` is each variable's score per row. Units play no part. The time grows with the square of the rows.

    Arguments:
        columns: (N, n).
        knowledge: required and forbidden edges and tiers.
        samples: at most this many random rows are used.
        max_parents: of one variable.
    """
    started = time.perf_counter()
    if samples < 5 * FOLDS:
        raise UsageError(f"samples={samples} is too few for {FOLDS} folds; give {5 * FOLDS} or more.")
    refuse_collinear(columns, names, kinds)
    refuse_same_categories(columns, names, kinds)
    table = random_rows(columns, samples, seed)
    for name, column in zip(names, table.T, strict=True):
        if (column == column[0]).all():
            raise DataError(f"column {name!r} is constant in the {samples} rows that were drawn; give a larger samples= or leave it out.")
    scaled = to_unit_variance(table)
    score = GeneralisedScore([one_hot(names[i], table[:, i]) if kind == "categorical" else scaled[:, i] for i, kind in enumerate(kinds)])
    dag, pattern = _search(score, names, knowledge, max_parents)
    weights = np.zeros(dag.shape)
    for cause, effect in np.argwhere(dag):
        parents = [int(v) for v in np.flatnonzero(dag[:, effect])]
        lost = score(int(effect), [v for v in parents if v != cause]) - score(int(effect), parents)
        weights[cause, effect] = max(lost / len(table), 1e-3)
    left = [score(v, [int(p) for p in np.flatnonzero(dag[:, v])]) / len(table) for v in range(len(dag))]
    assumptions = ASSUMPTIONS.format(relations="relations and noises are of any smooth kind")
    return _discovery("ges-generalised", names, dag, pattern, weights, left, assumptions, score, started)


def _search(
    score: Score, names: Sequence[str], knowledge: Knowledge | Mapping[str, Any] | None, max_parents: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """A DAG and what is left of its class under the knowledge: its undirected edges may run either way."""
    if max_parents is not None and max_parents < 1:
        raise UsageError(f"max_parents={max_parents} must be 1 or more.")
    limit, allowed = max_parents or len(names), Knowledge.of(knowledge).over(names)
    pattern = Search(score, len(names), limit, allowed.edges | allowed.edges.T).run()
    barred = ~allowed.edges | allowed.required.T
    known = directed_by(pattern, barred)
    dag = member_of(known)
    if dag is None or not allowed.keeps(dag) or (pattern_of(dag) != pattern).any():  # the class has no member that keeps to the knowledge
        dag = _climbed(score, [member for member in (dag, member_of(pattern)) if member is not None], allowed, limit)
        known = directed_by(pattern_of(dag), barred)
    return dag, known


def _climbed(score: Score, starts: Sequence[np.ndarray], allowed: Allowed, max_parents: int) -> np.ndarray:
    """The best DAG that a climb reaches from the given ones, each with its forbidden edges cut or turned."""
    found = []
    for start in starts:
        for turned in (start, start | (start & ~allowed.edges).T):
            found.append(climb(score, allowed.acyclic(turned.astype(float), 0.5) != 0, allowed, max_parents))
    return min(found, key=lambda dag: total_score(score, dag))


def total_score(score: Score, dag: np.ndarray) -> float:
    return sum(score(v, [int(p) for p in np.flatnonzero(dag[:, v])]) for v in range(len(dag)))


def _discovery(
    method: str,
    names: Sequence[str],
    dag: np.ndarray,
    pattern: np.ndarray,
    weights: np.ndarray,
    cost: Sequence[float],
    assumptions: str,
    score: Score,
    started: float,
) -> Discovery:
    graph = CausalGraph(tuple(names), np.where(dag & (weights == 0), 1e-3, weights))
    order = tuple(graph.topological_order)
    return Discovery(
        graph=graph,
        order=order,
        cost=tuple(float(cost[graph.index(name)]) for name in order),
        method=method,
        seconds=time.perf_counter() - started,
        assumptions=assumptions,
        ambiguous=[(names[j], names[i]) for j, i in np.argwhere(dag & pattern & pattern.T)],
        details={"score": float(total_score(score, dag))},
    )
