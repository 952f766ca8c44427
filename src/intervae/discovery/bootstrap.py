"""How sure the edges of a discovered graph are: the share of resampled tables in which the method finds each of them (Friedman et al. 1999).

A resample is half of the rows, each at most once (Meinshausen and Bühlmann 2010). As many rows drawn with replacement would hold some of them
twice: what is held out is then also among what was learned from, and methods that predict held-out rows find edges in pure noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import FEWEST_ROWS, Discovery, UnitsWarning, read_table
from intervae.discovery.registry import discover
from intervae.errors import DataError, UsageError


@dataclass(frozen=True)
class Bootstrap:
    """A graph with the confidence of every edge.

    Arguments:
        found: what the method finds on the whole table.
        confidence: (n, n) share of resamples with the edge j -> i; an edge whose direction stays open counts half for each.
        resamples: how many tables were drawn.
        failed: how many of them the method could not use (a column that came out constant, for one); they are not counted.
    """

    found: Discovery
    confidence: np.ndarray
    resamples: int
    failed: int

    @property
    def graph(self) -> CausalGraph:
        return self.found.graph

    def consensus(self, smallest: float = 0.5) -> CausalGraph:
        """The edges found in at least this share of the resamples, weighted by it; what cycles there are lose their least sure edge."""
        return CausalGraph(self.graph.names, np.where(self.confidence >= max(smallest, 1e-9), self.confidence, 0.0)).to_acyclic()

    def edges(self) -> list[tuple[str, str, float]]:
        """(cause, effect, confidence) of every edge that was ever found, the surest first."""
        names = self.graph.names
        found = [(names[j], names[i], float(self.confidence[j, i])) for j, i in np.argwhere(self.confidence > 0)]
        return sorted(found, key=lambda edge: -edge[2])


def bootstrap(
    table: Any,
    method: str | Callable[..., Discovery] = "independence",
    *,
    resamples: int = 50,
    names: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
    replace: bool | None = None,
    **settings: Any,
) -> Bootstrap:
    """Run `discover` on the table and on `resamples` tables of half its rows, so that a weak edge may come out less sure than the whole table has it.

    Arguments:
        table, names, kinds, settings: as in `discover`; kinds are told from the whole table, once.
        method: as in `discover`, or a learner itself, called as those in `METHODS` are.
        resamples: 50 give a confidence to about 0.07.
        seed: same seed, same answer.
        replace: draw as many rows as there are with replacement instead, for a method that neither holds out rows nor tests for independence
            (unless told, only for a learner given itself).
    """
    if resamples < 2:
        raise UsageError(f"resamples={resamples} tells nothing; give 2 or more, 50 for a first look.")
    columns, checked, variable_kinds = read_table(table, names, kinds)
    twice = replace if replace is not None else not isinstance(method, str)
    if not twice and len(columns) < 2 * FEWEST_ROWS:
        raise DataError(f"{len(columns)} rows are too few to learn from half of them; give {2 * FEWEST_ROWS} or more, or leave the confidence out.")
    how = {"names": checked, "kinds": variable_kinds, "seed": seed, **settings}

    def learn(rows: np.ndarray) -> Discovery:
        if isinstance(method, str):
            return discover(rows, method, **how)
        return method(read_table(rows, checked, variable_kinds)[0], **how)

    found = learn(columns)
    generator = np.random.default_rng([seed, 7])
    total, used = np.zeros((len(checked), len(checked))), 0
    problem: DataError | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)  # said once, by the whole table
        for _ in range(resamples):
            rows = generator.integers(0, len(columns), len(columns)) if twice else generator.permutation(len(columns))[: len(columns) // 2]
            try:
                pattern = learn(columns[rows]).pattern
            except DataError as error:
                problem = error
                continue
            total += np.where(pattern == -1, 0.5, pattern)
            used += 1
    if not used:
        raise DataError(f"method {found.method!r} could use none of the {resamples} resamples: {problem}")
    return Bootstrap(found, total / used, resamples, resamples - used)
