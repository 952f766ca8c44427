"""The loss of CausalVAE against the paper, equation by equation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_causal_vae import PAPER, chain, make, with_weights
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence

from batches import batch_of
from elbo import reference_draw


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "laplace"])
def test_without_edges_the_loss_is_the_elbo_with_a_conditional_prior(
    likelihood: Any, make_data: Any
) -> None:
    data = make_data((3, 12, 10))
    weights = {
        "noise_weight": 0.7,
        "prior_weight": 1.3,
        "label_weight": 0.4,
        "mechanism_weight": 0.6,
        "acyclicity_weight": 2.0,
    }
    model = make(data, likelihood=likelihood, scale=0.3, prior_std=0.5, **weights, **PAPER)
    batch = batch_of(data)
    terms = {
        key: value.item()
        for key, value in model.loss(batch, torch.Generator().manual_seed(5)).items()
    }

    with torch.no_grad():
        q, z, _, p = reference_draw(model, batch, likelihood, 0.3)
        u = torch.as_tensor(
            [
                [(x - v.mean) / v.std for x, v in zip(row, data.variables, strict=True)]
                for row in batch["labels"].tolist()
            ]
        )
        expected = {
            "reconstruction": -p.log_prob(batch["images"]).sum((1, 2, 3)).mean(),
            "kl_noise": kl_divergence(q, Normal(0.0, 1.0)).sum((1, 2)).mean(),
            "kl_prior": kl_divergence(q, Normal(u[:, :, None], 0.5)).sum((1, 2)).mean(),
            "label_fit": u.square().sum(1).mean(),
            "mechanism_fit": (z - model.mechanisms(z, torch.zeros(3, 3)))
            .square()
            .sum((1, 2))
            .mean(),
            "acyclicity": torch.tensor(0.0),
        }
    for key, value in expected.items():
        assert terms[key] == pytest.approx(value.item(), rel=1e-4, abs=1e-6), key
    total = (
        terms["reconstruction"]
        + 0.7 * terms["kl_noise"]
        + 1.3 * terms["kl_prior"]
        + 0.4 * terms["label_fit"]
        + 0.6 * terms["mechanism_fit"]
    )
    assert terms["loss"] == pytest.approx(total, rel=1e-5)


def test_with_edges_the_posterior_is_pushed_through_the_causal_layer(make_data: Any) -> None:
    data = make_data()
    model = with_weights(make(data, prior_std=0.4), [[0, 0.8, -0.3], [0, 0, 1.1], [0, 0, 0]])
    batch = batch_of(data)
    terms = model.loss(batch, torch.Generator().manual_seed(2))
    with torch.no_grad():
        mean, log_variance = model.posterior(batch["images"])
        push = torch.linalg.inv(torch.eye(3) - model.weights.T)
        z = torch.einsum(
            "ij,bjk->bik",
            push,
            mean
            + torch.exp(log_variance / 2)
            * torch.randn((8, 3, 2), generator=torch.Generator().manual_seed(2)),
        )
        u = model.spec.normalise(batch["labels"])
        divergences = []
        for k in range(2):
            covariance = push @ torch.diag_embed(log_variance[..., k].exp()) @ push.T
            q = MultivariateNormal(mean[..., k] @ push.T, covariance)
            divergences.append(kl_divergence(q, MultivariateNormal(u, 0.16 * torch.eye(3))))
        reconstruction = (
            -Bernoulli(logits=model.decoder(z.flatten(1)), validate_args=False)
            .log_prob(batch["images"])
            .sum((1, 2, 3))
            .mean()
        )
    assert terms["kl_prior"].item() == pytest.approx(sum(divergences).mean().item(), rel=1e-4)
    assert terms["reconstruction"].item() == pytest.approx(reconstruction.item(), rel=1e-5)
    assert terms["mechanism_fit"].item() == pytest.approx(
        (z - model.mechanisms(z, model.weights)).square().sum((1, 2)).mean().item(), rel=1e-4
    )


def test_encode_and_loss_use_the_same_causal_layer(make_data: Any) -> None:
    data = make_data()
    model = with_weights(make(data), [[0, 0.8, -0.3], [0, 0, 1.1], [0, 0, 0]])
    images = data.test.images[:5]
    mean = model.posterior(images.float() / 255)[0]
    z = model.encode(images)
    a, b, c = mean.unbind(1)
    assert torch.allclose(z[:, 0], a, atol=1e-6)
    assert torch.allclose(z[:, 1], b + 0.8 * a, atol=1e-6)
    assert torch.allclose(z[:, 2], c - 0.3 * a + 1.1 * (b + 0.8 * a), atol=1e-6)


def test_absolute_error_weight_adds_the_absolute_pixel_error(make_data: Any) -> None:
    data = make_data()
    batch = batch_of(data)
    plain, sharp = (make(data, **{**PAPER, "absolute_error_weight": w}) for w in (0.0, 2.5))
    terms = [model.loss(batch, torch.Generator().manual_seed(0)) for model in (plain, sharp)]
    with torch.no_grad():
        mean, log_variance = sharp.posterior(batch["images"])
        z = mean + torch.exp(log_variance / 2) * torch.randn(
            (8, 3, 2), generator=torch.Generator().manual_seed(0)
        )
        error = (
            (torch.sigmoid(sharp.decoder(z.flatten(1))) - batch["images"])
            .abs()
            .sum((1, 2, 3))
            .mean()
            .item()
        )
    assert terms[1]["absolute_error"].item() == pytest.approx(error, rel=1e-5)
    assert (terms[1]["loss"] - terms[0]["loss"]).item() == pytest.approx(2.5 * error, rel=1e-3)


def test_influence_is_the_pixel_change_per_step_of_one_concept(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data()
    model = make(data)
    z = torch.randn((6, 3, 2), generator=torch.Generator().manual_seed(1))
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch, "randn", lambda *size, **_: torch.full(size, -1.0))
        patch.setattr(torch, "randint", lambda _, size, **__: torch.full(size, 2))
        influence = model.influence(z, None).item()
        moved = z.clone()
        moved[:, 2] -= 0.3
        change = torch.sigmoid(model.decoder(moved.flatten(1))) - torch.sigmoid(
            model.decoder(z.flatten(1))
        )
    assert influence == pytest.approx(change.abs().sum((1, 2, 3)).mean().item() / 0.3, rel=1e-4)
    batch = batch_of(data)
    terms = [
        make(data, **{**PAPER, "influence_weight": weight}).loss(
            batch, torch.Generator().manual_seed(0)
        )
        for weight in (0.0, 5.0)
    ]
    assert (terms[1]["loss"] - terms[0]["loss"]).item() == pytest.approx(
        5 * terms[1]["influence"].item(), rel=1e-3
    )


def test_label_fit_is_linear_for_continuous_and_logistic_for_binary_labels(make_data: Any) -> None:
    data = make_data(kinds=("continuous", "binary", "continuous", "binary"))
    weights = np.random.default_rng(0).normal(size=(4, 4))
    np.fill_diagonal(weights, 0)
    model = with_weights(make(data), weights)
    labels = data.train.labels[:9]
    u = np.stack(
        [
            2 * column - 1 if v.kind == "binary" else (column - v.mean) / v.std
            for v, column in zip(data.variables, labels.T.numpy(), strict=True)
        ],
        1,
    )
    total = 0.0
    for row in u:
        for i, variable in enumerate(data.variables):
            linear = sum(weights[j, i] * row[j] for j in range(4))
            predicted = 2 / (1 + math.exp(-linear)) - 1 if variable.kind == "binary" else linear
            total += (row[i] - predicted) ** 2
    assert model.label_fit(model.spec.normalise(labels)).item() == pytest.approx(
        total / 9, rel=1e-4
    )
    assert model.loss(batch_of(data, 9))["label_fit"].item() == pytest.approx(total / 9, rel=1e-4)


def test_acyclicity_is_the_polynomial_of_the_paper(make_data: Any) -> None:
    data = make_data()
    weights = np.random.default_rng(1).normal(size=(3, 3))
    np.fill_diagonal(weights, 0)
    model = with_weights(make(data), weights)
    expected = np.trace(np.linalg.matrix_power(np.eye(3) + weights**2 / 3, 3)) - 3
    assert model.loss(batch_of(data))["acyclicity"].item() == pytest.approx(expected, rel=1e-5)


def test_mechanism_fit_covers_concepts_with_parents_only(make_data: Any) -> None:
    data = make_data()
    model = make(data, chain())
    z = torch.randn((5, 3, 2), generator=torch.Generator().manual_seed(0))
    predicted = model.mechanisms(z, torch.as_tensor(chain().adjacency, dtype=torch.float32))
    assert model.mechanism_fit(z).item() == pytest.approx(
        (z - predicted)[:, 1:].square().sum((1, 2)).mean().item(), rel=1e-5
    )


@pytest.mark.parametrize("shapes", [False, True])
def test_mechanism_fit_has_gradients_for_the_latents_only_if_set(
    shapes: bool, make_data: Any
) -> None:
    data = make_data()
    model = make(data, chain(), mechanism_gradient_to_latents=shapes)
    model.loss(batch_of(data), torch.Generator().manual_seed(0))["mechanism_fit"].backward()
    moved = any(p.grad is not None and p.grad.any() for p in model.encoder.parameters())
    assert moved == shapes
    assert all(p.grad is not None and p.grad.any() for p in model.mechanisms.parameters())
