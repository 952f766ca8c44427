"""Greedy equivalence search (Chickering 2002), with BIC or with the generalised score.

Edges that the CPDAG leaves undirected are the `ambiguous` ones of the result. With prior
knowledge, pairs that are forbidden in both directions are never scored, and the rest orients edges
of the CPDAG (Meek 1995). If no DAG of the class satisfies the knowledge, hill climbing over DAGs
continues from it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, check_no_categorical, random_rows
from intervae.discovery.cpdag import consistent_extension, dag_to_cpdag, orient_known
from intervae.discovery.design_matrix import one_hot
from intervae.discovery.equivalence_search import (
    EquivalenceSearch,
    LocalScore,
    hill_climb,
    total_score,
)
from intervae.discovery.gaussian_bic import GaussianBIC
from intervae.discovery.generalised_score import FOLDS, GeneralisedScore
from intervae.discovery.kernels import standardise
from intervae.discovery.knowledge import SMALLEST_WEIGHT, EdgeConstraints, Knowledge
from intervae.discovery.table_checks import check_no_duplicate_categories, check_not_collinear
from intervae.errors import DataError, UsageError

ASSUMPTIONS = (
    "There are no hidden common causes and no cycles, independences in the data are those of the "
    "graph (faithfulness), and {relations}. Independences determine an equivalence class only, so "
    "the direction of the ambiguous edges is open."
)


def ges(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    penalty: float = 1.0,
    max_parents: int | None = None,
) -> Discovery:
    """GES with linear Gaussian BIC; independent of units.

    Weights are standardised regression weights, `cost` is the unexplained variance.

    Arguments:
        columns: (N, n), continuous, or binary as numbers.
        knowledge: required and forbidden edges and tiers.
        penalty: of a parent, as a multiple of BIC's log(N) / 2.
        max_parents: maximum number of parents of a variable; None for any number.
    """
    started = time.perf_counter()
    check_no_categorical("ges", names, kinds, "ges-generalised")
    check_not_collinear(columns, names, kinds)
    score = GaussianBIC(columns, penalty)
    dag, cpdag = _search(score, names, knowledge, max_parents)
    weights, cost = np.zeros(dag.shape), []
    for effect in range(len(dag)):
        parents = np.flatnonzero(dag[:, effect]).tolist()
        if parents:
            weights[parents, effect] = score.coefficients(effect, parents)
        cost.append(score.unexplained(effect, parents))
    assumptions = ASSUMPTIONS.format(relations="relations are linear with Gaussian noise")
    return _result("ges", names, dag, cpdag, weights, cost, assumptions, score, started)


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
    """GES with the generalised score, for any relations and kinds; independent of units.

    The weight of an edge is the score per row lost without it, `cost` is each variable's score per
    row. Time grows with the square of the rows.

    Arguments:
        columns: (N, n), of any kind.
        knowledge: required and forbidden edges and tiers.
        samples: maximum number of random rows used.
        max_parents: maximum number of parents of a variable.
    """
    started = time.perf_counter()
    if samples < 5 * FOLDS:
        raise UsageError(
            f"samples={samples} is too few for {FOLDS} folds; give {5 * FOLDS} or more."
        )
    check_not_collinear(columns, names, kinds)
    check_no_duplicate_categories(columns, names, kinds)
    table = random_rows(columns, samples, seed)
    for name, column in zip(names, table.T, strict=True):
        if (column == column[0]).all():
            raise DataError(
                f"column {name!r} is constant in the {samples} rows that were drawn; "
                "give a larger samples= or leave it out."
            )
    scaled = standardise(table)
    score = GeneralisedScore(
        [
            one_hot(names[i], table[:, i]) if kind == "categorical" else scaled[:, i]
            for i, kind in enumerate(kinds)
        ]
    )
    dag, cpdag = _search(score, names, knowledge, max_parents)
    weights, cost = np.zeros(dag.shape), []
    for effect in range(len(dag)):
        parents = np.flatnonzero(dag[:, effect]).tolist()
        full = score(effect, parents)
        for cause in parents:
            lost = score(effect, [v for v in parents if v != cause]) - full
            weights[cause, effect] = max(lost / len(table), SMALLEST_WEIGHT)
        cost.append(full / len(table))
    assumptions = ASSUMPTIONS.format(relations="relations and noises are smooth, of any form")
    return _result("ges-generalised", names, dag, cpdag, weights, cost, assumptions, score, started)


def _search(
    score: LocalScore,
    names: Sequence[str],
    knowledge: Knowledge | Mapping[str, Any] | None,
    max_parents: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a DAG and the PDAG of its class under the knowledge, each (n, n)."""
    if max_parents is not None and max_parents < 1:
        raise UsageError(f"max_parents={max_parents} must be 1 or more.")
    limit, constraints = max_parents or len(names), Knowledge.parse(knowledge).constraints(names)
    pairs = constraints.allowed | constraints.allowed.T
    cpdag = EquivalenceSearch(score, len(names), limit, pairs).run()
    excluded = ~constraints.allowed | constraints.required.T
    oriented = orient_known(cpdag, excluded)
    dag = consistent_extension(oriented)
    if dag is not None and constraints.satisfied_by(dag) and (dag_to_cpdag(dag) == cpdag).all():
        return dag, oriented
    # no member of the class satisfies the knowledge
    starts = [member for member in (dag, consistent_extension(cpdag)) if member is not None]
    dag = _best_climb(score, starts, constraints, limit)
    return dag, orient_known(dag_to_cpdag(dag), excluded)


def _best_climb(
    score: LocalScore,
    starts: Sequence[np.ndarray],
    constraints: EdgeConstraints,
    max_parents: int,
) -> np.ndarray:
    """Return the best DAG of climbs from the starts, their forbidden edges dropped or reversed."""
    dags = []
    for start in starts:
        for edges in (start, start | (start & ~constraints.allowed).T):
            dag = constraints.to_dag(edges.astype(float), 0.5) != 0
            dags.append(hill_climb(score, dag, constraints, max_parents))
    return min(dags, key=lambda dag: total_score(score, dag))


def _result(
    method: str,
    names: Sequence[str],
    dag: np.ndarray,
    cpdag: np.ndarray,
    weights: np.ndarray,
    cost: Sequence[float],
    assumptions: str,
    score: LocalScore,
    started: float,
) -> Discovery:
    graph = CausalGraph(tuple(names), np.where(dag & (weights == 0), SMALLEST_WEIGHT, weights))
    order = tuple(graph.topological_order)
    return Discovery(
        graph=graph,
        order=order,
        cost=tuple(float(cost[graph.index(name)]) for name in order),
        method=method,
        seconds=time.perf_counter() - started,
        assumptions=assumptions,
        ambiguous=[(names[j], names[i]) for j, i in np.argwhere(dag & cpdag & cpdag.T)],
        details={"score": float(total_score(score, dag))},
    )
