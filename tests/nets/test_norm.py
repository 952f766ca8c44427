"""BatchNorm against torch's layer: outputs, gradients, running and measured statistics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from intervae.nets.norm import (
    EPSILON,
    MOMENTUM,
    BatchNorm,
    batch_norm_layers,
    measure_statistics,
    update_statistics,
)

SHAPES = [(12, 5), (6, 5, 7), (4, 5, 6, 3)]
TORCH_LAYERS: dict[int, Any] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}


def draws(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Features of different means and standard deviations."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.arange(1.0, shape[1] + 1).view(1, -1, *[1] * (len(shape) - 2))
    return torch.randn(shape, generator=generator, dtype=torch.float64) * scale + 3 - scale


def pair(shape: tuple[int, ...]) -> tuple[BatchNorm, Any]:
    """Our layer and torch's with the same parameters and statistics."""
    ours, theirs = (
        BatchNorm(shape[1]).double(),
        TORCH_LAYERS[len(shape)](shape[1], momentum=MOMENTUM, eps=EPSILON).double(),
    )
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for own, peer in (
            (ours.gain, theirs.weight),
            (ours.shift, theirs.bias),
            (ours.mean, theirs.running_mean),
        ):
            own.copy_(torch.randn(shape[1], generator=generator))
            peer.copy_(own)
        ours.variance.copy_(torch.rand(shape[1], generator=generator) + 0.5)
        theirs.running_var.copy_(ours.variance)
    return ours, theirs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_outputs_and_gradients_match_torch(shape: tuple[int, ...], training: bool) -> None:
    ours, theirs = (layer.train(training) for layer in pair(shape))
    inputs = [draws(shape).requires_grad_() for _ in range(2)]
    outputs = [layer(x) for layer, x in zip((ours, theirs), inputs, strict=True)]
    torch.testing.assert_close(outputs[0], outputs[1])
    weights = draws(shape, seed=1)  # the loss depends on single values
    for output in outputs:
        (output * weights).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    assert inputs[0].grad is not None
    assert inputs[0].grad.abs().max() > 0.1
    torch.testing.assert_close(ours.gain.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.shift.grad, theirs.bias.grad)


def test_a_forward_pass_changes_no_state() -> None:
    layer, _ = pair((12, 5))
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    assert set(before) == {
        "gain",
        "shift",
        "mean",
        "variance",
    }  # batch statistics are not saved
    for training in (True, False):
        layer.train(training)(draws((12, 5)))
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_statistics_match_torch_except_for_the_bias(
    shape: tuple[int, ...],
) -> None:
    """torch's running variance is unbiased, n / (n - 1) times ours."""
    ours, theirs = pair(shape)
    start, values = ours.variance.clone(), torch.tensor(shape).prod().item() / shape[1]
    expected = start
    for seed in range(5):
        x = draws(shape, seed)
        ours(x), theirs(x)
        update_statistics(ours)
        biased = x.movedim(1, 0).flatten(1).var(1, correction=0)
        expected = (1 - MOMENTUM) * expected + MOMENTUM * biased
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    torch.testing.assert_close(ours.variance, expected)
    decayed = start * (1 - MOMENTUM) ** 5
    torch.testing.assert_close(
        ours.variance - decayed, (theirs.running_var - decayed) * (values - 1) / values
    )


def test_statistics_are_updated_once_per_call_after_a_batch() -> None:
    layer = BatchNorm(3)
    update_statistics(layer)
    assert torch.equal(layer.mean, torch.zeros(3))
    with torch.no_grad():
        layer(torch.full((4, 3), 2.0))
    update_statistics(nn.Sequential(nn.Linear(3, 3), layer))
    torch.testing.assert_close(layer.mean, torch.full((3,), 0.2))
    torch.testing.assert_close(layer.variance, torch.full((3,), 0.9))
    layer.eval()(torch.full((4, 3), 9.0))  # no effect in eval mode
    update_statistics(layer)
    torch.testing.assert_close(layer.mean, torch.full((3,), 0.38))


def test_measured_statistics_equal_those_of_the_whole_data() -> None:
    """One layer after a linear map: statistics over batches equal those of all rows."""
    data = draws((60, 4))
    net: Any = nn.Sequential(nn.Linear(4, 5), BatchNorm(5)).double().eval()
    net[1].mean.fill_(7)
    measure_statistics(net, net, data.split(12))
    with torch.no_grad():
        features = net[0](data)
    torch.testing.assert_close(net[1].mean, features.mean(0))
    torch.testing.assert_close(net[1].variance, features.var(0, correction=0))
    assert not net.training
    normalised = net(data)
    torch.testing.assert_close(
        normalised.mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-8, rtol=0
    )
    torch.testing.assert_close(
        normalised.var(0, correction=0), torch.ones(5, dtype=torch.float64), atol=1e-3, rtol=0
    )


def test_without_data_statistics_do_not_change() -> None:
    net: Any = nn.Sequential(BatchNorm(3), nn.Linear(3, 2), BatchNorm(2))
    assert len(batch_norm_layers(net)) == 2
    net.train()
    measure_statistics(net, net, [])
    assert net.training
    assert torch.equal(net[0].variance, torch.ones(3))


def test_layers_can_be_vmapped() -> None:
    layers = [pair((12, 5))[0] for _ in range(2)]
    with torch.no_grad():
        layers[1].gain.mul_(2)
    x = draws((12, 5))
    parameters, buffers = stack_module_state(layers)
    stacked = vmap(lambda p, b: functional_call(layers[0], (p, b), (x,)))(parameters, buffers)
    for layer, output in zip(layers, stacked, strict=True):
        torch.testing.assert_close(output, layer(x))
