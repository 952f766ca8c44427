"""Ladder VAE: likelihood bounds and samples against quadrature and Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from ladder import grey, make, noises, seeded
from torch import Tensor
from torch.distributions import Normal

from batches import END
from batches import late_batch as batch_of
from intervae.errors import QueryError
from intervae.metrics.likelihood import likelihood_bounds
from intervae.models import LadderVAE

KINDS = [(inference, norm) for inference in ("ladder", "bottom-up") for norm in (False, True)]


# ---- bounds --------------------------------------------------------------------------------
@pytest.mark.parametrize(("inference", "norm"), KINDS)
@torch.no_grad()
def test_the_mean_log_weight_is_minus_the_loss(inference: str, norm: bool, make_data: Any) -> None:
    """In bottom-up inference only the top layer has a KL in closed form."""
    data, draws, repeats = make_data((1, 4, 4)), 20_000, 60
    model = make(data, scramble=0.15, inference=inference, batch_norm=norm, monte_carlo_samples=300)
    sampled = model.log_weights(data.train.images[:4], None, draws, seeded(0))
    assert sampled.shape == (draws, 4)
    losses = [model.loss(batch_of(data, 4), seeded(seed)) for seed in range(1, repeats + 1)]
    mean = {name: torch.stack([terms[name] for terms in losses]).mean() for name in losses[0]}
    error = (
        sampled.mean(1).var() / draws
        + torch.stack([terms["loss"] for terms in losses]).var() / repeats
    ).sqrt()
    assert error < 0.02
    assert (sampled.mean() + mean["loss"]).abs() < 4 * error
    assert mean["kl"] > 20 * error  # so that a wrong KL would show
    layers = model.infer(grey(data, 4), noises(model, 4 * draws))
    deviations = []
    for i, layer in enumerate(layers):
        spread = layer.log_ratio.sum(1).std() / (4 * draws) ** 0.5
        assert (mean[f"kl_z{i + 1}"] + layer.log_ratio.sum(1).mean()).abs() < 6 * spread
        deviations.append((layer.kl.sum(1).mean() + layer.log_ratio.sum(1).mean()).abs() / spread)
    assert deviations[2] < 4
    assert max(deviations[:2]) < 4 if inference == "ladder" else max(deviations[:2]) > 10


def evidence(model: LadderVAE, image: Tensor) -> float:
    """log p(x) of a model with two layers of one unit each, by quadrature.

    Noises that put z_2 on a grid give the prior of z_1.
    """
    above, below = torch.linspace(-7, 7, 281), torch.linspace(-15, 15, 3001)
    top = model.infer(image, [torch.zeros(1, 1)] * 2)[1]
    noise = ((above - top.mean[0]) / top.variance[0].sqrt())[:, None]
    low, high = model.infer(image.expand(len(above), -1, -1, -1), [torch.zeros_like(noise), noise])
    torch.testing.assert_close(high.z[:, 0], above, rtol=1e-4, atol=1e-4)
    pixels = -model.reconstruction_loss(
        below[:, None], image.expand(len(below), -1, -1, -1)
    ).double()
    prior = Normal(low.prior_mean.double(), low.prior_variance.double().sqrt()).log_prob(
        below.double()
    )  # (281, 3001)
    inner = torch.logsumexp(prior + pixels, 1) + math.log(0.01)
    return float(
        torch.logsumexp(inner + Normal(0.0, 1.0).log_prob(above.double()), 0) + math.log(0.05)
    )


@pytest.mark.parametrize(
    "changes", [{}, {"share_generative": False}, {"inference": "bottom-up"}, {"batch_norm": False}]
)
@torch.no_grad()
def test_bounds_rise_with_samples_to_the_exact_evidence(
    changes: dict[str, Any], make_data: Any
) -> None:
    data, draws = make_data((1, 3, 3)), 40_000
    model = make(
        data,
        scramble=0.2,
        latents=(1, 1),
        widths=(6, 6),
        likelihood="gaussian",
        scale=0.4,
        **changes,
    )
    images = data.train.images[:6]
    exact = np.array([evidence(model, image[None].float() / 255) for image in images])
    log_weights = model.log_weights(images, None, draws, seeded(0)).double()
    weights = (log_weights - torch.from_numpy(exact)).exp()  # their mean is 1
    error = weights.std(0) / draws**0.5
    assert error.max() < 0.03
    assert ((weights.mean(0) - 1).abs() < 4 * error).all()
    elbo, l10, l100 = (
        log_weights.unflatten(0, (-1, k)).logsumexp(1).mean(0).numpy() - math.log(k)
        for k in (1, 10, 100)
    )
    assert (elbo < l10 - 0.005).all()
    assert (l10 < l100 - 0.001).all()
    assert (l100 < exact + 4 * error.numpy()).all()
    bounds = likelihood_bounds(model.log_weights, images, samples=5000, at_once=50_000, seed=1)
    np.testing.assert_allclose(
        bounds.importance_weighted, exact, atol=5 * 8**0.5 * error.max().item()
    )


def log_weight_by_hand(
    model: LadderVAE, images: Tensor, noise: Sequence[Tensor], beta: float = 1.0
) -> Tensor:
    layers = model.infer(images, noise)
    total = -model.reconstruction_loss(layers[0].z, images)
    for layer in layers:
        prior = Normal(layer.prior_mean, layer.prior_variance.sqrt()).log_prob(layer.z).sum(1)
        total = total + beta * (
            prior - Normal(layer.mean, layer.variance.sqrt()).log_prob(layer.z).sum(1)
        )
    return total


@pytest.mark.parametrize("inference", ["ladder", "bottom-up"])
@pytest.mark.parametrize("inside", [1, 4])
@torch.no_grad()
def test_the_importance_weighted_loss_is_minus_the_log_mean_weight(
    inference: str, inside: int, make_data: Any
) -> None:
    data = make_data((1, 4, 4))
    outside = 3
    model = make(
        data, inference=inference, importance_samples=inside, monte_carlo_samples=outside, warm_up=1
    )
    model.set_warm_up(data, 0)
    images, n = grey(data, 8), 8
    noise = torch.randn(inside * outside * n, 9, generator=seeded(5)).view(inside, outside, n, 9)
    for step, beta in ((torch.tensor(0.0), 0.0), (END, 1.0)):
        terms = model.loss(batch_of(data, n, step), seeded(5))
        if inside == 1:
            costs = []
            for m in range(outside):
                layers = model.infer(images, noise[0, m].split([4, 3, 2], 1))
                closed = (
                    layers if inference == "ladder" else layers[2:]
                )  # others: the log-ratio of the sample
                ratios = log_weight_by_hand(
                    model, images, noise[0, m].split([4, 3, 2], 1)
                ) + model.reconstruction_loss(layers[0].z, images)
                divergence = sum(
                    (layer.kl.sum(1) + layer.log_ratio.sum(1) for layer in closed), -ratios
                )
                costs.append(
                    (model.reconstruction_loss(layers[0].z, images) + beta * divergence).mean()
                )
            expected = torch.stack(costs).mean()
        else:
            drawn = torch.stack(
                [
                    torch.stack(
                        [
                            log_weight_by_hand(model, images, noise[k, m].split([4, 3, 2], 1), beta)
                            for m in range(outside)
                        ]
                    )
                    for k in range(inside)
                ]
            )
            expected = -drawn.double().exp().mean(0).log().mean().float()
        torch.testing.assert_close(terms["loss"], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            terms["kl"], terms["kl_z1"] + terms["kl_z2"] + terms["kl_z3"], rtol=1e-5, atol=1e-5
        )


@torch.no_grad()
def test_log_weights_are_the_densities_of_the_samples(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    for inference in ("ladder", "bottom-up"):
        model = make(data, inference=inference)
        weights = model.log_weights(data.train.images[:5], None, 3, seeded(2))
        generator = seeded(2)
        for k in range(3):
            noise = torch.randn(5, 9, generator=generator)
            torch.testing.assert_close(
                weights[k],
                log_weight_by_hand(model, grey(data, 5), noise.split([4, 3, 2], 1)),
                rtol=1e-4,
                atol=1e-3,
            )
    with pytest.raises(QueryError, match="at least one sample"):
        model.log_weights(data.train.images[:5], None, 0)


# ---- sampling ------------------------------------------------------------------------------
@torch.no_grad()
def ancestral(model: LadderVAE, image: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """z_1 of `n` samples of the prior: noises are chosen from the top to match the priors."""
    images, noise = (
        image.expand(n, -1, -1, -1),
        [torch.zeros(n, size) for size in model.settings.latents],
    )
    for i in reversed(range(len(noise))):
        layer = model.infer(images, noise)[i]
        z = layer.prior_mean + layer.prior_variance.sqrt() * torch.randn(
            layer.mean.shape, generator=generator
        )
        noise[i] = (z - layer.mean) / layer.variance.sqrt()
    return z


def codes_of(z: Tensor) -> Tensor:
    return torch.cat([z, torch.zeros(len(z), 5)], 1)[..., None]


@torch.no_grad()
def test_samples_are_ancestral(make_data: Any) -> None:
    data, n = make_data((1, 4, 4)), 20_000
    model = make(data, scramble=0.5)
    samples = model.sample(n, seed=1)
    expected = model.decode(codes_of(ancestral(model, grey(data, 1), n, seeded(2))))
    flat = model.decode(codes_of(torch.randn(n, 4, generator=seeded(3))))

    def distance(first: Tensor, second: Tensor) -> tuple[float, float]:
        """Largest distance of pixel means and of second moments, in standard errors."""
        scores = []
        for power in (1, 2):
            a, b = first.flatten(1) ** power, second.flatten(1) ** power
            scores.append(
                ((a.mean(0) - b.mean(0)).abs() / ((a.var(0) + b.var(0)) / n).sqrt()).max().item()
            )
        return scores[0], scores[1]

    assert max(distance(samples, expected)) < 4.5
    assert min(distance(flat, expected)) > 20  # z_1 ~ N(0, I) instead
    assert torch.equal(model.sample(5, seed=1), model.sample(5, seed=1))
    assert not torch.equal(model.sample(5, seed=1), model.sample(5, seed=2))
