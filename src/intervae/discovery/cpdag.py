"""CPDAGs, Markov equivalence classes of DAGs, as (n, n) arrays of bool.

[j, i] without [i, j] is the directed edge j -> i; both is the undirected edge i - j.
"""

from __future__ import annotations

import numpy as np


def dag_to_cpdag(dag: np.ndarray) -> np.ndarray:
    """Return the CPDAG of a DAG (n, n): v-structures, then Meek's rules (Meek 1995)."""
    adjacent = dag | dag.T
    arrows = np.zeros_like(dag)
    for effect in range(len(dag)):
        causes = np.flatnonzero(dag[:, effect])
        for j in causes:
            # a collider: another cause that is not adjacent to j
            if any(not adjacent[j, k] for k in causes if k != j):
                arrows[j, effect] = True
    return apply_meek_rules(np.where(arrows.T, False, adjacent))


def apply_meek_rules(pdag: np.ndarray) -> np.ndarray:
    """Orient all undirected edges (n, n) that Meek's rules 1 to 4 determine.

    The other direction of such an edge would create a cycle or a new collider.
    """
    pdag = pdag.copy()
    while True:
        adjacent, arrows, lines = pdag | pdag.T, pdag & ~pdag.T, pdag & pdag.T
        apart = ~adjacent & ~np.eye(len(pdag), dtype=bool)
        count = arrows.astype(np.int64)
        into = (count.T @ apart.astype(np.int64)).T  # [c, b]: arrows a -> b with a, c not adjacent
        # rule 1: a -> b - c, a and c not adjacent: b -> c
        orient = lines & (into.T > 0)
        # rule 2: b -> a -> c and b - c: b -> c
        orient |= lines & (count @ count > 0)
        for b, c in np.argwhere(lines & ~orient):
            # rule 3: b - a -> c, b - d -> c, a and d not adjacent, b - c: b -> c
            middle = np.flatnonzero(lines[b] & arrows[:, c])
            orient[b, c] = apart[np.ix_(middle, middle)].any()
            # rule 4: b - a -> d -> c, a and c not adjacent, b and d adjacent, b - c: b -> c
            first = np.flatnonzero(lines[b] & apart[c])
            second = np.flatnonzero(adjacent[b] & arrows[:, c])
            orient[b, c] |= arrows[np.ix_(first, second)].any()
        orient &= ~orient.T
        if not orient.any():
            return pdag
        pdag &= ~orient.T


def orient_known(pdag: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    """Orient undirected edges against `excluded` directions (n, n), then apply Meek's rules."""
    return apply_meek_rules(pdag & ~(pdag.T & excluded & ~excluded.T))


def consistent_extension(pdag: np.ndarray) -> np.ndarray | None:
    """Return a DAG with the arrows, skeleton and colliders of a PDAG (Dor and Tarsi 1992).

    None if there is none.
    """
    rest, dag = pdag.copy(), pdag & ~pdag.T
    remaining = list(range(len(pdag)))
    while remaining:
        for node in remaining:
            if (rest[node] & ~rest[:, node]).any():  # not a sink
                continue
            lines = np.flatnonzero(rest[node] & rest[:, node])
            neighbours = np.flatnonzero(rest[node] | rest[:, node])
            adjacent = rest | rest.T
            if all(all(adjacent[line, k] for k in neighbours if k != line) for line in lines):
                dag[lines, node] = True
                rest[node] = rest[:, node] = False
                remaining.remove(node)
                break
        else:
            return None
    return dag
