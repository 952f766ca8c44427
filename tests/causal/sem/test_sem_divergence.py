"""KL from a SEM: local Gaussians and Monte Carlo against closed forms and each other."""

from __future__ import annotations

import math

import pytest
import torch
from small_posterior import (
    EYE,
    FORMS,
    PARABOLA,
    B,
    D,
    build,
    edges_of,
    local_gaussian,
    posterior,
    prior_of_linear,
)
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from intervae.causal.gaussian import kl_standard_normal
from intervae.causal.sem.divergence import (
    draw_pivots,
    kl_local,
    kl_local_min,
    kl_local_mix,
    kl_monte_carlo,
    kl_monte_carlo_mix,
    kl_tangent,
    log_posterior,
    sem_divergence,
)
from intervae.causal.sem.equations import SEM
from intervae.errors import UsageError
from normal_draws import draw


def test_without_mechanisms_every_estimator_is_the_kl_of_a_vae():
    sem = SEM(torch.ones(D, D).triu(1), form="quadratic").double()
    none = torch.zeros(D, D, dtype=torch.float64)
    mean, log_variance = draw(B, D), draw(B, D, seed=1)
    factor = torch.diag_embed((0.5 * log_variance).exp())
    usual = kl_standard_normal(mean, log_variance)
    torch.testing.assert_close(kl_tangent(mean, factor, sem, none), usual, rtol=1e-10, atol=1e-10)
    zero = torch.zeros(1, D, dtype=torch.float64)
    torch.testing.assert_close(
        kl_local(mean, factor, sem, zero, none)[:, 0], usual, rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        kl_local_mix(mean, factor, sem, zero.expand(7, D), none), usual, rtol=1e-10, atol=1e-10
    )
    # tau = 1: all noise in the local Gaussian
    exact = sem_divergence("local_min", mean, factor, sem, edges=none, pivots=3, tau=1.0)
    torch.testing.assert_close(exact, usual, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tau", [None, 0.5])
def test_local_kl_equals_torch_and_the_factored_form(form, tau):
    sem, (mean, factor) = build(form), posterior()
    edges = edges_of(sem)
    pivots = draw_pivots(sem, 4, edges, torch.Generator().manual_seed(0), tau=tau).detach()
    result = kl_local(mean, factor, sem, pivots, edges, tau=tau)
    assert result.shape == (B, 4)
    scales = sem.log_scales.exp() * (tau or 1.0)
    for k in range(4):
        exact = kl_divergence(
            MultivariateNormal(mean, scale_tril=factor),
            local_gaussian(sem, pivots[k], edges, tau or 1.0),
        )
        torch.testing.assert_close(result[:, k], exact, rtol=1e-9, atol=1e-9)
        system = EYE - sem.jacobian(pivots[k], edges)
        squares = ((mean - pivots[k]) @ system.T).square() + (system @ factor).square().sum(-1)
        factored = 0.5 * (squares / scales**2 - 1 + 2 * scales.log()).sum(-1) - factor.diagonal(
            dim1=1, dim2=2
        ).log().sum(-1)
        torch.testing.assert_close(result[:, k], factored, rtol=1e-10, atol=1e-10)


def test_one_pivot_at_zero_is_exact_for_a_linear_sem():
    sem, (mean, factor) = build("linear"), posterior()
    exact = kl_divergence(MultivariateNormal(mean, scale_tril=factor), prior_of_linear(sem))
    zero = torch.zeros(1, D, dtype=torch.float64)
    for result in (kl_local_min(mean, factor, sem, zero), kl_local_mix(mean, factor, sem, zero)):
        torch.testing.assert_close(result, exact, rtol=1e-10, atol=1e-10)


def test_double_precision_is_accurate_for_small_scales():
    sem = SEM(PARABOLA, form="quadratic", scales=[1e-3, 1e-3], learn_scales=False)
    pivots = torch.tensor([[3.0, 9.0]]) + 1e-3 * draw(8, 2).float()
    mean, factor = torch.tensor([[3.0, 9.0]]), 1e-3 * torch.eye(2)[None]
    exact = kl_local(mean.double(), factor.double(), sem.double(), pivots.double())
    sem = sem.float()
    precise = kl_local(mean, factor, sem, pivots, double=True)
    assert precise.dtype == torch.float32
    torch.testing.assert_close(precise, exact.float(), rtol=1e-4, atol=1e-4)
    assert (kl_local(mean, factor, sem, pivots) - exact).abs().max() > 0.1


@pytest.mark.parametrize("form", FORMS)
def test_mixture_lies_between_the_closest_and_the_closest_plus_log_k(form):
    sem, (mean, factor) = build(form), posterior(50)
    pivots = draw_pivots(sem, 30, generator=torch.Generator().manual_seed(0))
    closest, mixture = (
        kl_local_min(mean, factor, sem, pivots),
        kl_local_mix(mean, factor, sem, pivots),
    )
    assert (closest <= mixture + 1e-12).all()
    assert (mixture <= closest + math.log(30) + 1e-12).all()
    difference = mixture - closest
    assert difference.max() - difference.min() > 0.1  # neither bound is always tight
    each = torch.stack(
        [kl_local(mean, factor, sem, pivots[k : k + 1])[:, 0] for k in range(30)], dim=1
    )
    torch.testing.assert_close(closest, each.min(1).values)
    torch.testing.assert_close(mixture, -torch.exp(-each).mean(1).log())


def many_draws(mean: Tensor, factor: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One posterior (1, ...) drawn `count` times."""
    noise = draw(count, mean.shape[-1], seed=11)
    mean, factor = mean.expand(count, -1), factor.expand(count, -1, -1)
    return mean + (factor @ noise[..., None]).squeeze(-1), mean, factor, noise


def test_monte_carlo_is_unbiased_for_a_linear_sem():
    sem, (mean, factor) = build("linear"), posterior(1)
    with torch.no_grad():
        z, means, factors, _ = many_draws(mean, factor, 40_000)
        drawn = kl_monte_carlo(z, means, factors, sem)
        error = drawn.std().item() / math.sqrt(len(drawn))
        exact = kl_tangent(mean, factor, sem).item()
        assert drawn.mean().item() == pytest.approx(exact, abs=4 * error)
        assert error < 0.01 * exact


def test_monte_carlo_is_unbiased_for_the_parabola():
    """The tangent is biased by the curvature; the true value is as in the test of the tangent."""
    sem = SEM(PARABOLA, form="quadratic", scales=[1.0, 0.5]).double()
    mean, factor = (
        torch.tensor([[0.8, 0.3]], dtype=torch.float64),
        0.5 * torch.eye(2, dtype=torch.float64)[None],
    )
    second = (0.3 - 0.64 - 0.25) ** 2 + 0.25 + 4 * 0.64 * 0.25 + 2 * 0.0625
    truth = 0.5 * (0.64 + 0.25 + second / 0.25 - 2 + 2 * math.log(0.5)) - 2 * math.log(0.5)
    with torch.no_grad():
        z, means, factors, _ = many_draws(mean, factor, 100_000)
        drawn = kl_monte_carlo(z, means, factors, sem)
        error = drawn.std().item() / math.sqrt(len(drawn))
        assert drawn.mean().item() == pytest.approx(truth, abs=4 * error)
        assert abs(kl_tangent(mean, factor, sem).item() - truth) > 20 * error


@pytest.mark.parametrize("form", FORMS)
def test_monte_carlo_mix_is_the_log_density_and_below_the_bound(form):
    sem, (mean, factor) = build(form), posterior(1)
    edges = edges_of(sem)
    with torch.no_grad():
        pivots = draw_pivots(sem, 5, edges, torch.Generator().manual_seed(0))
        z, means, factors, _ = many_draws(mean, factor, 5_000)
        each = torch.stack(
            [local_gaussian(sem, pivot, edges).log_prob(z[:20]) for pivot in pivots], dim=1
        )
        expected = MultivariateNormal(means[:20], scale_tril=factors[:20]).log_prob(z[:20]) - (
            torch.logsumexp(each, 1) - math.log(5)
        )
        result = kl_monte_carlo_mix(z, means, factors, sem, pivots, edges)
        torch.testing.assert_close(result[:20], expected, rtol=1e-8, atol=1e-8)
        bound = kl_local_mix(mean, factor, sem, pivots, edges).item()
        assert result.mean().item() < bound + 4 * result.std().item() / math.sqrt(len(result))


def test_known_noise_gives_the_same_result():
    sem, (mean, factor) = build("mlp"), posterior()
    noise = draw(B, D, seed=3)
    z = mean + (factor @ noise[..., None]).squeeze(-1)
    torch.testing.assert_close(
        log_posterior(z, mean, factor),
        MultivariateNormal(mean, scale_tril=factor).log_prob(z),
        rtol=1e-10,
        atol=1e-10,
    )
    for kind in ("mc", "mc_mix"):
        settings = {"z": z, "pivots": 6, "generator": torch.Generator().manual_seed(0)}
        without = sem_divergence(kind, mean, factor, sem, **settings)
        settings["generator"] = torch.Generator().manual_seed(0)
        torch.testing.assert_close(
            sem_divergence(kind, mean, factor, sem, noise=noise, **settings),
            without,
            rtol=1e-10,
            atol=1e-10,
        )


def test_monte_carlo_gradients_average_to_the_exact_gradients():
    sem, (mean, factor) = build("linear"), posterior(1)
    mean, factor = mean.requires_grad_(), factor.requires_grad_()
    exact = torch.autograd.grad(
        kl_tangent(mean, factor, sem).sum(), [mean, factor, sem.weights, sem.log_scales]
    )
    z, means, factors, noise = many_draws(mean, factor, 60_000)
    for noise_or_none in (noise, None):
        drawn = kl_monte_carlo(z, means, factors, sem, noise=noise_or_none).mean()
        result = torch.autograd.grad(
            drawn, [mean, factor, sem.weights, sem.log_scales], retain_graph=True
        )
        for a, b in zip(result, exact, strict=True):
            a, b = (a.tril(), b.tril()) if a.shape == factor.shape else (a, b)
            torch.testing.assert_close(a, b, rtol=0.03, atol=0.03 * b.abs().max().item())


KINDS = ("tangent", "local_min", "local_mix", "mc", "mc_mix")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_differentiable_in_all_inputs(form, kind):
    sem = build(form).float()
    mean, factor = (values.float().requires_grad_() for values in posterior())
    edges = sem.sample_edges(torch.Generator().manual_seed(1))
    noise = draw(B, D, seed=3).float()
    z = mean + (factor @ noise[..., None]).squeeze(-1)
    result = sem_divergence(
        kind,
        mean,
        factor,
        sem,
        z=z,
        edges=edges,
        generator=torch.Generator().manual_seed(2),
        pivots=20,
        noise=noise,
    )
    assert result.shape == (B,)
    assert result.dtype == torch.float32
    result.mean().backward()
    for parameter in (mean, factor, *sem.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind):
    sem, (mean, factor) = build("quadratic"), posterior(2)
    noise = draw(2, D, seed=3)

    def total(mean: Tensor, scales: Tensor, edges: Tensor) -> Tensor:
        z = mean + (factor @ noise[..., None]).squeeze(-1)
        settings = {
            "z": z,
            "edges": edges,
            "generator": torch.Generator().manual_seed(0),
            "pivots": 4,
        }
        return torch.func.functional_call(
            Divergence(sem, kind, factor, settings), {"sem.log_scales": scales}, (mean,)
        ).sum()

    inputs = (0.3 * mean, sem.log_scales.detach().clone(), 0.5 * edges_of(sem))
    assert torch.autograd.gradcheck(
        total, [values.requires_grad_() for values in inputs], rtol=1e-4, atol=1e-5
    )


class Divergence(torch.nn.Module):
    def __init__(self, sem: SEM, kind: str, factor: Tensor, settings: dict) -> None:
        super().__init__()
        self.sem, self.kind, self.factor, self.settings = sem, kind, factor, settings

    def forward(self, mean: Tensor) -> Tensor:
        return sem_divergence(self.kind, mean, self.factor, self.sem, **self.settings)


def test_sem_divergence_calls_the_function_of_each_kind():
    sem, (mean, factor) = build("quadratic"), posterior()
    edges, z = edges_of(sem), draw(B, D, seed=4)
    pivots = draw_pivots(sem, 9, edges, torch.Generator().manual_seed(0), tau=0.8)
    expected = {
        "tangent": kl_tangent(mean, factor, sem, edges),
        "local_min": kl_local_min(mean, factor, sem, pivots, edges, tau=0.8),
        "local_mix": kl_local_mix(mean, factor, sem, pivots, edges, tau=0.8),
        "mc": kl_monte_carlo(z, mean, factor, sem, edges),
        "mc_mix": kl_monte_carlo_mix(z, mean, factor, sem, pivots, edges, tau=0.8),
    }
    for kind, value in expected.items():
        result = sem_divergence(
            kind,
            mean,
            factor,
            sem,
            z=z,
            edges=edges,
            generator=torch.Generator().manual_seed(0),
            pivots=9,
            tau=0.8,
        )
        torch.testing.assert_close(result, value)


def test_any_square_factor_works_with_its_log_determinant():
    """As after an affine alignment, which maps L to T L."""
    sem, (mean, lower) = build("mlp"), posterior()
    edges, linear, noise = edges_of(sem), draw(D, D, seed=9), draw(B, D, seed=3)
    factor = linear @ lower
    log_det = lower.diagonal(dim1=1, dim2=2).log().sum(-1) + torch.linalg.slogdet(linear).logabsdet
    triangular = torch.linalg.cholesky(factor @ factor.mT)  # the same covariance
    z = mean + (factor @ noise[..., None]).squeeze(-1)
    for kind in KINDS:
        result, expected = (
            sem_divergence(
                kind,
                mean,
                any_factor,
                sem,
                z=z,
                edges=edges,
                generator=torch.Generator().manual_seed(0),
                pivots=9,
                **options,
            )
            for any_factor, options in (
                (factor, {"noise": noise, "log_det": log_det}),
                (triangular, {}),
            )
        )
        torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def test_vmap_over_sems_equals_a_loop_for_every_kind():
    sem, (mean, factor) = build("mlp"), posterior()
    z = draw(B, D, seed=4)
    for kind in KINDS:
        module = Divergence(sem, kind, factor, {"z": z, "pivots": 5})
        stacked = {
            name: torch.stack([p.detach(), p.detach() + 0.1])
            for name, p in module.named_parameters()
        }

        def value(parameters, module=module):
            module.settings["generator"] = torch.Generator().manual_seed(0)
            return torch.func.functional_call(module, parameters, (mean,))

        batched = torch.func.vmap(value, randomness="same")(stacked)
        torch.testing.assert_close(
            batched[1], value({name: p[1] for name, p in stacked.items()}), rtol=1e-9, atol=1e-9
        )


def test_invalid_arguments_of_sem_divergence_raise_errors():
    sem, (mean, factor) = build("linear"), posterior()
    with pytest.raises(UsageError, match="local_min"):
        sem_divergence("local-min", mean, factor, sem)
    with pytest.raises(UsageError, match="pass it as z"):
        sem_divergence("mc", mean, factor, sem)
    with pytest.raises(UsageError, match="at least 1 pivot"):
        sem_divergence("local_mix", mean, factor, sem, pivots=0)
    for tau in (0.0, 1.5):
        with pytest.raises(UsageError, match="tau"):
            sem_divergence("local_mix", mean, factor, sem, tau=tau)
