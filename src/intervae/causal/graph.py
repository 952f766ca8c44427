"""`CausalGraph`: named variables and a weighted adjacency; `weights[j, i]` is the strength of j -> i."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np

from intervae.errors import DataError, unknown


@dataclass(frozen=True, eq=False)
class CausalGraph:
    """A directed graph over named variables.

    Arguments:
        names: the variables, in the order of the rows and columns of `weights`.
        weights: (n, n) finite numbers with a zero diagonal; `weights[j, i] != 0` is an edge j -> i of that strength.

    The graph may hold cycles (a learner that has not converged gives one); what needs an order says so when asked.
    """

    names: tuple[str, ...]
    weights: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        names = tuple(str(name) for name in self.names)
        try:
            weights = np.array(self.weights, dtype=np.float64) + 0.0  # -0.0 becomes 0.0, so that equal graphs hash alike
        except (TypeError, ValueError):
            raise DataError("the weights of a graph must be a square table of numbers.") from None
        if weights.shape != (len(names), len(names)):
            raise DataError(f"a graph over {len(names)} variables needs a {len(names)} x {len(names)} matrix, not shape {weights.shape}.")
        if len(set(names)) != len(names):
            raise DataError(f"variable names of a graph must differ, not {list(names)}.")
        if not np.isfinite(weights).all():
            raise DataError("the weights of a graph must be finite numbers.")
        if np.diagonal(weights).any():
            loops = [names[i] for i in np.flatnonzero(np.diagonal(weights))]
            raise DataError(f"a variable cannot cause itself: remove the diagonal weight of {', '.join(loops)}.")
        weights.setflags(write=False)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "weights", weights)

    # ---- making one -------------------------------------------------------------------------------------------------
    @classmethod
    def from_edges(cls, names: Sequence[str], edges: Iterable[Sequence[Any]]) -> CausalGraph:
        """`edges` are (cause, effect) or (cause, effect, weight)."""
        names = tuple(names)
        weights = np.zeros((len(names), len(names)))
        for edge in edges:
            if isinstance(edge, str) or len(edge) not in (2, 3):
                raise DataError(f"an edge is (cause, effect) or (cause, effect, weight), not {edge!r}.")
            cause, effect, *weight = edge
            for name in (cause, effect):
                if name not in names:
                    raise unknown("variable in an edge", name, names, DataError)
            weights[names.index(cause), names.index(effect)] = weight[0] if weight else 1.0
        return cls(names, weights)

    @classmethod
    def empty(cls, names: Sequence[str]) -> CausalGraph:
        return cls(tuple(names), np.zeros((len(names), len(names))))

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph) -> CausalGraph:
        """Nodes become names by str(); an edge without a weight gets 1."""
        if not graph.is_directed():
            raise DataError("a causal graph needs directed edges; give a networkx.DiGraph.")
        edges = [(str(a), str(b), float(d.get("weight", 1.0))) for a, b, d in graph.edges(data=True)]
        return cls.from_edges([str(node) for node in graph.nodes], edges)

    @classmethod
    def from_json(cls, text: str | dict) -> CausalGraph:
        """The inverse of `to_json`; also takes the parsed object."""
        try:
            parsed = json.loads(text) if isinstance(text, str) else text
            return cls.from_edges(parsed["variables"], [(e["from"], e["to"], float(e.get("weight", 1.0))) for e in parsed["edges"]])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f'this is not a graph: expected {{"variables": [...], "edges": [{{"from", "to", "weight"}}]}} ({error}).') from None

    # ---- asking it --------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CausalGraph) and self.names == other.names and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((self.names, self.weights.tobytes()))

    def __repr__(self) -> str:
        edges = ", ".join(f"{a} -> {b}" for a, b, _ in self.edges)
        return f"CausalGraph({', '.join(self.names)}; {edges or 'no edges'})"

    def index(self, name: str) -> int:
        if name not in self.names:
            raise unknown("variable", name, self.names, DataError)
        return self.names.index(name)

    @property
    def adjacency(self) -> np.ndarray:
        """(n, n) of 0 and 1: `adjacency[j, i] = 1` where j -> i."""
        return (self.weights != 0).astype(np.int64)

    @property
    def edges(self) -> list[tuple[str, str, float]]:
        return [(self.names[j], self.names[i], float(self.weights[j, i])) for j, i in np.argwhere(self.weights != 0)]

    def parents(self, name: str) -> list[str]:
        return [self.names[j] for j in np.flatnonzero(self.weights[:, self.index(name)])]

    def children(self, name: str) -> list[str]:
        return [self.names[i] for i in np.flatnonzero(self.weights[self.index(name)])]

    def descendants(self, name: str) -> list[str]:
        """Everything `name` reaches, in graph order, without `name` itself."""
        reached = nx.descendants(self.to_networkx(), self.names[self.index(name)])
        return [n for n in self.names if n in reached]

    def ancestors(self, name: str) -> list[str]:
        reached = nx.ancestors(self.to_networkx(), self.names[self.index(name)])
        return [n for n in self.names if n in reached]

    @property
    def roots(self) -> list[str]:
        return [name for name in self.names if not self.parents(name)]

    @property
    def is_acyclic(self) -> bool:
        return nx.is_directed_acyclic_graph(self.to_networkx())

    @property
    def topological_order(self) -> list[str]:
        """Causes before effects; among equals the order of `names`, so the answer never depends on chance."""
        position = {name: i for i, name in enumerate(self.names)}
        try:
            return list(nx.lexicographical_topological_sort(self.to_networkx(), key=position.__getitem__))
        except nx.NetworkXUnfeasible:
            cycle = [a for a, _ in nx.find_cycle(self.to_networkx())]
            raise DataError(
                f"the graph has a cycle ({' -> '.join([*cycle, cycle[0]])}), so it has no causal order; threshold it or use to_acyclic() first."
            ) from None

    # ---- changing it ------------------------------------------------------------------------------------------------
    def threshold(self, smallest: float) -> CausalGraph:
        """Drop every edge weaker than `smallest` in absolute value."""
        return CausalGraph(self.names, np.where(np.abs(self.weights) >= smallest, self.weights, 0.0))

    def to_acyclic(self) -> CausalGraph:
        """Keep edges from the strongest down (ties in the order of `edges`), leaving out each that would close a cycle of kept ones.

        So only the weakest edge of a cycle goes, an edge on no cycle stays, and none of those left out could be put back.
        """
        kept = np.zeros_like(self.weights)
        reaches = np.eye(len(self), dtype=bool)  # reaches[a, b]: b is a, or kept edges lead from a to b
        causes, effects = np.nonzero(self.weights)
        for e in np.argsort(-np.abs(self.weights[causes, effects]), kind="stable"):
            j, i = causes[e], effects[e]
            if not reaches[i, j]:
                kept[j, i] = self.weights[j, i]
                reaches |= np.outer(reaches[:, j], reaches[i])
        return CausalGraph(self.names, kept)

    def subgraph(self, names: Sequence[str]) -> CausalGraph:
        rows = [self.index(name) for name in names]
        return CausalGraph(tuple(names), self.weights[np.ix_(rows, rows)])

    # ---- comparing it -----------------------------------------------------------------------------------------------
    def shd(self, other: CausalGraph) -> int:
        """Structural Hamming distance: edges to add, remove or turn round; a reversal counts once."""
        if set(other.names) != set(self.names):
            raise DataError(f"graphs over different variables cannot be compared: {sorted(set(self.names) ^ set(other.names))} are in one only.")
        ours, theirs = self.adjacency, other.subgraph(self.names).adjacency
        turned = (ours != ours.T) & (theirs == ours.T) & (ours == theirs.T)  # both entries of a pair that holds one edge, reversed
        return int((ours != theirs).sum() - np.triu(turned, 1).sum())

    # ---- writing it -------------------------------------------------------------------------------------------------
    def to_networkx(self) -> nx.DiGraph:
        graph = nx.DiGraph()
        graph.add_nodes_from(self.names)
        graph.add_weighted_edges_from(self.edges)
        return graph

    def to_json(self) -> dict:
        return {"variables": list(self.names), "edges": [{"from": a, "to": b, "weight": w} for a, b, w in self.edges]}

    def to_dot(self) -> str:
        """Graphviz text."""

        def quote(name: str) -> str:
            return json.dumps(name, ensure_ascii=False)

        lines = [f"  {quote(name)};" for name in self.names]
        lines += [f'  {quote(a)} -> {quote(b)} [label="{w:.2g}"];' for a, b, w in self.edges]
        return "\n".join(["digraph {", *lines, "}", ""])
