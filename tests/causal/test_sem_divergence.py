"""Divergences from a SEM: exact where it is linear, against torch's, against each other, and against Monte Carlo where it is not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from intervae.causal.gaussian import kl_standard_normal
from intervae.causal.sem import SEM
from intervae.causal.sem_divergence import (
    divergence,
    draw_pivots,
    kl_local,
    kl_local_min,
    kl_local_mix,
    kl_monte_carlo,
    kl_monte_carlo_mix,
    kl_tangent,
    linearise,
    log_posterior,
    propagate_linear,
    solve_lower,
    substitute_forward,
)
from intervae.errors import UsageError

D, B = 5, 6
EYE = torch.eye(D, dtype=torch.float64)
FORMS = ("linear", "quadratic", "mlp")
PARABOLA = torch.tensor([[0, 1], [0, 0]])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(form: str = "linear", seed: int = 0) -> SEM:
    torch.manual_seed(seed)
    sem = SEM(torch.ones(D, D).triu(1), form=form).double()
    with torch.no_grad():
        sem.log_scales.copy_(0.3 * draw(D, seed=seed) - 0.7)
        if form == "linear":
            sem.weights.copy_(draw(D, D, seed=seed + 1) * sem.allowed)
    return sem


def posterior(batch: int = B, d: int = D, seed: int = 5) -> tuple[Tensor, Tensor]:
    factor = 0.4 * draw(batch, d, d, seed=seed).tril(-1) + torch.diag_embed((0.5 * draw(batch, d, seed=seed + 1) - 0.5).exp())
    return draw(batch, d, seed=seed + 2), factor


def edges_of(sem: SEM) -> Tensor:
    return sem.sample_edges(torch.Generator().manual_seed(8)).detach()


def prior_of_linear(sem: SEM, edges: Tensor | None = None) -> MultivariateNormal:
    """The SEM's distribution, written out with an inverse."""
    weights = sem.weights * (sem.allowed if edges is None else edges)
    root = torch.linalg.inv(EYE - weights.T) * sem.log_scales.exp()
    return MultivariateNormal(torch.zeros(D, dtype=torch.float64), root @ root.T)


def local_gaussian(sem: SEM, pivot: Tensor, edges: Tensor | None = None, tau: float = 1.0) -> MultivariateNormal:
    root = torch.linalg.inv(EYE - sem.jacobian(pivot, edges)) * sem.log_scales.exp() * tau
    return MultivariateNormal(pivot, scale_tril=root.tril())


# ---- Theorem 2 ------------------------------------------------------------------------------------------------------
def test_propagation_equals_the_papers_product_its_determinant_and_its_precision():
    """A_d ... A_2 of Theorem 2, where A_i is the identity with row i replaced by (a_i, 1, 0 ...)."""
    A, b, variances = draw(3, D, D).tril(-1), draw(3, D, seed=1), draw(D, seed=2).exp()
    mean, covariance = propagate_linear(A, b, variances)
    for k in range(3):
        product = EYE
        for i in range(1, D):
            step = EYE.clone()
            step[i, :i] = A[k, i, :i]
            product = step @ product
        torch.testing.assert_close(mean[k], product @ b[k], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(covariance[k], product @ torch.diag(variances) @ product.T, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(torch.logdet(covariance[k]), variances.log().sum(), rtol=1e-7, atol=1e-7)
        precision = (EYE - A[k]).T @ torch.diag(1 / variances) @ (EYE - A[k])
        torch.testing.assert_close(precision @ covariance[k], EYE, rtol=1e-8, atol=1e-8)


def test_a_missing_edge_is_a_zero_and_no_edges_leave_the_noise():
    b, variances = draw(D), draw(D, seed=1).exp()
    mean, covariance = propagate_linear(torch.zeros(D, D, dtype=torch.float64), b, variances)
    assert torch.equal(mean, b)
    torch.testing.assert_close(covariance, torch.diag(variances))


def test_propagation_of_a_linear_sem_has_the_moments_of_its_samples():
    sem = build("linear")
    edges = edges_of(sem)
    A, _ = linearise(sem, torch.zeros(1, D, dtype=torch.float64), edges)
    _, covariance = propagate_linear(A[0], torch.zeros(D, dtype=torch.float64), (2 * sem.log_scales).exp())
    drawn = sem.sample(200_000, torch.Generator().manual_seed(0), edges).detach()
    torch.testing.assert_close(torch.cov(drawn.T), covariance.detach(), rtol=0.03, atol=0.05)


def test_substitution_without_a_library_equals_the_library():
    system, right = draw(4, D, D).tril(-1) + torch.diag_embed(draw(4, D, seed=1).exp()), draw(4, D, 3, seed=2)
    torch.testing.assert_close(substitute_forward(system, right), solve_lower(system, right), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(system @ substitute_forward(system, right), right, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(substitute_forward(system, right[0]), solve_lower(system, right[0]), rtol=1e-10, atol=1e-10)


# ---- Theorem 3 ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_with_the_pivots_own_noise_the_mean_of_the_linearised_equations_is_the_pivot(form):
    sem = build(form)
    edges = edges_of(sem)
    noise = sem.draw_noises(7, torch.Generator().manual_seed(0))
    pivots = sem.from_noises(noise, edges)
    A, f = linearise(sem, pivots, edges)
    b = f + noise - (A @ pivots[..., None]).squeeze(-1)
    mean, covariance = propagate_linear(A, b, (2 * sem.log_scales).exp())
    torch.testing.assert_close(mean, pivots, rtol=1e-8, atol=1e-8)
    for k in range(7):
        torch.testing.assert_close(covariance[k], local_gaussian(sem, pivots[k], edges).covariance_matrix, rtol=1e-8, atol=1e-8)


def test_local_gaussians_count_the_noise_of_a_linear_sem_twice_unless_tau_splits_it():
    sem = build("linear")
    with torch.no_grad():
        truth = prior_of_linear(sem).covariance_matrix
        for tau, expected in ((None, 2.0), (0.6, 1.0), (0.3, 1.0), (1.0, 1.0)):
            pivots = draw_pivots(sem, 100_000, generator=torch.Generator().manual_seed(1), tau=tau)
            local = (1 if tau is None else tau**2) * truth
            mixture = torch.cov(pivots.T) + local  # of a mixture of Gaussians: of the means, and of each
            whiten = torch.linalg.inv(torch.linalg.cholesky(truth))
            ratio = whiten @ mixture @ whiten.T
            torch.testing.assert_close(ratio, expected * EYE, rtol=0, atol=0.02)
            assert (ratio.trace() / D).item() == pytest.approx(expected, abs=0.01)


def test_the_mixture_that_tau_makes_exact_has_the_density_of_the_linear_sem():
    torch.manual_seed(0)
    sem = SEM(PARABOLA, form="linear", scales=[1.0, 0.5]).double()
    with torch.no_grad():
        sem.weights[0, 1] = 1.3
        pivots = draw_pivots(sem, 40_000, generator=torch.Generator().manual_seed(1), tau=0.7)
        z, (mean, factor) = sem.sample(20, torch.Generator().manual_seed(2)), posterior(20, 2)
        mixture = log_posterior(z, mean, factor) - kl_monte_carlo_mix(z, mean, factor, sem, pivots, tau=0.7)
        torch.testing.assert_close(mixture, sem.log_density(z), rtol=0, atol=0.05)
        pivots = draw_pivots(sem, 40_000, generator=torch.Generator().manual_seed(1))
        mixture = log_posterior(z, mean, factor) - kl_monte_carlo_mix(z, mean, factor, sem, pivots)
        assert (mixture - sem.log_density(z)).abs().max() > 0.5


# ---- tangent --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("masked", [False, True])
def test_tangent_is_exact_for_a_linear_sem(masked):
    sem, (mean, factor) = build("linear"), posterior()
    edges = edges_of(sem) if masked else None
    exact = kl_divergence(MultivariateNormal(mean, scale_tril=factor), prior_of_linear(sem, edges))
    torch.testing.assert_close(kl_tangent(mean, factor, sem, edges), exact, rtol=1e-10, atol=1e-10)


def test_every_pivot_gives_a_linear_sem_the_same_exact_tangent_prior():
    sem = build("linear")
    pivots = 3 * draw(10, D)
    A, f = linearise(sem, pivots)
    mean, covariance = propagate_linear(A, f - (A @ pivots[..., None]).squeeze(-1), (2 * sem.log_scales).exp())
    prior = prior_of_linear(sem)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)
    torch.testing.assert_close(covariance, prior.covariance_matrix.expand(10, D, D), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", ["quadratic", "mlp"])
def test_tangent_is_the_divergence_from_the_linearised_equations(form):
    sem, (mean, factor) = build(form), posterior()
    edges = edges_of(sem)
    A, f = linearise(sem, mean, edges)
    centre, covariance = propagate_linear(A, f - (A @ mean[..., None]).squeeze(-1), (2 * sem.log_scales).exp())
    for row in range(B):
        prior = MultivariateNormal(centre[row], scale_tril=(torch.linalg.inv(EYE - A[row]) * sem.log_scales.exp()).tril())
        torch.testing.assert_close(prior.covariance_matrix, covariance[row], rtol=1e-6, atol=1e-6)
        exact = kl_divergence(MultivariateNormal(mean[row], scale_tril=factor[row]), prior)
        torch.testing.assert_close(kl_tangent(mean, factor, sem, edges)[row], exact, rtol=1e-8, atol=1e-8)


def test_tangent_approaches_the_true_divergence_of_the_parabola_as_the_posterior_narrows():
    """E (z_1^2 - a^2 - 2 a (z_1 - a))^2 and the cross term are what the first order leaves out: known in closed form."""
    sem = SEM(PARABOLA, form="quadratic", scales=[1.0, 0.5]).double()
    mean = torch.tensor([[0.8, 0.3]], dtype=torch.float64)
    for width in (0.5, 0.1, 0.02):
        factor = width * torch.eye(2, dtype=torch.float64)[None]
        # residual r = z_2 - z_1^2: mean (b - a^2 - s^2), variance s^2 + 4 a^2 s^2 + 2 s^4
        second = (0.3 - 0.64 - width**2) ** 2 + width**2 + 4 * 0.64 * width**2 + 2 * width**4
        truth = 0.5 * (0.64 + width**2 + second / 0.25 - 2 + 2 * math.log(0.5)) - 2 * math.log(width)
        missing = 0.5 * (2 * 0.34 * width**2 + 3 * width**4) / 0.25
        assert kl_tangent(mean, factor, sem).item() == pytest.approx(truth - missing, rel=1e-7)  # sigma came from single precision


# ---- without mechanisms: the usual VAE ------------------------------------------------------------------------------
def test_without_mechanisms_and_with_unit_scales_all_is_the_usual_divergence():
    sem = SEM(torch.ones(D, D).triu(1), form="quadratic").double()
    none = torch.zeros(D, D, dtype=torch.float64)
    mean, log_variance = draw(B, D), draw(B, D, seed=1)
    factor = torch.diag_embed((0.5 * log_variance).exp())
    usual = kl_standard_normal(mean, log_variance)
    torch.testing.assert_close(kl_tangent(mean, factor, sem, none), usual, rtol=1e-10, atol=1e-10)
    zero = torch.zeros(1, D, dtype=torch.float64)
    torch.testing.assert_close(kl_local(mean, factor, sem, zero, none)[:, 0], usual, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kl_local_mix(mean, factor, sem, zero.expand(7, D), none), usual, rtol=1e-10, atol=1e-10)
    exact = divergence("local_min", mean, factor, sem, edges=none, pivots=3, tau=1.0)  # all noise in the local Gaussian
    torch.testing.assert_close(exact, usual, rtol=1e-10, atol=1e-10)


# ---- local Gaussians ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tau", [None, 0.5])
def test_local_divergences_equal_torch_and_the_factored_form(form, tau):
    sem, (mean, factor) = build(form), posterior()
    edges = edges_of(sem)
    pivots = draw_pivots(sem, 4, edges, torch.Generator().manual_seed(0), tau=tau).detach()
    found = kl_local(mean, factor, sem, pivots, edges, tau=tau)
    assert found.shape == (B, 4)
    scales = sem.log_scales.exp() * (tau or 1.0)
    for k in range(4):
        exact = kl_divergence(MultivariateNormal(mean, scale_tril=factor), local_gaussian(sem, pivots[k], edges, tau or 1.0))
        torch.testing.assert_close(found[:, k], exact, rtol=1e-9, atol=1e-9)
        system = EYE - sem.jacobian(pivots[k], edges)
        squares = ((mean - pivots[k]) @ system.T).square() + (system @ factor).square().sum(-1)
        factored = 0.5 * (squares / scales**2 - 1 + 2 * scales.log()).sum(-1) - factor.diagonal(dim1=1, dim2=2).log().sum(-1)
        torch.testing.assert_close(found[:, k], factored, rtol=1e-10, atol=1e-10)


def test_one_pivot_of_a_linear_sem_at_zero_is_the_exact_divergence():
    sem, (mean, factor) = build("linear"), posterior()
    exact = kl_divergence(MultivariateNormal(mean, scale_tril=factor), prior_of_linear(sem))
    zero = torch.zeros(1, D, dtype=torch.float64)
    for found in (kl_local_min(mean, factor, sem, zero), kl_local_mix(mean, factor, sem, zero)):
        torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-10)


def test_double_precision_saves_what_small_scales_lose_in_single():
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
    closest, mixture = kl_local_min(mean, factor, sem, pivots), kl_local_mix(mean, factor, sem, pivots)
    assert (closest <= mixture + 1e-12).all()
    assert (mixture <= closest + math.log(30) + 1e-12).all()
    assert (mixture - closest).max() - (mixture - closest).min() > 0.1  # neither bound is always met
    each = torch.stack([kl_local(mean, factor, sem, pivots[k : k + 1])[:, 0] for k in range(30)], dim=1)
    torch.testing.assert_close(closest, each.min(1).values)
    torch.testing.assert_close(mixture, -torch.exp(-each).mean(1).log())


# ---- Monte Carlo ----------------------------------------------------------------------------------------------------
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


def test_monte_carlo_is_unbiased_for_the_parabola_too():
    """Where the tangent is off by the curvature; truth as in the test of the tangent."""
    sem = SEM(PARABOLA, form="quadratic", scales=[1.0, 0.5]).double()
    mean, factor = torch.tensor([[0.8, 0.3]], dtype=torch.float64), 0.5 * torch.eye(2, dtype=torch.float64)[None]
    second = (0.3 - 0.64 - 0.25) ** 2 + 0.25 + 4 * 0.64 * 0.25 + 2 * 0.0625
    truth = 0.5 * (0.64 + 0.25 + second / 0.25 - 2 + 2 * math.log(0.5)) - 2 * math.log(0.5)
    with torch.no_grad():
        z, means, factors, _ = many_draws(mean, factor, 100_000)
        drawn = kl_monte_carlo(z, means, factors, sem)
        error = drawn.std().item() / math.sqrt(len(drawn))
        assert drawn.mean().item() == pytest.approx(truth, abs=4 * error)
        assert abs(kl_tangent(mean, factor, sem).item() - truth) > 20 * error


@pytest.mark.parametrize("form", FORMS)
def test_monte_carlo_against_a_mixture_is_its_log_density_and_below_the_bound(form):
    sem, (mean, factor) = build(form), posterior(1)
    edges = edges_of(sem)
    with torch.no_grad():
        pivots = draw_pivots(sem, 5, edges, torch.Generator().manual_seed(0))
        z, means, factors, _ = many_draws(mean, factor, 5_000)
        each = torch.stack([local_gaussian(sem, pivot, edges).log_prob(z[:20]) for pivot in pivots], dim=1)
        expected = MultivariateNormal(means[:20], scale_tril=factors[:20]).log_prob(z[:20]) - (torch.logsumexp(each, 1) - math.log(5))
        found = kl_monte_carlo_mix(z, means, factors, sem, pivots, edges)
        torch.testing.assert_close(found[:20], expected, rtol=1e-8, atol=1e-8)
        bound = kl_local_mix(mean, factor, sem, pivots, edges).item()
        assert found.mean().item() < bound + 4 * found.std().item() / math.sqrt(len(found))


def test_known_noise_saves_the_solve_and_changes_nothing():
    sem, (mean, factor) = build("mlp"), posterior()
    noise = draw(B, D, seed=3)
    z = mean + (factor @ noise[..., None]).squeeze(-1)
    torch.testing.assert_close(log_posterior(z, mean, factor), MultivariateNormal(mean, scale_tril=factor).log_prob(z), rtol=1e-10, atol=1e-10)
    for kind in ("mc", "mc_mix"):
        settings = {"z": z, "pivots": 6, "generator": torch.Generator().manual_seed(0)}
        without = divergence(kind, mean, factor, sem, **settings)
        settings["generator"] = torch.Generator().manual_seed(0)
        torch.testing.assert_close(divergence(kind, mean, factor, sem, noise=noise, **settings), without, rtol=1e-10, atol=1e-10)


def test_gradients_of_the_monte_carlo_divergence_of_a_linear_sem_average_to_the_exact_ones():
    sem, (mean, factor) = build("linear"), posterior(1)
    mean, factor = mean.requires_grad_(), factor.requires_grad_()
    exact = torch.autograd.grad(kl_tangent(mean, factor, sem).sum(), [mean, factor, sem.weights, sem.log_scales])
    z, means, factors, noise = many_draws(mean, factor, 60_000)
    for known in (noise, None):
        drawn = kl_monte_carlo(z, means, factors, sem, noise=known).mean()
        found = torch.autograd.grad(drawn, [mean, factor, sem.weights, sem.log_scales], retain_graph=True)
        for a, b in zip(found, exact, strict=True):
            a, b = (a.tril(), b.tril()) if a.shape == factor.shape else (a, b)
            torch.testing.assert_close(a, b, rtol=0.03, atol=0.03 * b.abs().max().item())


# ---- the one door ---------------------------------------------------------------------------------------------------
KINDS = ("tangent", "local_min", "local_mix", "mc", "mc_mix")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_gradients_to_posterior_mechanisms_scales_and_edges(form, kind):
    sem = build(form).float()
    mean, factor = (values.float().requires_grad_() for values in posterior())
    edges = sem.sample_edges(torch.Generator().manual_seed(1))
    noise = draw(B, D, seed=3).float()
    z = mean + (factor @ noise[..., None]).squeeze(-1)
    found = divergence(kind, mean, factor, sem, z=z, edges=edges, generator=torch.Generator().manual_seed(2), pivots=20, noise=noise)
    assert found.shape == (B,)
    assert found.dtype == torch.float32
    found.mean().backward()
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
        settings = {"z": z, "edges": edges, "generator": torch.Generator().manual_seed(0), "pivots": 4}
        return torch.func.functional_call(Door(sem, kind, factor, settings), {"sem.log_scales": scales}, (mean,)).sum()

    inputs = (0.3 * mean, sem.log_scales.detach().clone(), 0.5 * edges_of(sem))
    assert torch.autograd.gradcheck(total, [values.requires_grad_() for values in inputs], rtol=1e-4, atol=1e-5)


class Door(torch.nn.Module):
    def __init__(self, sem: SEM, kind: str, factor: Tensor, settings: dict) -> None:
        super().__init__()
        self.sem, self.kind, self.factor, self.settings = sem, kind, factor, settings

    def forward(self, mean: Tensor) -> Tensor:
        return divergence(self.kind, mean, self.factor, self.sem, **self.settings)


def test_the_door_leads_to_the_functions():
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
        found = divergence(kind, mean, factor, sem, z=z, edges=edges, generator=torch.Generator().manual_seed(0), pivots=9, tau=0.8)
        torch.testing.assert_close(found, value)


def test_any_square_factor_does_where_its_determinant_is_known():
    """As after an affine alignment, which turns L into T L."""
    sem, (mean, lower) = build("mlp"), posterior()
    edges, turn, noise = edges_of(sem), draw(D, D, seed=9), draw(B, D, seed=3)
    factor = turn @ lower
    log_det = lower.diagonal(dim1=1, dim2=2).log().sum(-1) + torch.linalg.slogdet(turn).logabsdet
    same = torch.linalg.cholesky(factor @ factor.mT)  # the same covariance by a triangular factor
    z = mean + (factor @ noise[..., None]).squeeze(-1)
    for kind in KINDS:
        found, expected = (
            divergence(kind, mean, given, sem, z=z, edges=edges, generator=torch.Generator().manual_seed(0), pivots=9, **known)
            for given, known in ((factor, {"noise": noise, "log_det": log_det}), (same, {}))
        )
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_divergences_of_many_sems_at_once_under_vmap():
    sem, (mean, factor) = build("mlp"), posterior()
    z = draw(B, D, seed=4)
    for kind in KINDS:
        door = Door(sem, kind, factor, {"z": z, "pivots": 5})
        stacked = {name: torch.stack([p.detach(), p.detach() + 0.1]) for name, p in door.named_parameters()}

        def value(parameters, door=door):
            door.settings["generator"] = torch.Generator().manual_seed(0)
            return torch.func.functional_call(door, parameters, (mean,))

        together = torch.func.vmap(value, randomness="same")(stacked)
        torch.testing.assert_close(together[1], value({name: p[1] for name, p in stacked.items()}), rtol=1e-9, atol=1e-9)


def test_wrong_requests_are_refused_in_a_sentence():
    sem, (mean, factor) = build("linear"), posterior()
    with pytest.raises(UsageError, match="local_min"):
        divergence("local-min", mean, factor, sem)
    with pytest.raises(UsageError, match="pass it as z"):
        divergence("mc", mean, factor, sem)
    with pytest.raises(UsageError, match="at least 1 pivot"):
        divergence("local_mix", mean, factor, sem, pivots=0)
    for tau in (0.0, 1.5):
        with pytest.raises(UsageError, match="tau"):
            divergence("local_mix", mean, factor, sem, tau=tau)
