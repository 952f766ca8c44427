"""Greedy search over equivalence classes (Chickering 2002) and over DAGs (hill climbing)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.cpdag import consistent_extension, dag_to_cpdag
from intervae.discovery.knowledge import EdgeConstraints

LocalScore = Callable[[int, Sequence[int]], float]  # (variable, parents) -> lower is better
SMALLEST_GAIN = 1e-9


class Operator(NamedTuple):
    """Insertion or deletion of the edge cause -> effect; it orients `neighbours` of `effect`."""

    gain: float
    cause: int
    effect: int
    neighbours: tuple[int, ...]


class EquivalenceSearch:
    """Greedy equivalence search.

    Arguments:
        score: local score, lower is better.
        pairs: (n, n) bool, symmetric: pairs of variables that may get an edge.
    """

    def __init__(
        self, score: LocalScore, variables: int, max_parents: int, pairs: np.ndarray
    ) -> None:
        self.score, self.n, self.max_parents, self.pairs = score, variables, max_parents, pairs
        self.cpdag = np.zeros((variables, variables), dtype=bool)

    def run(self) -> np.ndarray:
        """Insert the best edge while one gains, then delete likewise; return the CPDAG (n, n)."""
        phases = ((self._insertions, self._insert), (self._deletions, self._delete))
        for operators, apply in phases:
            while True:
                ranked = sorted(
                    operators(), key=lambda o: (-o.gain, o.cause, o.effect, o.neighbours)
                )
                for operator in ranked:
                    changed = apply(operator)
                    if changed is not None:
                        self.cpdag = changed
                        break
                else:
                    break
        return self.cpdag

    def _around(self, cause: int, effect: int) -> tuple[list[int], list[int], list[int]]:
        """Return neighbours of `effect` adjacent to `cause`, the others, parents of `effect`."""
        lines = self.cpdag[effect] & self.cpdag[:, effect]
        adjacent = self.cpdag[cause] | self.cpdag[:, cause]
        lines[cause] = False
        parents = self.cpdag[:, effect] & ~self.cpdag[effect]
        common, apart = np.flatnonzero(lines & adjacent), np.flatnonzero(lines & ~adjacent)
        return common.tolist(), apart.tolist(), np.flatnonzero(parents).tolist()

    def _insertions(self) -> Iterator[Operator]:
        missing = ~(self.cpdag | self.cpdag.T) & self.pairs & ~np.eye(self.n, dtype=bool)
        for cause, effect in np.argwhere(missing).tolist():
            common, apart, parents = self._around(cause, effect)
            room = self.max_parents - len(common) - len(parents) - 1
            for size in range(min(len(apart), room) + 1):
                for chosen in combinations(apart, size):
                    without = {*common, *chosen, *parents}
                    gain = self._difference(effect, without, cause)
                    if gain > SMALLEST_GAIN:
                        yield Operator(gain, cause, effect, chosen)

    def _insert(self, operator: Operator) -> np.ndarray | None:
        """Return the CPDAG after an insertion, or None if it is not valid."""
        common, _, _ = self._around(operator.cause, operator.effect)
        blocking = [*common, *operator.neighbours]
        if not self._is_clique(blocking) or self._reaches(
            operator.effect, operator.cause, set(blocking)
        ):
            return None
        changed = self.cpdag.copy()
        changed[operator.cause, operator.effect] = True
        changed[operator.effect, list(operator.neighbours)] = False
        return _complete(changed)

    def _deletions(self) -> Iterator[Operator]:
        for cause, effect in np.argwhere(self.cpdag).tolist():
            common, _, parents = self._around(cause, effect)
            for size in range(len(common) + 1):
                for chosen in combinations(common, size):
                    without = {*common, *parents} - {*chosen, cause}
                    gain = -self._difference(effect, without, cause)
                    if gain > SMALLEST_GAIN:
                        yield Operator(gain, cause, effect, chosen)

    def _delete(self, operator: Operator) -> np.ndarray | None:
        """Return the CPDAG after a deletion, or None if it is not valid."""
        cause, effect = operator.cause, operator.effect
        common, _, _ = self._around(cause, effect)
        if not self._is_clique([v for v in common if v not in operator.neighbours]):
            return None
        changed = self.cpdag.copy()
        changed[cause, effect] = changed[effect, cause] = False
        for neighbour in operator.neighbours:
            # effect -> neighbour, and cause -> neighbour if that edge is undirected
            changed[neighbour, effect] = False
            if changed[cause, neighbour]:
                changed[neighbour, cause] = False
        return _complete(changed)

    def _difference(self, effect: int, parents: set[int], cause: int) -> float:
        """Return the gain of adding `cause` to the parents of `effect`."""
        return self.score(effect, sorted(parents)) - self.score(effect, sorted({*parents, cause}))

    def _is_clique(self, nodes: list[int]) -> bool:
        adjacent = self.cpdag | self.cpdag.T
        return all(adjacent[a, b] for a, b in combinations(nodes, 2))

    def _reaches(self, start: int, end: int, blocked: set[int]) -> bool:
        """Return whether a semi-directed path avoids the blocked nodes."""
        visited, stack = {start}, [start]
        while stack:
            for node in np.flatnonzero(self.cpdag[stack.pop()]).tolist():
                if node == end:
                    return True
                if node not in visited and node not in blocked:
                    visited.add(node)
                    stack.append(node)
        return False


def _complete(pdag: np.ndarray) -> np.ndarray | None:
    """Return the CPDAG of a PDAG, or None if no DAG extends it."""
    dag = consistent_extension(pdag)
    return None if dag is None else dag_to_cpdag(dag)


def hill_climb(
    score: LocalScore, dag: np.ndarray, constraints: EdgeConstraints, max_parents: int
) -> np.ndarray:
    """Insert, delete or reverse the best edge of a DAG (n, n) while one gains.

    The DAG satisfies the constraints, and so does every step.
    """
    dag = dag.copy()

    def gain(effect: int, before: set[int], after: set[int]) -> float:
        return score(effect, sorted(before)) - score(effect, sorted(after))

    def moves() -> Iterator[tuple[float, int, int, str]]:
        parents = [set(np.flatnonzero(dag[:, i]).tolist()) for i in range(len(dag))]
        for j, i in np.argwhere(constraints.allowed & ~dag & ~dag.T).tolist():
            if len(parents[i]) < max_parents:
                yield gain(i, parents[i], parents[i] | {j}), j, i, "insert"
        for j, i in np.argwhere(dag & ~constraints.required).tolist():
            deletion = gain(i, parents[i], parents[i] - {j})
            yield deletion, j, i, "delete"
            if constraints.allowed[i, j] and len(parents[j]) < max_parents:
                yield deletion + gain(j, parents[j], parents[j] | {i}), j, i, "turn"

    def apply(move: tuple[float, int, int, str]) -> np.ndarray | None:
        _, j, i, kind = move
        changed = dag.copy()
        changed[j, i] = kind == "insert"
        changed[i, j] = kind == "turn"
        return changed if _is_acyclic(changed) else None

    while True:
        better = sorted((m for m in moves() if m[0] > SMALLEST_GAIN), key=lambda m: (-m[0], m[1:]))
        changed = next((c for c in map(apply, better) if c is not None), None)
        if changed is None:
            return dag
        dag = changed


def total_score(score: LocalScore, dag: np.ndarray) -> float:
    """Return the sum of the local scores of a DAG (n, n)."""
    return sum(score(v, np.flatnonzero(dag[:, v]).tolist()) for v in range(len(dag)))


def _is_acyclic(dag: np.ndarray) -> bool:
    return CausalGraph(tuple(map(str, range(len(dag)))), dag.astype(float)).is_acyclic
