"""The graph of a linear SEM over frames from second moments: directions that time predicts, and the path of graphs from dense to empty.

The variables are k latents of each of W frames, in the order of time, and edges go forward only. S = E[z z^T] (W k, W k) holds all that the
expected divergence of Gaussian posteriors from a linear SEM depends on, apart from the posteriors themselves:
E KL(q || SEM) = sum_i 1/2 log v_i + const at the best coefficients and scales, v_i being what the parents of i leave of S_ii.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from intervae.errors import TrainingError, UsageError

NO_SPREAD = 1e-3  # directions in which causes vary less than this, relative to the most, are rounding and get no coefficient
UNNOTICED = 0.02  # growth of an error that is nothing, relative to it: where edges spare next to nothing, a share of that is chance
SMALLEST = 1e-12  # of a variance, so that its logarithm is a number


@dataclass(frozen=True)
class Pruned:
    """One graph on the way from dense to empty.

    Arguments:
        edges: (d, d) of 0 and 1.
        penalty: the smallest price of an edge at which it is taken rather than those before it [lambda, nats].
        cost: sum of 1/2 log v_i, the expected divergence but for a constant [nats].
        errors: what the graph does badly, measured by whoever chooses one, such as the error of each frame that it foresees.
    """

    edges: Tensor
    penalty: float
    cost: float
    errors: tuple[float, ...] = ()

    @property
    def count(self) -> int:
        return int(self.edges.sum())


def pruning_path(second: Tensor, allowed: Tensor) -> list[Pruned]:
    """From all `allowed` edges (d, d) to none, each time without the one whose loss costs least, given S = E[z z^T] (d, d).

    What an edge costs is exact for its own equation: 1/2 log of the growth of v_i, coefficients fitted anew.
    """
    moments, d = _check(second), len(allowed)
    parents = [set(np.flatnonzero(allowed[:, i].numpy() > 0).tolist()) for i in range(d)]
    left = np.array([0.5 * np.log(_remaining(moments, i, parents[i])) for i in range(d)])
    without = {(j, i): 0.5 * np.log(_remaining(moments, i, parents[i] - {j})) for i in range(d) for j in parents[i]}
    path, penalty = [Pruned(allowed.clone().cpu(), 0.0, float(left.sum()))], 0.0
    while without:
        j, i = min(without, key=lambda edge: without[edge] - left[edge[1]])
        penalty = max(penalty, float(without[j, i] - left[i]))
        left[i] = without[j, i]
        parents[i] -= {j}
        del without[j, i]
        for other in parents[i]:
            without[other, i] = 0.5 * np.log(_remaining(moments, i, parents[i] - {other}))
        edges = path[-1].edges.clone()
        edges[j, i] = 0
        path.append(Pruned(edges, penalty, float(left.sum())))
    return path


def sparsest(path: Sequence[Pruned], tolerance: float) -> Pruned:
    """The graph with the fewest edges none of whose errors is much larger than with all edges.

    An error may grow by the share `tolerance` of what all edges together spare, or by `UNNOTICED` of itself where that is more: with 0.1 a
    graph keeps nine tenths of what the edges are good for, and edges that are good for nothing go.
    """
    dense, empty = path[0].errors, path[-1].errors
    limits = [own + max(tolerance * (without - own), UNNOTICED * own) for own, without in zip(dense, empty, strict=True)]
    return min((graph for graph in path if all(e <= most for e, most in zip(graph.errors, limits, strict=True))), key=lambda graph: graph.count)


def predictable_directions(second: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """T (k, k) for z_t -> T z_t, the same in every frame, and how much of each new coordinate earlier frames leave open (k,), least first.

    With C_t the covariance of frame t given the frames before it, T makes the last C_W diagonal and the mean of the others I. If only some
    directions of the latents move by the equations, the coordinates of T are either all of that kind or all of the other, whereas a mixture of
    the two wants edges between every one of them. The divergence from a SEM, whose noises are independent, is smallest there as well.
    """
    moments, d = _check(second), len(second)
    if d % k or d < 2 * k:
        raise UsageError(f"moments of {d} variables are not those of two or more frames of {k}.")
    left = []  # C_1 .. C_W
    for start in range(0, d, k):
        own, past = slice(start, start + k), slice(0, start)
        known = moments[own, past] @ np.linalg.solve(moments[past, past], moments[past, own]) if start else 0.0
        left.append(moments[own, own] - known)
    shares, axes = eigh(left[-1], np.mean(left[:-1], axis=0))
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(k)])  # the same answer on every machine
    return torch.from_numpy((axes * signs).T.copy()), torch.from_numpy(shares)


def fit_linear(values: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients (d, d) of the `edges` (d, d), and the spread of what is left (d,), by least squares on values (N, d); on the CPU, which
    solves it even where causes say the same."""
    z, d = values.detach().cpu().double(), len(edges)
    weights, scales = torch.zeros(d, d), torch.ones(d)
    for i in range(d):
        parents = edges[:, i].cpu().nonzero()[:, 0]
        residual = z[:, i]
        if len(parents):
            # the default driver, gelsy, gives other answers to the same question where causes say nearly the same
            slopes = torch.linalg.lstsq(z[:, parents], z[:, i : i + 1], rcond=NO_SPREAD, driver="gelsd").solution[:, 0]
            weights[parents, i] = slopes.to(weights.dtype)
            residual = residual - z[:, parents] @ slopes
        scales[i] = residual.square().mean().sqrt()
    return weights, scales


def _remaining(moments: np.ndarray, i: int, parents: set[int]) -> float:
    """v_i: what the parents leave of S_ii."""
    chosen = sorted(parents)
    if not chosen:
        return max(float(moments[i, i]), SMALLEST)
    known = moments[i, chosen] @ np.linalg.lstsq(moments[np.ix_(chosen, chosen)], moments[chosen, i], rcond=None)[0]
    return max(float(moments[i, i] - known), SMALLEST)


def _check(second: Tensor) -> np.ndarray:
    moments = second.detach().cpu().double().numpy()
    if moments.ndim != 2 or moments.shape[0] != moments.shape[1]:
        raise UsageError(f"second moments must be a square matrix, not of shape {moments.shape}.")
    if not np.isfinite(moments).all():
        raise TrainingError("the latents are not finite; lower the learning rate.")
    return (moments + moments.T) / 2
