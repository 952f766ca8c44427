"""Attention along the edges of a graph: its formula, its gradient, and closed gates."""

import pytest
import torch
from torch.nn import functional

from intervae.models.ct_vae.attention import gated_attention


def random_inputs(dtype=torch.float64, batch=2, queries=5, positions=3, heads=2, features=4):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    width = heads * features
    gates = (torch.rand(batch, queries, positions, generator=generator) < 0.6).to(dtype)
    gates[0, 0] = 0
    return [
        normal(batch, queries, width),
        normal(batch, positions, 2 * width),
        gates,
        torch.tensor([2.0, 5.0], dtype=dtype).view(2, 1, 1),
    ]


def by_formula(query, key_value, gates, sharpness):
    """Return the attention, one query after another."""
    heads, width = len(sharpness), query.shape[2]
    read = torch.zeros_like(query)
    for h in range(heads):
        part = slice(h * width // heads, (h + 1) * width // heads)
        key, value = key_value[..., :width][..., part], key_value[..., width:][..., part]
        for b in range(len(query)):
            for i in range(query.shape[1]):
                score = sharpness[h, 0, 0] * functional.cosine_similarity(
                    query[b, i, part][None], key[b], dim=1
                )
                weight = gates[b, i] * score.exp()
                read[b, i, part] = (weight[:, None] * value[b]).sum(0) / (1 + weight.sum())
    return read


def test_attention_equals_its_formula():
    inputs = random_inputs()
    torch.testing.assert_close(gated_attention(*inputs), by_formula(*inputs))


@pytest.mark.parametrize("half_open", [False, True])
def test_gradient_equals_finite_differences(half_open):
    query, key_value, gates, sharpness = random_inputs()
    gates = 0.3 + 0.4 * gates if half_open else gates
    inputs = [part.requires_grad_() for part in (query, key_value, gates, sharpness)]
    assert torch.autograd.gradcheck(gated_attention, inputs)


def test_vmap_over_models_has_the_gradients_of_each():
    first, second = random_inputs(), [part + 0.1 for part in random_inputs()]
    gates = first[2]
    stacked = [
        torch.stack(pair).requires_grad_()
        for i, pair in enumerate(zip(first, second, strict=True))
        if i != 2
    ]
    outputs = torch.vmap(gated_attention, in_dims=(0, 0, None, 0))(
        stacked[0], stacked[1], gates, stacked[2]
    )
    outputs.square().sum().backward()
    for i, (query, key_value, _, sharpness) in enumerate((first, second)):
        separate = [part.clone().requires_grad_() for part in (query, key_value, sharpness)]
        output = gated_attention(separate[0], separate[1], gates, separate[2])
        output.square().sum().backward()
        torch.testing.assert_close(outputs[i], output)
        for part, whole in zip(separate, stacked, strict=True):
            torch.testing.assert_close(whole.grad[i], part.grad)


def test_gradient_is_in_single_precision_under_autocast():
    gradients = []
    for enabled in (False, True):
        inputs = [part.requires_grad_() for part in random_inputs(torch.float32)]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            gated_attention(*inputs).square().sum().backward()
        gradients.append([part.grad for part in inputs])
    for exact, autocast in zip(*gradients, strict=True):
        assert torch.equal(exact, autocast)


def test_closed_gates_read_zero_and_have_gradients():
    query, key_value, gates, sharpness = random_inputs()
    gates = torch.zeros_like(gates).requires_grad_()
    read = gated_attention(query, key_value, gates, sharpness)
    read.sum().backward()
    assert not read.any()
    assert gates.grad.abs().min() > 0


def test_query_of_length_zero_has_finite_gradients():
    query, key_value, gates, sharpness = random_inputs()
    query = torch.zeros_like(query).requires_grad_()
    read = gated_attention(query, key_value, gates, sharpness)
    read.sum().backward()
    assert read.isfinite().all()
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_result_is_in_single_precision_under_autocast(dtype):
    inputs = random_inputs(torch.float32)
    expected = gated_attention(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        output = gated_attention(*(part.to(dtype) for part in inputs))
    assert output.dtype == torch.float32
    tolerance = 0.0 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=tolerance)


def test_inputs_and_gradients_need_not_be_contiguous():
    query, key_value, gates, sharpness = random_inputs()
    wide = torch.cat([query, query], dim=2)[..., : query.shape[2]].requires_grad_()
    read = gated_attention(
        wide, key_value.transpose(0, 1).contiguous().transpose(0, 1), gates, sharpness
    )
    read.transpose(1, 2).square().sum().backward()
    straight = query.clone().requires_grad_()
    gated_attention(straight, key_value, gates, sharpness).square().sum().backward()
    torch.testing.assert_close(read, by_formula(query, key_value, gates, sharpness))
    torch.testing.assert_close(wide.grad, straight.grad)
