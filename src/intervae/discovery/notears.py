"""NOTEARS, linear (Zheng et al. 2018) and with a network per variable (Zheng et al. 2020): least squares and sparsity under tr exp(W∘W) = n."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intervae.discovery.base import Discovery
from intervae.discovery.continuous import (
    augmented_lagrangian,
    check_settings,
    fit_in_order,
    found_graph,
    on_device,
    one_thread,
    refuse_categorical,
    unit_notes,
)
from intervae.discovery.design import design, refuse_collinear, refuse_same_categories
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.problems import Linear, Networks, Problem

ASSUMPTIONS = (
    "Every variable is a {mechanism} of its causes plus noise, no common cause is left out, there are no cycles, and the best-fitting sparse "
    "acyclic graph is the causal one: {when}"
)
EQUAL = "true where all noises have the same variance in the units of the table, and not in general after standardising."
FREE = "linear relations with Gaussian noises of any variance do not tell cause from effect, curved ones do."
Solver = Callable[..., tuple[list[np.ndarray], float]]


def notears(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    standardise: bool = True,
    noise: str = "equal",
    l1: float = 0.1,
    threshold: float = 0.3,
    steps: int = 1000,
    rate: float = 3e-3,
    rounds: int = 20,
    tolerance: float = 1e-6,
    device: str = "cpu",
) -> Discovery:
    """Minimise 1/2 E ||x - W^T x||^2 + l1 |W| over DAGs; an edge's weight is W's. A binary column enters as 0 / 1.

    Arguments:
        columns: (N, n).
        knowledge: required and forbidden edges and tiers.
        standardise: to unit variance first; without, the units decide (see `varsortability`) and a warning says so.
        noise: "equal" variances, or "free": half the logarithm of each variable's squared error, the likelihood with a variance of its own.
        l1: the price of a weight.
        threshold: weaker edges are dropped at the end; on the scale of the table, or of the standardised one.
        steps: of Adam in each round, at this `rate`.
        rounds: of the augmented Lagrangian at most; it ends when h is below `tolerance`.
        device: cpu, cuda, cuda:N or auto.
    """
    more = {"knowledge": knowledge, "standardise": standardise, "noise": noise, "threshold": threshold, "device": device}
    solve = {"steps": steps, "rate": rate, "rounds": rounds, "tolerance": tolerance}
    return learn_linear("notears", augmented_lagrangian, columns, names, kinds, l1=l1, solve=solve, **more)


def notears_mlp(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    standardise: bool = True,
    noise: str = "equal",
    hidden: int = 10,
    l1: float = 0.01,
    l2: float = 0.01,
    threshold: float = 0.5,
    steps: int = 800,
    rate: float = 1e-2,
    rounds: int = 8,
    tolerance: float = 1e-6,
    device: str = "cpu",
) -> Discovery:
    """As `notears` with a network of `hidden` sigmoid units per variable; columns of any kind.

    A binary variable is predicted through its logit and a categorical one through one logit per category, both by cross-entropy. An edge's
    weight is the norm of what the cause's inputs have to do with the effect's units.

    Arguments:
        columns: (N, n).
        knowledge, standardise, noise, threshold, tolerance, device: as in `notears`; `noise` is that of the continuous variables.
        hidden: units of each variable's network.
        l1: the price of a weight from a variable to a unit.
        l2: half the price of any weight's square.
        steps, rate, rounds: of Adam and of the augmented Lagrangian, after which the order is taken as found.
    """
    more = {"knowledge": knowledge, "standardise": standardise, "noise": noise, "threshold": threshold, "device": device}
    solve = {"steps": steps, "rate": rate, "rounds": rounds, "tolerance": tolerance}
    return learn_networks("notears-mlp", augmented_lagrangian, columns, names, kinds, hidden=hidden, l1=l1, l2=l2, seed=seed, solve=solve, **more)


def learn_linear(method: str, solver: Solver, columns: np.ndarray, names: Sequence[str], kinds: Sequence[str], *, l1: float, **how: Any) -> Discovery:
    """The linear learner with either solver."""
    refuse_categorical(method, names, kinds, f"{method}-mlp")

    def problem(**given: Any) -> Problem:
        return Linear(l1=l1, **given)

    return _learn(method, solver, columns, names, kinds, problem, "linear function", l1=l1, **how)


def learn_networks(
    method: str,
    solver: Solver,
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    hidden: int,
    l1: float,
    l2: float,
    seed: int,
    **how: Any,
) -> Discovery:
    """The learner with a network per variable, with either solver."""

    def problem(**given: Any) -> Problem:
        return Networks(hidden=hidden, l1=l1, l2=l2, seed=seed, **given)

    return _learn(method, solver, columns, names, kinds, problem, "smooth function", l1=l1, l2=l2, hidden=hidden, **how)


def _learn(
    method: str,
    solver: Solver,
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    make: Callable[..., Problem],
    mechanism: str,
    *,
    knowledge: Knowledge | Mapping[str, Any] | None,
    standardise: bool,
    noise: str,
    threshold: float,
    device: str,
    solve: Mapping[str, Any],
    **prices: float,
) -> Discovery:
    started = time.perf_counter()
    check_settings(threshold=threshold, **prices, **solve)
    refuse_collinear(columns, names, kinds)
    refuse_same_categories(columns, names, kinds)
    allowed = Knowledge.of(knowledge).over(names)
    problem = make(table=design(columns, names, kinds, standardise=standardise), allowed=allowed, noise=noise, device=on_device(device))
    with one_thread():
        path, cycles = solver(problem, **solve)
        fit_in_order(problem, allowed, steps=solve["steps"], rate=solve["rate"])
    assumptions = ASSUMPTIONS.format(mechanism=mechanism, when=EQUAL if noise == "equal" else FREE)
    found = found_graph(
        problem, allowed, names, method=method, threshold=threshold, assumptions=assumptions, history=path, seconds=0.0, details={"h": cycles}
    )
    notes = unit_notes(columns, found.graph, kinds, standardise)
    return found.replace(notes=notes, seconds=time.perf_counter() - started)
