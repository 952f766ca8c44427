"""Input and output of every discovery method: a checked table, and a `Discovery`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from intervae.causal.dense import check_dense
from intervae.causal.graph import CausalGraph
from intervae.data import KINDS
from intervae.data.column_kinds import check_count
from intervae.errors import DataError
from intervae.notes import Note

if TYPE_CHECKING:
    import pandas as pd

    from intervae.discovery.direction_confidence import EdgeDirection

MIN_ROWS = 50


@dataclass(frozen=True)
class Discovery:
    """Result of a discovery method.

    Arguments:
        graph: edges with the weights of the method (see its docstring).
        order: the variables, causes before effects.
        cost: for each variable of `order`, the cost of its place; 0 means no evidence against it.
        method: its name in `METHODS`.
        seconds: wall-clock time.
        assumptions: conditions under which the graph is correct.
        ambiguous: edges (cause, effect) of `graph` whose direction the data does not determine.
        history: weights (n, n) after every round, for iterative methods.
        notes: what a user should read beside the graph.
        details: numbers of the method, such as its score or its final h.
        directions: calibrated confidence in the direction of each edge, where it was assessed.
    """

    graph: CausalGraph
    order: tuple[str, ...]
    cost: tuple[float, ...]
    method: str
    seconds: float
    assumptions: str
    ambiguous: list[tuple[str, str]]
    history: tuple[np.ndarray, ...] = ()
    notes: tuple[Note, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)
    directions: tuple[EdgeDirection, ...] = ()

    @property
    def open_directions(self) -> tuple[tuple[str, str], ...]:
        """Edges (cause, effect) whose direction is ambiguous, or has a confidence below 80%."""
        uncertain = {(d.cause, d.effect) for d in self.directions if d.is_open}
        return tuple(
            (cause, effect)
            for cause, effect, _ in self.graph.edges
            if (cause, effect) in uncertain or (cause, effect) in self.ambiguous
        )

    @property
    def pattern(self) -> np.ndarray:
        """CPDAG of the result (n, n): 1 for a directed edge, -1 both ways for an undirected one.

        This is what `graph_metrics` takes.
        """
        pattern = self.graph.adjacency
        for cause, effect in self.ambiguous:
            j, i = self.graph.index(cause), self.graph.index(effect)
            pattern[j, i] = pattern[i, j] = -1
        return pattern


class UnitsWarning(UserWarning):
    """A graph was learned from columns in their own units, which can decide its edges."""


def varsortability(columns: np.ndarray, graph: CausalGraph) -> float:
    """Return the fraction of directed paths along which the variance grows (Reisach et al. 2021).

    Eq. 4: paths of every length up to n - 1 count once per pair of ends and length; equal
    variances count half. At 0.5 units carry no information on the order. Near 1 sorting columns
    (N, n) by variance gives the order, and least squares in these units exploits that. NaN without
    edges.
    """
    variance = np.asarray(columns, dtype=np.float64).var(axis=0)
    edges = graph.adjacency.astype(bool)
    ratio = variance[None, :] / variance[:, None]  # [j, i]: variance of the end over the start
    walks, paths, growing = edges.copy(), 0, 0.0
    for _ in range(len(edges) - 1):
        paths += int(walks.sum())
        growing += float(
            (walks & (ratio > 1 + 1e-9)).sum() + 0.5 * (walks & (np.abs(ratio - 1) <= 1e-9)).sum()
        )
        walks = (walks.astype(np.int64) @ edges.astype(np.int64)) > 0
    return growing / paths if paths else float("nan")


def read_table(
    table: Any, names: Sequence[str] | None, kinds: Sequence[str | None] | None
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Check a table and return its columns (N, n) as float64, their names and kinds.

    Arguments:
        table: (N, n) array, tensor or DataFrame; DataFrame columns of strings or booleans become
            codes, binary or categorical.
        names: one per column; by default those of the DataFrame, or x0, x1, ...
        kinds: "continuous", "binary" or "categorical" per column; None is inferred: two distinct
            values are binary, other numbers continuous.
    """
    pandas = sys.modules.get("pandas")  # not imported: nothing can be a DataFrame
    if pandas is not None and isinstance(table, pandas.DataFrame):
        names = [str(column) for column in table.columns] if names is None else names
        table, frame_kinds = _encode_strings(table)
        kinds = frame_kinds if kinds is None else kinds
    if isinstance(table, Tensor):
        table = check_dense(table.detach(), "the table", DataError).cpu().double().numpy()
    try:
        columns = np.array(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "the table has values that are not numbers; give numbers only, categories as codes."
        ) from None
    if columns.ndim != 2 or columns.shape[1] < 2:
        raise DataError(
            "a table of variables must be rows x columns with at least two columns, "
            f"not of shape {columns.shape}."
        )
    check_count(range(columns.shape[1]), "columns of the table (--columns)")
    names = tuple(names) if names is not None else tuple(f"x{i}" for i in range(columns.shape[1]))
    _check_names(names, columns.shape[1])
    _check_values(columns, names)
    return columns, names, _check_kinds(columns, names, kinds)


def _check_names(names: Sequence[str], count: int) -> None:
    if len(names) != count:
        raise DataError(f"{len(names)} names were given for {count} columns; give one per column.")
    if len(set(names)) != len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DataError(f"the column {duplicate!r} appears twice; rename or remove one.")


def _check_values(columns: np.ndarray, names: Sequence[str]) -> None:
    if len(columns) < MIN_ROWS:
        raise DataError(
            f"{len(columns)} rows are too few to learn a graph; give {MIN_ROWS} or more."
        )
    if not np.isfinite(columns).all():
        row, column = np.argwhere(~np.isfinite(columns))[0]
        raise DataError(
            f"column {names[column]!r} is {columns[row, column]} in row {row}; "
            "every value must be a finite number."
        )
    for name, column in zip(names, columns.T, strict=True):
        if (column == column[0]).all():
            raise DataError(
                f"column {name!r} is constant (always {column[0]:g}), so it has neither causes "
                "nor effects here; leave it out."
            )


def _encode_strings(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str | None]]:
    """Return the frame with strings and booleans as codes, and the kinds of these columns.

    Codes follow the sorted values. The kind of a numeric column is None. Missing values stay
    missing.
    """
    import pandas as pd

    columns: dict[int, Any] = {}
    kinds: list[str | None] = []
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        is_text = not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
        if is_text:
            codes, levels = pd.factorize(column.astype(str).where(column.notna()), sort=True)
            column = pd.Series(np.where(codes < 0, np.nan, codes), index=frame.index)
        columns[position] = column
        kinds.append(("binary" if len(levels) <= 2 else "categorical") if is_text else None)
    return pd.DataFrame(columns), kinds


def _check_kinds(
    columns: np.ndarray, names: Sequence[str], kinds: Sequence[str | None] | None
) -> tuple[str, ...]:
    """Return the kind of every column, inferred where none is declared."""
    inferred = ["binary" if len(np.unique(column)) == 2 else "continuous" for column in columns.T]
    if kinds is None:
        return tuple(inferred)
    if len(kinds) != len(names):
        raise DataError(
            f"{len(kinds)} kinds were given for {len(names)} columns; give one per column."
        )
    for name, kind in zip(names, kinds, strict=True):
        if kind and kind not in KINDS:
            raise DataError(
                f"column {name!r} cannot be {kind!r}; a variable is one of {', '.join(KINDS)}."
            )
    return tuple(str(kind or guess) for kind, guess in zip(kinds, inferred, strict=True))


def require_continuous(method: str, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Raise a DataError for variables that are not continuous."""
    others = [
        f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True) if kind != "continuous"
    ]
    if others:
        raise DataError(
            f"method {method!r} is for continuous variables, but the table has "
            f"{', '.join(others)}; leave them out or use another method."
        )


def check_no_categorical(method: str, names: Sequence[str], kinds: Sequence[str], use: str) -> None:
    """Raise a DataError for categorical columns that names the method to use instead."""
    for name, kind in zip(names, kinds, strict=True):
        if kind == "categorical":
            raise DataError(
                f"method {method!r} cannot use the categorical column {name!r}; "
                f"leave it out or use {use!r}."
            )


def random_rows(columns: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Return at most `samples` rows of (N, n), drawn without replacement, in their order."""
    if len(columns) <= samples:
        return columns
    rows = np.random.default_rng(seed).choice(len(columns), samples, replace=False)
    return columns[np.sort(rows)]
