"""What a person knows about a graph before any data: required and forbidden edges, and tiers of causes before effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError, UsageError, unknown

PARTS = ("required", "forbidden", "tiers")


@dataclass(frozen=True)
class Knowledge:
    """Edges that must be there, edges that cannot be, and tiers: a variable of a later tier never causes one of an earlier tier.

    Arguments:
        required: (cause, effect) names.
        forbidden: (cause, effect) names; only that direction is forbidden.
        tiers: groups of names, causes first; a variable in no tier is free.
    """

    required: tuple[tuple[str, str], ...] = ()
    forbidden: tuple[tuple[str, str], ...] = ()
    tiers: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for part in PARTS:
            groups = getattr(self, part)
            if isinstance(groups, str) or any(isinstance(group, str) for group in groups):
                raise UsageError(f"knowledge: {part} holds a single name where a pair or a group of names is wanted, as in [['a', 'b']].")
            object.__setattr__(self, part, tuple(tuple(str(name) for name in group) for group in groups))
        for part in ("required", "forbidden"):
            for edge in getattr(self, part):
                if len(edge) != 2 or edge[0] == edge[1]:
                    raise UsageError(f"knowledge: a {part} edge is (cause, effect), two different names, not {edge}.")
        named = [name for tier in self.tiers for name in tier]
        if len(set(named)) < len(named):
            raise UsageError(f"knowledge: {next(n for n in named if named.count(n) > 1)!r} stands in two tiers; a variable belongs to one.")

    @classmethod
    def of(cls, given: Knowledge | Mapping[str, Iterable[Any]] | None) -> Knowledge:
        """A Knowledge, from one, from {"required": [...], "forbidden": [...], "tiers": [...]} (any may be missing), or from nothing."""
        if isinstance(given, Knowledge):
            return given
        for part in given or {}:
            if part not in PARTS:
                raise unknown("part of the knowledge", part, PARTS)
        return cls(**{part: tuple(edges) for part, edges in (given or {}).items()})

    def over(self, names: Sequence[str]) -> Allowed:
        """Check it against the variables of a table, and against itself."""
        for group in (*self.required, *self.forbidden, *self.tiers):
            for name in group:
                if name not in names:
                    raise unknown("variable in the knowledge", name, names, DataError)
        at = {name: i for i, name in enumerate(names)}
        required = np.zeros((len(names), len(names)), dtype=bool)
        allowed = ~np.eye(len(names), dtype=bool)
        for cause, effect in self.required:
            required[at[cause], at[effect]] = True
        for cause, effect in self.forbidden:
            allowed[at[cause], at[effect]] = False
        for early, tier in enumerate(self.tiers):
            for later in self.tiers[early + 1 :]:
                allowed[np.ix_([at[name] for name in later], [at[name] for name in tier])] = False
        clash = np.argwhere(required & ~allowed)
        if len(clash):
            j, i = clash[0]
            raise DataError(f"knowledge: the edge {names[j]} -> {names[i]} is required and also forbidden (by itself or by the tiers); drop one.")
        if not CausalGraph(tuple(names), required.astype(float)).is_acyclic:
            raise DataError("knowledge: the required edges close a cycle; drop one of them.")
        reach = required.copy()
        for k in range(len(reach)):
            reach |= np.outer(reach[:, k], reach[k])
        return Allowed(allowed & ~reach.T, required)


@dataclass(frozen=True)
class Allowed:
    """Knowledge over the columns of a table: [j, i] is about the edge j -> i. What would close a cycle with required edges is not allowed."""

    edges: np.ndarray  # (n, n) bool: may be there
    required: np.ndarray  # (n, n) bool: must be there

    def keeps(self, dag: np.ndarray) -> bool:
        """Whether a DAG (n, n) of bool has all that is required and nothing that is forbidden."""
        return not bool((dag & ~self.edges).any() or (self.required & ~dag).any())

    def acyclic(self, weights: np.ndarray, threshold: float) -> np.ndarray:
        """(n, n) weights of the DAG: edges at or above the threshold and all required ones, the weakest of every cycle left out.

        A required edge whose weight is 0 gets a thousandth, so that it does not vanish.
        """
        kept = np.where((np.abs(weights) >= threshold) & self.edges, weights, 0.0)
        kept = np.where(self.required, np.where(np.abs(weights) < 1e-3, 1e-3, weights), kept)
        rank = np.abs(kept) + self.required * (1.0 + np.abs(kept).max(initial=0.0))  # required edges come first
        names = tuple(str(i) for i in range(len(kept)))
        return np.where(CausalGraph(names, rank).to_acyclic().weights != 0, kept, 0.0)

    def before(self, weights: np.ndarray) -> np.ndarray:
        """(n, n) bool: j comes before i in the order of causes that the strongest weights give, and the edge is allowed."""
        rank = np.where(self.edges, np.abs(weights), 0.0) + self.required * (1.0 + np.abs(weights).max(initial=0.0))
        names = tuple(str(i) for i in range(len(rank)))
        place = {name: k for k, name in enumerate(CausalGraph(names, rank).to_acyclic().topological_order)}
        position = np.array([place[name] for name in names])
        return (position[:, None] < position[None, :]) & self.edges
