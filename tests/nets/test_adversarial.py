"""Gradient penalty of WGAN-GP against closed forms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from intervae.nets.adversarial import gradient_penalty


def test_the_penalty_of_a_linear_critic_is_closed_form() -> None:
    real, generated = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([3.0, -4.0, 12.0], requires_grad=True)  # of norm 13
    penalty = gradient_penalty(lambda rows: rows @ weight, real, generated, None)
    assert torch.allclose(penalty, torch.full((7,), 12.0**2))
    penalty.mean().backward()
    assert weight.grad is not None
    assert torch.allclose(weight.grad, 2 * 12 * weight.detach() / 13, rtol=1e-5)


def test_the_penalty_is_evaluated_between_real_and_generated() -> None:
    """The gradient of the critic |x|^2 / 2 is x."""
    rows = torch.tensor([[3.0, 4.0], [0.0, 2.0]])

    def critic(x: Tensor) -> Tensor:
        return x.square().sum(1) / 2

    assert torch.allclose(gradient_penalty(critic, rows, rows, None), torch.tensor([16.0, 1.0]))
    ends = torch.tensor([[1.0]]).expand(2000, 1), torch.tensor([[3.0]]).expand(2000, 1)
    slopes = (
        gradient_penalty(critic, *ends, torch.Generator().manual_seed(0)).sqrt() + 1
    )  # uniform between 1 and 3
    assert 1 <= slopes.min() < 1.05
    assert 2.95 < slopes.max() <= 3
    assert slopes.mean().item() == pytest.approx(2, abs=0.05)


def test_the_penalty_works_under_no_grad_and_vmap() -> None:
    real, generated, weights = (
        torch.randn(5, 3),
        torch.randn(5, 3),
        torch.tensor([[3.0, 0, 0], [0, 0, 5.0]]),
    )
    with torch.no_grad():
        assert torch.allclose(
            gradient_penalty(lambda rows: rows @ weights[0], real, generated, None),
            torch.full((5,), 4.0),
        )

    def penalty(weight: Tensor) -> Tensor:
        return gradient_penalty(lambda rows: rows @ weight, real, generated, None)

    assert torch.allclose(
        vmap(penalty, randomness="same")(weights), torch.tensor([[4.0], [16.0]]).expand(2, 5)
    )


def test_a_constant_critic_has_a_finite_gradient() -> None:
    weight = torch.zeros(3, requires_grad=True)
    gradient_penalty(
        lambda rows: rows @ weight, torch.ones(2, 3), torch.zeros(2, 3), None
    ).sum().backward()
    assert weight.grad is not None
    assert torch.isfinite(weight.grad).all()
