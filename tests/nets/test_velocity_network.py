"""Network of a velocity field: normalisation that keeps the precision of its input."""

from __future__ import annotations

import pytest
import torch

from intervae.nets.velocity_network import GroupNorm


@pytest.mark.parametrize("mean", [0.0, 30.0])
def test_group_norm_in_bfloat16_is_the_formula_up_to_its_rounding(mean: float) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = (mean + torch.randn(3, 8, 5, 5, generator=generator)).to(torch.bfloat16)
    norm = GroupNorm(4, 8)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 8))
        norm.bias.copy_(torch.linspace(-1, 1, 8))
    with torch.autocast("cpu", torch.bfloat16):
        answer = norm(maps)
    assert answer.dtype == torch.bfloat16
    groups = maps.double().reshape(3, 4, -1)
    spread = (groups.var(2, unbiased=False, keepdim=True) + norm.eps).sqrt()
    expected = ((groups - groups.mean(2, keepdim=True)) / spread).reshape(maps.shape)
    expected = expected * norm.weight.double()[:, None, None] + norm.bias.double()[:, None, None]
    torch.testing.assert_close(answer.double(), expected, rtol=2e-2, atol=2e-2)


def test_group_norm_in_single_precision_is_that_of_torch() -> None:
    maps = torch.randn(2, 8, 3, 3, generator=torch.Generator().manual_seed(0))
    plain = torch.nn.GroupNorm(4, 8)
    assert torch.equal(GroupNorm(4, 8)(maps), plain(maps))
    assert GroupNorm(4, 8)(maps).dtype == torch.float32
