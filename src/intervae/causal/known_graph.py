"""`as_graph`: a known graph as callers have it, a file, edges or an object, as a CausalGraph."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError, UsageError
from intervae.files import read_json

ARROW = "->"


def as_graph(value: Any, names: Sequence[str]) -> Any:
    """Return a graph in any of its forms as a CausalGraph, and anything else as it is.

    Arguments:
        value: a CausalGraph, a path of a graph.json, its parsed content, a networkx.DiGraph, edges
            (cause, effect) or (cause, effect, weight), or a text such as "a -> b, a -> c".
        names: all variables, for edges, which need not name every one.
    """
    networkx = sys.modules.get("networkx")  # not imported: nothing can be a graph of it
    if networkx is not None and isinstance(value, networkx.Graph):
        return CausalGraph.from_networkx(value)
    if isinstance(value, Mapping):
        return CausalGraph.from_json(dict(value))
    if isinstance(value, str) and ARROW in value and not value.endswith(".json"):
        return CausalGraph.from_edges(names, _parse_edges(value))
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".json")):
        return _read_graph(Path(value))
    if isinstance(value, list | tuple | set | frozenset):
        return CausalGraph.from_edges(names, value)
    return value


def _parse_edges(text: str) -> list[tuple[str, str]]:
    """Parse "a -> b, b -> c"; a chain "a -> b -> c" has two edges."""
    edges: list[tuple[str, str]] = []
    for chain in text.split(","):
        nodes = [node.strip() for node in chain.split(ARROW)]
        if len(nodes) < 2 or not all(nodes):
            raise UsageError(
                f"graph {text!r}: {chain.strip()!r} is not an edge; write cause -> effect, with "
                "commas between edges."
            )
        edges += itertools.pairwise(nodes)
    return edges


def _read_graph(path: Path) -> CausalGraph:
    if not path.is_file():
        raise UsageError(
            f"{path}: there is no such file; give a graph.json, or edges such as 'a -> b'."
        )
    try:
        return CausalGraph.from_json(read_json(path, "a graph"))
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
