"""Classes of DAGs that no data tell apart (CPDAGs), as (n, n) arrays of bool: [j, i] and not [i, j] is j -> i, both is an undirected edge."""

from __future__ import annotations

import numpy as np


def pattern_of(dag: np.ndarray) -> np.ndarray:
    """The class of a DAG: its edges, undirected but for those that every DAG with the same independences shares (Meek 1995, rules 1 to 3)."""
    adjacent = dag | dag.T
    arrows = np.zeros_like(dag)
    for effect in range(len(dag)):
        causes = np.flatnonzero(dag[:, effect])
        for j in causes:
            if any(not adjacent[j, k] for k in causes if k != j):  # two causes without an edge between them
                arrows[j, effect] = True
    return close_arrows(np.where(arrows.T, False, adjacent))


def close_arrows(pattern: np.ndarray) -> np.ndarray:
    """Direct every undirected edge whose other direction would make a cycle or a new collider, until there is none left (Meek 1995, rules 1 to 4)."""
    pattern = pattern.copy()
    while True:
        adjacent, arrows, lines = pattern | pattern.T, pattern & ~pattern.T, pattern & pattern.T
        apart = ~adjacent & ~np.eye(len(pattern), dtype=bool)
        count = arrows.astype(np.int64)
        into = (count.T @ apart.astype(np.int64)).T  # [c, b]: arrows a -> b with a apart from c
        found = lines & (into.T > 0)  # rule 1: a -> b - c, a and c apart: b -> c
        found |= lines & (count @ count > 0)  # rule 2: b -> a -> c and b - c: b -> c
        for b, c in np.argwhere(lines & ~found):
            middle = np.flatnonzero(lines[b] & arrows[:, c])  # rule 3: b - a -> c, b - d -> c, a and d apart, b - c: b -> c
            found[b, c] = apart[np.ix_(middle, middle)].any()
            first, second = np.flatnonzero(lines[b] & apart[c]), np.flatnonzero(adjacent[b] & arrows[:, c])
            found[b, c] |= arrows[np.ix_(first, second)].any()  # rule 4: b - a -> d -> c, a and c apart, b and d joined, b - c: b -> c
        found &= ~found.T
        if not found.any():
            return pattern
        pattern &= ~found.T


def directed_by(pattern: np.ndarray, barred: np.ndarray) -> np.ndarray:
    """What is left of a class when the directions `barred` (n, n) are known to be wrong: lines get the other one, and all that follows from it."""
    return close_arrows(pattern & ~(pattern.T & barred & ~barred.T))


def member_of(pattern: np.ndarray) -> np.ndarray | None:
    """A DAG with the arrows, edges and colliders of a partly directed graph (Dor and Tarsi 1992); None where there is none."""
    rest, dag = pattern.copy(), pattern & ~pattern.T
    left = list(range(len(pattern)))
    while left:
        for node in left:
            if (rest[node] & ~rest[:, node]).any():  # has an effect
                continue
            lines = np.flatnonzero(rest[node] & rest[:, node])
            adjacent = np.flatnonzero(rest[node] | rest[:, node])
            joined = rest | rest.T
            if all(all(joined[line, other] for other in adjacent if other != line) for line in lines):
                dag[lines, node] = True
                rest[node] = rest[:, node] = False
                left.remove(node)
                break
        else:
            return None
    return dag
