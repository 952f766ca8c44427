"""Grad-CAM++ against values by hand, autograd and a linear network; feature blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from intervae.nets.grad_cam import (
    difference_map,
    enlarge,
    feature_blocks,
    grad_cam,
    maps_and_gradient,
)
from intervae.nets.images import ConvEncoder, MLPEncoder
from intervae.nets.paired_convolutions import PairEncoder


def test_a_hand_computed_map() -> None:
    """Y = 2 A_00 - A_01 + 0.5 B_11; alpha is 1 / (2 + sum(A) g) where g is not 0."""
    maps = torch.tensor([[[[1.0, 2.0], [0.0, 1.0]], [[0.0, 4.0], [0.0, 2.0]]]])  # sums 4 and 6
    gradient = torch.tensor([[[[2.0, -1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.5]]]])
    first = 2.0 / (2 + 4 * 2.0)  # the negative gradient has no effect
    second = 0.5 / (2 + 6 * 0.5)
    expected = first * maps[0, 0] + second * maps[0, 1]
    assert torch.allclose(grad_cam(maps, gradient)[0], expected)


def test_alpha_is_the_ratio_of_derivatives_of_the_exponential() -> None:
    """With S = exp(Y) and Y linear in A: d2S / (2 d2S + sum(A) d3S), derivatives by autograd."""
    rng = torch.Generator().manual_seed(0)
    maps = torch.rand(1, 3, 2, 2, generator=rng, dtype=torch.float64)
    slope = torch.randn(1, 3, 2, 2, generator=rng, dtype=torch.float64) * 0.3
    leaf = maps.clone().requires_grad_()
    score = (leaf * slope).sum().exp()
    first = torch.autograd.grad(score, leaf, create_graph=True)[0]
    weights = torch.zeros(3, dtype=torch.float64)
    for place in torch.cartesian_prod(torch.arange(3), torch.arange(2), torch.arange(2)).tolist():
        k = place[0]
        at = (0, *place)
        second = torch.autograd.grad(first[at], leaf, create_graph=True)[0][at]
        third = torch.autograd.grad(second, leaf, retain_graph=True)[0][at]
        alpha = second / (2 * second + maps[0, k].sum() * third)
        weights[k] += (
            alpha * first[at].relu()
        ).detach() / score.detach()  # the common factor exp(Y)
    expected = (weights[:, None, None] * maps[0]).sum(0).relu()
    assert torch.allclose(grad_cam(maps, slope)[0], expected)


def test_maps_without_gradient_or_features_are_zero() -> None:
    assert not grad_cam(torch.rand(2, 3, 4, 4), torch.zeros(2, 3, 4, 4)).any()
    assert not grad_cam(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)).any()
    negative = grad_cam(torch.full((1, 1, 2, 2), -0.5), torch.ones(1, 1, 2, 2))  # 2 + sum(A) g = 0
    assert not negative.any()


def test_enlarged_maps_are_scaled_to_0_and_1() -> None:
    maps = torch.zeros(3, 2, 2)
    maps[0, 0, 1], maps[1] = 5.0, 3.0
    large = enlarge(maps, (8, 6))
    assert large.shape == (3, 8, 6)
    assert large[0].min() == 0
    assert large[0].max() == 1
    assert large[0, 0, -1] == 1
    assert not large[1:].any()


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda: PairEncoder((1, 28, 28), 5, (4, 6, 8)), [(28, 28), (14, 14), (7, 7)]),
        (lambda: PairEncoder((1, 32, 48), 5, (4, 6, 8)), [(32, 48), (16, 24), (8, 12), (4, 6)]),
        (lambda: ConvEncoder((3, 30, 30), 5, (4, 6), 8), [(15, 15), (8, 8)]),
        (lambda: MLPEncoder((1, 28, 28), 5), []),
    ],
    ids=["pairs", "pairs-oblong", "conv-odd", "mlp"],
)
def test_blocks_end_where_the_map_size_changes(
    make: Callable[[], nn.Module], sizes: list[tuple[int, int]]
) -> None:
    network = make()
    shape = {"PairEncoder": (1, 28, 28), "ConvEncoder": (3, 30, 30), "MLPEncoder": (1, 28, 28)}[
        type(network).__name__
    ]
    shape = (1, 32, 48) if sizes and sizes[0] == (32, 48) else shape
    images = torch.rand(2, *shape)
    blocks = feature_blocks(network, lambda: network(images))
    block_sizes = [
        tuple(maps_and_gradient(block, lambda: network(images)[:, 0])[0].shape[2:])
        for block in blocks
    ]
    assert block_sizes == sizes
    assert not any(isinstance(block, nn.Conv2d) for block in blocks)  # the activation after it
    assert not network._forward_hooks
    assert all(not block._forward_hooks for block in blocks)


def test_the_gradient_of_a_query_under_no_grad() -> None:
    torch.manual_seed(0)
    network = PairEncoder((1, 16, 16), 2, (3, 4))
    images = torch.rand(5, 1, 16, 16)

    @torch.no_grad()
    def query() -> Tensor:
        return network(images)[:, 1]

    block = feature_blocks(network, query)[-1]
    maps, gradient = maps_and_gradient(block, query)
    weights = (
        network.dense[1].weight[1].unflatten(0, maps.shape[1:])
    )  # the rest is one linear layer
    assert torch.allclose(gradient, weights.expand_as(gradient), atol=1e-6)
    assert torch.allclose(maps, network.convolutions(images * 2 - 1))
    assert torch.is_grad_enabled()
    with torch.no_grad():
        maps_and_gradient(block, query)
        assert not torch.is_grad_enabled()


def test_difference_maps_sum_to_the_difference_of_a_linear_target() -> None:
    """For Y linear in A the map before relu sums to Y(x) - Y(reference)."""
    rng = torch.Generator().manual_seed(0)
    maps, slope, reference = (
        torch.rand(4, 3, 5, 5, generator=rng),
        torch.rand(3, 5, 5, generator=rng),
        torch.zeros(3, 5, 5),
    )
    result = difference_map(maps, slope.expand_as(maps), reference)
    assert torch.allclose(result.sum((1, 2)), (maps * slope).sum((1, 2, 3)), rtol=1e-5)
    assert not difference_map(maps, slope.expand_as(maps), maps[0])[0].any()
    assert not difference_map(
        maps - 1, slope.expand_as(maps), reference
    ).any()  # negative effects are not shown
