"""CausalVAE's graph pre-training (sec. 6.2, Eqs. 11 and 13), for comparison.

Labels are predicted from labels by least squares subject to H(A) = 0, with an augmented Lagrangian.
Where labels are noise-free functions of each other, or standardised, a good fit does not determine
the direction of causes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from intervae.causal.acyclicity import polynomial
from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, check_no_categorical, random_rows
from intervae.discovery.kernels import standardise
from intervae.discovery.knowledge import EdgeConstraints, Knowledge
from intervae.discovery.table_checks import collinearity_notes
from intervae.errors import UsageError

MECHANISMS = ("linear", "mlp")
WEIGHT_DECAY = 0.01  # of the networks, so that they do not absorb the scale of A
ASSUMPTIONS = (
    "Every variable is a linear function of its causes (or a small network), and the best-fitting "
    "acyclic graph is the causal one: true for linear relations with noises of equal variance in "
    "the variables' own units, not in general, and not after standardising."
)


class LabelRegression:
    """Objective over one flat parameter vector.

    The vector holds A as a difference of two non-negative halves, so that its l1 norm is smooth,
    then the parameters of the mechanisms.

    Arguments:
        inputs: (N, n) labels as mechanism inputs: standardised, or -1 / +1 if binary.
        targets: (N, n) labels as targets: standardised, or 0 / 1 if binary.
        binary: (n,) where predictions pass through the logistic function (Eq. 11).
        l1: weight of |A|, not applied to required edges.
        hidden: units of each variable's network g_i(A_i o u) (Eq. 2); 0 for the linear A^T u.
        constraints: allowed and required edges; None allows all.
        intercept: whether predictions have intercepts.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        binary: Tensor,
        *,
        l1: float,
        hidden: int,
        seed: int,
        constraints: EdgeConstraints | None = None,
        intercept: bool = True,
    ) -> None:
        self.inputs, self.targets, self.binary = inputs, targets, binary
        self.n = n = inputs.shape[1]
        self.shapes = [(n,)] if hidden == 0 else [(n,), (n, n, hidden), (n, hidden), (n, hidden)]
        generator = torch.Generator().manual_seed(seed)
        networks = [torch.zeros(n, dtype=torch.float64)]
        networks += [
            torch.randn(shape, generator=generator, dtype=torch.float64) / shape[1] ** 0.5
            for shape in self.shapes[1:]
        ]
        halves = torch.zeros(2 * n * n, dtype=torch.float64)
        self.start = torch.cat([halves, *(tensor.flatten() for tensor in networks)]).numpy()
        if constraints is None:
            constraints = EdgeConstraints(~np.eye(n, dtype=bool), np.zeros((n, n), dtype=bool))
        penalised = np.tile(~constraints.required.ravel(), 2).astype(np.float64)
        self.l1_weights = l1 * torch.from_numpy(penalised)
        half = [(0.0, None) if edge else (0.0, 0.0) for edge in constraints.allowed.ravel()]
        free = (None, None)
        intercepts = [free if intercept else (0.0, 0.0)] * n
        self.bounds = [*half, *half, *intercepts, *[free] * (len(self.start) - 2 * n * n - n)]

    def weights(self, flat: Tensor) -> Tensor:
        """Return A (n, n) of the flat vector."""
        positive, negative = flat[: 2 * self.n**2].reshape(2, self.n, self.n)
        return positive - negative

    def squared_errors(self, flat: Tensor) -> Tensor:
        """Return the mean squared error of each label, (n,); l_u of Eq. 11 is their sum."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        intercept, *network = (
            tensor.reshape(shape)
            for tensor, shape in zip(flat[2 * self.n**2 :].split(sizes), self.shapes, strict=True)
        )
        weights = self.weights(flat)
        if network:
            first, bias, last = network
            masked = torch.einsum("bj,ji,ijh->bih", self.inputs, weights, first)
            predicted = torch.einsum("bih,ih->bi", torch.tanh(masked + bias), last)
        else:
            predicted = self.inputs @ weights
        predicted = predicted + intercept
        means = torch.where(self.binary, torch.sigmoid(predicted), predicted)
        return ((self.targets - means) ** 2).mean(0)

    def objective(self, flat: Tensor, multiplier: float, penalty: float) -> Tensor:
        """Return squared errors + l1 |A| + decay + multiplier H + penalty / 2 H^2."""
        h = polynomial(self.weights(flat))
        split = 2 * self.n**2
        decay = WEIGHT_DECAY * (flat[split + self.n :] ** 2).sum()
        return (
            self.squared_errors(flat).sum()
            + self.l1_weights @ flat[:split]
            + decay
            + multiplier * h
            + penalty / 2 * h**2
        )

    def minimise(
        self, start: np.ndarray, multiplier: float, penalty: float, steps: int
    ) -> np.ndarray:
        """Return the minimum of the objective by L-BFGS-B."""

        def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
            flat = torch.from_numpy(point).requires_grad_()
            value = self.objective(flat, multiplier, penalty)
            (gradient,) = torch.autograd.grad(value, flat)
            return float(value.detach()), gradient.numpy()

        return scipy.optimize.minimize(
            value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds,
            options={"maxiter": steps},
        ).x


def lagrangian(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    samples: int = 800,
    mechanism: str = "linear",
    hidden: int = 16,
    l1: float = 0.1,
    intercept: bool = True,
    threshold: float = 0.3,
    tolerance: float = 1e-8,
    rounds: int = 40,
    steps: int = 200,
) -> Discovery:
    """Minimise E ||u - f(A^T u)||^2 + l1 |A| subject to H(A) = 0, from A = 0.

    The weights of the graph are A over standardised labels; `cost` is the fraction of each
    variable's variance left unexplained.

    Arguments:
        columns: (N, n), continuous (standardised) or binary (through the logistic function).
        knowledge: required and forbidden edges and tiers.
        samples: maximum number of random rows used.
        mechanism: "linear" (Eq. 11) or "mlp", a network of the masked parents (Eq. 2).
        hidden: units of such a network.
        l1: weight of the l1 penalty, which Eq. 11 does not have.
        intercept: whether predictions have intercepts, which Eq. 11 does not have.
        threshold: weaker edges are dropped; remaining cycles lose their weakest edge.
        tolerance: of H(A), at which the constraint counts as satisfied.
        rounds: maximum number of multiplier updates.
        steps: maximum number of L-BFGS-B steps per round.
    """
    started = time.perf_counter()
    if mechanism not in MECHANISMS:
        raise UsageError(f"mechanism={mechanism!r} is not one of {', '.join(MECHANISMS)}.")
    check_no_categorical("lagrangian", names, kinds, "notears-mlp")
    table = random_rows(columns, samples, seed)
    binary = np.array([kind == "binary" for kind in kinds])
    codes = (table - columns.min(axis=0)) / (columns.max(axis=0) - columns.min(axis=0))
    scaled = standardise(table)
    inputs, targets = np.where(binary, 2.0 * codes - 1.0, scaled), np.where(binary, codes, scaled)
    constraints = Knowledge.parse(knowledge).constraints(names)
    regression = LabelRegression(
        *(torch.from_numpy(array) for array in (inputs, targets, binary)),
        l1=l1,
        hidden=hidden if mechanism == "mlp" else 0,
        seed=seed,
        constraints=constraints,
        intercept=intercept,
    )
    path = [torch.from_numpy(p) for p in _constrained_minimum(regression, tolerance, rounds, steps)]
    weights = constraints.to_dag(regression.weights(path[-1]).numpy(), threshold)
    graph = CausalGraph(tuple(names), weights)
    unexplained = regression.squared_errors(path[-1]).numpy() / targets.var(axis=0)
    order = tuple(graph.topological_order)
    return Discovery(
        graph=graph,
        order=order,
        cost=tuple(float(unexplained[graph.index(name)]) for name in order),
        method="lagrangian",
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[],
        history=tuple(regression.weights(point).numpy() for point in path),
        notes=collinearity_notes(columns, names, kinds),
    )


def _constrained_minimum(
    regression: LabelRegression, tolerance: float, rounds: int, steps: int
) -> list[np.ndarray]:
    """Return the start and the minimum of every round; the last is the solution.

    A round raises the penalty tenfold until H falls to a quarter, then updates the multiplier.
    """
    flat, multiplier, penalty, h = regression.start, 0.0, 1.0, np.inf
    path = [flat]
    for _ in range(rounds):
        while True:
            candidate = regression.minimise(flat, multiplier, penalty, steps)
            candidate_h = float(polynomial(regression.weights(torch.from_numpy(candidate))))
            if candidate_h <= 0.25 * h or penalty >= 1e16:
                break
            penalty *= 10.0
        flat, h = candidate, candidate_h
        path.append(flat)
        multiplier += penalty * h
        if h <= tolerance or penalty >= 1e16:
            break
    return path
