"""Likelihood bounds of a linear Gaussian model with known log p(x) and ELBO."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from intervae.errors import DataError, UsageError
from intervae.metrics.likelihood import active_units, elbo, likelihood_bounds, log_likelihood

LATENTS, PIXELS, NOISE = 2, 5, 0.7
LOADING = torch.tensor(np.random.default_rng(0).normal(size=(PIXELS, LATENTS)))


class LinearGaussian:
    """z ~ N(u, I), x = W z + 0.7 noise; q(z | x) is the true posterior, shifted and widened."""

    def __init__(self, shift: float = 0.0, wider: float = 1.0) -> None:
        precision = torch.eye(LATENTS, dtype=torch.float64) + LOADING.T @ LOADING / NOISE**2
        self.covariance, self.shift, self.wider = torch.linalg.inv(precision), shift, wider
        self.calls: list[tuple[int, int]] = []

    def posterior(self, x: Tensor, u: Tensor) -> MultivariateNormal:
        mean = (u + x @ LOADING / NOISE**2) @ self.covariance + self.shift
        return MultivariateNormal(mean, self.wider**2 * self.covariance)

    def log_weights(self, x: Tensor, u: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        self.calls.append((samples, len(x)))
        q = self.posterior(x, u)
        noise = torch.stack(
            [
                torch.randn(x.shape[0], LATENTS, generator=generator, dtype=torch.float64)
                for _ in range(samples)
            ]
        )
        z = q.loc + noise @ q.scale_tril[0].T  # (K, B, latents)
        return (
            Normal(z @ LOADING.T, NOISE).log_prob(x).sum(-1)
            + Normal(u, 1.0).log_prob(z).sum(-1)
            - q.log_prob(z)
        )

    def log_evidence(self, x: Tensor, u: Tensor) -> Tensor:
        covariance = LOADING @ LOADING.T + NOISE**2 * torch.eye(PIXELS, dtype=torch.float64)
        return MultivariateNormal(u @ LOADING.T, covariance).log_prob(x)

    def elbo(self, x: Tensor, u: Tensor) -> Tensor:
        """log p(x) - KL(q || true posterior)."""
        return self.log_evidence(x, u) - kl_divergence(
            self.posterior(x, u), LinearGaussian().posterior(x, u)
        )


@pytest.fixture(scope="module")
def samples() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    u = torch.randn(20, LATENTS, generator=rng, dtype=torch.float64)
    z = u + torch.randn(20, LATENTS, generator=rng, dtype=torch.float64)
    return z @ LOADING.T + NOISE * torch.randn(20, PIXELS, generator=rng, dtype=torch.float64), u


def test_with_the_true_posterior_every_draw_equals_the_evidence(
    samples: tuple[Tensor, Tensor],
) -> None:
    model = LinearGaussian()
    bounds = likelihood_bounds(model.log_weights, *samples, samples=3)
    for bound in (bounds.elbo, bounds.importance_weighted):
        np.testing.assert_allclose(bound, model.log_evidence(*samples), rtol=1e-10)
    np.testing.assert_allclose(bounds.effective_samples, 3, rtol=1e-10)


def test_elbo_and_bound_of_a_wrong_posterior(
    samples: tuple[Tensor, Tensor],
) -> None:
    model = LinearGaussian(shift=0.25, wider=1.3)
    truth, lower = model.log_evidence(*samples).mean(), model.elbo(*samples).mean()
    many = likelihood_bounds(model.log_weights, *samples, samples=4000)
    assert many.elbo.mean() == pytest.approx(float(lower), abs=0.02)
    np.testing.assert_allclose(many.elbo, model.elbo(*samples), atol=0.15)
    assert lower < truth - 0.2  # the posterior is wrong
    np.testing.assert_allclose(many.importance_weighted, model.log_evidence(*samples), atol=0.1)
    assert many.importance_weighted.mean() == pytest.approx(float(truth), abs=0.01)
    # in expectation L_1 = ELBO <= L_2 <= ... <= log p(x)
    means = [
        np.mean(
            [
                likelihood_bounds(
                    model.log_weights, *samples, samples=k, seed=s
                ).importance_weighted.mean()
                for s in range(40)
            ]
        )
        for k in (1, 2, 8)
    ]
    assert means[0] == pytest.approx(float(lower), abs=0.05)
    assert means[0] + 0.03 < means[1]
    assert means[1] + 0.03 < means[2] < truth
    assert (many.importance_weighted >= many.elbo).all()


def test_chunks_of_samples_do_not_change_the_result(
    samples: tuple[Tensor, Tensor],
) -> None:
    bounds = []
    for at_once in (8, 40, 1000):
        model = LinearGaussian(shift=0.3, wider=1.5)
        bounds.append(likelihood_bounds(model.log_weights, *samples, samples=13, at_once=at_once))
        assert sum(k for k, _ in model.calls) == 13 * 3  # three blocks of at most 8 images
        assert all(k * b <= at_once for k, b in model.calls)
    for other in bounds[1:]:
        for field in ("elbo", "importance_weighted", "effective_samples"):
            np.testing.assert_allclose(getattr(bounds[0], field), getattr(other, field), rtol=1e-12)


def test_running_sums_equal_the_formula_on_all_draws(samples: tuple[Tensor, Tensor]) -> None:
    chunks: list[np.ndarray] = []

    def record(*arguments: Any) -> Tensor:
        drawn = LinearGaussian(shift=0.5).log_weights(*arguments)
        chunks.append(drawn.numpy())
        return drawn

    x, u = samples
    bounds = likelihood_bounds(record, x[:6], u[:6], samples=20, at_once=24)  # 3 samples at a time
    assert len(chunks) == 7
    log_w = np.concatenate(chunks)  # (20, 6)
    np.testing.assert_allclose(bounds.elbo, log_w.mean(0), rtol=1e-12)
    np.testing.assert_allclose(
        bounds.importance_weighted, np.log(np.exp(log_w).mean(0)), rtol=1e-10
    )
    np.testing.assert_allclose(
        bounds.effective_samples, np.exp(log_w).sum(0) ** 2 / np.exp(2 * log_w).sum(0), rtol=1e-10
    )


@pytest.mark.parametrize("level", [-1e5, 1e5])
def test_tiny_and_huge_weights_do_not_overflow(level: float) -> None:
    def weights(x: Tensor, u: None, k: int, generator: torch.Generator) -> Tensor:
        return torch.full((k, len(x)), level, dtype=torch.float64) + torch.arange(k)[:, None]

    bounds = likelihood_bounds(weights, torch.zeros(9, 1), samples=4)
    np.testing.assert_allclose(bounds.elbo, level + 1.5, atol=1e-9)
    np.testing.assert_allclose(
        bounds.importance_weighted, level + math.log(np.exp(np.arange(4)).mean()), atol=1e-9
    )


def test_results_depend_on_the_seed_and_report_parameters(
    samples: tuple[Tensor, Tensor],
) -> None:
    model = LinearGaussian(shift=0.5)
    first, again, other = (
        log_likelihood(model.log_weights, *samples, samples=5, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first.metric == "log_likelihood"
    assert first.n == 20
    assert (first.parameters["samples"], first.parameters["seed"]) == (5, 1)
    assert 1 < first.parameters["effective_samples"] < 5
    lower = elbo(model.log_weights, *samples, samples=5, seed=1)
    assert lower.metric == "elbo"
    assert lower.value < first.value
    bounds = likelihood_bounds(model.log_weights, *samples, samples=5, seed=1)
    assert [m.value for m in bounds.measurements()] == [lower.value, first.value]
    assert first.spread == pytest.approx(bounds.importance_weighted.std())


def test_wrong_input_raises(samples: tuple[Tensor, Tensor]) -> None:
    model, (x, u) = LinearGaussian(), samples
    for wrong in ({"samples": 0}, {"at_once": 4}):
        with pytest.raises(UsageError, match="at least"):
            likelihood_bounds(model.log_weights, x, u, **wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="20 images and 3 rows"):
        likelihood_bounds(model.log_weights, x, u[:3])
    with pytest.raises(DataError, match="log_weights returned shape"):
        likelihood_bounds(lambda x, u, k, g: torch.zeros(len(x)), x, u)
    for bad in (math.nan, math.inf):
        with pytest.raises(DataError, match="image 18 is not finite"):
            likelihood_bounds(
                lambda y, u, k, g, bad=bad: torch.where(
                    (y == x[18]).all(1), bad, torch.zeros(k, len(y))
                ),
                x,
                u,
            )


# ---- active units --------------------------------------------------------------------------------
def test_active_units_have_varying_means() -> None:
    rng = np.random.default_rng(0)
    spread = np.array([1.0, 0.11, 0.09, 0.0])  # standard deviations; 0.1 is the threshold
    column = rng.permutation(np.repeat([-1.0, 1.0], 50))
    means = 5 + column[:, None] * spread
    result = active_units(means)
    assert (result.value, result.n, result.parameters) == (2, 100, {"threshold": 0.01, "units": 4})
    blocks = active_units(torch.tensor(means.reshape(100, 2, 2)), ["first", "second"])
    assert (blocks.value, blocks.per_variable) == (2, {"first": 2, "second": 0})
    assert active_units(means, threshold=0.5).value == 1
    assert active_units(means, list("abcd")).per_variable == {"a": 1, "b": 1, "c": 0, "d": 0}


def test_wrong_posterior_means_raise() -> None:
    for bad in (np.zeros(3), np.zeros((1, 3)), np.full((3, 2), np.nan)):
        with pytest.raises(DataError, match="posterior means must be finite"):
            active_units(bad)
    with pytest.raises(DataError, match="3 names were given for 2"):
        active_units(np.zeros((4, 2)), ["a", "b", "c"])
