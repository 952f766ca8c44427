"""Networks of the causal DAG and paired convolutions of CMCL, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.acyclicity import trace_exponential, trace_exponential_of_squares
from intervae.nets.node_networks import NodeNetworks
from intervae.nets.paired_convolutions import SILU_SECOND_MOMENT, PairDecoder, PairEncoder
from intervae.nets.per_node import PerNode

KINDS, COLUMNS = ("continuous", "binary", "categorical"), (1, 1, 3)


def make_networks(
    kinds: Any = KINDS, columns: Any = COLUMNS, allowed: Tensor | None = None, **options: Any
) -> NodeNetworks:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return NodeNetworks(
            kinds,
            columns,
            torch.ones(len(kinds), len(kinds)) if allowed is None else allowed,
            **options,
        )


def test_per_node_networks_equal_separate_networks() -> None:
    stack, inputs = PerNode(3, [4, 6, 5, 2], "tanh"), torch.randn(7, 4)
    own = torch.randn(3, 7, 4)
    for i in range(3):
        layers: list[nn.Module] = []
        for weight, bias in zip(stack.layer_weights, stack.layer_biases, strict=True):
            linear = nn.Linear(*weight.shape[1:])
            linear.weight.data, linear.bias.data = weight[i].T, bias[i, 0]
            layers += [linear, nn.Tanh()]
        alone = nn.Sequential(*layers[:-1])
        torch.testing.assert_close(stack(inputs)[i], alone(inputs))
        torch.testing.assert_close(stack(own)[i], alone(own[i]))


# ---- the graph -----------------------------------------------------------------------------------
def test_a_strength_is_the_norm_of_the_first_layers_weights() -> None:
    networks = make_networks()
    first = networks.networks.layer_weights[0].detach()  # (3, 5, 10): net, column, unit
    strengths = networks.strengths
    assert strengths[0, 1].item() == pytest.approx(first[1, 0].norm().item())
    assert strengths[2, 0].item() == pytest.approx(first[0, 2:].norm().item())
    assert strengths.diagonal().tolist() == [0, 0, 0]


def test_a_node_without_strength_has_no_influence() -> None:
    networks, inputs = make_networks(), torch.randn(6, 5)
    changed = inputs.clone()
    changed[:, 2:] += 1.0  # node 2
    with torch.no_grad():
        assert not torch.equal(networks(inputs)[0], networks(changed)[0])
        networks.networks.layer_weights[0][0, 2:] = 0
        assert networks.strengths[2, 0] == 0
        assert torch.equal(networks(inputs)[0], networks(changed)[0])
        assert torch.equal(networks(inputs)[2], networks(changed)[2])  # no node depends on itself
        edges = torch.zeros(3, 3)
        edges[0, 1] = 1
        assert torch.equal(networks(inputs, edges)[1], networks(changed, edges)[1])


def test_edges_that_are_not_allowed_have_no_strength_and_no_gradient() -> None:
    allowed = torch.tensor([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])
    networks = make_networks(allowed=allowed)
    assert (networks.strengths > 0).float().equal(allowed - torch.eye(3))
    (
        networks(torch.randn(4, 5)).square().sum()
        + networks.cycles()
        + networks.sparsity()
        + networks.decay()
    ).backward()
    gradient = networks.networks.layer_weights[0].grad
    assert not gradient[0, 2:].any()  # 2 -> 0
    assert not gradient[2, 0].any()  # 0 -> 2
    assert gradient[1, 0].any()


def test_cycles_are_the_trace_of_the_exponential_minus_the_nodes() -> None:
    """tr exp [[0, a], [b, 0]] - 2 = 2 cosh sqrt(ab) - 2, a and b the squared strengths."""
    networks = make_networks(("continuous",) * 2, (1, 1), hidden=(3,))
    with torch.no_grad():
        networks.networks.layer_weights[0][0, 1] = torch.tensor([0.5, 1.0, -0.5])
        networks.networks.layer_weights[0][1, 0] = torch.tensor([0.2, 0.0, 1.0])
    assert networks.cycles().item() == pytest.approx(
        2 * math.cosh(math.sqrt(1.5 * 1.04)) - 2, rel=1e-5
    )
    with torch.no_grad():
        networks.networks.layer_weights[0][0, 1] = 0
    assert networks.cycles().item() == 0
    networks.cycles().backward()
    assert torch.isfinite(networks.networks.layer_weights[0].grad).all()


def test_trace_exponential_of_squares_and_its_gradient_at_zero() -> None:
    weights = torch.randn(4, 3, 3, dtype=torch.float64).tril(-1).mT + torch.randn(
        4, 3, 3, dtype=torch.float64
    ).tril(-1)
    torch.testing.assert_close(trace_exponential_of_squares(weights**2), trace_exponential(weights))
    squares = (weights[0] ** 2).requires_grad_()
    assert torch.autograd.gradcheck(trace_exponential_of_squares, squares)
    zero = torch.zeros(3, 3, requires_grad=True)
    trace_exponential_of_squares(zero).backward()
    assert torch.equal(zero.grad, torch.eye(3))
    batched = torch.vmap(trace_exponential_of_squares)(weights**2)
    torch.testing.assert_close(batched, trace_exponential(weights))


def test_influence_is_the_root_of_the_explained_variance() -> None:
    """f_1 = 0.8 v_0, and the second of the three logits of node 2 is 0.6 v_1."""
    networks = make_networks(
        ("continuous", "continuous", "categorical"), (1, 1, 3), hidden=(2,), activation="relu"
    )
    with torch.no_grad():
        first, last = networks.networks.layer_weights
        for tensor in (first, last, *networks.networks.layer_biases):
            tensor.zero_()
        first[1, 0] = torch.tensor([1.0, -1.0])  # relu(v) - relu(-v) = v
        last[1, :, 0] = torch.tensor([0.8, -0.8])
        first[2, 1] = torch.tensor([1.0, -1.0])
        last[2, :, 1] = torch.tensor([0.6, -0.6])  # the second logit of three
    inputs = torch.randn(20000, 5)
    expected = torch.zeros(3, 3)
    expected[0, 1], expected[1, 2] = 0.8, 0.6 / 3**0.5
    torch.testing.assert_close(networks.influence(inputs), expected, atol=0.02, rtol=0)


# ---- the loss ------------------------------------------------------------------------------------
def columns_of(values: Tensor, binary: Tensor, codes: Tensor) -> Tensor:
    return torch.cat(
        [values[:, None], binary[:, None], functional.one_hot(codes, 3).float()], dim=1
    )


@pytest.mark.parametrize("loss", ["nll", "mse"])
def test_each_kind_of_node_has_its_likelihood(loss: Any) -> None:
    networks = make_networks()
    with torch.no_grad():
        # only the noise of the continuous node is used
        networks.log_noise.copy_(torch.tensor([0.7, 5.0, -5.0]))
    values, binary, codes = (
        torch.tensor([0.3, -1.2, 2.0, 0.0]),
        torch.tensor([1.0, 0, 0, 1]),
        torch.tensor([2, 0, 1, 1]),
    )
    outputs = torch.randn(3, 4, 3)
    losses = networks.node_loss(outputs, columns_of(values, binary, codes), loss)
    if loss == "nll":
        gaussian = -torch.distributions.Normal(outputs[0, :, 0], math.exp(0.35)).log_prob(
            values
        ) - 0.5 * math.log(2 * math.pi)
    else:
        gaussian = 0.5 * (values - outputs[0, :, 0]) ** 2
    logistic = functional.binary_cross_entropy_with_logits(
        outputs[1, :, 0], binary, reduction="none"
    )
    categories = functional.cross_entropy(outputs[2], codes, reduction="none")
    torch.testing.assert_close(losses, gaussian + logistic + categories)


def test_categorical_nodes_use_their_own_outputs_only() -> None:
    networks = make_networks(("categorical", "categorical", "continuous"), (2, 4, 1))
    outputs = torch.randn(3, 2, 4, requires_grad=True)
    targets = torch.tensor([[1.0, 0, 0, 0, 0, 1, 0.5], [0, 1, 1, 0, 0, 0, -0.5]])
    expected = (
        functional.cross_entropy(outputs[0, :, :2], torch.tensor([0, 1]), reduction="none")
        + functional.cross_entropy(outputs[1], torch.tensor([3, 0]), reduction="none")
        + 0.5 * (targets[:, 6] - outputs[2, :, 0]) ** 2
    )
    losses = networks.node_loss(outputs, targets)
    torch.testing.assert_close(losses, expected)
    losses.sum().backward()
    assert torch.isfinite(outputs.grad).all()
    assert not outputs.grad[0, :, 2:].any()


def test_with_the_best_noise_the_loss_is_half_the_log_squared_error() -> None:
    """At the best s^2 = E(v - f)^2 the loss is (1 + log s^2) / 2."""
    networks, errors = (
        make_networks(("continuous",) * 2, (1, 1)),
        torch.randn(50, 2) * torch.tensor([0.3, 2.0]),
    )
    with torch.no_grad():
        networks.log_noise.copy_(errors.square().mean(0).log())
    loss = networks.node_loss(torch.zeros(2, 50, 1), errors).mean()
    assert loss.item() == pytest.approx(
        (0.5 * (1 + errors.square().mean(0).log())).sum().item(), rel=1e-5
    )


def test_sparsity_and_decay_are_norms_of_the_weights() -> None:
    networks = make_networks(("continuous",) * 2, (1, 1), hidden=(3,))
    first, last = networks.networks.layer_weights
    off_diagonal = torch.stack([first[0, 1], first[1, 0]])
    assert networks.sparsity().item() == pytest.approx(off_diagonal.abs().sum().item())
    assert networks.decay().item() == pytest.approx(
        0.5 * (off_diagonal.square().sum() + last.square().sum()).item()
    )


# ---- convolutions in pairs -----------------------------------------------------------------------
def test_paired_convolutions_have_the_papers_layers() -> None:
    encoder, decoder = (
        PairEncoder((1, 32, 32), 6, (16, 32, 64)),
        PairDecoder(5, (1, 32, 32), (16, 32, 64)),
    )
    layers = [layer for layer in encoder.convolutions if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [16, 16, 32, 32, 64, 64]
    assert [layer.stride[0] for layer in layers] == [1, 2, 1, 2, 1, 2]
    layers = [layer for layer in decoder.layers if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [64, 64, 32, 32, 16, 16, 1]
    assert encoder.convolutions(torch.zeros(1, 1, 32, 32)).shape == (1, 64, 4, 4)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 47), (1, 5, 9)])
def test_paired_convolutions_fit_any_image_size(shape: tuple[int, int, int]) -> None:
    assert PairEncoder(shape, 6, (4, 8, 8))(torch.rand(2, *shape)).shape == (2, 6)
    assert PairDecoder(5, shape, (4, 8, 8))(torch.rand(2, 5)).shape == (2, *shape)


def test_initial_weights_keep_the_standard_deviation() -> None:
    """With torch's default initialisation the standard deviation falls to 0.0002."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder, decoder = (
            PairEncoder((1, 32, 32), 6, (16, 32, 64)),
            PairDecoder(5, (1, 32, 32), (16, 32, 64)),
        )
        features = encoder.convolutions(
            torch.rand(256, 1, 8, 8).repeat_interleave(4, 2).repeat_interleave(4, 3) * 2 - 1
        )
        maps = decoder.layers[:-1](torch.randn(256, 5))
    assert 0.1 < features.std(0).mean() < 2
    scores = functional.silu(torch.randn(100000, generator=torch.Generator().manual_seed(0)))
    assert scores.square().mean().item() == pytest.approx(SILU_SECOND_MOMENT, rel=0.02)
    assert 0.1 < maps.std(0).mean() < 2


def test_every_unit_has_a_gradient() -> None:
    """Unlike ReLUs, of which nine of ten died in the first epochs on some data."""
    network = PairEncoder((1, 16, 16), 6, (4, 8))
    with torch.no_grad():
        for layer in network.convolutions:
            if isinstance(layer, nn.Conv2d):
                layer.bias.fill_(-3.0)
    network(torch.rand(8, 1, 16, 16)).square().sum().backward()
    assert all(
        layer.weight.grad.flatten(1).any(1).all()
        for layer in network.convolutions
        if isinstance(layer, nn.Conv2d)
    )
