"""PC and BIC-GES of causal-learn, an optional dependency, as discovery methods.

Its generalised score is not offered: version 0.1.4.8 centres kernels elementwise, so that scores do
not depend on the parents. `ges-generalised` is our own.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, check_no_categorical
from intervae.discovery.cpdag import apply_meek_rules, consistent_extension
from intervae.discovery.knowledge import EdgeConstraints, Knowledge
from intervae.discovery.table_checks import check_no_duplicate_categories, check_not_collinear
from intervae.errors import DataError, UsageError
from intervae.notes import Note

TESTS = ("fisherz", "kci", "chisq", "gsq")
ASSUMPTIONS = (
    "There are no hidden common causes and no cycles, and independences in the data are those of "
    "the graph (faithfulness). Independences determine an equivalence class only, so the direction "
    "of the ambiguous edges is open."
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
    """PC algorithm (Spirtes and Glymour 1991) of causal-learn; every weight is 1.

    Arguments:
        columns: (N, n).
        knowledge: required and forbidden edges and tiers; required edges are never removed.
        alpha: level of each independence test.
        test: "fisherz" (linear Gaussian), "kci" (kernels; slow), "chisq" or "gsq" (all columns
            discrete).
    """
    if test not in TESTS:
        raise UsageError(f"test={test!r} is not one of {', '.join(TESTS)}.")
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha={alpha} must be between 0 and 1.")
    discrete = test in ("chisq", "gsq")
    for name, kind in zip(names, kinds, strict=True):
        if discrete and kind == "continuous":
            raise DataError(
                f"test={test!r} is for discrete columns, but {name!r} is continuous; "
                "use fisherz or kci."
            )
        if not discrete and kind == "categorical":
            raise DataError(
                f"test={test!r} cannot use the categorical column {name!r}; leave it out, or use "
                "chisq if every column is discrete."
            )
    started = time.perf_counter()
    check_not_collinear(columns, names, kinds)
    check_no_duplicate_categories(columns, names, kinds)
    constraints = Knowledge.parse(knowledge).constraints(names)
    search = _import("causallearn.search.ConstraintBased.PC")
    result = search.pc(
        columns,
        alpha,
        test,
        show_progress=False,
        background_knowledge=_background_knowledge(constraints) if knowledge else None,
    )
    return _result("causal-learn-pc", names, result.G.graph, started, knowledge)


def _background_knowledge(constraints: EdgeConstraints) -> Any:
    """Return causal-learn's BackgroundKnowledge, over its own names of the columns."""
    node = _import("causallearn.graph.GraphNode").GraphNode
    knowledge = _import("causallearn.utils.PCUtils.BackgroundKnowledge").BackgroundKnowledge()
    nodes = [node(f"X{i + 1}") for i in range(len(constraints.allowed))]
    for j, i in np.argwhere(~constraints.allowed & ~np.eye(len(nodes), dtype=bool)):
        knowledge.add_forbidden_by_node(nodes[j], nodes[i])
    for j, i in np.argwhere(constraints.required):
        knowledge.add_required_by_node(nodes[j], nodes[i])
    return knowledge


def causal_learn_ges(
    columns: np.ndarray, names: Sequence[str], kinds: Sequence[str], *, seed: int = 0
) -> Discovery:
    """GES with linear Gaussian BIC of causal-learn, to compare with `ges`; every weight is 1.

    It takes no prior knowledge.

    Arguments:
        columns: (N, n), continuous, or binary as numbers.
    """
    check_no_categorical("causal-learn-ges", names, kinds, "ges-generalised")
    started = time.perf_counter()
    check_not_collinear(columns, names, kinds)
    search = _import("causallearn.search.ScoreBased.GES")
    result = search.ges(columns, "local_score_BIC")
    return _result("causal-learn-ges", names, result["G"].graph, started)


def require_causal_learn() -> None:
    """Raise a UsageError if causal-learn is not installed."""
    _import("causallearn.search.ConstraintBased.PC")


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"this method needs causal-learn ({error}); "
            'install it with `pip install "intervae[causal-learn]"`.'
        ) from None


def _result(
    method: str,
    names: Sequence[str],
    marks: np.ndarray,
    started: float,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
) -> Discovery:
    """Return the Discovery of causal-learn's end marks (n, n)."""
    constraints = Knowledge.parse(knowledge).constraints(names)
    cpdag = cpdag_from_marks(np.asarray(marks)) & constraints.allowed | constraints.required
    if knowledge:
        cpdag = apply_meek_rules(cpdag)
    dag = consistent_extension(cpdag)
    notes: tuple[Note, ...] = ()
    if dag is None:  # contradictory independence tests
        text = (
            "the CPDAG has no consistent extension to a DAG; conflicting directions were "
            "resolved in the order of the columns."
        )
        notes = (Note("inconsistent-cpdag", "", text),)
        dag = _any_dag(cpdag, constraints)
    graph = CausalGraph(tuple(names), dag.astype(float))
    order = tuple(graph.topological_order)
    return Discovery(
        graph=graph,
        order=order,
        cost=(0.0,) * len(order),
        method=method,
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[(names[j], names[i]) for j, i in np.argwhere(dag & cpdag & cpdag.T)],
        notes=notes,
    )


def cpdag_from_marks(marks: np.ndarray) -> np.ndarray:
    """causal-learn's end marks (n, n) to a CPDAG (n, n) of bool.

    j -> i is marks[i, j] = 1 and marks[j, i] = -1; two tails or two heads are undirected.
    """
    adjacent = marks != 0
    arrows = (marks.T == 1) & (marks == -1)
    return adjacent & ~arrows.T


def _any_dag(cpdag: np.ndarray, constraints: EdgeConstraints) -> np.ndarray:
    arrows = (cpdag & ~cpdag.T).astype(float)
    lines = np.triu(cpdag & cpdag.T) * 0.5
    return constraints.to_dag(arrows + lines, 0.5) != 0
