"""Confidence of the edges of a graph: how often the method finds them on resampled tables.

Friedman et al. 1999. A resample has half of the rows, each at most once (Meinshausen and Bühlmann
2010). Rows drawn with replacement would be both held out and learned from, so that methods that
predict held-out rows find edges in pure noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import MIN_ROWS, Discovery, UnitsWarning, read_table
from intervae.discovery.registry import discover
from intervae.errors import DataError, UsageError
from intervae.settings import check_whole

MAX_RESAMPLES = 10_000


@dataclass(frozen=True)
class Bootstrap:
    """A graph with the confidence of every edge.

    Arguments:
        result: the discovery from the whole table.
        confidence: (n, n) confidence in the edge j -> i. Where the result has calibrated
            `directions`, it is the fraction of resamples with an edge between the two, times the
            confidence in the direction; elsewhere it is the frequency.
        frequency: (n, n) fraction of resamples with the edge j -> i; an undirected edge counts
            half for each direction. A method that errs does so in all resamples, so the frequency
            of a direction is no confidence in it.
        resamples: number of resampled tables.
        failed: how many of them the method failed on, for example because a column was constant;
            they are not counted.
    """

    result: Discovery
    confidence: np.ndarray
    frequency: np.ndarray
    resamples: int
    failed: int

    @property
    def graph(self) -> CausalGraph:
        """The graph of the whole table."""
        return self.result.graph

    def edges(self) -> list[tuple[str, str, float]]:
        """Return (cause, effect, confidence) of all edges of any resample, highest first."""
        names = self.graph.names
        edges = [
            (names[j], names[i], float(self.confidence[j, i]))
            for j, i in np.argwhere(self.confidence > 0)
        ]
        return sorted(edges, key=lambda edge: -edge[2])


def check_resamples(resamples: Any) -> None:
    """Raise a UsageError for a number of resamples that is not from 2 to MAX_RESAMPLES."""
    check_whole(2, resamples=resamples)
    if resamples > MAX_RESAMPLES:
        raise UsageError(
            f"resamples={resamples} is more than {MAX_RESAMPLES}; fewer, such as 50, suffice."
        )


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
    """Run `discover` on the table and on `resamples` tables of half its rows.

    Half the rows carry less information, so a weak edge of the whole table may have a low
    confidence.

    Arguments:
        table, names, kinds, settings: as in `discover`; kinds are inferred from the whole table.
        method: as in `discover`, or a function with the signature of those in `METHODS`.
        resamples: 50 give a standard error of about 0.07.
        seed: of the resampling and of the method.
        replace: draw N rows with replacement instead, for a method that neither holds out rows nor
            tests independence; by default only if `method` is a function.
    """
    check_resamples(resamples)
    columns, names, variable_kinds = read_table(table, names, kinds)
    replace = not isinstance(method, str) if replace is None else replace
    if not replace and len(columns) < 2 * MIN_ROWS:
        raise DataError(
            f"{len(columns)} rows are too few to learn from half of them; "
            f"give {2 * MIN_ROWS} or more, or leave the confidence out."
        )
    arguments = {"names": names, "kinds": variable_kinds, "seed": seed, **settings}

    def learn(rows: np.ndarray, check_directions: bool | None = False) -> Discovery:
        if isinstance(method, str):
            return discover(rows, method, **{"check_directions": check_directions, **arguments})
        return method(read_table(rows, names, variable_kinds)[0], **arguments)

    result = learn(columns, check_directions=None)
    arguments.pop("check_directions", None)
    generator = np.random.default_rng([seed, 7])
    total, used = np.zeros((len(names), len(names))), 0
    last_error: DataError | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)  # raised once, by the whole table
        for _ in range(resamples):
            rows = (
                generator.integers(0, len(columns), len(columns))
                if replace
                else generator.permutation(len(columns))[: len(columns) // 2]
            )
            try:
                pattern = learn(columns[rows]).pattern
            except DataError as error:
                last_error = error
                continue
            total += np.where(pattern == -1, 0.5, pattern)
            used += 1
    if not used:
        raise DataError(
            f"method {result.method!r} failed on all {resamples} resamples: {last_error}"
        )
    frequency = total / used
    confidence = _with_directions(frequency, result)
    return Bootstrap(result, confidence, frequency, resamples, resamples - used)


def _with_directions(frequency: np.ndarray, result: Discovery) -> np.ndarray:
    """Divide the frequency (n, n) of an edge between two directions by their confidence."""
    confidence = frequency.copy()
    for direction in result.directions:
        j, i = result.graph.index(direction.cause), result.graph.index(direction.effect)
        adjacent = frequency[j, i] + frequency[i, j]
        confidence[j, i] = adjacent * direction.confidence
        confidence[i, j] = adjacent * (1.0 - direction.confidence)
    return confidence
