"""Solvers of NOTEARS and DAGMA: augmented Lagrangian and central path, both with Adam.

After either, the order of causes is fixed, edges against it are removed, and the remaining ones
are fitted without the acyclicity constraint (`fit_in_order`). The result is exactly a DAG, and for
linear models, a convex problem, the best DAG of that order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy
import torch
from torch import Tensor

from intervae.causal.acyclicity import value_and_slope
from intervae.discovery.knowledge import EdgeConstraints
from intervae.discovery.objectives import LinearObjective, Objective
from intervae.errors import TrainingError

# M (n, n) -> value added to the objective, and its gradient (n, n)
Penalty = Callable[[Tensor], tuple[Tensor, Tensor]]
MAX_BACKTRACKS = 60


def adam(
    objective: Objective,
    penalty: Penalty | None,
    *,
    steps: int,
    rate: float,
    weight: float = 1.0,
    decay: tuple[float, float] = (0.9, 0.999),
) -> None:
    """Minimise weight * objective + penalty(M) in place, with a cosine learning rate.

    Everything is divided by the weight, which does not change the steps of Adam. A step that
    leaves the domain of the penalty is halved until it does not.
    """
    mean, square = torch.zeros_like(objective.flat), torch.zeros_like(objective.flat)
    first = objective.parameters[0]
    last_step = torch.zeros_like(first)
    for step in range(1, steps + 1):
        slope = _backtrack(objective, penalty, last_step) if penalty is not None else None
        gradients = objective.gradients()  # after backtracking
        if slope is not None:
            gradients[0] = torch.addcmul(
                gradients[0], objective.penalty_gradient(slope), objective.mask, value=1 / weight
            )
        gradient = torch.cat([g.reshape(-1) for g in gradients])
        mean.lerp_(gradient, 1 - decay[0])
        square.mul_(decay[1]).addcmul_(gradient, gradient, value=1 - decay[1])
        correction = math.sqrt(1 - decay[1] ** step)
        change = mean / square.sqrt().add_(1e-8 * correction / weight)
        change.mul_(
            -0.5
            * rate
            * (1 + math.cos(math.pi * step / steps))
            * correction
            / (1 - decay[0] ** step)
        )
        objective.flat.add_(change)
        last_step = change[: first.numel()].view_as(first)
    if not bool(objective.flat.isfinite().all()):
        raise TrainingError("the graph search diverged; standardise the table or lower the rate.")


def _backtrack(objective: Objective, penalty: Penalty, last_step: Tensor) -> Tensor:
    """Halve the last step until the penalty is finite; return the gradient of the penalty."""
    for _ in range(MAX_BACKTRACKS):
        value, slope = penalty(objective.squares())
        if bool(value.isfinite()):
            return slope
        last_step.mul_(0.5)
        objective.parameters[0].sub_(last_step)
    raise TrainingError(
        "the graph search left the domain of its penalty and could not return; lower the rate."
    )


def augmented_lagrangian(
    objective: Objective, *, steps: int, rate: float, rounds: int, tolerance: float
) -> tuple[list[np.ndarray], float]:
    """Minimise the objective subject to h = 0 (NOTEARS: Zheng et al. 2018, Algorithm 1).

    Each round minimises objective + alpha h + rho / 2 h^2, then raises alpha by rho h, and rho
    tenfold unless h fell to a quarter. Stops when h is at most `tolerance`.

    Returns:
        The strengths (n, n) after every round, and the final h.
    """
    multiplier, scale, last_h = 0.0, 1.0, math.inf
    path: list[np.ndarray] = []
    for _ in range(rounds):

        def penalty(
            squares: Tensor, multiplier: float = multiplier, scale: float = scale
        ) -> tuple[Tensor, Tensor]:
            h, slope = value_and_slope(squares, "exponential")
            return h * (multiplier + 0.5 * scale * h), slope * (multiplier + scale * h)

        adam(objective, penalty, steps=steps, rate=rate)
        h = float(value_and_slope(objective.squares(), "exponential")[0])
        path.append(objective.strengths().copy())
        multiplier += scale * h
        scale *= 10.0 if h > 0.25 * last_h else 1.0
        last_h = h
        if h <= tolerance or scale > 1e16:
            break
    return path, last_h


def central_path(
    objective: Objective, *, steps: int, rate: float, rounds: int
) -> tuple[list[np.ndarray], float]:
    """Minimise mu * objective + h_logdet for mu = 1, 0.1, 0.01, ... (DAGMA: Bello et al. 2022).

    The paper's s stays at 1, so that every round starts inside the domain of the next.

    Returns:
        The strengths (n, n) after every round, and the final h.
    """
    path: list[np.ndarray] = []
    for k in range(rounds):
        adam(
            objective,
            lambda squares: value_and_slope(squares, "log_det"),
            steps=steps,
            rate=rate,
            weight=0.1**k,
        )
        path.append(objective.strengths().copy())
    return path, float(value_and_slope(objective.squares(), "log_det")[0])


def fit_in_order(
    objective: Objective, constraints: EdgeConstraints, *, steps: int, rate: float
) -> None:
    """Fix the order that the strongest edges give, and fit its edges without the penalty."""
    objective.restrict(constraints.edges_in_order(objective.strengths()))
    if isinstance(objective, LinearObjective) and objective.noise == "equal":
        objective.parameters[0].copy_(torch.from_numpy(_lasso(objective)[:, :, None]))
    else:
        adam(objective, None, steps=steps, rate=rate)


def _lasso(objective: LinearObjective) -> np.ndarray:
    """Return the exact weights (n, n) of the convex problem.

    W is a difference of non-negative parts, in units in which every cause has variance 1.
    """
    covariance = objective.covariance.cpu().numpy()
    scale = np.sqrt(np.diagonal(covariance))[:, None] * np.ones_like(covariance)
    edges = np.flatnonzero(objective.mask[:, :, 0].cpu().numpy() > 0)
    l1_weights = (objective.l1_weights[:, :, 0].cpu().numpy() / scale).ravel()[edges]
    start = (objective.strengths() * scale).ravel()[edges]
    identity = np.eye(len(covariance))

    def to_matrix(halves: np.ndarray) -> np.ndarray:
        weights = np.zeros(covariance.size)
        weights[edges] = halves[: len(edges)] - halves[len(edges) :]
        return weights.reshape(covariance.shape) / scale

    def value_and_gradient(halves: np.ndarray) -> tuple[float, np.ndarray]:
        residual = identity - to_matrix(halves)
        product = covariance @ residual
        slope = (-product / scale).ravel()[edges]
        l1 = float(l1_weights @ (halves[: len(edges)] + halves[len(edges) :]))
        value = 0.5 * float((residual * product).sum()) + l1
        return value, np.concatenate([slope + l1_weights, l1_weights - slope])

    halves = np.concatenate([np.maximum(start, 0.0), np.maximum(-start, 0.0)])
    solution = scipy.optimize.minimize(
        value_and_gradient,
        halves,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(halves),
        options={"maxiter": 1000, "maxfun": 2000, "ftol": 1e-10, "gtol": 1e-6},
    ).x
    return to_matrix(solution)
