"""Affine alignment recovers the variables of a SEM from any affine map of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from intervae.causal.sem.alignment import (
    affine_score,
    entropy,
    fit_affine,
    objective,
    orthogonal_starts,
)
from intervae.causal.sem.equations import SEM
from intervae.errors import TrainingError, UsageError

ONE_EDGE = torch.zeros(5, 5)
ONE_EDGE[0, 1] = 1


def parabola(allowed: Tensor = ONE_EDGE) -> SEM:
    return SEM(allowed, form="quadratic", scales=[1.0, 0.5, 1.0, 1.0, 1.0]).double()


def mixed(sem: SEM, seed: int, count: int = 800) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Variables (N, 2), a random affine map of them, and its inverse (matrix and shift)."""
    generator = torch.Generator().manual_seed(seed)
    z = sem.sample(count, generator)[:, :2].detach()
    mix = torch.randn(2, 2, generator=generator, dtype=torch.float64) * 3
    offset = 5 * torch.randn(2, generator=generator, dtype=torch.float64)
    back = torch.linalg.inv(mix)
    return z, z @ mix.T + offset, back, -back @ offset


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_affine_map_is_inverted_up_to_the_sign_of_the_cause(seed):
    sem = parabola()
    z, latents, back, shift = mixed(sem, seed)
    T, t = fit_affine(latents, sem, (0, 1))
    aligned = latents @ T.T + t
    reached, true = objective(
        latents, sem, (0, 1), None, torch.stack([T, back]), torch.stack([t, shift])
    ).tolist()
    # the fit of 6 numbers to 800 samples may exceed the true value by chance
    assert true - 0.01 < reached < true + 0.02
    coordinates = torch.zeros(len(z), 5, dtype=torch.float64)
    density = {}
    for name, pair in (("true", z), ("aligned", aligned)):
        coordinates[:, :2] = pair
        density[name] = sem.log_density(coordinates).mean().item()
    assert density["aligned"] == pytest.approx(density["true"], abs=0.1)
    mirrored = torch.sign((aligned[:, 0] * z[:, 0]).sum())
    # z_1 and -z_1 have the same parabola
    assert (mirrored * aligned[:, 0] - z[:, 0]).square().mean() < 0.01
    assert (aligned[:, 1] - z[:, 1]).square().mean() < 0.05
    assert torch.linalg.slogdet(T).logabsdet.item() == pytest.approx(
        torch.linalg.slogdet(back).logabsdet.item(), abs=0.1
    )


def test_many_starts_reach_a_better_optimum_than_one():
    sem = parabola()
    single, many = [], []
    for seed in range(4):
        _, latents, _, _ = mixed(sem, seed, 300)
        for starts, values in ((1, single), (24, many)):
            T, t = fit_affine(latents, sem, (0, 1), starts=starts, steps=60)
            values.append(objective(latents, sem, (0, 1), None, T[None], t[None]).item())
    assert all(b >= a - 1e-3 for a, b in zip(single, many, strict=True))
    assert max(b - a for a, b in zip(single, many, strict=True)) > 0.1


def test_objective_is_the_log_density_under_the_map():
    """By a change of variables it is log p(T mu + t) + log |det T|."""
    sem = parabola()
    values, T, t = (
        torch.randn(7, 2, dtype=torch.float64),
        torch.randn(3, 2, 2, dtype=torch.float64),
        torch.randn(3, 2, dtype=torch.float64),
    )
    for s in range(3):
        z = values @ T[s].T + t[s]
        by_hand = torch.distributions.Normal(0, 1).log_prob(z[:, 0]) + torch.distributions.Normal(
            z[:, 0] ** 2, 0.5
        ).log_prob(z[:, 1])
        expected = by_hand.mean() + torch.linalg.det(T[s]).abs().log()
        torch.testing.assert_close(
            objective(values, sem, (0, 1), None, T, t)[s], expected, rtol=1e-6, atol=1e-6
        )


def test_columns_follow_the_order_of_indices_and_edges_can_be_removed():
    sem = parabola()
    z, latents, _, _ = mixed(sem, 0, 400)
    T, t = fit_affine(latents, sem, (1, 0), steps=60)
    aligned = latents @ T.T + t
    assert torch.corrcoef(torch.stack([aligned[:, 0], z[:, 1]]))[0, 1] > 0.97
    T, t = fit_affine(latents, sem, (0, 1), edges=torch.zeros(5, 5), steps=200)
    # without edges the SEM is Gaussian: the best map matches mean and covariance
    whitened = latents @ T.T + t
    torch.testing.assert_close(
        whitened.mean(0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=0.02
    )
    torch.testing.assert_close(
        torch.cov(whitened.T), torch.diag(torch.tensor([1.0, 0.25])).double(), rtol=0, atol=0.03
    )


@pytest.mark.parametrize(
    ("edges", "scales"),
    [([(0, 1), (1, 3)], [0.6, 0.3, 1.0, 0.3]), ([(0, 1), (0, 3)], [1.0, 0.5, 1.0, 0.7])],
)
def test_three_variables_are_recovered_from_random_rotations(edges, scales):
    """A chain and a fork, with a further variable without edges."""
    allowed, columns = torch.zeros(4, 4), [0, 1, 3]
    for cause, effect in edges:
        allowed[cause, effect] = 1
    sem = SEM(allowed, form="quadratic", scales=scales).double()
    assert sem.coupled == (0, 1, 3)
    generator = torch.Generator().manual_seed(0)
    z = sem.sample(500, generator)[:, columns].detach()
    mix = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    T, t = fit_affine(z @ mix.T + 2.0, sem, columns)
    reached = objective(z @ mix.T + 2.0, sem, columns, None, T[None], t[None]).item()
    back = torch.linalg.inv(mix)
    true = objective(z @ mix.T, sem, columns, None, back[None], torch.zeros(1, 3).double()).item()
    assert true - 0.01 < reached < true + 0.04


def test_fit_is_deterministic_and_has_no_side_effects():
    sem = parabola().float()
    _, latents, _, _ = mixed(parabola(), 0, 200)
    latents = latents.float().requires_grad_()
    before = {name: p.clone() for name, p in sem.state_dict().items()}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    T, t = fit_affine(latents, sem, (0, 1), steps=10, samples=100)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        repeated = fit_affine(latents, sem, (0, 1), steps=10, samples=100)
    assert torch.equal(T, repeated[0])
    assert torch.equal(t, repeated[1])
    assert not torch.equal(T, fit_affine(latents, sem, (0, 1), steps=10, samples=100, seed=1)[0])
    assert T.dtype == torch.float32
    assert T.shape == (2, 2)
    assert t.shape == (2,)
    assert not T.requires_grad
    assert latents.grad is None
    assert all(p.grad is None and p.requires_grad for p in sem.parameters())
    assert all(torch.equal(p, before[name]) for name, p in sem.state_dict().items())


@pytest.mark.parametrize(("count", "m"), [(24, 2), (7, 2), (6, 1), (10, 3)])
def test_starts_are_distinct_orthogonal_matrices_half_of_them_reflected(count, m):
    starts = orthogonal_starts(count, m, torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        starts @ starts.mT, torch.eye(m).double().expand(count, m, m), rtol=0, atol=1e-12
    )
    assert torch.linalg.det(starts).sign().tolist() == [
        1.0 if s % 2 == 0 else -1.0 for s in range(count)
    ]
    if m > 1:
        apart = (starts[:, None] - starts).flatten(2).norm(dim=2) + torch.eye(count)
        assert apart.min() > 0.2


def test_invalid_arguments_of_fit_affine_raise_errors():
    sem, latents = parabola(), torch.randn(50, 2)
    with pytest.raises(UsageError, match=r"add \[0\]"):
        fit_affine(latents, sem, (1, 2))
    with pytest.raises(UsageError, match="different ones"):
        fit_affine(latents, sem, (0, 0))
    with pytest.raises(UsageError, match="different ones"):
        fit_affine(latents, sem, (0, 5))
    with pytest.raises(UsageError, match="rows"):
        fit_affine(latents[:, :1], sem, (0, 1))
    with pytest.raises(UsageError, match="start"):
        fit_affine(latents, sem, (0, 1), starts=0)
    with pytest.raises(TrainingError, match="do not vary"):
        fit_affine(latents * torch.tensor([1.0, 0.0]), sem, (0, 1))
    with pytest.raises(TrainingError, match="finite"):
        fit_affine(latents * float("nan"), sem, (0, 1))


def test_entropy_of_a_normal_sample_is_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    sample = rng.multivariate_normal([1.0, -2.0], covariance, size=4000)
    exact = 0.5 * math.log((2 * math.pi * math.e) ** 2 * np.linalg.det(covariance))
    assert entropy(sample) == pytest.approx(exact, abs=0.06)
    assert math.isfinite(entropy(sample[:20]))  # fewer points than neighbours


def test_score_ranks_draws_of_the_sem_above_other_distributions() -> None:
    """Draws of the parabola score near 0 in any coordinates; a flat band and a line score less."""
    sem = parabola()
    rng = torch.Generator().manual_seed(0)
    draws = sem.sample(4000, rng)[:, :2].detach()
    straight = torch.stack([draws[:, 0], draws[:, 1] - draws[:, 0].square()], dim=1)
    line = torch.stack([draws[:, 0], 0.01 * torch.randn(4000, generator=rng).double()], dim=1)

    def score(latents: torch.Tensor) -> float:
        return affine_score(latents, sem, [0, 1], *fit_affine(latents, sem, [0, 1]))

    right = score(draws)
    assert abs(right) < 0.1
    mixed_draws = draws @ torch.tensor([[0.3, -2.0], [1.5, 0.4]], dtype=torch.float64) + 5
    assert score(mixed_draws) == pytest.approx(right, abs=0.03)
    assert max(score(straight), score(line)) < right - 0.15
