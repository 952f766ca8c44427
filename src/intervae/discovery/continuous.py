"""Graph learning by continuous optimisation, shared by NOTEARS and DAGMA."""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, UnitsWarning, check_no_categorical, varsortability
from intervae.discovery.design_matrix import build_design_matrix
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.objectives import LinearObjective, MLPObjective, Objective
from intervae.discovery.solvers import fit_in_order
from intervae.discovery.table_checks import check_no_duplicate_categories, check_not_collinear
from intervae.discovery.threads import one_thread
from intervae.errors import UsageError
from intervae.notes import Note

ASSUMPTIONS = (
    "Every variable is a {mechanism} of its causes plus noise, there are no hidden common causes "
    "and no cycles, and the best-fitting sparse acyclic graph is the causal one: {condition}"
)
EQUAL_NOISES = (
    "true if all noises have the same variance in the units of the table, and not in general "
    "after standardising."
)
FREE_NOISES = (
    "linear relations with Gaussian noises of any variance do not determine the direction, "
    "nonlinear ones do."
)
# (objective, steps, rate, rounds, ...) -> strengths after every round, final h
Solver = Callable[..., tuple[list[np.ndarray], float]]
Method = Callable[..., Discovery]


@dataclass(frozen=True, kw_only=True)
class ContinuousOptions:
    """Options of all methods.

    Arguments:
        knowledge: required and forbidden edges and tiers.
        standardise: scale columns to unit variance; otherwise the units decide the graph (see
            `varsortability`), with a UnitsWarning.
        noise: "equal" noise variances, or "free": half the logarithm of each continuous variable's
            squared error, the likelihood with one variance per variable.
        l1: weight of the l1 penalty.
        threshold: weaker edges are dropped at the end, on the scale of the (standardised) table.
        steps: Adam steps per round.
        rate: learning rate of Adam.
        rounds: maximum number of rounds.
        device: cpu, cuda, cuda:N or auto.
    """

    knowledge: Knowledge | Mapping[str, Any] | None = None
    standardise: bool = True
    noise: str = "equal"
    l1: float
    threshold: float
    steps: int
    rate: float
    rounds: int
    device: str = "cpu"

    def solver_options(self) -> dict[str, Any]:
        return {"steps": self.steps, "rate": self.rate, "rounds": self.rounds}


@dataclass(frozen=True, kw_only=True)
class MLPOptions(ContinuousOptions):
    """Options of the methods with networks.

    Arguments:
        hidden: units of each variable's network.
        l1: weight of the l1 penalty on the weights from a variable to a unit.
        l2: twice the weight of the squared weights.
        threshold: on the norm of the weights from cause to effect.
    """

    hidden: int = 10
    l2: float
    threshold: float = 0.5
    rate: float = 1e-2


def continuous_method(name: str, solver: Solver, options: type[ContinuousOptions]) -> Method:
    """Return the discovery function of a solver, with the docstring of `options`.

    It takes columns (N, n), names, kinds, `seed` and the fields of `options` as keyword arguments.
    """

    def method(
        columns: np.ndarray,
        names: Sequence[str],
        kinds: Sequence[str],
        *,
        seed: int = 0,
        **settings: Any,
    ) -> Discovery:
        values = options(**settings)
        if isinstance(values, MLPOptions):
            return learn_mlp(name, solver, columns, names, kinds, values, seed)
        return learn_linear(name, solver, columns, names, kinds, values)

    method.__name__ = method.__qualname__ = name.replace("-", "_")
    method.__doc__ = options.__doc__
    signature = inspect.signature(method)
    *parameters, _ = signature.parameters.values()
    parameters += [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default)
        for f in fields(options)
    ]
    method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return method


def learn_linear(
    method: str,
    solver: Solver,
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    options: ContinuousOptions,
) -> Discovery:
    """Learn a graph of linear relations; binary columns enter as 0 / 1."""
    check_no_categorical(method, names, kinds, f"{method}-mlp")

    def make(**arguments: Any) -> Objective:
        return LinearObjective(l1=options.l1, **arguments)

    return _learn(method, solver, columns, names, kinds, options, make, "linear function")


def learn_mlp(
    method: str,
    solver: Solver,
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    options: MLPOptions,
    seed: int,
) -> Discovery:
    """Learn a graph with one network per variable; columns of any kind."""
    check_options(hidden=options.hidden, l2=options.l2)

    def make(**arguments: Any) -> Objective:
        return MLPObjective(
            hidden=options.hidden, l1=options.l1, l2=options.l2, seed=seed, **arguments
        )

    return _learn(method, solver, columns, names, kinds, options, make, "smooth function")


def _learn(
    method: str,
    solver: Solver,
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    options: ContinuousOptions,
    make_objective: Callable[..., Objective],
    mechanism: str,
) -> Discovery:
    started = time.perf_counter()
    solver_options = options.solver_options()
    check_options(threshold=options.threshold, l1=options.l1, **solver_options)
    check_not_collinear(columns, names, kinds)
    check_no_duplicate_categories(columns, names, kinds)
    constraints = Knowledge.parse(options.knowledge).constraints(names)
    objective = make_objective(
        design=build_design_matrix(columns, names, kinds, standardise=options.standardise),
        constraints=constraints,
        noise=options.noise,
        device=parse_device(options.device),
    )
    with one_thread():
        path, h = solver(objective, **solver_options)
        fit_in_order(objective, constraints, steps=options.steps, rate=options.rate)
    weights = constraints.to_dag(objective.strengths(), options.threshold)
    graph = CausalGraph(tuple(names), weights)
    unexplained, order = objective.unexplained(), tuple(graph.topological_order)
    condition = EQUAL_NOISES if options.noise == "equal" else FREE_NOISES
    return Discovery(
        graph=graph,
        order=order,
        cost=tuple(float(unexplained[graph.index(name)]) for name in order),
        method=method,
        assumptions=ASSUMPTIONS.format(mechanism=mechanism, condition=condition),
        ambiguous=[],
        history=tuple(path),
        notes=() if options.standardise else unit_notes(columns, graph, kinds),
        details={"h": h},
        seconds=time.perf_counter() - started,
    )


def unit_notes(columns: np.ndarray, graph: CausalGraph, kinds: Sequence[str]) -> tuple[Note, ...]:
    """Return a note that the graph depends on the units of the columns; also warn."""
    if "continuous" not in kinds:
        return ()
    fraction = varsortability(columns, graph)
    growth = (
        "" if math.isnan(fraction) else f" (the variance grows along {fraction:.0%} of its paths)"
    )
    text = (
        f"standardise=False: the graph depends on the units of the columns{growth}; "
        "other units can reverse its edges."
    )
    warnings.warn(text, UnitsWarning, stacklevel=_caller_level())
    return (Note("units", "", text),)


def _caller_level() -> int:
    """Return the stack level of the first frame outside this package, for a warning."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(
        "intervae.discovery."
    ):
        frame, level = frame.f_back, level + 1
    return level


def check_options(**options: float) -> None:
    """Raise a UsageError for a count below 1 or a negative number."""
    for name, value in options.items():
        if name in ("steps", "rounds", "hidden") and (value < 1 or value != int(value)):
            raise UsageError(f"{name}={value} must be a whole number of 1 or more.")
        if not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value} must be a number of 0 or more.")


def parse_device(name: str) -> torch.device:
    """Return the torch device of that name; raise a UsageError if this machine lacks it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UsageError(
            f"device={name!r} cannot be used on this machine; use cpu, cuda or cuda:N."
        ) from None
    return device
