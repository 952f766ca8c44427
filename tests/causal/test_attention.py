"""Attention along the edges of a graph: the formula, its gradient, and what a closed gate is."""

import pytest
import torch
from torch.nn import functional

from intervae.causal.attention import gated_attention


def made(dtype=torch.float64, batch=2, questions=5, places=3, heads=2, features=4):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    width = heads * features
    gates = (torch.rand(batch, questions, places, generator=generator) < 0.6).to(dtype)
    gates[0, 0] = 0
    return [normal(batch, questions, width), normal(batch, places, 2 * width), gates, torch.tensor([2.0, 5.0], dtype=dtype).view(2, 1, 1)]


def by_formula(query, key_value, gates, sharpness):
    """The same, one question after another."""
    heads, width = len(sharpness), query.shape[2]
    read = torch.zeros_like(query)
    for h in range(heads):
        part = slice(h * width // heads, (h + 1) * width // heads)
        key, value = key_value[..., :width][..., part], key_value[..., width:][..., part]
        for b in range(len(query)):
            for i in range(query.shape[1]):
                score = sharpness[h, 0, 0] * functional.cosine_similarity(query[b, i, part][None], key[b], dim=1)
                weight = gates[b, i] * score.exp()
                read[b, i, part] = (weight[:, None] * value[b]).sum(0) / (1 + weight.sum())
    return read


def test_it_is_the_formula():
    given = made()
    torch.testing.assert_close(gated_attention(*given), by_formula(*given))


@pytest.mark.parametrize("half_open", [False, True])
def test_the_gradient_is_that_of_the_formula(half_open):
    query, key_value, gates, sharpness = made()
    gates = 0.3 + 0.4 * gates if half_open else gates
    given = [part.requires_grad_() for part in (query, key_value, gates, sharpness)]
    assert torch.autograd.gradcheck(gated_attention, given)


def test_many_models_at_once_have_the_gradients_of_each():
    one, other = made(), [part + 0.1 for part in made()]
    gates = one[2]
    stacked = [torch.stack(parts).requires_grad_() for i, parts in enumerate(zip(one, other, strict=True)) if i != 2]
    together = torch.vmap(gated_attention, in_dims=(0, 0, None, 0))(stacked[0], stacked[1], gates, stacked[2])
    together.square().sum().backward()
    for i, (query, key_value, _, sharpness) in enumerate((one, other)):
        alone = [part.clone().requires_grad_() for part in (query, key_value, sharpness)]
        found = gated_attention(alone[0], alone[1], gates, alone[2])
        found.square().sum().backward()
        torch.testing.assert_close(together[i], found)
        for part, whole in zip(alone, stacked, strict=True):
            torch.testing.assert_close(whole.grad[i], part.grad)


def test_the_way_back_is_of_single_precision_under_autocast():
    found = []
    for enabled in (False, True):
        given = [part.requires_grad_() for part in made(torch.float32)]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            gated_attention(*given).square().sum().backward()
        found.append([part.grad for part in given])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_a_question_without_open_gates_reads_nothing_and_can_open_them():
    query, key_value, gates, sharpness = made()
    gates = torch.zeros_like(gates).requires_grad_()
    read = gated_attention(query, key_value, gates, sharpness)
    read.sum().backward()
    assert not read.any()
    assert gates.grad.abs().min() > 0


def test_a_query_of_length_zero_is_no_fault():
    query, key_value, gates, sharpness = made()
    query = torch.zeros_like(query).requires_grad_()
    read = gated_attention(query, key_value, gates, sharpness)
    read.sum().backward()
    assert read.isfinite().all()
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_of_single_precision_under_autocast(dtype):
    given = made(torch.float32)
    wanted = gated_attention(*given)
    with torch.autocast("cpu", torch.bfloat16):
        found = gated_attention(*(part.to(dtype) for part in given))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, atol=0.0 if dtype == torch.float32 else 0.05, rtol=0.0 if dtype == torch.float32 else 0.05)


def test_keys_may_be_a_part_of_something_larger():
    """Neither what goes in nor the gradient that comes back has to lie in one piece."""
    query, key_value, gates, sharpness = made()
    wide = torch.cat([query, query], dim=2)[..., : query.shape[2]].requires_grad_()
    read = gated_attention(wide, key_value.transpose(0, 1).contiguous().transpose(0, 1), gates, sharpness)
    read.transpose(1, 2).square().sum().backward()
    straight = query.clone().requires_grad_()
    gated_attention(straight, key_value, gates, sharpness).square().sum().backward()
    torch.testing.assert_close(read, by_formula(query, key_value, gates, sharpness))
    torch.testing.assert_close(wide.grad, straight.grad)
