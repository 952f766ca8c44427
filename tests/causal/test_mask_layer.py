import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from intervae.causal.mask_layer import MaskLayer
from intervae.errors import UsageError
from normal_draws import draw_float32 as draw

MODES = ["vector", "sum"]


def random_edges(n: int, seed: int, density: float = 0.5) -> torch.Tensor:
    keep = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < density
    return (draw(n, n, seed=seed + 1) * keep).fill_diagonal_(0)


def as_sequentials(layer: MaskLayer) -> list[nn.Sequential]:
    """The same n nets as separate stacks of nn.Linear and ELU."""
    nets = []
    for i in range(layer.n):
        modules: list[nn.Module] = []
        for weight, bias in zip(layer.layer_weights, layer.layer_biases, strict=True):
            linear = nn.Linear(weight.shape[1], weight.shape[2], dtype=weight.dtype)
            with torch.no_grad():
                linear.weight.copy_(weight[i].T)
                linear.bias.copy_(bias[i, 0])
            modules += [linear, nn.ELU()]
        nets.append(nn.Sequential(*modules[:-1]))
    return nets


@pytest.mark.parametrize("parents", MODES)
@pytest.mark.parametrize("depth", [1, 3])
def test_equals_a_loop_over_separate_networks(parents, depth):
    n, k = 5, 3
    layer = MaskLayer(n, k, hidden=8, parents=parents, depth=depth).double()
    z, weights = draw(6, n, k, dtype=torch.float64), random_edges(n, 1).double()
    rows = []
    for i, net in enumerate(as_sequentials(layer)):
        masked = weights[:, i][:, None] * z  # A_i ∘ z
        rows.append(net(masked.flatten(1) if parents == "vector" else masked.sum(1)))
    torch.testing.assert_close(layer(z, weights), torch.stack(rows, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parents", MODES)
@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 7), k=st.integers(1, 5), batch=st.integers(1, 70), seed=st.integers(0, 10**6)
)
def test_output_depends_on_parents_alone_bit_for_bit(parents, n, k, batch, seed):
    torch.manual_seed(seed)
    layer = MaskLayer(n, k, parents=parents)
    z, weights = draw(batch, n, k, seed=seed), random_edges(n, seed)
    before = layer(z, weights)
    for j in range(n):
        moved = z.clone()
        moved[:, j] = 1e3 * draw(batch, k, seed=seed + 7)
        after = layer(moved, weights)
        children = weights[j] != 0  # j itself never among them
        assert torch.equal(after[:, ~children], before[:, ~children])
        assert all(
            not torch.equal(after[:, i], before[:, i]) for i in torch.nonzero(children).flatten()
        )


@pytest.mark.parametrize("parents", MODES)
def test_a_node_without_parents_gets_a_constant(parents):
    layer = MaskLayer(3, 2, parents=parents)
    weights = torch.zeros(3, 3)
    weights[0, 1] = 1.0
    out = layer(draw(50, 3, 2), weights)
    for i in (0, 2):
        assert (out[:, i] == out[:1, i]).all()
        nets = as_sequentials(layer)
        torch.testing.assert_close(out[0, i], nets[i](torch.zeros(nets[i][0].in_features)))
    assert out[:, 1].std(0).min() > 0


def test_sum_and_vector_have_different_inputs():
    """Parents that cancel are invisible to the sum and visible to the vector."""
    weights = torch.zeros(3, 3)
    weights[0, 2] = weights[1, 2] = 1.0
    apart = torch.tensor([[1.0], [-1.0], [0.0]])[None]
    nothing = torch.zeros(1, 3, 1)
    total, vector = MaskLayer(3, 1, parents="sum"), MaskLayer(3, 1, parents="vector")
    torch.testing.assert_close(total(apart, weights), total(nothing, weights))
    assert (vector(apart, weights) - vector(nothing, weights))[:, 2].abs().item() > 1e-4


@pytest.mark.parametrize("parents", MODES)
@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 12),
    k=st.integers(1, 8),
    batch=st.integers(1, 130),
    depth=st.integers(1, 2),
    seed=st.integers(0, 10**6),
)
def test_forward_one_is_a_row_of_forward_and_depends_on_parents(parents, n, k, batch, depth, seed):
    layer = MaskLayer(n, k, parents=parents, depth=depth)
    z, weights = draw(batch, n, k, seed=seed), random_edges(n, seed)
    everything = layer(z, weights)
    for i in range(n):
        alone = layer.forward_one(i, z, weights)
        torch.testing.assert_close(alone, everything[:, i], rtol=2e-6, atol=2e-6)
        others = torch.where(
            (weights[:, i] != 0)[:, None], z, 5.0
        )  # move everything that is no parent
        assert torch.equal(layer.forward_one(i, others, weights), alone)


def test_a_missing_edge_still_gets_a_gradient_and_nothing_is_nan():
    layer = MaskLayer(4, 2)
    weights = torch.zeros(4, 4, requires_grad=True)
    layer(draw(8, 4, 2), weights).square().sum().backward()
    assert weights.grad.isfinite().all()
    assert (weights.grad != 0).all()


@pytest.mark.parametrize("parents", MODES)
def test_gradients(parents):
    layer = MaskLayer(3, 2, hidden=4, parents=parents).double()
    z, weights = (
        draw(2, 3, 2, dtype=torch.float64).requires_grad_(),
        draw(3, 3, seed=1, dtype=torch.float64).requires_grad_(),
    )
    assert torch.autograd.gradcheck(layer, (z, weights))


def test_starts_as_separate_linear_layers_would():
    """nn.Linear draws weights and biases uniformly within 1 / sqrt(fan in)."""
    torch.manual_seed(0)
    layer = MaskLayer(10, 5, hidden=64, depth=2)
    assert [tuple(w.shape) for w in layer.layer_weights] == [
        (10, 50, 64),
        (10, 64, 64),
        (10, 64, 5),
    ]
    assert [tuple(b.shape) for b in layer.layer_biases] == [(10, 1, 64), (10, 1, 64), (10, 1, 5)]
    for parameter, fan_in in [
        (layer.layer_weights[0], 50),
        (layer.layer_biases[0], 50),
        (layer.layer_weights[2], 64),
    ]:
        bound = 1 / math.sqrt(fan_in)
        assert parameter.abs().max() <= bound
        assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert sum(p.numel() for p in MaskLayer(4, 4, hidden=32, parents="sum").parameters()) == 4 * (
        4 * 32 + 32 + 32 * 4 + 4
    )


def test_state_and_copies_give_equal_outputs():
    layer, other = MaskLayer(4, 2), MaskLayer(4, 2)
    z, weights = draw(8, 4, 2), random_edges(4, 0)
    assert not torch.equal(layer(z, weights), other(z, weights))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(z, weights), other(z, weights))
    assert torch.equal(layer(z, weights), copy.deepcopy(layer)(z, weights))


def test_many_models_at_once_under_vmap():
    layer = MaskLayer(4, 2)
    z, weights = draw(3, 8, 4, 2), torch.stack([random_edges(4, s) for s in range(3)])
    one_by_one = torch.stack([layer(a, b) for a, b in zip(z, weights, strict=True)])
    torch.testing.assert_close(torch.func.vmap(layer)(z, weights), one_by_one)


def test_wrong_settings_are_refused():
    with pytest.raises(UsageError, match="'vector'"):
        MaskLayer(3, 2, parents="mean")
    with pytest.raises(UsageError, match="depth=0"):
        MaskLayer(3, 2, depth=0)
