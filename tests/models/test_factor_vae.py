"""FactorVAE: both losses, the parameters of both players, and a known total correlation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn import functional

from batches import batch_of
from intervae.errors import UsageError
from intervae.models import VAE, FactorVAE
from intervae.nets.latents import permute_dims

NETS: dict[str, Any] = {
    "latents": 3,
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "epochs": 2,
    "batch_size": 16,
}
SMALL: dict[str, Any] = {**NETS, "discriminator_layers": 3, "discriminator_width": 16}


def latents_of(model: FactorVAE, batch: dict[str, Tensor], generator: torch.Generator) -> Tensor:
    mean, log_variance = model.posterior(batch["images"])
    return (
        mean + torch.exp(log_variance / 2) * torch.randn(mean.shape, generator=generator)
    ).flatten(1)


# ---- two losses ----------------------------------------------------------------------------
def test_the_loss_adds_the_log_odds_of_the_discriminator(make_data: Any) -> None:
    data = make_data()
    model, plain = FactorVAE(data.spec, gamma=7.0, **SMALL), VAE(data.spec, **NETS)
    plain.load_state_dict(
        {
            key: value
            for key, value in model.state_dict().items()
            if not key.startswith("discriminator")
        }
    )
    terms = model.loss(batch_of(data), torch.Generator().manual_seed(0))
    without = plain.loss(batch_of(data), torch.Generator().manual_seed(0))
    logits = model.discriminator(
        latents_of(model, batch_of(data), torch.Generator().manual_seed(0))
    )
    p = torch.softmax(logits, 1)
    correlation = (p[:, 0].log() - p[:, 1].log()).mean()
    torch.testing.assert_close(terms["total_correlation"], correlation, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        terms["loss"], without["loss"] + 7 * correlation, rtol=1e-5, atol=1e-4
    )
    assert torch.equal(terms["kl"], without["kl"])


@pytest.mark.parametrize("size", [8, 7, 2])
def test_the_discriminator_loss_is_a_cross_entropy_of_two_halves(size: int, make_data: Any) -> None:
    data = make_data()
    model, batch = FactorVAE(data.spec, **SMALL), batch_of(data, size)
    terms = model.discriminator_loss(batch, torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    z, half = latents_of(model, batch, generator), (size + 1) // 2
    joint, permuted = (
        model.discriminator(z[:half]),
        model.discriminator(permute_dims(z[half:], generator)),
    )
    zeros, ones = torch.zeros(half, dtype=torch.int64), torch.ones(size - half, dtype=torch.int64)
    expected = 0.5 * (
        functional.cross_entropy(joint, zeros) + functional.cross_entropy(permuted, ones)
    )
    torch.testing.assert_close(terms["loss"], expected)
    accuracy = 0.5 * (
        (joint.argmax(1) == 0).float().mean() + (permuted.argmax(1) == 1).float().mean()
    )
    assert terms["accuracy"].item() == pytest.approx(accuracy.item())


def test_each_player_moves_its_own_parameters_only(make_data: Any) -> None:
    data = make_data()
    model = FactorVAE(data.spec, **SMALL)
    model.discriminator_loss(batch_of(data), torch.Generator().manual_seed(0))["loss"].backward()
    assert all(
        (parameter.grad is not None) == name.startswith("discriminator")
        for name, parameter in model.named_parameters()
    )
    (phase,) = model.phases()
    names = [name for name, _ in model.named_parameters()]
    vae, discriminator = (
        [name for name in names if name.startswith(player.parameters)] for player in phase.players
    )
    assert sorted(vae + discriminator) == sorted(names)
    assert all(name.startswith("discriminator") for name in discriminator)
    assert phase.players[1].betas == (0.5, 0.9)
    assert phase.players[1].learning_rate == 1e-4
    history = model.fit(data).history
    assert {
        "model.loss",
        "model.total_correlation",
        "discriminator.loss",
        "discriminator.accuracy",
    } <= set(history[-1]["train"])
    assert "total_correlation" in history[-1]["validation"]


def test_the_default_discriminator_is_that_of_the_paper(make_data: Any) -> None:
    model = FactorVAE(make_data().spec, latents=10)
    linear = [layer for layer in model.discriminator if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linear] == [1000] * 5 + [2]
    assert linear[0].in_features == 10
    slopes = {
        layer.negative_slope for layer in model.discriminator if isinstance(layer, nn.LeakyReLU)
    }
    assert slopes == {0.2}
    assert len(model.discriminator) == 11
    for wrong in (
        {"gamma": -1.0},
        {"discriminator_layers": 0},
        {"discriminator_width": 0},
        {"batch_size": 1},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            FactorVAE(make_data().spec, **wrong)


# ---- density-ratio trick -------------------------------------------------------------------
@pytest.mark.parametrize("correlation", [0.8, 0.0])
def test_a_trained_discriminator_estimates_the_total_correlation(
    correlation: float, make_data: Any, monkeypatch: Any
) -> None:
    """TC of a bivariate Gaussian is -log(1 - rho^2) / 2; here the images are the latents."""
    model = FactorVAE(
        make_data().spec, **{**SMALL, "latents": 2, "dims": 1, "discriminator_width": 48}
    )
    monkeypatch.setattr(model, "posterior", lambda images: (images, torch.full_like(images, -40.0)))
    truth = MultivariateNormal(
        torch.zeros(2), torch.tensor([[1.0, correlation], [correlation, 1.0]])
    )
    optimiser = torch.optim.Adam(model.discriminator.parameters(), lr=5e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 500)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = truth.sample((30_000,))
        for _ in range(500):
            batch = {"images": truth.sample((1024,))[:, :, None]}
            optimiser.zero_grad()
            model.discriminator_loss(batch, generator)["loss"].backward()
            optimiser.step()
            rate.step()
    with torch.no_grad():
        measured = model.log_odds(fresh).mean().item()
    assert measured == pytest.approx(-0.5 * math.log(1 - correlation**2), abs=0.05)
