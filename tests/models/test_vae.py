"""VAE and beta-VAE: losses and log-weights against closed forms, and the capacity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from batches import batch_of
from elbo import reference_draw
from intervae.data import Spec
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics import likelihood_bounds
from intervae.models import VAE, BetaVAE

SMALL: dict[str, Any] = {
    "latents": 3,
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "epochs": 2,
    "batch_size": 16,
}
DRAWS = 8000


def spread_posteriors(model: Any) -> Any:
    """Scale the encoder's weights, so that posteriors differ between images."""
    with torch.no_grad():
        model.encoder.dense[-1].weight.mul_(30)
    return model.eval()


def terms_of(model: VAE, batch: dict[str, Tensor], seed: int = 0) -> dict[str, float]:
    return {
        key: value.item()
        for key, value in model.loss(batch, torch.Generator().manual_seed(seed)).items()
    }


def without_time(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in history]


# ---- loss ----------------------------------------------------------------------------------
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "laplace"])
def test_the_loss_is_the_negative_elbo(likelihood: Any, make_data: Any) -> None:
    data = make_data((3, 12, 10))
    model, batch = (
        spread_posteriors(VAE(data.spec, likelihood=likelihood, scale=0.3, **SMALL)),
        batch_of(data),
    )
    terms = terms_of(model, batch, seed=5)
    with torch.no_grad():
        q, _, _, p = reference_draw(model, batch, likelihood, 0.3)
        pixels = -p.log_prob(batch["images"]).sum((1, 2, 3)).mean().item()
        kl = kl_divergence(q, Normal(0.0, 1.0)).sum((1, 2)).mean().item()
    assert kl > 0.1
    assert terms["kl"] == pytest.approx(kl, rel=1e-4)
    assert terms["reconstruction"] == pytest.approx(pixels, rel=1e-4)
    assert terms["loss"] == pytest.approx(pixels + kl, rel=1e-5)


def test_a_posterior_equal_to_the_prior_has_no_kl(make_data: Any) -> None:
    data = make_data()
    model = VAE(data.spec, **SMALL)
    with torch.no_grad():
        model.encoder.dense[-1].weight.zero_()
        model.encoder.dense[-1].bias.zero_()
    assert terms_of(model, batch_of(data))["kl"] == 0
    with torch.no_grad():
        model.encoder.dense[-1].bias[:6] = (
            2.0  # every mean 2, every variance 1: 2^2 / 2 for each of six dims
        )
    assert terms_of(model, batch_of(data))["kl"] == pytest.approx(12)
    assert torch.equal(model.encode(data.test.images), torch.full((len(data.test), 3, 2), 2.0))


# ---- likelihood ----------------------------------------------------------------------------
def test_the_mean_log_weight_is_minus_the_loss(make_data: Any) -> None:
    """Both estimate the ELBO, one with sampled densities, one with the KL in closed form."""
    data = make_data((1, 8, 8))
    model = spread_posteriors(VAE(data.spec, **SMALL))
    batch = batch_of(data, 4)
    drawn = model.log_weights(batch["images"], None, 4000, torch.Generator().manual_seed(0))
    assert drawn.shape == (4000, 4)
    many = {**batch, "images": batch["images"].repeat(4000, 1, 1, 1)}
    with torch.no_grad():
        loss = model.loss(many, torch.Generator().manual_seed(1))["loss"].item()
    error = drawn.mean(1).std().item() / 4000**0.5
    assert error < 0.05
    assert drawn.mean().item() == pytest.approx(-loss, abs=6 * error)


def test_log_weights_integrate_to_the_evidence(make_data: Any) -> None:
    """Without dependence on z the mean weight is p(x); the mean log-weight is lower by the KL."""
    data = make_data((1, 8, 8))
    model = spread_posteriors(VAE(data.spec, **SMALL))
    with torch.no_grad():
        model.decoder.dense[0].weight.zero_()
    images = data.test.images[:3]
    drawn = model.log_weights(images, None, DRAWS, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = images.float() / 255
        mean, log_variance = model.posterior(x)
        kl = kl_divergence(Normal(mean, torch.exp(log_variance / 2)), Normal(0.0, 1.0)).sum((1, 2))
        evidence = -model.reconstruction_loss(torch.zeros(3, 3, 2), x)
    error = drawn.std(0) / DRAWS**0.5
    assert ((drawn.mean(0) - (evidence - kl)).abs() < 4 * error).all()
    torch.testing.assert_close(
        torch.logsumexp(drawn, 0) - np.log(DRAWS), evidence, atol=0.1, rtol=0
    )


def test_the_importance_weighted_bound_rises_with_samples(make_data: Any) -> None:
    data = make_data((1, 8, 8))
    model = spread_posteriors(VAE(data.spec, **SMALL))
    drawn = model.log_weights(
        data.test.images, data.test.labels, 2048, torch.Generator().manual_seed(0)
    )  # labels are not used
    assert torch.equal(
        drawn, model.log_weights(data.test.images, None, 2048, torch.Generator().manual_seed(0))
    )
    bounds = [
        float((torch.logsumexp(drawn.reshape(-1, k, drawn.shape[1]), 1) - np.log(k)).mean())
        for k in (1, 4, 16, 64)
    ]
    assert bounds == sorted(bounds)
    assert bounds[-1] > bounds[0] + 0.1
    measured = likelihood_bounds(model.log_weights, data.test.images, samples=64)
    assert (measured.importance_weighted >= measured.elbo).all()
    with pytest.raises(QueryError, match="at least one sample"):
        model.log_weights(data.test.images, None, 0)


# ---- beta ----------------------------------------------------------------------------------
def test_with_beta_one_training_equals_the_vae(make_data: Any) -> None:
    data = make_data()
    plain, beta_one, beta_four = (
        VAE(data.spec, **SMALL),
        BetaVAE(data.spec, beta=1.0, **SMALL),
        BetaVAE(data.spec, **SMALL),
    )
    histories = [
        without_time(model.fit(data, seed=2).history) for model in (plain, beta_one, beta_four)
    ]
    assert histories[0] == histories[1] != histories[2]
    assert plain.state_dict().keys() == beta_one.state_dict().keys()
    assert all(
        torch.equal(tensor, beta_one.state_dict()[key])
        for key, tensor in plain.state_dict().items()
    )
    assert torch.equal(plain.sample(3, seed=0), beta_one.sample(3, seed=0))


def test_beta_weights_the_kl(make_data: Any) -> None:
    data = make_data()
    model = spread_posteriors(BetaVAE(data.spec, beta=6.5, **SMALL))
    terms = terms_of(model, batch_of(data))
    assert terms["loss"] == pytest.approx(terms["reconstruction"] + 6.5 * terms["kl"], rel=1e-5)
    assert BetaVAE(data.spec).settings.beta == 4


@pytest.mark.parametrize("capacity", [0.5, 500.0])  # below and above the KL
def test_the_capacity_rises_linearly_and_attracts_the_kl(capacity: float, make_data: Any) -> None:
    data = make_data()
    model = spread_posteriors(
        BetaVAE(data.spec, beta=10.0, capacity=capacity, capacity_steps=1000, **SMALL)
    )
    for step, now in (
        (0.0, 0.0),
        (250.0, capacity / 4),
        (1000.0, capacity),
        (5000.0, capacity),
        (float("inf"), capacity),
    ):
        terms = terms_of(model, batch_of(data, step=step))
        assert terms["capacity"] == pytest.approx(now)
        assert terms["loss"] == pytest.approx(
            terms["reconstruction"] + 10 * abs(terms["kl"] - now), rel=1e-5
        )
    kl = terms["kl"]
    assert (kl > capacity) == (capacity == 0.5)


# ---- rest ----------------------------------------------------------------------------------
def test_latents_are_numbered_and_samples_come_from_the_prior(make_data: Any) -> None:
    data = make_data()
    model = VAE(data.spec, **SMALL).eval()
    assert model.latent_names == ("z0", "z1", "z2")
    noise = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(3))
    assert torch.equal(model.sample(4, seed=3), model.decode(noise))
    with pytest.raises(QueryError, match="vae knows no causes"):
        model.sample(4, {"z0": 1.0})


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(DataError, match="single images"):
        VAE(Spec((1, 8, 8), frames=4))
    for wrong in ({"latents": 0}, {"dims": 0}, {"scale": 0.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            VAE(Spec((1, 8, 8)), **wrong)
    for wrong in ({"beta": -1.0}, {"capacity": -1.0}, {"capacity_steps": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            BetaVAE(Spec((1, 8, 8)), **wrong)
