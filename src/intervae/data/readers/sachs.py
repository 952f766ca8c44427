"""Protein signalling table of Sachs et al. 2005: 11 proteins in single cells, with its graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.readers.file_source import FileSource
from intervae.errors import DataError, UsageError
from intervae.files import open_regular

SOURCE = FileSource("The Sachs table", "sachs", "github.com/cmu-phil/example-causal-datasets")
TABLES = ("observational", "all_conditions")
GRAPHS = {
    "dag17": "the 17 edges that GraN-DAG and others compare with",
    "graph20": "20 edges, with the three that are less sure",
}


class SachsTable(NamedTuple):
    """Columns (N, n) without images, their names, and the consensus graph."""

    columns: np.ndarray
    names: tuple[str, ...]
    graph: CausalGraph


def load_sachs(part: str = "observational", graph: str = "dag17") -> SachsTable:
    """Read sachs.npz below INTERVAE_DATA.

    Arguments:
        part: "observational" (853 cells without an intervention) or "all_conditions" (7,466
            cells).
        graph: "dag17" or "graph20".
    """
    if part not in TABLES:
        raise UsageError(f"part={part!r} is not one of {', '.join(TABLES)}.")
    if graph not in GRAPHS:
        raise UsageError(f"graph={graph!r} is not one of {', '.join(GRAPHS)}.")
    path = SOURCE.require("sachs.npz")
    try:
        with open_regular(path) as raw, np.load(raw, allow_pickle=False) as stored:
            columns = np.asarray(stored[part], dtype=np.float64)
            names = tuple(map(str, stored["names"]))
            edges = np.asarray(stored[graph])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} cannot be read as the Sachs table ({error}); get it again from {SOURCE.page}."
        ) from None
    n = len(names)
    if columns.ndim != 2 or columns.shape[1] != n or edges.shape != (n, n):
        raise DataError(
            f"{path}: {part} has shape {columns.shape} and {graph} {edges.shape} for {n} names; "
            f"get it again from {SOURCE.page}."
        )
    return SachsTable(columns, names, CausalGraph(names, edges))
