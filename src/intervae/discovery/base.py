"""What every graph learner takes and gives: a checked table of variables in, a `Discovery` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data.base import KINDS
from intervae.errors import DataError

FEWEST_ROWS = 50


@dataclass(frozen=True)
class Discovery:
    """A graph found from a table, and how far to trust it.

    Arguments:
        graph: weights are the method's standardised strengths (its docstring says which).
        order: the variables, causes before effects, in the order in which the method placed them.
        cost: for each variable of `order`, what placing it there cost; 0 means that nothing speaks against it.
        method: its name in `METHODS`.
        seconds: wall-clock time.
        assumptions: when the answer is right, in plain words.
        ambiguous: edges (cause, effect) of `graph` that the data would let run the other way at no more cost.
        history: (n, n) weights on the way there, where the method takes steps.
        notes: sentences that a person should read beside the graph.
        details: numbers of the method's own, such as its score or how far from acyclic it ended.
    """

    graph: CausalGraph
    order: tuple[str, ...]
    cost: tuple[float, ...]
    method: str
    seconds: float
    assumptions: str
    ambiguous: list[tuple[str, str]]
    history: tuple[np.ndarray, ...] = ()
    notes: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def pattern(self) -> np.ndarray:
        """(n, n) of 0, 1 and -1: the edges of `graph` with -1 both ways where `ambiguous` leaves the direction open, as `graph_metrics` takes it."""
        pattern = self.graph.adjacency
        for cause, effect in self.ambiguous:
            j, i = self.graph.index(cause), self.graph.index(effect)
            pattern[j, i] = pattern[i, j] = -1
        return pattern

    def replace(self, **changed: Any) -> Discovery:
        return replace(self, **changed)


class UnitsWarning(UserWarning):
    """A graph was learned from columns in their own units, which can decide its edges."""


def varsortability(columns: np.ndarray, graph: CausalGraph) -> float:
    """The share of directed paths of `graph` along which the variance of (N, n) columns grows from start to end (Reisach et al. 2021, Eq. 4).

    0.5 says that units tell nothing about the order; near 1, sorting by variance gives the order, and least squares in these units does just that.
    Paths of every length up to n - 1 count, each once for its ends and length; equal variances count half. NaN without edges.
    """
    variance = np.asarray(columns, dtype=np.float64).var(axis=0)
    edges = graph.adjacency.astype(bool)
    ratio = variance[None, :] / variance[:, None]  # [j, i]: of the end to that of the start
    walks, paths, grown = edges.copy(), 0, 0.0
    for _ in range(len(edges) - 1):
        paths += int(walks.sum())
        grown += float((walks & (ratio > 1 + 1e-9)).sum() + 0.5 * (walks & (np.abs(ratio - 1) <= 1e-9)).sum())
        walks = (walks.astype(np.int64) @ edges.astype(np.int64)) > 0
    return grown / paths if paths else float("nan")


def read_table(table: Any, names: Sequence[str] | None, kinds: Sequence[str | None] | None) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Check a table: (N, n) finite numbers that vary, under different names.

    Arguments:
        table: (N, n) array, tensor or DataFrame; a DataFrame's columns of words or booleans become codes, binary or categorical.
        names: one per column; a DataFrame brings its own, an array is named x0, x1, ... without.
        kinds: "continuous", "binary" or "categorical" per column; without (or with None), two distinct values are binary and any other number
            continuous.

    Returns:
        (N, n) float64 columns, names, kinds.
    """
    if names is None and isinstance(table, pd.DataFrame):
        names = [str(column) for column in table.columns]
    if isinstance(table, pd.DataFrame):
        table, words = _coded(table)
        kinds = words if kinds is None else kinds
    if isinstance(table, Tensor):
        table = table.detach().cpu().numpy()
    try:
        columns = np.array(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("the table holds something that is not a number; give numbers only, categories as codes.") from None
    if columns.ndim != 2 or columns.shape[1] < 2:
        raise DataError(f"a table of variables must be rows x columns with at least two columns, not of shape {columns.shape}.")
    names = tuple(names) if names is not None else tuple(f"x{i}" for i in range(columns.shape[1]))
    if len(names) != columns.shape[1]:
        raise DataError(f"{len(names)} names were given for {columns.shape[1]} columns; give one per column.")
    if len(set(names)) != len(names):
        raise DataError(f"the column {next(n for n in names if names.count(n) > 1)!r} appears twice; rename or remove one.")
    if len(columns) < FEWEST_ROWS:
        raise DataError(f"{len(columns)} rows are too few to tell a graph from chance; give {FEWEST_ROWS} or more.")
    if not np.isfinite(columns).all():
        row, column = np.argwhere(~np.isfinite(columns))[0]
        raise DataError(f"column {names[column]!r} is {columns[row, column]} in row {row}; every value must be a finite number.")
    for name, column in zip(names, columns.T, strict=True):
        if (column == column[0]).all():
            raise DataError(f"column {name!r} is constant (always {column[0]:g}), so it has neither causes nor effects here; leave it out.")
    return columns, names, _kinds(columns, names, kinds)


def _coded(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str | None]]:
    """Columns of words or booleans as codes, in the order of their sorted values, and their kinds (None for a column of numbers).

    A missing word stays missing.
    """
    columns: dict[int, Any] = {}
    kinds: list[str | None] = []
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        words = not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
        if words:
            codes, levels = pd.factorize(column.astype(str).where(column.notna()), sort=True)
            column = pd.Series(np.where(codes < 0, np.nan, codes), index=frame.index)
        columns[place] = column
        kinds.append(("binary" if len(levels) <= 2 else "categorical") if words else None)
    return pd.DataFrame(columns), kinds


def _kinds(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str | None] | None) -> tuple[str, ...]:
    if kinds is None:
        return tuple("binary" if len(np.unique(column)) == 2 else "continuous" for column in columns.T)
    if len(kinds) != len(names):
        raise DataError(f"{len(kinds)} kinds were given for {len(names)} columns; give one per column.")
    told = ["binary" if len(np.unique(column)) == 2 else "continuous" for column in columns.T]
    kinds = [kind or guess for kind, guess in zip(kinds, told, strict=True)]
    for name, kind in zip(names, kinds, strict=True):
        if kind not in KINDS:
            raise DataError(f"column {name!r} cannot be {kind!r}; a variable is one of {', '.join(KINDS)}.")
    return tuple(str(kind) for kind in kinds)


def require_continuous(method: str, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Refuse what a method for continuous variables cannot judge."""
    other = [f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True) if kind != "continuous"]
    if other:
        raise DataError(f"method {method!r} is for continuous variables, but the table has {', '.join(other)}; leave them out or use another method.")


def random_rows(columns: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """At most `samples` rows of (N, n), drawn without replacement by `seed`."""
    if len(columns) <= samples:
        return columns
    return columns[np.sort(np.random.default_rng(seed).choice(len(columns), samples, replace=False))]
