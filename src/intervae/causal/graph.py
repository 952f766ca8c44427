"""`CausalGraph`: a directed graph over named variables, with a weight for each edge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from intervae.errors import DataError, unknown

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False)
class CausalGraph:
    """A directed graph over named variables.

    Arguments:
        names: the variables, in the order of the rows and columns of `weights`.
        weights: (n, n), finite, with a zero diagonal; `weights[j, i] != 0` is the strength of the
            edge j -> i.

    The graph may have cycles; methods that need an order then raise an error.
    """

    names: tuple[str, ...]
    weights: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        names = tuple(str(name) for name in self.names)
        try:
            # adding 0.0 turns -0.0 into 0.0, so that equal graphs have equal hashes
            weights = np.array(self.weights, dtype=np.float64) + 0.0
        except (TypeError, ValueError):
            raise DataError("the weights of a graph must be a square table of numbers.") from None
        if weights.shape != (len(names), len(names)):
            raise DataError(
                f"a graph over {len(names)} variables needs a {len(names)} x {len(names)} matrix, "
                f"not shape {weights.shape}."
            )
        if len(set(names)) != len(names):
            raise DataError(f"variable names of a graph must differ, not {list(names)}.")
        if not np.isfinite(weights).all():
            raise DataError("the weights of a graph must be finite numbers.")
        if np.diagonal(weights).any():
            loops = [names[i] for i in np.flatnonzero(np.diagonal(weights))]
            raise DataError(
                f"a variable cannot cause itself: remove the diagonal weight of {', '.join(loops)}."
            )
        weights.setflags(write=False)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "weights", weights)

    # ---- constructors -------------------------------------------------------------------------
    @classmethod
    def from_edges(cls, names: Sequence[str], edges: Iterable[Sequence[Any]]) -> CausalGraph:
        """Return the graph of edges (cause, effect) or (cause, effect, weight)."""
        names = tuple(names)
        weights = np.zeros((len(names), len(names)))
        for edge in edges:
            if isinstance(edge, str) or len(edge) not in (2, 3):
                raise DataError(
                    f"an edge is (cause, effect) or (cause, effect, weight), not {edge!r}."
                )
            cause, effect, *weight = edge
            for name in (cause, effect):
                if name not in names:
                    raise unknown("variable in an edge", name, names, DataError)
            weights[names.index(cause), names.index(effect)] = weight[0] if weight else 1.0
        return cls(names, weights)

    @classmethod
    def empty(cls, names: Sequence[str]) -> CausalGraph:
        """Return a graph without edges."""
        return cls(tuple(names), np.zeros((len(names), len(names))))

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph) -> CausalGraph:
        """Return the graph of a DiGraph; names are str(node), and the default weight is 1."""
        if not graph.is_directed():
            raise DataError("a causal graph needs directed edges; give a networkx.DiGraph.")
        edges = [
            (str(a), str(b), float(d.get("weight", 1.0))) for a, b, d in graph.edges(data=True)
        ]
        return cls.from_edges([str(node) for node in graph.nodes], edges)

    @classmethod
    def from_json(cls, text: str | dict) -> CausalGraph:
        """Return the graph of a JSON text or of the parsed object; the inverse of `to_json`."""
        try:
            parsed = json.loads(text) if isinstance(text, str) else text
            return cls.from_edges(
                parsed["variables"],
                [(e["from"], e["to"], float(e.get("weight", 1.0))) for e in parsed["edges"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                'this is not a graph: expected {"variables": [...], "edges": '
                f'[{{"from", "to", "weight"}}]}} ({error}).'
            ) from None

    # ---- properties ---------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CausalGraph)
            and self.names == other.names
            and np.array_equal(self.weights, other.weights)
        )

    def __hash__(self) -> int:
        return hash((self.names, self.weights.tobytes()))

    def __repr__(self) -> str:
        edges = ", ".join(f"{a} -> {b}" for a, b, _ in self.edges)
        return f"CausalGraph({', '.join(self.names)}; {edges or 'no edges'})"

    def _repr_html_(self) -> str:
        """Return the edges as a table, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(a)} &rarr; {escape(b)}</td><td>{weight:.3g}</td></tr>"
            for a, b, weight in self.edges
        )
        head = f"<strong>CausalGraph</strong> of {escape(', '.join(self.names))}"
        table = f"<table><tr><th>edge</th><th>weight</th></tr>{rows}</table>"
        return f"<div>{head}{table if rows else ': no edges'}</div>"

    def index(self, name: str) -> int:
        """Return the position of a variable."""
        if name not in self.names:
            raise unknown("variable", name, self.names, DataError)
        return self.names.index(name)

    @property
    def adjacency(self) -> np.ndarray:
        """(n, n) of 0 and 1: `adjacency[j, i]` is 1 for an edge j -> i."""
        return (self.weights != 0).astype(np.int64)

    @property
    def edges(self) -> list[tuple[str, str, float]]:
        """Edges as (cause, effect, weight)."""
        return [
            (self.names[j], self.names[i], float(self.weights[j, i]))
            for j, i in np.argwhere(self.weights != 0)
        ]

    def parents(self, name: str) -> list[str]:
        """Return the direct causes of a variable."""
        return [self.names[j] for j in np.flatnonzero(self.weights[:, self.index(name)])]

    def children(self, name: str) -> list[str]:
        """Return the direct effects of a variable."""
        return [self.names[i] for i in np.flatnonzero(self.weights[self.index(name)])]

    def descendants(self, name: str) -> list[str]:
        """Return all effects of a variable, direct and indirect, in the order of `names`."""
        return self._reachable(name, self.weights != 0)

    def ancestors(self, name: str) -> list[str]:
        """Return all causes of a variable, direct and indirect, in the order of `names`."""
        return self._reachable(name, self.weights.T != 0)

    def _reachable(self, name: str, edges: np.ndarray) -> list[str]:
        """Return the other variables on paths along `edges` (n, n) from a variable."""
        start = self.index(name)
        reached, further = np.zeros(len(self), dtype=bool), edges[start]
        while further.any():
            reached |= further
            further = edges[further].any(axis=0) & ~reached
        reached[start] = False
        return [self.names[i] for i in np.flatnonzero(reached)]

    @property
    def roots(self) -> list[str]:
        """Variables without causes."""
        return [name for name in self.names if not self.parents(name)]

    @property
    def is_acyclic(self) -> bool:
        return len(self._order()) == len(self)

    @property
    def topological_order(self) -> list[str]:
        """Names with causes before effects; ties are in the order of `names`."""
        order = self._order()
        if len(order) < len(self):
            import networkx as nx

            cycle = [a for a, _ in nx.find_cycle(self.to_networkx())]
            raise DataError(
                f"the graph has a cycle ({' -> '.join([*cycle, cycle[0]])}), so it has no causal "
                "order; threshold it or use to_acyclic() first."
            )
        return order

    def _order(self) -> list[str]:
        """Return the names with causes before effects, without those on or after a cycle."""
        order: list[str] = []
        causes = (self.weights != 0).sum(0)  # that are not in the order yet; -1 once it is there
        while (causes == 0).any():
            i = int(np.argmax(causes == 0))
            order.append(self.names[i])
            causes -= self.weights[i] != 0
            causes[i] = -1
        return order

    # ---- changed copies -----------------------------------------------------------------------
    def threshold(self, smallest: float) -> CausalGraph:
        """Remove every edge weaker than `smallest` in absolute value."""
        return CausalGraph(
            self.names, np.where(np.abs(self.weights) >= smallest, self.weights, 0.0)
        )

    def to_acyclic(self) -> CausalGraph:
        """Remove the weakest edge of every cycle.

        Edges are added from the strongest to the weakest, ties in the order of `edges`; one that
        would close a cycle is left out.
        """
        weights = np.zeros_like(self.weights)
        reaches = np.eye(len(self), dtype=bool)  # reaches[a, b]: a = b, or a path from a to b
        causes, effects = np.nonzero(self.weights)
        for e in np.argsort(-np.abs(self.weights[causes, effects]), kind="stable"):
            j, i = causes[e], effects[e]
            if not reaches[i, j]:
                weights[j, i] = self.weights[j, i]
                reaches |= np.outer(reaches[:, j], reaches[i])
        return CausalGraph(self.names, weights)

    def without_causes(self, names: Iterable[str]) -> CausalGraph:
        """Remove every edge into these variables."""
        weights = self.weights.copy()
        weights[:, [self.index(name) for name in names]] = 0.0
        return CausalGraph(self.names, weights)

    def subgraph(self, names: Sequence[str]) -> CausalGraph:
        """Return the graph over some of the variables, in the order of `names`."""
        rows = [self.index(name) for name in names]
        return CausalGraph(tuple(names), self.weights[np.ix_(rows, rows)])

    # ---- comparison ---------------------------------------------------------------------------
    def shd(self, other: CausalGraph) -> int:
        """Return the structural Hamming distance: edges to add, remove or reverse."""
        if set(other.names) != set(self.names):
            raise DataError(
                "graphs over different variables cannot be compared: "
                f"{sorted(set(self.names) ^ set(other.names))} are in one only."
            )
        ours, theirs = self.adjacency, other.subgraph(self.names).adjacency
        # both entries of a pair with one edge, which is reversed; it counts once
        reversed_pairs = (ours != ours.T) & (theirs == ours.T) & (ours == theirs.T)
        return int((ours != theirs).sum() - np.triu(reversed_pairs, 1).sum())

    # ---- export -------------------------------------------------------------------------------
    def to_networkx(self) -> nx.DiGraph:
        """Return a DiGraph with edge attribute `weight`."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(self.names)
        graph.add_weighted_edges_from(self.edges)
        return graph

    def to_json(self) -> dict:
        """Return {"variables": [...], "edges": [{"from", "to", "weight"}]}."""
        return {
            "variables": list(self.names),
            "edges": [{"from": a, "to": b, "weight": w} for a, b, w in self.edges],
        }

    def to_dot(self) -> str:
        """Return the graph in the DOT language of Graphviz."""

        def quote(name: str) -> str:
            return json.dumps(name, ensure_ascii=False)

        lines = [f"  {quote(name)};" for name in self.names]
        lines += [f'  {quote(a)} -> {quote(b)} [label="{w:.2g}"];' for a, b, w in self.edges]
        return "\n".join(["digraph {", *lines, "}", ""])
