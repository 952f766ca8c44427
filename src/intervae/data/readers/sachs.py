"""The protein signalling table of Sachs et al. 2005: 11 phosphorylated proteins in single cells, with the graphs that biologists agree on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.readers.files import Home
from intervae.errors import DataError, UsageError

HOME = Home("The Sachs table", "sachs", "github.com/cmu-phil/example-causal-datasets")
PARTS = ("observational", "all_conditions")
GRAPHS = {"dag17": "the 17 edges that GraN-DAG and others compare with", "graph20": "20 edges, with the three that are less sure"}


class Table(NamedTuple):
    """Variables without pictures."""

    columns: np.ndarray  # (N, n)
    names: tuple[str, ...]
    graph: CausalGraph


def load_sachs(part: str = "observational", graph: str = "dag17") -> Table:
    """Read sachs.npz below INTERVAE_DATA.

    Arguments:
        part: "observational" (853 cells without a reagent that intervenes) or "all_conditions" (7,466 cells).
        graph: "dag17" or "graph20".
    """
    if part not in PARTS:
        raise UsageError(f"part={part!r} is not one of {', '.join(PARTS)}.")
    if graph not in GRAPHS:
        raise UsageError(f"graph={graph!r} is not one of {', '.join(GRAPHS)}.")
    path = HOME.need("sachs.npz")
    try:
        with np.load(path, allow_pickle=False) as stored:
            columns, names, edges = np.asarray(stored[part], dtype=np.float64), tuple(map(str, stored["names"])), np.asarray(stored[graph])
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} cannot be read as the Sachs table ({error}); get it again from {HOME.page}.") from None
    if columns.ndim != 2 or columns.shape[1] != len(names) or edges.shape != (len(names), len(names)):
        raise DataError(f"{path}: {part} has shape {columns.shape} and {graph} {edges.shape} for {len(names)} names; get it again from {HOME.page}.")
    return Table(columns, names, CausalGraph(names, edges))
