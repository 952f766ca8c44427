"""Theorems 2 and 3: propagation through linear and linearised equations; the tangent KL."""

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
from torch.distributions import MultivariateNormal, kl_divergence

from intervae.causal.sem.divergence import (
    draw_pivots,
    kl_monte_carlo_mix,
    kl_tangent,
    log_posterior,
)
from intervae.causal.sem.equations import SEM
from intervae.causal.sem.linearised import (
    linearise,
    propagate_linear,
    solve_lower,
    substitute_forward,
)
from normal_draws import draw


def test_propagation_equals_the_product_of_theorem_2():
    """A_d ... A_2 of Theorem 2: A_i is the identity with row i replaced by (a_i, 1, 0 ...)."""
    A, b, variances = draw(3, D, D).tril(-1), draw(3, D, seed=1), draw(D, seed=2).exp()
    mean, covariance = propagate_linear(A, b, variances)
    for k in range(3):
        product = EYE
        for i in range(1, D):
            step = EYE.clone()
            step[i, :i] = A[k, i, :i]
            product = step @ product
        torch.testing.assert_close(mean[k], product @ b[k], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(
            covariance[k], product @ torch.diag(variances) @ product.T, rtol=1e-10, atol=1e-10
        )
        torch.testing.assert_close(
            torch.logdet(covariance[k]), variances.log().sum(), rtol=1e-7, atol=1e-7
        )
        precision = (EYE - A[k]).T @ torch.diag(1 / variances) @ (EYE - A[k])
        torch.testing.assert_close(precision @ covariance[k], EYE, rtol=1e-8, atol=1e-8)


def test_without_edges_propagation_gives_the_noise():
    b, variances = draw(D), draw(D, seed=1).exp()
    mean, covariance = propagate_linear(torch.zeros(D, D, dtype=torch.float64), b, variances)
    assert torch.equal(mean, b)
    torch.testing.assert_close(covariance, torch.diag(variances))


def test_propagation_has_the_moments_of_samples_of_a_linear_sem():
    sem = build("linear")
    edges = edges_of(sem)
    A, _ = linearise(sem, torch.zeros(1, D, dtype=torch.float64), edges)
    _, covariance = propagate_linear(
        A[0], torch.zeros(D, dtype=torch.float64), (2 * sem.log_scales).exp()
    )
    drawn = sem.sample(200_000, torch.Generator().manual_seed(0), edges).detach()
    torch.testing.assert_close(torch.cov(drawn.T), covariance.detach(), rtol=0.03, atol=0.05)


def test_forward_substitution_equals_the_library_solver():
    system, right = (
        draw(4, D, D).tril(-1) + torch.diag_embed(draw(4, D, seed=1).exp()),
        draw(4, D, 3, seed=2),
    )
    torch.testing.assert_close(
        substitute_forward(system, right), solve_lower(system, right), rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        system @ substitute_forward(system, right), right, rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        substitute_forward(system, right[0]), solve_lower(system, right[0]), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("form", FORMS)
def test_linearised_equations_with_the_noise_of_the_pivot_have_it_as_mean(form):
    sem = build(form)
    edges = edges_of(sem)
    noise = sem.draw_noises(7, torch.Generator().manual_seed(0))
    pivots = sem.from_noises(noise, edges)
    A, f = linearise(sem, pivots, edges)
    b = f + noise - (A @ pivots[..., None]).squeeze(-1)
    mean, covariance = propagate_linear(A, b, (2 * sem.log_scales).exp())
    torch.testing.assert_close(mean, pivots, rtol=1e-8, atol=1e-8)
    for k in range(7):
        torch.testing.assert_close(
            covariance[k],
            local_gaussian(sem, pivots[k], edges).covariance_matrix,
            rtol=1e-8,
            atol=1e-8,
        )


def test_local_gaussians_count_the_noise_twice_unless_tau_splits_it():
    sem = build("linear")
    with torch.no_grad():
        truth = prior_of_linear(sem).covariance_matrix
        for tau, expected in ((None, 2.0), (0.6, 1.0), (0.3, 1.0), (1.0, 1.0)):
            pivots = draw_pivots(sem, 100_000, generator=torch.Generator().manual_seed(1), tau=tau)
            local = (1 if tau is None else tau**2) * truth
            mixture = torch.cov(pivots.T) + local  # covariance of the means and of each Gaussian
            whiten = torch.linalg.inv(torch.linalg.cholesky(truth))
            ratio = whiten @ mixture @ whiten.T
            torch.testing.assert_close(ratio, expected * EYE, rtol=0, atol=0.02)
            assert (ratio.trace() / D).item() == pytest.approx(expected, abs=0.01)


def test_mixture_with_tau_has_the_density_of_the_linear_sem():
    torch.manual_seed(0)
    sem = SEM(PARABOLA, form="linear", scales=[1.0, 0.5]).double()
    with torch.no_grad():
        sem.weights[0, 1] = 1.3
        pivots = draw_pivots(sem, 40_000, generator=torch.Generator().manual_seed(1), tau=0.7)
        z, (mean, factor) = sem.sample(20, torch.Generator().manual_seed(2)), posterior(20, 2)
        mixture = log_posterior(z, mean, factor) - kl_monte_carlo_mix(
            z, mean, factor, sem, pivots, tau=0.7
        )
        torch.testing.assert_close(mixture, sem.log_density(z), rtol=0, atol=0.05)
        pivots = draw_pivots(sem, 40_000, generator=torch.Generator().manual_seed(1))
        mixture = log_posterior(z, mean, factor) - kl_monte_carlo_mix(z, mean, factor, sem, pivots)
        assert (mixture - sem.log_density(z)).abs().max() > 0.5


@pytest.mark.parametrize("masked", [False, True])
def test_tangent_is_exact_for_a_linear_sem(masked):
    sem, (mean, factor) = build("linear"), posterior()
    edges = edges_of(sem) if masked else None
    exact = kl_divergence(MultivariateNormal(mean, scale_tril=factor), prior_of_linear(sem, edges))
    torch.testing.assert_close(kl_tangent(mean, factor, sem, edges), exact, rtol=1e-10, atol=1e-10)


def test_tangent_prior_of_a_linear_sem_is_exact_at_every_pivot():
    sem = build("linear")
    pivots = 3 * draw(10, D)
    A, f = linearise(sem, pivots)
    mean, covariance = propagate_linear(
        A, f - (A @ pivots[..., None]).squeeze(-1), (2 * sem.log_scales).exp()
    )
    prior = prior_of_linear(sem)
    torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        covariance, prior.covariance_matrix.expand(10, D, D), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("form", ["quadratic", "mlp"])
def test_tangent_is_the_kl_from_the_linearised_equations(form):
    sem, (mean, factor) = build(form), posterior()
    edges = edges_of(sem)
    A, f = linearise(sem, mean, edges)
    centre, covariance = propagate_linear(
        A, f - (A @ mean[..., None]).squeeze(-1), (2 * sem.log_scales).exp()
    )
    for row in range(B):
        prior = MultivariateNormal(
            centre[row], scale_tril=(torch.linalg.inv(EYE - A[row]) * sem.log_scales.exp()).tril()
        )
        torch.testing.assert_close(prior.covariance_matrix, covariance[row], rtol=1e-6, atol=1e-6)
        exact = kl_divergence(MultivariateNormal(mean[row], scale_tril=factor[row]), prior)
        torch.testing.assert_close(
            kl_tangent(mean, factor, sem, edges)[row], exact, rtol=1e-8, atol=1e-8
        )


def test_tangent_approaches_the_kl_of_the_parabola_for_narrow_posteriors():
    """The first order omits E (z_1^2 - a^2 - 2 a (z_1 - a))^2 and the cross term."""
    sem = SEM(PARABOLA, form="quadratic", scales=[1.0, 0.5]).double()
    mean = torch.tensor([[0.8, 0.3]], dtype=torch.float64)
    for width in (0.5, 0.1, 0.02):
        factor = width * torch.eye(2, dtype=torch.float64)[None]
        # residual r = z_2 - z_1^2: mean (b - a^2 - s^2), variance s^2 + 4 a^2 s^2 + 2 s^4
        second = (0.3 - 0.64 - width**2) ** 2 + width**2 + 4 * 0.64 * width**2 + 2 * width**4
        truth = 0.5 * (0.64 + width**2 + second / 0.25 - 2 + 2 * math.log(0.5)) - 2 * math.log(
            width
        )
        missing = 0.5 * (2 * 0.34 * width**2 + 3 * width**4) / 0.25
        # sigma is rounded to single precision
        assert kl_tangent(mean, factor, sem).item() == pytest.approx(truth - missing, rel=1e-7)
