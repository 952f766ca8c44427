"""PC and BIC-GES of causal-learn, as methods of `discover`; causal-learn is an extra and is imported when asked for.

Its generalised score is left out: in version 0.1.4.8 kernels are centred elementwise and its values do not depend on the parents; `ges-generalised`
is our own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery
from intervae.discovery.design import refuse_collinear, refuse_same_categories
from intervae.discovery.knowledge import Allowed, Knowledge
from intervae.discovery.patterns import close_arrows, member_of
from intervae.errors import DataError, UsageError

TESTS = ("fisherz", "kci", "chisq", "gsq")
ASSUMPTIONS = (
    "No common cause is left out, there are no cycles, and what is independent in the data has no path in the graph. "
    "Only a class of graphs can be told from independences, so the direction of the ambiguous edges is open."
)


def causal_learn_pc(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    alpha: float = 0.05,
    test: str = "fisherz",
) -> Discovery:
    """The PC algorithm (Spirtes and Glymour 1991) of causal-learn; every edge's weight is 1.

    Arguments:
        columns: (N, n).
        knowledge: required and forbidden edges and tiers; a required edge stays though a test would take it out.
        alpha: level of each independence test.
        test: "fisherz" (linear Gaussian), "kci" (kernels; slow), "chisq" or "gsq" (all columns discrete).
    """
    if test not in TESTS:
        raise UsageError(f"test={test!r} is not one of {', '.join(TESTS)}.")
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha={alpha} must lie between 0 and 1.")
    discrete = test in ("chisq", "gsq")
    for name, kind in zip(names, kinds, strict=True):
        if discrete and kind == "continuous":
            raise DataError(f"test={test!r} is for discrete columns, but {name!r} is continuous; use fisherz or kci.")
        if not discrete and kind == "categorical":
            raise DataError(f"test={test!r} cannot use the categorical column {name!r}; leave it out, or use chisq where every column is discrete.")
    started = time.perf_counter()
    refuse_collinear(columns, names, kinds)
    refuse_same_categories(columns, names, kinds)
    allowed = Knowledge.of(knowledge).over(names)
    search = _import("causallearn.search.ConstraintBased.PC")
    found = search.pc(columns, alpha, test, show_progress=False, background_knowledge=_background(allowed) if knowledge else None)
    return _discovery("causal-learn-pc", names, found.G.graph, started, knowledge)


def _background(allowed: Allowed) -> Any:
    """What causal-learn calls background knowledge, over the names that it gives to columns."""
    node = _import("causallearn.graph.GraphNode").GraphNode
    known = _import("causallearn.utils.PCUtils.BackgroundKnowledge").BackgroundKnowledge()
    nodes = [node(f"X{i + 1}") for i in range(len(allowed.edges))]
    for j, i in np.argwhere(~allowed.edges & ~np.eye(len(nodes), dtype=bool)):
        known.add_forbidden_by_node(nodes[j], nodes[i])
    for j, i in np.argwhere(allowed.required):
        known.add_required_by_node(nodes[j], nodes[i])
    return known


def causal_learn_ges(columns: np.ndarray, names: Sequence[str], kinds: Sequence[str], *, seed: int = 0) -> Discovery:
    """GES by linear Gaussian BIC of causal-learn, to compare with `ges`; it takes no prior knowledge, and every edge's weight is 1.

    Arguments:
        columns: (N, n).
    """
    for name, kind in zip(names, kinds, strict=True):
        if kind == "categorical":
            raise DataError(f"method 'causal-learn-ges' cannot use the categorical column {name!r}; leave it out or use 'ges-generalised'.")
    started = time.perf_counter()
    refuse_collinear(columns, names, kinds)
    search = _import("causallearn.search.ScoreBased.GES")
    found = search.ges(columns, "local_score_BIC")
    return _discovery("causal-learn-ges", names, found["G"].graph, started)


def require_causal_learn() -> None:
    """Refuse at once where these methods cannot run."""
    _import("causallearn.search.ConstraintBased.PC")


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f'this method needs causal-learn ({error}); install it with `pip install "intervae[causal-learn]"`.') from None


def _discovery(
    method: str, names: Sequence[str], marks: np.ndarray, started: float, knowledge: Knowledge | Mapping[str, Any] | None = None
) -> Discovery:
    """What `discover` gives, from causal-learn's end marks (n, n)."""
    allowed = Knowledge.of(knowledge).over(names)
    pattern = pattern_from_marks(np.asarray(marks)) & allowed.edges | allowed.required
    if knowledge:
        pattern = close_arrows(pattern)
    dag = member_of(pattern)
    notes: tuple[str, ...] = ()
    if dag is None:  # contradictory tests give patterns that no DAG has
        notes = ("the pattern that was found belongs to no DAG; its directions were kept from the first variables on where they agree.",)
        dag = _any_dag(pattern, allowed)
    graph = CausalGraph(tuple(names), dag.astype(float))
    order = tuple(graph.topological_order)
    return Discovery(
        graph=graph,
        order=order,
        cost=(0.0,) * len(order),
        method=method,
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[(names[j], names[i]) for j, i in np.argwhere(dag & pattern & pattern.T)],
        notes=notes,
    )


def pattern_from_marks(marks: np.ndarray) -> np.ndarray:
    """causal-learn's (n, n) end marks to a pattern: j -> i is marks[i, j] = 1 and marks[j, i] = -1; two tails or two heads have no direction."""
    joined = marks != 0
    arrow = (marks.T == 1) & (marks == -1)
    return joined & ~arrow.T


def _any_dag(pattern: np.ndarray, allowed: Allowed) -> np.ndarray:
    arrows = (pattern & ~pattern.T).astype(float)
    lines = np.triu(pattern & pattern.T) * 0.5
    return allowed.acyclic(arrows + lines, 0.5) != 0
