import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from intervae.causal.gaussian import (
    kl_diagonal,
    kl_pushed_forward,
    kl_standard_normal,
    reparametrise,
)
from normal_draws import draw


def pushed_forward(
    mean: torch.Tensor, log_variance: torch.Tensor, weights: torch.Tensor
) -> MultivariateNormal:
    """q(z) written out: batch (B, k) of Gaussians over n variables."""
    n = len(weights)
    push = torch.linalg.inv(torch.eye(n, dtype=torch.float64) - weights.T)
    variance = log_variance.exp().mT  # (B, k, n)
    covariance = push @ torch.diag_embed(variance) @ push.T
    return MultivariateNormal((push @ mean).mT, (covariance + covariance.mT) / 2)


def test_standard_normal_and_diagonal_equal_torch_distributions():
    mean, log_variance, prior_mean, prior_log_variance = (draw(5, 4, 3, seed=s) for s in range(4))
    posterior = Normal(mean, (0.5 * log_variance).exp())
    standard = kl_divergence(posterior, Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum(
        (1, 2)
    )
    torch.testing.assert_close(
        kl_standard_normal(mean, log_variance), standard, rtol=1e-10, atol=1e-10
    )
    prior = Normal(prior_mean, (0.5 * prior_log_variance).exp())
    other = kl_divergence(posterior, prior).sum((1, 2))
    torch.testing.assert_close(
        kl_diagonal(mean, log_variance, prior_mean, prior_log_variance),
        other,
        rtol=1e-10,
        atol=1e-10,
    )


def test_divergence_from_itself_is_zero():
    mean, log_variance = draw(5, 4, 3), draw(5, 4, 3, seed=1)
    assert kl_diagonal(mean, log_variance, mean, log_variance).abs().max() == 0
    assert kl_standard_normal(torch.zeros(2, 3), torch.zeros(2, 3)).tolist() == [0.0, 0.0]


def test_a_prior_may_be_a_number_or_broadcast():
    mean, log_variance, weights = draw(5, 4, 3), draw(5, 4, 3, seed=1), 0.3 * draw(4, 4, seed=2)
    full_mean, full_log_variance = torch.full_like(mean, 0.5), torch.full_like(mean, -1.0)
    for small_mean, small_log_variance in (
        (0.5, -1.0),
        (full_mean[:1], full_log_variance[0, :, :1]),
        (full_mean[..., :1], full_log_variance[0, 0, 0]),
    ):
        expected = kl_diagonal(mean, log_variance, full_mean, full_log_variance)
        torch.testing.assert_close(
            kl_diagonal(mean, log_variance, small_mean, small_log_variance), expected
        )
        expected = kl_pushed_forward(mean, log_variance, weights, full_mean, full_log_variance)
        torch.testing.assert_close(
            kl_pushed_forward(mean, log_variance, weights, small_mean, small_log_variance), expected
        )
    torch.testing.assert_close(
        kl_diagonal(mean, log_variance, 0.0, 0.0), kl_standard_normal(mean, log_variance)
    )


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 6), k=st.integers(1, 3), cyclic=st.booleans(), seed=st.integers(0, 10**6))
def test_pushed_forward_equals_the_full_multivariate_divergence(n, k, cyclic, seed):
    """With cycles too, where the determinant of I - A^T is not 1."""
    weights = (
        0.5 * draw(n, n, seed=seed) / math.sqrt(n) if cyclic else draw(n, n, seed=seed).triu(1)
    )
    mean, log_variance, prior_mean, prior_log_variance = (
        draw(4, n, k, seed=seed + s) for s in range(1, 5)
    )
    prior = MultivariateNormal(prior_mean.mT, torch.diag_embed(prior_log_variance.exp().mT))
    expected = kl_divergence(pushed_forward(mean, log_variance, weights), prior).sum(1)
    torch.testing.assert_close(
        kl_pushed_forward(mean, log_variance, weights, prior_mean, prior_log_variance),
        expected,
        rtol=1e-10,
        atol=1e-10,
    )


def test_the_determinant_of_a_cycle_counts():
    weights = torch.tensor([[0.0, 0.8], [0.5, 0.0]], dtype=torch.float64)
    mean, log_variance = (
        torch.zeros(1, 2, 3, dtype=torch.float64),
        torch.zeros(1, 2, 3, dtype=torch.float64),
    )
    push = torch.tensor([[1.0, 0.5], [0.8, 1.0]], dtype=torch.float64) / 0.6
    by_hand = 3 * (0.5 * (push.square().sum() - 2) + math.log(0.6))
    torch.testing.assert_close(
        kl_pushed_forward(mean, log_variance, weights, 0.0, 0.0), by_hand[None], rtol=1e-12, atol=0
    )


def test_pushed_forward_equals_monte_carlo():
    n, k, samples = 4, 2, 200_000
    weights = 0.4 * draw(n, n, seed=11)  # with cycles
    mean, log_variance, prior_mean, prior_log_variance = (
        0.7 * draw(1, n, k, seed=s) for s in range(12, 16)
    )
    posterior = pushed_forward(mean, log_variance, weights)
    generator = torch.Generator().manual_seed(0)
    exogenous = reparametrise(mean.expand(samples, n, k), log_variance, generator)
    push = torch.linalg.inv(torch.eye(n, dtype=torch.float64) - weights.T)
    z = push @ exogenous
    log_ratio = posterior.log_prob(z.mT).sum(1) - Normal(
        prior_mean, (0.5 * prior_log_variance).exp()
    ).log_prob(z).sum((1, 2))
    estimate, error = log_ratio.mean().item(), log_ratio.std().item() / math.sqrt(samples)
    exact = kl_pushed_forward(mean, log_variance, weights, prior_mean, prior_log_variance).item()
    assert error < 0.01 * exact
    assert abs(estimate - exact) < 4 * error


def test_without_edges_it_is_the_diagonal_divergence():
    mean, log_variance, prior_mean, prior_log_variance = (draw(5, 4, 3, seed=s) for s in range(4))
    no_edges = torch.zeros(4, 4, dtype=torch.float64)
    expected = kl_diagonal(mean, log_variance, prior_mean, prior_log_variance)
    torch.testing.assert_close(
        kl_pushed_forward(mean, log_variance, no_edges, prior_mean, prior_log_variance),
        expected,
        rtol=1e-12,
        atol=1e-12,
    )


def test_gradients():
    mean, log_variance, prior_mean, prior_log_variance = (
        draw(2, 3, 2, seed=s).requires_grad_() for s in range(4)
    )
    weights = (0.3 * draw(3, 3, seed=5)).requires_grad_()
    assert torch.autograd.gradcheck(kl_standard_normal, (mean, log_variance))
    assert torch.autograd.gradcheck(
        kl_diagonal, (mean, log_variance, prior_mean, prior_log_variance)
    )
    assert torch.autograd.gradcheck(
        kl_pushed_forward, (mean, log_variance, weights, prior_mean, prior_log_variance)
    )


def test_many_models_at_once_under_vmap():
    weights = 0.3 * draw(3, 4, 4)
    mean, log_variance = draw(3, 5, 4, 2, seed=1), draw(3, 5, 4, 2, seed=2)

    def divergence(m, v, w):
        return kl_pushed_forward(m, v, w, 0.1, -0.2)

    one_by_one = torch.stack(
        [divergence(*row) for row in zip(mean, log_variance, weights, strict=True)]
    )
    torch.testing.assert_close(
        torch.func.vmap(divergence)(mean, log_variance, weights), one_by_one, rtol=1e-10, atol=1e-12
    )


def test_reparametrised_draws_have_the_mean_and_variance_and_carry_gradients():
    mean = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    log_variance = torch.tensor([0.0, math.log(9.0)], dtype=torch.float64, requires_grad=True)
    draws = reparametrise(mean.expand(100_000, 2), log_variance, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), mean, rtol=0, atol=0.04)
    torch.testing.assert_close(draws.var(0), log_variance.exp(), rtol=0.03, atol=0)
    noise = (draws - mean) / (0.5 * log_variance).exp()
    to_mean, to_log_variance = torch.autograd.grad(
        draws.sum(), (mean, log_variance), retain_graph=True
    )
    torch.testing.assert_close(to_mean, torch.full_like(mean, 100_000))
    torch.testing.assert_close(to_log_variance, (0.5 * (0.5 * log_variance).exp() * noise).sum(0))


def test_the_same_generator_gives_the_same_draw():
    mean, log_variance = draw(3, 2), draw(3, 2, seed=1)
    first, second, other = (
        reparametrise(mean, log_variance, torch.Generator().manual_seed(seed)) for seed in (4, 4, 5)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert first.dtype == torch.float64
