"""Statistics of latents against exact mixtures, closed forms, enumeration and numpy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from intervae.nets.latents import (
    covariance,
    decompose_kl,
    draw_with_log_ratio,
    mixture_log_weights,
    permute_dims,
)


def posteriors(count: int, dims: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Means and log-variances (count, dims) of q(z | x), with correlated dims."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(count, dims, generator=generator, dtype=torch.float64)
    mean[:, 1:] = 0.9 * mean[:, :1] + 0.4 * mean[:, 1:]
    return mean, torch.randn(count, dims, generator=generator, dtype=torch.float64) * 0.5 - 2


def mixture(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """The densities q(z_d | x_j) (rows of z, j, d) by torch.distributions."""
    return Normal(mean, torch.exp(log_variance / 2)).log_prob(z[:, None])


# ---- estimate of q(z) ----------------------------------------------------------------------
def test_weighted_terms_of_whole_data_are_exact_up_to_constants() -> None:
    """q(z) = 1/N sum_j q(z | x_j); weighted estimates are too small by the factor N."""
    count, dims = 6, 3
    mean, log_variance = posteriors(count, dims)
    log_weights = mixture_log_weights(
        count, torch.tensor(float(count), dtype=torch.float64), "weighted"
    )
    z = mean + torch.exp(log_variance / 2) * torch.randn(
        mean.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    result = decompose_kl(z, mean, log_variance, log_weights)
    pairs = mixture(z, mean, log_variance)
    joint, marginals = pairs.sum(2).exp().mean(1).log(), pairs.exp().mean(1).log().sum(1)
    conditional, prior = (
        Normal(mean, torch.exp(log_variance / 2)).log_prob(z).sum(1),
        Normal(0.0, 1.0).log_prob(z).sum(1),
    )
    torch.testing.assert_close(result.mutual_information, conditional - joint + math.log(count))
    torch.testing.assert_close(
        result.total_correlation, joint - marginals + (dims - 1) * math.log(count)
    )
    torch.testing.assert_close(result.dimension_kl, marginals - prior - dims * math.log(count))


def test_the_terms_match_integrals_on_a_grid() -> None:
    """The same three numbers, the expectation over z by quadrature in two dims."""
    mean, log_variance = posteriors(4, 2, seed=3)
    axis = torch.linspace(-7, 7, 701, dtype=torch.float64)
    cell = float(axis[1] - axis[0])
    grid = torch.cartesian_prod(axis, axis)
    pairs = mixture(grid, mean, log_variance)  # (G, 4, 2)
    q, each = pairs.sum(2).exp().mean(1), pairs.exp().mean(1)  # q(z) and q(z_d)
    assert float(q.sum() * cell**2) == pytest.approx(1, abs=1e-6)
    product = each.prod(1)

    def expectation(log_ratio: Tensor) -> float:
        return float((q * log_ratio)[q > 1e-200].sum() * cell**2)

    correlation = expectation(q.log() - product.log())
    dimension_kl = expectation(product.log() - Normal(0.0, 1.0).log_prob(grid).sum(1))
    entropy = 0.5 * (log_variance + math.log(2 * math.pi * math.e)).sum(1).mean()
    information = expectation(-q.log()) - float(entropy)

    draws = 20_000
    big = torch.randn(draws, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_weights = mixture_log_weights(
        4, torch.tensor(4.0, dtype=torch.float64), "weighted"
    ) + math.log(4)  # exact weights 1 / N
    terms = torch.vmap(
        lambda noise: torch.stack(
            decompose_kl(
                mean + torch.exp(log_variance / 2) * noise, mean, log_variance, log_weights
            )
        )
    )(big)
    result, error = terms.mean((0, 2)), terms.mean(2).std(0) / draws**0.5
    assert 0.5 < information < math.log(4)  # at most the identity of the image
    assert correlation > 0.1
    for value, truth, spread in zip(
        result.tolist(), (information, correlation, dimension_kl), error.tolist(), strict=True
    ):
        assert spread < 0.02
        assert value == pytest.approx(truth, abs=4 * spread)


@pytest.mark.parametrize("sampling", ["weighted", "stratified"])
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_the_terms_sum_to_the_sampled_kl(sampling: Any, batch: int) -> None:
    mean, log_variance = posteriors(batch, 4, seed=2)
    z = mean + torch.exp(log_variance / 2) * torch.randn(
        mean.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    terms = decompose_kl(
        z,
        mean,
        log_variance,
        mixture_log_weights(batch, torch.tensor(1000.0, dtype=torch.float64), sampling),
    )
    sampled = Normal(mean, torch.exp(log_variance / 2)).log_prob(z) - Normal(0.0, 1.0).log_prob(z)
    torch.testing.assert_close(sum(terms), sampled.sum(1))
    assert all(part.shape == (batch,) for part in terms)


def test_stratified_weights_are_placed_correctly_and_sum_to_one() -> None:
    weights = mixture_log_weights(5, torch.tensor(100.0), "stratified").exp()
    torch.testing.assert_close(weights.diagonal(), torch.full((5,), 1 / 100))
    torch.testing.assert_close(
        weights[torch.arange(5), (torch.arange(5) + 1) % 5], torch.full((5,), 96 / 400)
    )
    assert int((weights - 1 / 4).abs().lt(1e-6).sum()) == 15
    for batch, samples in ((2, 2), (2, 50), (7, 7), (64, 1000)):
        total = mixture_log_weights(batch, torch.tensor(float(samples)), "stratified").exp().sum(1)
        torch.testing.assert_close(total, torch.ones(batch))
    torch.testing.assert_close(
        mixture_log_weights(8, torch.tensor(100.0), "weighted").exp(), torch.full((8, 8), 1 / 800)
    )


def test_the_stratified_estimate_is_unbiased_over_all_batches() -> None:
    """For a z of image 0 of five images: all ordered batches of three that begin with it."""
    mean, log_variance = posteriors(5, 2, seed=4)
    z = mean[:1] + 0.3
    densities = mixture(z, mean, log_variance).sum(2).exp()[0]  # q(z | x_j), (5,)
    weights = mixture_log_weights(3, torch.tensor(5.0, dtype=torch.float64), "stratified").exp()[0]
    estimates = [
        float((weights * densities[[0, *others]]).sum())
        for others in itertools.permutations(range(1, 5), 2)
    ]
    assert np.mean(estimates) == pytest.approx(float(densities.mean()), rel=1e-12)
    assert np.std(estimates) > 0


def test_a_batch_larger_than_the_data_counts_as_all_of_it() -> None:
    for sampling in ("weighted", "stratified"):
        few, same = (mixture_log_weights(8, torch.tensor(n), sampling) for n in (1.0, 8.0))
        assert torch.isfinite(few).all()
        assert torch.equal(few, same)


# ---- permuted dims -------------------------------------------------------------------------
def test_permuted_dims_keep_marginals_and_lose_dependence() -> None:
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(4000, 1, generator=generator)
    z = common + 0.1 * torch.randn(4000, 3, generator=generator)
    permuted = permute_dims(z, generator)
    assert torch.equal(z.sort(0).values, permuted.sort(0).values)  # the same values in every column
    assert torch.corrcoef(z.T)[0, 1] > 0.98
    off = torch.corrcoef(permuted.T) - torch.eye(3)
    assert off.abs().max() < 4 / 4000**0.5
    order = torch.stack(
        [torch.searchsorted(z[:, d].sort().values, permuted[:, d].contiguous()) for d in range(3)]
    )
    assert not torch.equal(order[0], order[1])  # different orders of the dims
    assert not torch.equal(permuted, permute_dims(z, generator))
    assert torch.equal(
        permute_dims(z, torch.Generator().manual_seed(5)),
        permute_dims(z, torch.Generator().manual_seed(5)),
    )


# ---- covariance, samples -------------------------------------------------------------------
def test_the_covariance_matches_numpy() -> None:
    values = (
        torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        @ torch.randn(4, 4, dtype=torch.float64)
        + 3
    )
    np.testing.assert_allclose(
        covariance(values).numpy(), np.cov(values.numpy().T, bias=True), rtol=1e-10
    )


def test_samples_and_their_log_ratio() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_variance, prior = torch.randn(3, 4, 2, 3, generator=generator)
    z, log_ratio = draw_with_log_ratio(
        mean, log_variance, prior, 5, torch.Generator().manual_seed(1)
    )
    assert z.shape == (5, 4, 2, 3)
    expected = Normal(0.0, torch.exp(prior / 2)).log_prob(z) - Normal(
        mean, torch.exp(log_variance / 2)
    ).log_prob(z)
    torch.testing.assert_close(log_ratio, expected.sum((2, 3)), rtol=1e-4, atol=1e-4)
    again = torch.Generator().manual_seed(1)
    terms = torch.cat(
        [draw_with_log_ratio(mean, log_variance, prior, count, again)[0] for count in (2, 3)]
    )
    assert torch.equal(terms, z)
    standard = draw_with_log_ratio(mean, log_variance, 0.0, 5, torch.Generator().manual_seed(1))[1]
    torch.testing.assert_close(
        standard,
        log_ratio
        + (Normal(0.0, 1.0).log_prob(z) - Normal(0.0, torch.exp(prior / 2)).log_prob(z)).sum(
            (2, 3)
        ),
    )
