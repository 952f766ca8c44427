"""Graph of labelled variables for a model: a known one, checked, or one learned from labels."""

from __future__ import annotations

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Spec, Variable
from intervae.discovery import (
    MIN_ROWS,
    Discovery,
    complete_rows,
    complete_rows_notes,
    discover_labels,
)
from intervae.discovery.base import require_continuous
from intervae.errors import DataError, abbreviate
from intervae.notes import Note

NOT_LEARNED = ("empty", "given")
TAKES_CATEGORIES = ("notears-mlp", "ges-generalised")  # discovery methods


def check_graph(graph: CausalGraph, spec: Spec) -> CausalGraph:
    """Return a known graph over the variables of `spec`; an error for other names or a cycle."""
    unknown = [name for name in graph.names if name not in spec.names]
    if unknown:
        raise DataError(
            f"the graph names {unknown[0]!r}, which is no labelled column; the columns are "
            f"{abbreviate(spec.names)}, and the picture is an effect of all of them by itself."
        )
    missing = [name for name in spec.names if name not in graph.names]
    if missing:
        raise DataError(
            f"the graph does not name the column {missing[0]!r}; add it, if need be without edges, "
            "or leave the column out with variables= (--variables)."
        )
    graph = graph.subgraph(spec.names)
    _ = graph.topological_order  # raises an error for a cycle
    return graph


def default_method(spec: Spec) -> str:
    """Return the discovery method of graph="auto"."""
    columns = [v for v in spec.variables if v.kind != "categorical"]
    if len(columns) < 2:
        return "empty"
    return "independence" if all(v.kind == "continuous" for v in columns) else "lagrangian"


def graph_columns(variables: tuple[Variable, ...], method: str) -> list[str]:
    """Return the names of the variables between which a method can find edges."""
    return [v.name for v in variables if v.kind != "categorical" or method in TAKES_CATEGORIES]


def check_labels(data: Dataset, method: str) -> None:
    """Raise a DataError for labels that the variables or the graph cannot be learned from."""
    table = data.train.labels.cpu().numpy()
    for i, variable in enumerate(data.variables):
        values = np.unique(table[~np.isnan(table[:, i]), i])
        if variable.kind == "continuous" and len(values) < 3:
            raise DataError(
                f"the continuous column {variable.name!r} has only the values "
                f"{abbreviate([f'{value:g}' for value in values])} in training; declare it with "
                f"kinds={{{variable.name!r}: 'binary'}} (--kind {variable.name}=binary)."
            )
    if method in NOT_LEARNED:
        return
    columns = graph_columns(data.variables, method)
    kinds = [data.spec.variable(name).kind for name in columns]
    if method == "independence":
        require_continuous("graph=independence", columns, kinds)
    rows = len(complete_rows(data.select(columns).train))
    if len(columns) > 1 and rows < MIN_ROWS:
        raise DataError(
            f"{rows} training rows with all labels are too few to learn a graph from; "
            f"give {MIN_ROWS} or more, or a known graph (graph=, --graph)."
        )


def learn_graph(data: Dataset, method: str, seed: int) -> Discovery | None:
    """Learn the graph of the columns that the method can use; None with fewer than two."""
    columns = graph_columns(data.variables, method)
    if len(columns) < 2:
        return None
    return discover_labels(data.select(columns), method, seed=seed)


def graph_notes(data: Dataset, method: str) -> list[Note]:
    """Return notes on what a learned graph leaves out."""
    if method in NOT_LEARNED:
        return []
    columns = graph_columns(data.variables, method)
    notes = complete_rows_notes(data.select(columns)) if len(columns) > 1 else []
    alternatives = f" or use graph={' or graph='.join(TAKES_CATEGORIES)}"
    return notes + no_edges_notes(data, method, alternatives)


def no_edges_notes(data: Dataset, method: str, alternatives: str = "") -> list[Note]:
    """Return a note on columns that a method cannot use.

    Arguments:
        alternatives: what else can be done than to give a graph.
    """
    columns = graph_columns(data.variables, method)
    excluded = [name for name in data.names if name not in columns]
    if not excluded:
        return []
    text = (
        f"graph: {', '.join(excluded)} without edges, as {method} takes no categories; give a "
        f"known graph (graph=, --graph){alternatives}"
    )
    return [Note("no-edges", excluded[0], text)]
