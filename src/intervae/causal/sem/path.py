"""The graph of a linear SEM over frames from second moments: a path from the dense graph to none.

The variables are k latents of each of W frames, in order of time; edges go forward in time.
S = E[z z^T] (W k, W k) determines the expected KL of Gaussian posteriors from a linear SEM, up to a
constant: E KL(q || SEM) = sum_i 1/2 log v_i at the best coefficients and scales, where v_i is the
residual variance of variable i given its parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from intervae.errors import TrainingError, UsageError

RELATIVE_CUTOFF = 1e-3  # of singular values of the parents, below which they are dropped
ALLOWED_INCREASE = 0.02  # relative increase of an error that `sparsest_graph` always accepts
SMALLEST_VARIANCE = 1e-12  # lower bound, so that the logarithm is finite


@dataclass(frozen=True)
class PrunedGraph:
    """One graph of the path from dense to empty.

    Arguments:
        edges: (d, d) of 0 and 1.
        penalty: smallest penalty per edge at which this graph is preferred to denser ones
            [lambda, nats].
        cost: sum_i 1/2 log v_i, the expected KL up to a constant [nats].
        errors: errors of the graph by which one is selected, such as the prediction error of each
            frame.
    """

    edges: Tensor
    penalty: float
    cost: float
    errors: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        return int(self.edges.sum())


def pruning_path(second_moments: Tensor, allowed: Tensor) -> list[PrunedGraph]:
    """Graphs from all `allowed` edges (d, d) to none, one edge fewer each time.

    Each step removes the edge whose removal costs least: 1/2 log of the increase of v_i with the
    coefficients of its equation refitted. `second_moments` is S = E[z z^T] (d, d).
    """
    moments, d = _check(second_moments), len(allowed)
    parents = [set(np.flatnonzero(allowed[:, i].numpy() > 0).tolist()) for i in range(d)]
    costs = np.array([_cost(moments, i, parents[i]) for i in range(d)])  # 1/2 log v_i
    cost_without = {
        (j, i): _cost(moments, i, parents[i] - {j}) for i in range(d) for j in parents[i]
    }
    path, penalty = [PrunedGraph(allowed.clone().cpu(), 0.0, float(costs.sum()))], 0.0
    while cost_without:
        j, i = min(cost_without, key=lambda edge: cost_without[edge] - costs[edge[1]])
        penalty = max(penalty, float(cost_without[j, i] - costs[i]))
        costs[i] = cost_without.pop((j, i))
        parents[i] -= {j}
        for parent in parents[i]:
            cost_without[parent, i] = _cost(moments, i, parents[i] - {parent})
        edges = path[-1].edges.clone()
        edges[j, i] = 0
        path.append(PrunedGraph(edges, penalty, float(costs.sum())))
    return path


def sparsest_graph(path: Sequence[PrunedGraph], tolerance: float) -> PrunedGraph:
    """The graph with the fewest edges whose errors are all close to those of the dense graph.

    An error may increase by the fraction `tolerance` of the difference between the empty and the
    dense graph, or by ALLOWED_INCREASE of itself, whichever is larger.
    """
    dense, empty = path[0].errors, path[-1].errors
    limits = [
        error + max(tolerance * (error_without - error), ALLOWED_INCREASE * error)
        for error, error_without in zip(dense, empty, strict=True)
    ]

    def accepted(graph: PrunedGraph) -> bool:
        return all(e <= limit for e, limit in zip(graph.errors, limits, strict=True))

    return min(filter(accepted, path), key=lambda graph: graph.count)


def predictable_directions(second_moments: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """T (k, k) that separates latents by how well earlier frames predict them.

    With C_t the covariance of frame t given the frames before it, z_t -> T z_t makes the last C_W
    diagonal and the mean of the others the identity.

    Returns:
        T, and the diagonal of C_W in the new coordinates (k,), smallest first.
    """
    moments, d = _check(second_moments), len(second_moments)
    if d % k or d < 2 * k:
        raise UsageError(f"moments of {d} variables are not those of two or more frames of {k}.")
    conditional = []  # C_1 .. C_W
    for start in range(0, d, k):
        frame, past = slice(start, start + k), slice(0, start)
        explained = (
            moments[frame, past] @ np.linalg.solve(moments[past, past], moments[past, frame])
            if start
            else 0.0
        )
        conditional.append(moments[frame, frame] - explained)
    variances, axes = eigh(conditional[-1], np.mean(conditional[:-1], axis=0))
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(k)])  # the same result on every machine
    return torch.from_numpy((axes * signs).T.copy()), torch.from_numpy(variances)


def fit_linear(
    values: Tensor, edges: Tensor, *, intercepts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Least-squares fit of values (N, d) on their parents in `edges` (d, d), on the CPU.

    Returns:
        Coefficients (d, d), constants (d,), which are 0 without `intercepts`, and the standard
        deviation of the residuals (d,).
    """
    z, d = values.detach().cpu().double(), len(edges)
    centre = z.mean(0) if intercepts else torch.zeros(d, dtype=z.dtype)
    z = z - centre
    weights, scales = torch.zeros(d, d), torch.ones(d)
    for i in range(d):
        parents = edges[:, i].cpu().nonzero()[:, 0]
        residual = z[:, i]
        if len(parents):
            # the default driver, gelsy, is not reproducible for nearly collinear parents
            slopes = torch.linalg.lstsq(
                z[:, parents], z[:, i : i + 1], rcond=RELATIVE_CUTOFF, driver="gelsd"
            ).solution[:, 0]
            weights[parents, i] = slopes.to(weights.dtype)
            residual = residual - z[:, parents] @ slopes
        scales[i] = residual.square().mean().sqrt()
    constants = centre - centre @ weights.double()
    return weights, constants.to(weights.dtype), scales


def _cost(moments: np.ndarray, i: int, parents: set[int]) -> float:
    """1/2 log v_i, with v_i the residual variance of variable i given its parents."""
    variance = float(moments[i, i])
    if parents:
        rows = sorted(parents)
        slopes = np.linalg.lstsq(moments[np.ix_(rows, rows)], moments[rows, i], rcond=None)[0]
        variance = float(moments[i, i] - moments[i, rows] @ slopes)
    return 0.5 * np.log(max(variance, SMALLEST_VARIANCE))


def _check(second_moments: Tensor) -> np.ndarray:
    moments = second_moments.detach().cpu().double().numpy()
    if moments.ndim != 2 or moments.shape[0] != moments.shape[1]:
        raise UsageError(f"second moments must be a square matrix, not of shape {moments.shape}.")
    if not np.isfinite(moments).all():
        raise TrainingError("the latents are not finite; lower the learning rate.")
    return (moments + moments.T) / 2
