"""Graphs of a linear SEM over frames from second moments: the path finds a known SEM, and the directions that time predicts are set apart."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from intervae.causal.sem_path import Pruned, fit_linear, predictable_directions, pruning_path, sparsest
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


def edges_of(graph: Pruned) -> set[tuple[int, int]]:
    return {(j, i) for j, i in graph.edges.nonzero().tolist()}


def moments(z: Tensor) -> Tensor:
    return z.T @ z / len(z)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0])
def test_the_path_goes_through_the_graph_that_made_the_latents(noise: float) -> None:
    path = pruning_path(moments(steady(4000, noise)), forward_in_time())
    assert [graph.count for graph in path] == list(range(48, -1, -1))
    assert edges_of(path[-5]) == TRUE
    needless, needed = path[-5].penalty, path[-4].penalty
    assert needless < 0.005  # edges that are not there cost next to nothing: about 1 / (2 n) each
    assert needed > 0.3
    for before, after in pairwise(path):
        assert after.penalty >= before.penalty
        assert after.cost >= before.cost - 1e-12
        assert edges_of(after) < edges_of(before)


def test_what_an_edge_costs_is_the_divergence_that_its_loss_adds() -> None:
    """z2 = 0.8 z1 + n: without the edge, v goes from 0.36 to 1, so the divergence grows by 1/2 log(1 / 0.36)."""
    second = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
    dense, empty = pruning_path(second, torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    assert (dense.penalty, dense.count, empty.count) == (0.0, 1, 0)
    assert empty.penalty == pytest.approx(-0.5 * math.log(0.36))
    assert dense.cost == pytest.approx(0.5 * math.log(0.36))
    assert empty.cost == pytest.approx(0.0)


def test_latents_that_are_mixed_are_set_apart_again() -> None:
    z = steady(6000, 0.05)
    mix = torch.randn(K, K, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    mixed = (z.unflatten(1, (FRAMES, K)) @ mix.T).flatten(1)
    assert edges_of(pruning_path(moments(mixed), forward_in_time())[-5]) != TRUE
    turn, left = predictable_directions(moments(mixed), K)
    assert left[1] < 0.01 < 0.5 < left[2]
    again = (mixed.unflatten(1, (FRAMES, K)) @ turn.T).flatten(1)
    path = pruning_path(moments(again), forward_in_time())
    assert edges_of(path[-5]) == TRUE  # whatever the rotation of the two: both move by the same law
    weights, scales = fit_linear(again, path[-5].edges)
    assert weights[[4, 5], [8, 9]].tolist() == pytest.approx([2.0, 2.0], abs=0.02)
    assert weights[[0, 1], [8, 9]].tolist() == pytest.approx([-1.0, -1.0], abs=0.02)
    assert scales[:K].tolist() == pytest.approx([1.0] * K, rel=0.05)  # the earlier frames are white now
    spare = turn @ mix  # rows: what the new coordinates are of the old ones
    assert spare[2:, :2].abs().max() < 0.05 * spare[2:, 2:].abs().max()


def test_directions_are_the_same_whatever_the_coordinates() -> None:
    z = steady(3000, 0.2)
    mix = torch.randn(K, K, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mixed = (z.unflatten(1, (FRAMES, K)) @ mix.T).flatten(1)
    (_, left), (_, left_mixed) = predictable_directions(moments(z), K), predictable_directions(moments(mixed), K)
    assert torch.allclose(left, left_mixed, rtol=1e-6)
    assert left[0] == pytest.approx(0.04, rel=0.15)  # the variance of the noise


def test_the_sweep_takes_the_sparsest_graph_that_keeps_what_edges_are_good_for() -> None:
    def graph(count: int, *errors: float) -> Pruned:
        edges = torch.zeros(3, 3)
        edges.flatten()[:count] = 1
        return Pruned(edges, 0.0, 0.0, errors)

    # the second error falls from 1.1 to 0.1 by the edges, the first is 0.2 whatever they are
    path = [graph(4, 0.2, 0.1), graph(3, 0.2, 0.09), graph(2, 0.203, 0.19), graph(1, 0.2, 0.25), graph(0, 0.201, 1.1)]
    assert sparsest(path, 0.1).count == 2
    assert sparsest(path, 0.2).count == 1
    assert sparsest(path, 0.0).count == 3
    assert sparsest(path, 1.0).count == 0
    path[2] = graph(2, 0.21, 0.1)  # 5 % of an error that all edges together hardly change
    assert sparsest(path, 0.1).count == 3


def test_wrong_moments_are_refused_in_a_sentence() -> None:
    with pytest.raises(UsageError, match="square"):
        pruning_path(torch.zeros(3, 2), torch.zeros(3, 3))
    with pytest.raises(UsageError, match="two or more frames of 4"):
        predictable_directions(torch.eye(6), 4)
    with pytest.raises(TrainingError, match="not finite"):
        predictable_directions(torch.full((8, 8), float("nan")), 4)
