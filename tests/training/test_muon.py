"""Muon against its definition by singular values, against torch's own, and beside AdamW."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intervae.data import Batch, Dataset
from intervae.models.phases import Phase, Player
from intervae.training.muon import STEP, Muon, orthogonalise, weight_matrices
from intervae.training.optimisers import make_optimiser
from intervae.training.stepper import Stepper


def layers(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 10),
        nn.Tanh(),
        nn.Linear(10, 6, bias=False),
        nn.Tanh(),
        nn.Linear(6, 6),
        nn.Tanh(),
        nn.Linear(6, 1),
    )


def loss_of(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(32, 6, generator=generator)
    return (model(x)[:, 0] - x.prod(1)).square().mean()


def muon_over(model: nn.Module, rate: float = 0.02, decay: float = 0.1) -> Muon:
    names = weight_matrices(model)
    halves = [
        [p for name, p in model.named_parameters() if (name in names) == whether]
        for whether in (True, False)
    ]
    groups = [
        {"params": part, "matrices": whether}
        for part, whether in zip(halves, (True, False), strict=True)
        if part
    ]
    return Muon(groups, lr=rate, weight_decay=decay)


def walk(model: nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        optimiser.zero_grad()
        loss_of(model, step).backward()
        optimiser.step()


def test_orthogonalise_keeps_vectors_and_equalises_values() -> None:
    torch.manual_seed(0)
    left, right = (
        torch.linalg.qr(torch.randn(3, 8, 8, dtype=torch.float64))[0],
        torch.linalg.qr(torch.randn(3, 20, 8, dtype=torch.float64))[0],
    )
    sizes = torch.logspace(
        -2, 1, 8, dtype=torch.float64
    )  # the smallest is 0.0008 of the norm, the next 0.002
    product = left.mT @ orthogonalise(left @ torch.diag(sizes) @ right.mT) @ right
    singular_values = product.diagonal(dim1=1, dim2=2)
    assert torch.allclose(product, torch.diag_embed(singular_values), atol=1e-9)
    assert singular_values[:, 1:].min() > 0.68
    assert singular_values.max() < 1.21
    assert (singular_values[:, 0] < 0.6).all()


def test_zero_matrix_stays_zero() -> None:
    assert not orthogonalise(torch.zeros(1, 3, 4)).any()


def test_first_step_equals_the_formula() -> None:
    """Without momentum the step is that of the gradient; `orthogonalise` ignores its scale."""
    model = layers()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = muon_over(model)
    loss_of(model, 0).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    optimiser.step()
    moved = dict(model.named_parameters())
    assert weight_matrices(model) == {"0.weight", "2.weight", "4.weight"}  # 6.weight has one row
    for name in weight_matrices(model):
        gradient = gradients[name] if name != "0.weight" else gradients[name].mT  # 10 x 6 stands
        step = orthogonalise(gradient[None])[0]
        step = step if name != "0.weight" else step.mT
        expected = before[name] * (1 - 0.02 * 0.1) - 0.02 * STEP * math.sqrt(max(step.shape)) * step
        assert torch.allclose(moved[name], expected, atol=1e-6), name
    size = (moved["2.weight"] - before["2.weight"] * (1 - 0.02 * 0.1)).square().mean().sqrt().item()
    assert size == pytest.approx(0.02 * STEP, rel=0.35)


def test_other_parameters_move_as_by_adamw() -> None:
    one, other = layers(), layers()
    others = [name for name, _ in one.named_parameters() if name not in weight_matrices(one)]
    mine, adamw = muon_over(one), torch.optim.AdamW(other.parameters(), lr=0.02, weight_decay=0.1)
    for step in range(5):
        loss_of(other, step).backward()
        for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
            assert q.grad is not None
            p.grad = q.grad.clone()
            if name not in others:
                q.grad = None
        mine.step()
        adamw.step()
        other.zero_grad()
    for name in others:
        assert torch.equal(one.get_parameter(name), other.get_parameter(name)), name


@pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch has a Muon of its own from 2.9 on"
)
def test_matrices_move_as_by_the_muon_of_torch() -> None:
    """Which works in half precision."""
    one, other = layers(), layers()
    names = sorted(weight_matrices(one))
    mine = muon_over(one, decay=0.3)
    theirs = torch.optim.Muon(
        [other.get_parameter(name) for name in names],
        lr=0.02,
        weight_decay=0.3,
        adjust_lr_fn="match_rms_adamw",
    )
    begun = {name: one.get_parameter(name).detach().clone() for name in names}
    for step in range(6):
        loss_of(other, step).backward()
        for p, q in zip(one.parameters(), other.parameters(), strict=True):
            p.grad = None if q.grad is None else q.grad.clone()
        mine.step()
        theirs.step()
        other.zero_grad()
    for name in names:
        moved, expected = (
            one.get_parameter(name) - begun[name],
            other.get_parameter(name) - begun[name],
        )
        assert (
            torch.nn.functional.cosine_similarity(moved.flatten(), expected.flatten(), dim=0)
            > 0.995
        ), name
        assert (moved.norm() / expected.norm()).item() == pytest.approx(1, abs=0.02), name


def test_half_precision_as_on_a_gpu_changes_little() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(2, 24, 40)
    exact, half = orthogonalise(matrices), orthogonalise(matrices.bfloat16()).float()
    assert torch.nn.functional.cosine_similarity(exact.flatten(), half.flatten(), dim=0) > 0.999


@pytest.mark.parametrize("seed", range(3))
def test_rare_directions_are_learned_as_fast_as_frequent_ones(seed: int) -> None:
    """Regression on inputs of scales 0.1 to 10: 40 steps at the best of three rates."""
    torch.manual_seed(seed)
    wanted, sizes = torch.randn(6, 6) / 6**0.5, torch.logspace(-1, 1, 6)

    def left(name: str, rate: float) -> float:
        model = nn.Linear(6, 6, bias=False)
        nn.init.zeros_(model.weight)
        optimiser = (
            muon_over(model, rate, 0.0)
            if name == "muon"
            else torch.optim.SGD(model.parameters(), rate)
        )
        for _ in range(40):
            x = torch.randn(64, 6) * sizes
            optimiser.zero_grad()
            (model(x) - x @ wanted.T).square().mean().backward()
            optimiser.step()
        return (model.weight - wanted).square().mean().item() / wanted.square().mean().item()

    assert (
        min(left("muon", rate) for rate in (0.03, 0.1, 0.3))
        < 0.1
        < min(left("sgd", rate) for rate in (0.003, 0.01, 0.03))
    )


def test_state_can_be_copied_and_loaded() -> None:
    one, other = layers(), layers()
    mine = muon_over(one)
    walk(one, mine, 3)
    other.load_state_dict(one.state_dict())
    theirs = muon_over(other)
    theirs.load_state_dict(copy.deepcopy(mine).state_dict())
    walk(one, mine, 2)
    walk(other, theirs, 2)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
    fresh = layers()
    walk(
        fresh, Muon(fresh.parameters(), lr=0.02, weight_decay=0.1), 1
    )  # no group has matrices: AdamW
    plain = layers()
    walk(plain, torch.optim.AdamW(plain.parameters(), lr=0.02, weight_decay=0.1), 1)
    assert all(
        torch.equal(p, q) for p, q in zip(fresh.parameters(), plain.parameters(), strict=True)
    )


def test_closure_is_called_before_the_step() -> None:
    one, other = layers(), layers()

    def ask() -> Tensor:
        loss = loss_of(one, 0)
        loss.backward()
        return loss

    loss = muon_over(one).step(ask)
    walk(other, muon_over(other), 1)
    assert loss.item() == pytest.approx(loss_of(layers(), 0).item())
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_muon_groups_matrices_and_others_at_every_rate(toy: Any) -> None:
    model = toy()
    model.net, model.late = layers(), nn.Linear(3, 3)
    player = Player(model.loss, optimiser="muon", learning_rate=0.5, prefix_rates=(("late", 0.1),))
    groups = make_optimiser(model, player, on_gpu=False).param_groups
    assert [(group["base_rate"], group["matrices"], len(group["params"])) for group in groups] == [
        (0.5, False, 6),
        (0.5, True, 3),
        (0.1, False, 1),
        (0.1, True, 1),
    ]
    assert all(
        group["matrices"] is False
        for group in make_optimiser(
            model, Player(model.loss, optimiser="adam"), on_gpu=False
        ).param_groups
    )


def test_resumed_run_keeps_the_momentum_of_matrices(toy: Any, toy_data: Dataset) -> None:
    def made() -> tuple[Any, Stepper]:
        model = toy()
        model.net, model.unused = layers(), nn.Linear(3, 3)

        def loss(batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
            return {"loss": loss_of(model.net, int(batch["index"][0])) + model.second.square()}

        player = Player(
            loss, optimiser="muon", learning_rate=0.02, prefix_rates=(("net.0", 0.01),), clip=0.5
        )
        return model, Stepper(
            model,
            Phase("main", (player,), 3, 10, schedule="cosine"),
            toy_data.train,
            10,
            cuda_graph=True,
            bf16=False,
        )

    (one, first), (other, second) = made(), made()
    first.run_epoch(0, 3, seed=0)
    state = {name: tensor.clone() for name, tensor in first.state().items()}
    assert sum(name.endswith("momentum") for name in state) == 3  # not of what has no gradient
    other.load_state_dict({name: tensor.clone() for name, tensor in one.state_dict().items()})
    second.load_state(state)
    assert torch.equal(first.run_epoch(1, 3, seed=1), second.run_epoch(1, 3, seed=1))
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))
    third, without = made()
    third.load_state_dict(one.state_dict())
    forgotten = {name.removesuffix("momentum") for name in state if name.endswith("momentum")}
    without.load_state(
        {
            name: tensor
            for name, tensor in first.state().items()
            if not name.startswith(tuple(forgotten))
        }
    )
    first.run_epoch(2, 3, seed=2)
    without.run_epoch(2, 3, seed=2)
    assert not torch.equal(one.net[2].weight, third.net[2].weight)
