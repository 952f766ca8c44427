"""CausalVAE's own graph pre-training (sec. 6.2, Eqs. 11 and 13): labels from labels by least squares under H(A) = 0, by augmented Lagrangian.

It is here to be compared with: where labels are noise-free functions of each other, or standardised, a good fit does not tell cause from effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from intervae.causal.acyclicity import polynomial
from intervae.causal.graph import CausalGraph
from intervae.discovery.base import Discovery, random_rows
from intervae.discovery.design import unsettled
from intervae.discovery.kernels import standardise
from intervae.discovery.knowledge import Allowed, Knowledge
from intervae.errors import DataError, UsageError

MECHANISMS = ("linear", "mlp")
ASSUMPTIONS = (
    "Every variable is a linear function of its causes (or a small network of them), and the best-fitting acyclic graph is the causal one: "
    "true for linear relations with noises of equal variance in the variables' own units, not in general, and not after standardising."
)


class Fit:
    """The parameters as one flat vector: A as a difference of two non-negative parts (so that its l1 norm is smooth), then the mechanisms'.

    Arguments:
        inputs: (N, n) labels as they enter the mechanisms: standardised, or -1 / +1 for a binary one.
        targets: (N, n) labels as they are predicted: standardised, or 0 / 1.
        binary: (n,) where the prediction goes through the logistic function (Eq. 11).
        hidden: units of each variable's network g_i(A_i o u) (Eq. 2); 0 for the linear sum A^T u.
        allowed: which edges may be there, and which must and so are not taxed; any may without.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, binary: Tensor, *, l1: float, hidden: int, seed: int, allowed: Allowed | None = None) -> None:
        self.inputs, self.targets, self.binary = inputs, targets, binary
        self.n = n = inputs.shape[1]
        self.shapes = [(n,)] if hidden == 0 else [(n,), (n, n, hidden), (n, hidden), (n, hidden)]
        generator = torch.Generator().manual_seed(seed)
        nets = [torch.zeros(n, dtype=torch.float64)]
        nets += [torch.randn(shape, generator=generator, dtype=torch.float64) / shape[1] ** 0.5 for shape in self.shapes[1:]]
        self.start = torch.cat([torch.zeros(2 * n * n, dtype=torch.float64), *(net.flatten() for net in nets)]).numpy()
        free, required = (~np.eye(n, dtype=bool), np.zeros((n, n), dtype=bool)) if allowed is None else (allowed.edges, allowed.required)
        self.tax = l1 * torch.from_numpy(np.tile(~required.ravel(), 2).astype(np.float64))
        part = [(0.0, None) if f else (0.0, 0.0) for f in free.ravel()]  # the diagonal is masked, and what is forbidden
        self.bounds = [*part, *part, *[(None, None)] * (len(self.start) - 2 * n * n)]

    def weights(self, flat: Tensor) -> Tensor:
        """(n, n) A, from the flat vector."""
        positive, negative = flat[: 2 * self.n**2].reshape(2, self.n, self.n)
        return positive - negative

    def squared_errors(self, flat: Tensor) -> Tensor:
        """(n,) mean squared error of each label predicted from the others: l_u of Eq. 11 is their sum."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        intercept, *net = (p.reshape(shape) for p, shape in zip(flat[2 * self.n**2 :].split(sizes), self.shapes, strict=True))
        weights = self.weights(flat)
        if net:
            first, bias, last = net
            masked = torch.einsum("bj,ji,ijh->bih", self.inputs, weights, first)
            predicted = torch.einsum("bih,ih->bi", torch.tanh(masked + bias), last)
        else:
            predicted = self.inputs @ weights
        predicted = predicted + intercept
        return ((self.targets - torch.where(self.binary, torch.sigmoid(predicted), predicted)) ** 2).mean(0)

    def objective(self, flat: Tensor, multiplier: float, penalty: float) -> Tensor:
        cycles = polynomial(self.weights(flat))
        split = 2 * self.n**2
        decay = 0.01 * (flat[split + self.n :] ** 2).sum()  # keeps the networks from taking over the scale that A gives up
        return self.squared_errors(flat).sum() + self.tax @ flat[:split] + decay + multiplier * cycles + penalty / 2 * cycles**2

    def minimise(self, start: np.ndarray, multiplier: float, penalty: float, steps: int) -> np.ndarray:
        def value_and_gradient(point: np.ndarray) -> tuple[float, np.ndarray]:
            flat = torch.from_numpy(point).requires_grad_()
            value = self.objective(flat, multiplier, penalty)
            (gradient,) = torch.autograd.grad(value, flat)
            return float(value.detach()), gradient.numpy()

        return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=self.bounds, options={"maxiter": steps}).x


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
    threshold: float = 0.3,
    tolerance: float = 1e-8,
    rounds: int = 40,
    steps: int = 200,
) -> Discovery:
    """Minimise E ||u - f(A^T u)||^2 + l1 |A| subject to H(A) = 0, from A = 0; an edge's weight is that of A over standardised labels.

    `Discovery.cost` is the share of each variable's variance left unexplained.

    Arguments:
        columns: (N, n); continuous ones are standardised, binary ones go through the logistic function.
        knowledge: required and forbidden edges and tiers.
        samples: at most this many random rows are used.
        mechanism: "linear" (Eq. 11) or "mlp", a network of the masked parents per variable (Eq. 2).
        hidden: units of such a network.
        threshold: weaker edges are dropped; what cycles remain lose their weakest edge.
        tolerance: of H(A), at which the constraint counts as met.
        rounds: most times the multiplier is raised.
        steps: most quasi-Newton steps each time.
    """
    started = time.perf_counter()
    if mechanism not in MECHANISMS:
        raise UsageError(f"mechanism={mechanism!r} is not one of {', '.join(MECHANISMS)}.")
    if "categorical" in kinds:
        raise DataError(f"method 'lagrangian' cannot use the categorical column {names[list(kinds).index('categorical')]!r}; leave it out.")
    table = random_rows(columns, samples, seed)
    binary = np.array([kind == "binary" for kind in kinds])
    codes = (table - columns.min(axis=0)) / (columns.max(axis=0) - columns.min(axis=0))
    scaled = standardise(table)
    inputs, targets = np.where(binary, 2.0 * codes - 1.0, scaled), np.where(binary, codes, scaled)
    allowed = Knowledge.of(knowledge).over(names)
    arrays = (torch.from_numpy(array) for array in (inputs, targets, binary))
    fit = Fit(*arrays, l1=l1, hidden=hidden if mechanism == "mlp" else 0, seed=seed, allowed=allowed)
    path = [torch.from_numpy(flat) for flat in _constrained_minimum(fit, tolerance, rounds, steps)]
    flat = path[-1]
    graph = CausalGraph(tuple(names), allowed.acyclic(fit.weights(flat).numpy(), threshold))
    share = fit.squared_errors(flat).numpy() / targets.var(axis=0)
    order = tuple(graph.topological_order)
    return Discovery(
        graph=graph,
        order=order,
        cost=tuple(float(share[graph.index(name)]) for name in order),
        method="lagrangian",
        seconds=time.perf_counter() - started,
        assumptions=ASSUMPTIONS,
        ambiguous=[],
        history=tuple(fit.weights(point).numpy() for point in path),
        notes=unsettled(columns, names, kinds),
    )


def _constrained_minimum(fit: Fit, tolerance: float, rounds: int, steps: int) -> list[np.ndarray]:
    """Raise the penalty tenfold until H falls to a quarter, then the multiplier; stop when H is within the tolerance.

    Returns the start and the minimum of every round, the last of which is the answer.
    """
    flat, multiplier, penalty, cycles = fit.start, 0.0, 1.0, np.inf
    path = [flat]
    for _ in range(rounds):
        while True:
            found = fit.minimise(flat, multiplier, penalty, steps)
            now = float(polynomial(fit.weights(torch.from_numpy(found))))
            if now <= 0.25 * cycles or penalty >= 1e16:
                break
            penalty *= 10.0
        flat, cycles = found, now
        path.append(flat)
        multiplier += penalty * cycles
        if cycles <= tolerance or penalty >= 1e16:
            break
    return path
