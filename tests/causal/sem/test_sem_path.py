"""Graphs of a linear SEM over frames from second moments: pruning path and directions."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from intervae.causal.sem.path import (
    PrunedGraph,
    fit_linear,
    predictable_directions,
    pruning_path,
    sparsest_graph,
)
from intervae.errors import TrainingError, UsageError

K, FRAMES = 4, 3
D = K * FRAMES


def forward_in_time(k: int = K, frames: int = FRAMES) -> Tensor:
    time = torch.arange(frames).repeat_interleave(k)
    return (time[:, None] < time[None, :]).float()


def steady(n: int, noise: float, seed: int = 0) -> Tensor:
    """(n, 12): coordinates 0 and 1 of each frame move at constant velocity, 2 and 3 are noise."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, FRAMES, K, generator=generator, dtype=torch.float64)
    z[:, 2, :2] = 2 * z[:, 1, :2] - z[:, 0, :2] + noise * z[:, 2, :2]
    return z.flatten(1)


TRUE = {(0, 8), (4, 8), (1, 9), (5, 9)}


def edges_of(graph: PrunedGraph) -> set[tuple[int, int]]:
    return {(j, i) for j, i in graph.edges.nonzero().tolist()}


def moments(z: Tensor) -> Tensor:
    return z.T @ z / len(z)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0])
def test_path_contains_the_true_graph(noise: float) -> None:
    path = pruning_path(moments(steady(4000, noise)), forward_in_time())
    assert [graph.count for graph in path] == list(range(48, -1, -1))
    assert edges_of(path[-5]) == TRUE
    needless, needed = path[-5].penalty, path[-4].penalty
    assert needless < 0.005  # about 1 / (2 n) for each edge that does not exist
    assert needed > 0.3
    for before, after in pairwise(path):
        assert after.penalty >= before.penalty
        assert after.cost >= before.cost - 1e-12
        assert edges_of(after) < edges_of(before)


def test_cost_of_an_edge_is_the_increase_of_the_kl() -> None:
    """z2 = 0.8 z1 + n: without the edge v is 1 instead of 0.36, the KL 1/2 log(1 / 0.36) larger."""
    second = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
    dense, empty = pruning_path(second, torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    assert (dense.penalty, dense.count, empty.count) == (0.0, 1, 0)
    assert empty.penalty == pytest.approx(-0.5 * math.log(0.36))
    assert dense.cost == pytest.approx(0.5 * math.log(0.36))
    assert empty.cost == pytest.approx(0.0)


def test_predictable_directions_separate_mixed_latents() -> None:
    z = steady(6000, 0.05)
    mix = torch.randn(K, K, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    mixed = (z.unflatten(1, (FRAMES, K)) @ mix.T).flatten(1)
    assert edges_of(pruning_path(moments(mixed), forward_in_time())[-5]) != TRUE
    linear, variances = predictable_directions(moments(mixed), K)
    assert variances[1] < 0.01 < 0.5 < variances[2]
    separated = (mixed.unflatten(1, (FRAMES, K)) @ linear.T).flatten(1)
    path = pruning_path(moments(separated), forward_in_time())
    assert edges_of(path[-5]) == TRUE  # for any rotation of the two: they have the same dynamics
    weights, _, scales = fit_linear(separated, path[-5].edges)
    assert weights[[4, 5], [8, 9]].tolist() == pytest.approx([2.0, 2.0], abs=0.02)
    assert weights[[0, 1], [8, 9]].tolist() == pytest.approx([-1.0, -1.0], abs=0.02)
    assert scales[:K].tolist() == pytest.approx([1.0] * K, rel=0.05)  # earlier frames are white
    mixing = linear @ mix  # rows: new coordinates in terms of the old ones
    assert mixing[2:, :2].abs().max() < 0.05 * mixing[2:, 2:].abs().max()


def test_directions_do_not_depend_on_the_coordinates() -> None:
    z = steady(3000, 0.2)
    mix = torch.randn(K, K, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mixed = (z.unflatten(1, (FRAMES, K)) @ mix.T).flatten(1)
    (_, variances), (_, variances_mixed) = (
        predictable_directions(moments(z), K),
        predictable_directions(moments(mixed), K),
    )
    assert torch.allclose(variances, variances_mixed, rtol=1e-6)
    assert variances[0] == pytest.approx(0.04, rel=0.15)  # the variance of the noise


def test_sparsest_graph_loses_at_most_the_tolerance_of_each_error() -> None:
    def graph(count: int, *errors: float) -> PrunedGraph:
        edges = torch.zeros(3, 3)
        edges.flatten()[:count] = 1
        return PrunedGraph(edges, 0.0, 0.0, errors)

    # edges reduce the second error from 1.1 to 0.1 and leave the first at 0.2
    path = [
        graph(4, 0.2, 0.1),
        graph(3, 0.2, 0.09),
        graph(2, 0.203, 0.19),
        graph(1, 0.2, 0.25),
        graph(0, 0.201, 1.1),
    ]
    assert sparsest_graph(path, 0.1).count == 2
    assert sparsest_graph(path, 0.2).count == 1
    assert sparsest_graph(path, 0.0).count == 3
    assert sparsest_graph(path, 1.0).count == 0
    path[2] = graph(2, 0.21, 0.1)  # 5 % more of an error that edges hardly change
    assert sparsest_graph(path, 0.1).count == 3


def test_invalid_moments_raise_errors() -> None:
    with pytest.raises(UsageError, match="square"):
        pruning_path(torch.zeros(3, 2), torch.zeros(3, 3))
    with pytest.raises(UsageError, match="two or more frames of 4"):
        predictable_directions(torch.eye(6), 4)
    with pytest.raises(TrainingError, match="not finite"):
        predictable_directions(torch.full((8, 8), float("nan")), 4)


def test_fit_with_intercepts_finds_constant_acceleration() -> None:
    """y3 = 2 y2 - y1 + 3.75 with y away from 0: without intercepts the fit is biased."""
    start = 5 + torch.rand(4000, 2, generator=torch.Generator().manual_seed(0)).double()
    z = torch.cat([start, 2 * start[:, 1:] - start[:, :1] + 3.75], dim=1)
    edges = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    weights, constants, scales = fit_linear(z, edges, intercepts=True)
    assert weights[:2, 2].tolist() == pytest.approx([-1.0, 2.0], abs=1e-5)
    assert constants.tolist() == pytest.approx([5.5, 5.5, 3.75], abs=0.02)
    assert scales[2] < 1e-5
    biased, none, _ = fit_linear(z, edges)
    assert none.tolist() == [0.0, 0.0, 0.0]
    assert abs(biased[0, 2] + 1) > 0.1
