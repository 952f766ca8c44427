"""Graphs by continuous optimisation: NOTEARS's augmented Lagrangian and DAGMA's central path, both by Adam, then a last fit in the order found.

Both are non-convex, and where they end depends on how they start out: steps as long for a weak as for a strong edge (Adam) find far better
graphs than a quasi-Newton method that first follows the largest covariance. Once the order of causes shows, it is kept, what goes against it
is set to 0, and the rest is fitted again without the constraint: the result is exactly a DAG, and for linear models (a convex problem then)
exactly the best one in its order.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from intervae.causal.acyclicity import value_and_slope
from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, UnitsWarning, varsortability
from intervae.discovery.knowledge import Allowed
from intervae.discovery.problems import Linear, Problem
from intervae.errors import DataError, TrainingError, UsageError

Penalty = Callable[[Tensor], tuple[Tensor, Tensor]]  # M (n, n) -> what is added to the objective, and its slope (n, n)
MOST_RETREATS = 60


def adam(
    problem: Problem, penalty: Penalty | None, *, steps: int, rate: float, weight: float = 1.0, decay: tuple[float, float] = (0.9, 0.999)
) -> None:
    """Minimise weight * (the problem's objective) + penalty(M), in place; the rate falls to 0 along a cosine.

    All is divided by the weight, which leaves Adam's steps as they are.
    A step that leaves the domain of the penalty (inf) is halved until it does not.
    """
    mean, square = torch.zeros_like(problem.flat), torch.zeros_like(problem.flat)
    first = problem.parameters[0]
    last = torch.zeros_like(first)
    for step in range(1, steps + 1):
        slope = _slope_inside(problem, penalty, last) if penalty is not None else None
        gradients = problem.gradients()  # where the retreat, if any, has ended
        if slope is not None:
            gradients[0] = torch.addcmul(gradients[0], problem.penalty_gradient(slope), problem.free, value=1 / weight)
        gradient = torch.cat([g.reshape(-1) for g in gradients])
        mean.lerp_(gradient, 1 - decay[0])
        square.mul_(decay[1]).addcmul_(gradient, gradient, value=1 - decay[1])
        correction = math.sqrt(1 - decay[1] ** step)
        change = mean / square.sqrt().add_(1e-8 * correction / weight)
        change.mul_(-0.5 * rate * (1 + math.cos(math.pi * step / steps)) * correction / (1 - decay[0] ** step))
        problem.flat.add_(change)
        last = change[: first.numel()].view_as(first)
    if not bool(problem.flat.isfinite().all()):
        raise TrainingError("the search for a graph diverged; standardise the table or lower the rate.")


def _slope_inside(problem: Problem, penalty: Penalty, last: Tensor) -> Tensor:
    for _ in range(MOST_RETREATS):
        value, slope = penalty(problem.squares())
        if bool(value.isfinite()):
            return slope
        last.mul_(0.5)
        problem.parameters[0].sub_(last)
    raise TrainingError("the search for a graph left the domain of its penalty and did not get back; lower the rate.")


def augmented_lagrangian(problem: Problem, *, steps: int, rate: float, rounds: int, tolerance: float) -> tuple[list[np.ndarray], float]:
    """NOTEARS (Zheng et al. 2018, Algorithm 1): add alpha h + rho / 2 h^2, raise alpha by rho h, and rho tenfold while h does not fall to a quarter.

    Returns the strengths after every round, and h at the end.
    """
    multiplier, scale, before = 0.0, 1.0, math.inf
    path: list[np.ndarray] = []
    for _ in range(rounds):

        def penalty(squares: Tensor, multiplier: float = multiplier, scale: float = scale) -> tuple[Tensor, Tensor]:
            cycles, slope = value_and_slope(squares, "exponential")
            return cycles * (multiplier + 0.5 * scale * cycles), slope * (multiplier + scale * cycles)

        adam(problem, penalty, steps=steps, rate=rate)
        cycles = float(value_and_slope(problem.squares(), "exponential")[0])
        path.append(problem.strengths().copy())
        multiplier += scale * cycles
        scale *= 10.0 if cycles > 0.25 * before else 1.0
        before = cycles
        if cycles <= tolerance or scale > 1e16:
            break
    return path, before


def central_path(problem: Problem, *, steps: int, rate: float, rounds: int) -> tuple[list[np.ndarray], float]:
    """DAGMA (Bello et al. 2022, Algorithm 1): minimise mu (objective) + h of the log-determinant for mu = 1, 0.1, 0.01, ...

    The paper's s stays at 1, so that every round starts inside the domain of the next.
    """
    path: list[np.ndarray] = []
    for k in range(rounds):
        adam(problem, lambda squares: value_and_slope(squares, "log_det"), steps=steps, rate=rate, weight=0.1**k)
        path.append(problem.strengths().copy())
    return path, float(value_and_slope(problem.squares(), "log_det")[0])


def fit_in_order(problem: Problem, allowed: Allowed, *, steps: int, rate: float) -> None:
    """Keep the order that the strongest edges give, and fit what it allows without the penalty."""
    problem.restrict(allowed.before(problem.strengths()))
    if isinstance(problem, Linear) and problem.noise == "equal":
        problem.parameters[0].copy_(torch.from_numpy(_lasso(problem)[:, :, None]))
    else:
        adam(problem, None, steps=steps, rate=rate)


def _lasso(problem: Linear) -> np.ndarray:
    """(n, n) exact weights of the convex problem, W as a difference of non-negative parts, in units in which every cause has variance 1."""
    covariance, free = problem.covariance.cpu().numpy(), problem.free[:, :, 0].cpu().numpy() > 0
    scale = np.sqrt(np.diagonal(covariance))[:, None] * np.ones_like(covariance)
    tax = problem.taxed[:, :, 0].cpu().numpy() / scale
    start = problem.strengths() * scale
    place = np.flatnonzero(free)
    identity = np.eye(len(covariance))

    def value_and_gradient(parts: np.ndarray) -> tuple[float, np.ndarray]:
        weights = np.zeros(covariance.size)
        weights[place] = parts[: len(place)] - parts[len(place) :]
        rest = identity - weights.reshape(covariance.shape) / scale
        seen = covariance @ rest
        slope, taxes = (-seen / scale).ravel()[place], tax.ravel()[place]
        value = 0.5 * float((rest * seen).sum()) + float(taxes @ (parts[: len(place)] + parts[len(place) :]))
        return value, np.concatenate([slope + taxes, taxes - slope])

    chosen = start.ravel()[place]
    parts = np.concatenate([np.maximum(chosen, 0.0), np.maximum(-chosen, 0.0)])
    limits = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-10, "gtol": 1e-6}
    found = minimize(value_and_gradient, parts, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(parts), options=limits).x
    weights = np.zeros(covariance.size)
    weights[place] = found[: len(place)] - found[len(place) :]
    return weights.reshape(covariance.shape) / scale


def found_graph(
    problem: Problem,
    allowed: Allowed,
    names: Sequence[str],
    *,
    method: str,
    threshold: float,
    assumptions: str,
    history: list[np.ndarray],
    **more: Any,
) -> Discovery:
    """The thresholded DAG of a fitted problem; `cost` is the share of each variable that its causes leave unexplained."""
    graph = CausalGraph(tuple(names), allowed.acyclic(problem.strengths(), threshold))
    share, order = problem.unexplained(), tuple(graph.topological_order)
    cost = tuple(float(share[graph.index(name)]) for name in order)
    return Discovery(graph=graph, order=order, cost=cost, method=method, assumptions=assumptions, ambiguous=[], history=tuple(history), **more)


def unit_notes(columns: np.ndarray, graph: CausalGraph, kinds: Sequence[str], standardise: bool) -> tuple[str, ...]:
    """What to say of a graph that was found from columns in their own units; also raised as a warning."""
    if standardise or "continuous" not in kinds:
        return ()
    sorted_share = varsortability(columns, graph)
    told = "" if math.isnan(sorted_share) else f" (the variance grows along {sorted_share:.0%} of its paths)"
    note = f"standardise=False: this graph depends on the units of the columns{told}; another unit can turn its edges round."
    warnings.warn(note, UnitsWarning, stacklevel=_level_of_the_caller())
    return (note,)


def _level_of_the_caller() -> int:
    """Of the first frame outside this package, as seen from the function that calls this one: `discover`, or a learner called by itself."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("intervae.discovery."):
        frame, level = frame.f_back, level + 1
    return level


def check_settings(**settings: float) -> None:
    """Refuse a setting out of range: counts of 1 or more, the rest not negative."""
    for name, value in settings.items():
        if name in ("steps", "rounds", "hidden") and (value < 1 or value != int(value)):
            raise UsageError(f"{name}={value} must be a whole number of 1 or more.")
        if not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"{name}={value} must be a number of 0 or more.")


def on_device(name: str) -> torch.device:
    """The torch device of that name, or an error where this machine has none."""
    try:
        device = torch.device("cuda" if name == "auto" and torch.cuda.is_available() else "cpu" if name == "auto" else name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise UsageError(f"device={name!r} cannot be used on this machine; say cpu, cuda or cuda:N.") from None
    return device


@contextmanager
def one_thread() -> Iterator[None]:
    """Thousands of steps on small matrices go fastest on one thread each; several tables can then run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def refuse_categorical(method: str, names: Sequence[str], kinds: Sequence[str], instead: str) -> None:
    for name, kind in zip(names, kinds, strict=True):
        if kind == "categorical":
            raise DataError(f"method {method!r} cannot use the categorical column {name!r}; leave it out or use {instead!r}.")
