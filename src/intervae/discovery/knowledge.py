"""Prior knowledge about a graph: required edges, forbidden edges, and tiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError, UsageError, unknown

SECTIONS = ("required", "forbidden", "tiers")
SMALLEST_WEIGHT = 1e-3  # of an edge whose estimate is 0


@dataclass(frozen=True)
class Knowledge:
    """Required and forbidden edges, and tiers: a later tier never causes an earlier one.

    Arguments:
        required: (cause, effect) names.
        forbidden: (cause, effect) names; only this direction is forbidden.
        tiers: groups of names, causes first; variables in no tier are unrestricted.
    """

    required: tuple[tuple[str, str], ...] = ()
    forbidden: tuple[tuple[str, str], ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for section in SECTIONS:
            groups = getattr(self, section)
            if isinstance(groups, str) or any(isinstance(group, str) for group in groups):
                raise UsageError(
                    f"knowledge: {section} has a single name instead of a pair or group of "
                    "names; give a list of lists, such as [['a', 'b']]."
                )
        for section in ("required", "forbidden"):
            for edge in getattr(self, section):
                if len(edge) != 2 or edge[0] == edge[1]:
                    raise UsageError(
                        f"knowledge: a {section} edge is (cause, effect), two different names, "
                        f"not {edge}."
                    )
        names = [name for tier in self.tiers for name in tier]
        if len(set(names)) < len(names):
            duplicate = next(name for name in names if names.count(name) > 1)
            raise UsageError(
                f"knowledge: {duplicate!r} is in two tiers; a variable belongs to one."
            )

    @classmethod
    def parse(cls, value: Knowledge | Mapping[str, Iterable[Any]] | None) -> Knowledge:
        """Return a Knowledge from another, from a mapping of its sections, or from None."""
        if isinstance(value, Knowledge):
            return value
        sections = value or {}
        for section in sections:
            if section not in SECTIONS:
                raise unknown("section of the knowledge", section, SECTIONS)
        return cls(**{section: tuple(groups) for section, groups in sections.items()})

    def constraints(self, names: Sequence[str]) -> EdgeConstraints:
        """Return the constraints over the columns of a table; raise where they contradict."""
        for group in (*self.required, *self.forbidden, *self.tiers):
            for name in group:
                if name not in names:
                    raise unknown("variable in the knowledge", name, names, DataError)
        index = {name: i for i, name in enumerate(names)}
        required = np.zeros((len(names), len(names)), dtype=bool)
        allowed = ~np.eye(len(names), dtype=bool)
        for cause, effect in self.required:
            required[index[cause], index[effect]] = True
        for cause, effect in self.forbidden:
            allowed[index[cause], index[effect]] = False
        for k, tier in enumerate(self.tiers):
            earlier = [index[name] for name in tier]
            for later in self.tiers[k + 1 :]:
                allowed[np.ix_([index[name] for name in later], earlier)] = False
        contradictions = np.argwhere(required & ~allowed)
        if len(contradictions):
            j, i = contradictions[0]
            raise DataError(
                f"knowledge: the edge {names[j]} -> {names[i]} is required and also forbidden "
                "(by itself or by the tiers); drop one."
            )
        if not CausalGraph(tuple(names), required.astype(float)).is_acyclic:
            raise DataError("knowledge: the required edges form a cycle; drop one of them.")
        reach = required.copy()
        for k in range(len(reach)):
            reach |= np.outer(reach[:, k], reach[k])
        return EdgeConstraints(allowed & ~reach.T, required)

    def decided_edges(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Return the edges of `names` whose reverse is not allowed: their direction is known."""
        allowed = self.constraints(names).allowed
        forbidden = np.argwhere(~allowed & ~np.eye(len(names), dtype=bool))
        return [(names[j], names[i]) for i, j in forbidden]


@dataclass(frozen=True)
class EdgeConstraints:
    """Constraints over the columns of a table; [j, i] is the edge j -> i.

    Edges that would form a cycle with required ones are not allowed.
    """

    allowed: np.ndarray  # (n, n) bool
    required: np.ndarray  # (n, n) bool

    def satisfied_by(self, dag: np.ndarray) -> bool:
        """Return whether a DAG (n, n) of bool has all required and only allowed edges."""
        return not bool((dag & ~self.allowed).any() or (self.required & ~dag).any())

    def to_dag(self, weights: np.ndarray, threshold: float) -> np.ndarray:
        """Return the weights (n, n) of a DAG: edges at or above the threshold and required ones.

        The weakest edge of every cycle is dropped. Required edges have at least SMALLEST_WEIGHT.
        """
        strong = np.where((np.abs(weights) >= threshold) & self.allowed, weights, 0.0)
        nonzero = np.where(np.abs(weights) < SMALLEST_WEIGHT, SMALLEST_WEIGHT, weights)
        strong = np.where(self.required, nonzero, strong)
        return np.where(self._acyclic(strong).weights != 0, strong, 0.0)

    def edges_in_order(self, weights: np.ndarray) -> np.ndarray:
        """Return the allowed edges (n, n) that follow the order of the strongest weights."""
        graph = self._acyclic(
            np.where(self.allowed, weights, 0.0), np.abs(weights).max(initial=0.0)
        )
        position = np.empty(len(weights), dtype=int)
        position[[int(name) for name in graph.topological_order]] = np.arange(len(weights))
        return (position[:, None] < position[None, :]) & self.allowed

    def _acyclic(self, weights: np.ndarray, largest: float | None = None) -> CausalGraph:
        """Return the acyclic graph of the strongest weights (n, n); required edges rank first."""
        strengths = np.abs(weights)
        largest = strengths.max(initial=0.0) if largest is None else largest
        names = tuple(str(i) for i in range(len(weights)))
        return CausalGraph(names, strengths + self.required * (1.0 + largest)).to_acyclic()
