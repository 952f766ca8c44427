"""Causal discovery by independent noises: the order with the least dependence.

A variable is placed after the set S of those before it. Its parents are the smallest subset of S
that predicts it as well as any; its residual given the parents must be independent of S, as in a
causal order it is the variable's own noise (Hoyer et al. 2009, Peters et al. 2014). A variable that
its parents determine has no noise to test. An order is scored by the evidence against independence
plus a penalty per edge, and dynamic programming over subsets finds the best of the n! orders.
Orders of many variables are compared by the entropies of their noises (entropy_order_search.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, random_rows, require_continuous
from intervae.discovery.entropy_order_search import EntropyOrderSearch
from intervae.discovery.greedy_regressions import GreedyRegressions
from intervae.discovery.kernels import standardise
from intervae.discovery.knowledge import SMALLEST_WEIGHT, Knowledge
from intervae.discovery.local_order_search import LocalOrderSearch
from intervae.discovery.neighbour_screening import screen_neighbours
from intervae.discovery.order_search import OrderSearch, Placement, PlacementScorer
from intervae.discovery.table_checks import collinearity_notes
from intervae.discovery.threads import one_thread
from intervae.errors import UsageError, unknown

ASSUMPTIONS = (
    "Every variable is a smooth function of its causes plus an independent noise (or no noise), "
    "and there are no hidden common causes and no cycles; linear relations with Gaussian noise do "
    "not determine the direction, and such edges are listed as ambiguous."
)
MAX_NEIGHBOURS = 8  # that a variable chooses in a local search
SEARCHES = ("auto", "subsets", "entropy", "screened", "local")
EXACT_VARIABLES = 8  # up to which every parent set is tried, and the default beam is exact
# where variables are determined by others, so that noises have no entropy:
SUBSET_VARIABLES = 10  # up to which the search tries all pairs
SCREENED_VARIABLES = 24  # up to which the search keeps a beam of subsets
TEST_ROWS, ENTROPY_ROWS = 800, 2000
DECADE = float(np.log(10.0))  # in nats


@one_thread()
def independence(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    samples: int | None = None,
    resolution: float = 0.05,
    evidence_threshold: float = 1.5,
    edge_penalty: float = 1.0,
    error_tolerance: float = 2.5,
    beam: int = 70,
    max_parents: int | None = None,
    search: Literal["auto", "subsets", "entropy", "screened", "local"] = "auto",
) -> Discovery:
    """Return the graph whose noises are independent of their predecessors.

    The weight of an edge is the fraction of the effect's variance that is lost, leave-one-out,
    without that parent.

    Arguments:
        columns: (N, n), continuous; the result does not depend on their units.
        knowledge: required and forbidden edges and tiers.
        samples: maximum number of random rows used; by default 800, as time grows with their
            square, and 2,000 where orders are compared by entropy.
        resolution: residual standard deviation, as a fraction of the variable's, below which a
            variable counts as determined by its parents.
        evidence_threshold: decades of p below which a dependence counts as chance (1.5 is
            p = 0.03).
        edge_penalty: decades of evidence that an edge must be worth; with the search by entropy,
            after a correction for the number of pairs.
        error_tolerance: standard errors by which a smaller parent set may be worse than the best.
        beam: subsets kept per layer of the search; the default is exact up to 8 variables.
        max_parents: size of the largest parent set tried over subsets; by default any up to 8
            variables, 3 beyond.
        search: "subsets", dynamic programming over all subsets; "entropy", moves of single
            variables that lower the entropies of the noises; "screened", subsets with tests among
            possible neighbours only; "local", greedy from the last variable to the first. "auto"
            takes the first up to 8 variables and the second beyond; where variables are
            determined by others, the first up to 10, the third up to 24 and the last beyond.
    """
    started = time.perf_counter()
    require_continuous("independence", names, kinds)
    too_few = samples is not None and samples < 50
    if not 0.0 < resolution < 1.0 or too_few or beam < 1:
        raise UsageError(
            "resolution must be between 0 and 1, samples 50 or more and beam 1 or more, "
            f"not {resolution}, {samples} and {beam}."
        )
    if search not in SEARCHES:
        raise unknown("search of 'independence'", search, SEARCHES)
    n = len(names)
    constraints = Knowledge.parse(knowledge).constraints(names)
    by_entropy = None
    if search == "entropy" or (search == "auto" and n > EXACT_VARIABLES):
        many = standardise(random_rows(columns, samples or ENTROPY_ROWS, seed))
        pairs = max(n * (n - 1) // 2, 1)  # each could get an edge by chance
        regressions = GreedyRegressions(many, edge_penalty * DECADE + float(np.log(pairs)))
        by_entropy = EntropyOrderSearch(regressions, constraints, resolution, seed)
        if search == "auto" and by_entropy.has_determined():
            by_entropy = None
    if search == "auto":
        search = "subsets" if n <= SUBSET_VARIABLES else "screened"
        search = "local" if n > SCREENED_VARIABLES else search
    if max_parents is None:
        max_parents = n - 1 if n <= EXACT_VARIABLES else 3
    rows = standardise(random_rows(columns, samples or TEST_ROWS, seed))
    neighbours = None
    if by_entropy is not None:
        neighbours = by_entropy.neighbours
    elif search != "subsets":
        neighbours = screen_neighbours(rows, min(MAX_NEIGHBOURS, n - 1))
    scorer = PlacementScorer(
        rows,
        resolution=resolution,
        evidence_threshold=evidence_threshold,
        edge_penalty=edge_penalty,
        error_tolerance=error_tolerance,
        max_parents=max_parents,
        constraints=constraints,
        neighbours=neighbours,
    )
    if by_entropy is not None:
        by_entropy.run()
        order, ambiguous = by_entropy.order, by_entropy.ambiguous
        placements = {
            v: scorer.assess(by_entropy.parents[v], v, frozenset(order[:i]))
            for i, v in enumerate(order)
        }
    elif search == "local":
        local = LocalOrderSearch(scorer)
        order, placements, ambiguous = local.order, local.placements, local.ambiguous
    else:
        order, placements, ambiguous = _search_subsets(scorer, n, beam)
    edges = [(cause, effect) for effect in range(n) for cause in sorted(placements[effect].parents)]
    return Discovery(
        graph=CausalGraph(tuple(names), _weights(scorer, placements, edges)),
        order=tuple(names[v] for v in order),
        cost=tuple(placements[v].cost for v in order),
        method="independence",
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[(names[j], names[i]) for j, i in edges if (j, i) in ambiguous],
        notes=collinearity_notes(columns, names, kinds),
    )


def _search_subsets(
    scorer: PlacementScorer, variables: int, beam: int
) -> tuple[list[int], dict[int, Placement], set[tuple[int, int]]]:
    """Return the order, the placements and the ambiguous edges of the search over subsets."""
    search = OrderSearch(scorer, variables, beam)
    order, score = search.order(), search.score()
    placements = {v: search.placements[frozenset(order[:i]), v] for i, v in enumerate(order)}
    edges = [(j, i) for i, placement in placements.items() for j in placement.parents]
    ambiguous = {(j, i) for j, i in edges if search.reversed_score(j, i) <= score + 1e-6}
    return order, placements, ambiguous


def _weights(
    scorer: PlacementScorer, placements: dict[int, Placement], edges: Iterable[tuple[int, int]]
) -> np.ndarray:
    """Return the fraction of the effect's variance lost without each cause, (n, n)."""
    weights = np.zeros((len(placements), len(placements)))
    for cause, effect in edges:
        parents = placements[effect].parents
        lost = scorer.error(parents - {cause}, effect) - scorer.error(parents, effect)
        weights[cause, effect] = max(lost, SMALLEST_WEIGHT)
    return weights
