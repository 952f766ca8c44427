"""The Ladder VAE against closed forms, quadrature and Monte Carlo: merging, inference, bounds, sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from ladder import END, batch_of, grey, make, noises, seeded
from torch import Tensor
from torch.distributions import Normal

from intervae.causal.gaussian import kl_diagonal
from intervae.errors import QueryError
from intervae.metrics.likelihood import likelihood_bounds
from intervae.models import LadderVAE
from intervae.models.ladder_vae import Layer, merge

KINDS = [(inference, norm) for inference in ("ladder", "bottom-up") for norm in (False, True)]


# ---- Gaussians ------------------------------------------------------------------------------------------------------
def test_merging_is_the_product_of_two_densities() -> None:
    cases = torch.tensor([[0.3, 0.5, -1.0, 2.0], [2.0, 0.05, -1.0, 0.3], [0.0, 1.0, 4.0, 1.0], [1.0, 3.0, 1.5, 0.02]], dtype=torch.float64)
    means, variances = merge(*cases.T)
    x = torch.linspace(-15, 15, 60_001, dtype=torch.float64)
    for (m1, v1, m2, v2), mean, variance in zip(cases, means, variances, strict=True):
        product = (Normal(m1, v1.sqrt()).log_prob(x) + Normal(m2, v2.sqrt()).log_prob(x)).exp()
        density = product / torch.trapezoid(product, x)
        torch.testing.assert_close(mean, torch.trapezoid(density * x, x), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(variance, torch.trapezoid(density * (x - mean).square(), x), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(density, Normal(mean, variance.sqrt()).log_prob(x).exp(), rtol=1e-5, atol=1e-9)


def test_a_prior_that_knows_nothing_leaves_the_evidence_and_one_that_knows_all_replaces_it() -> None:
    mean, variance = torch.tensor([0.7]), torch.tensor([0.2])
    torch.testing.assert_close(merge(mean, variance, torch.tensor([5.0]), torch.tensor([1e9])), (mean, variance))
    torch.testing.assert_close(merge(mean, variance, torch.tensor([5.0]), torch.tensor([1e-9])), (torch.tensor([5.0]), torch.tensor([1e-9])))


def test_the_divergence_of_a_layer_is_the_closed_form_and_the_mean_of_its_log_ratio() -> None:
    draws = 200_000
    generator = seeded(0)
    mean, prior_mean = torch.randn(2, 1, 3, generator=generator)
    variance, prior_variance = 0.2 + torch.rand(2, 1, 3, generator=generator)
    noise = torch.randn(draws, 3, generator=generator)
    layer = Layer(mean + variance.sqrt() * noise, *(t.expand(draws, 3) for t in (mean, variance, prior_mean, prior_variance)))
    torch.testing.assert_close(layer.kl[:1].sum(1), kl_diagonal(mean, variance.log(), prior_mean, prior_variance.log()), rtol=1e-5, atol=1e-6)
    for unit in range(3):
        alone = torch.distributions.kl_divergence(
            Normal(mean[0, unit], variance[0, unit].sqrt()), Normal(prior_mean[0, unit], prior_variance[0, unit].sqrt())
        )
        torch.testing.assert_close(layer.kl[0, unit], alone, rtol=1e-5, atol=1e-6)
    drawn = layer.log_ratio.sum(1)
    assert drawn.shape == (draws,)
    assert (drawn.mean() + layer.kl[0].sum()).abs() < 4 * drawn.std() / draws**0.5


# ---- inference ------------------------------------------------------------------------------------------------------
def test_the_posterior_of_a_lower_layer_is_evidence_that_only_the_picture_decides_times_the_prior(make_data: Any) -> None:
    """1 / s2_q - 1 / s2_p and mu_q / s2_q - mu_p / s2_p are the evidence's, whatever was drawn above; not so with top-down networks of q's own."""
    data = make_data((1, 4, 4))
    for share in (True, False):
        model = make(data, share=share)
        found = []
        for seed in (0, 100):
            low, middle, top = model.infer(grey(data, 8), noises(model, 8, seed))
            assert (top.prior_mean == 0).all()
            assert (top.prior_variance == 1).all()
            precisions = [1 / layer.variance - 1 / layer.prior_variance for layer in (low, middle)]
            weighted = [layer.mean / layer.variance - layer.prior_mean / layer.prior_variance for layer in (low, middle)]
            found.append([*precisions, *weighted, top.mean, top.variance])
            assert all((precision > 0).all() for precision in precisions) or not share
        apart = [(one - other).abs().max().item() for one, other in zip(*found, strict=True)]
        assert max(apart[4:]) == 0
        assert max(apart[:4]) < 1e-3 if share else min(apart[:4]) > 1e-2


def test_bottom_up_inference_draws_each_layer_from_the_one_below(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, inference="bottom-up")
    images, noise = grey(data, 8), noises(model, 8)
    low, middle, top = model.infer(images, noise)
    other_top = [*noise[:2], -noise[2]]
    again = model.infer(images, other_top)
    assert torch.equal(again[0].mean, low.mean)
    assert torch.equal(again[2].mean, top.mean)  # q(z_3 | z_2) does not hear of z_3
    assert not torch.equal(again[1].prior_mean, middle.prior_mean)  # p(z_2 | z_3) does
    again = model.infer(images, [-noise[0], *noise[1:]])
    assert torch.equal(again[0].mean, low.mean)
    assert not torch.equal(again[1].mean, middle.mean)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_ladder_of_one_layer_is_the_vae(training: bool, samples: int, make_data: Any) -> None:
    data = make_data((1, 4, 4))
    one, other = (make(data, latents=(5,), widths=(8,), inference=how, importance_samples=samples) for how in ("ladder", "bottom-up"))
    weights = one.state_dict()
    assert weights.keys() == other.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in other.state_dict().items())
    found = [model.train(training).loss(batch_of(data, 16), seeded(3)) for model in (one, other)]
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert torch.equal(one.eval().encode(data.test.images), other.eval().encode(data.test.images))


def test_the_draw_of_a_layer_is_its_mean_and_its_noise_and_copies_of_an_image_follow_one_another(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    for inference in ("ladder", "bottom-up"):
        model = make(data, inference=inference)
        images, noise = grey(data, 4), noises(model, 12)
        whole = model.infer(images, noise)
        for layer, drawn in zip(whole, noise, strict=True):
            torch.testing.assert_close(layer.z, layer.mean + layer.variance.sqrt() * drawn)
        for k in range(3):
            part = model.infer(images, [drawn[4 * k : 4 * k + 4] for drawn in noise])
            for one, other in zip(whole, part, strict=True):
                for together, alone in zip(one, other, strict=True):
                    torch.testing.assert_close(together[4 * k : 4 * k + 4], alone, rtol=1e-4, atol=1e-5)


def test_codes_are_the_means_of_all_layers_from_the_picture_up_and_only_the_lowest_is_drawn(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    for inference in ("ladder", "bottom-up"):
        model = make(data, inference=inference)
        assert model.latent_names == ("z1_0", "z1_1", "z1_2", "z1_3", "z2_0", "z2_1", "z2_2", "z3_0", "z3_1")
        codes = model.encode(data.train.images[:6])
        still = model.infer(grey(data, 6), [torch.zeros(6, size) for size in (4, 3, 2)])  # z is the mean where there is no noise
        torch.testing.assert_close(codes[..., 0], torch.cat([layer.mean for layer in still], 1), rtol=1e-5, atol=1e-6)
        changed = codes.clone()
        changed[:, 4:] += 1
        assert torch.equal(model.decode(changed), model.decode(codes))
        changed[:, 3] += 1
        assert not torch.equal(model.decode(changed), model.decode(codes))


@pytest.mark.parametrize("upward", ["hidden", "mean"])
def test_the_upward_pass_hands_on_hidden_units_or_means(upward: str, make_data: Any) -> None:
    """Through one mean the top could only change along one direction of the pictures; through eight hidden units it has many."""
    data = make_data((1, 4, 4))
    model = make(data, latents=(1, 4), widths=(8, 8), upward=upward)
    image = grey(data, 1)
    jacobian: Any = torch.autograd.functional.jacobian(lambda x: model.infer(x, None)[1].mean, image)
    strengths = torch.linalg.svdvals(jacobian.reshape(4, -1))
    assert strengths[0] > 1e-2
    assert (strengths[1] > 1e-2 * strengths[0]) == (upward == "hidden")


@pytest.mark.parametrize("changes", [{}, {"share": False}, {"upward": "mean"}, {"inference": "bottom-up"}, {"scale": 0.0, "likelihood": "gaussian"}])
def test_every_parameter_learns(changes: dict[str, Any], make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, **changes).train()
    model.loss(batch_of(data, 16), seeded(0))["loss"].backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()] == []
    sizes = {share: sum(p.numel() for p in make(data, **{**changes, "share": share}).parameters()) for share in (True, False)}
    assert (sizes[False] > sizes[True]) == (model.settings.inference == "ladder")


# ---- bounds ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("inference", "norm"), KINDS)
@torch.no_grad()
def test_the_mean_log_weight_is_minus_the_loss(inference: str, norm: bool, make_data: Any) -> None:
    """The loss has divergences in closed form where that is right: bottom-up, z_{i+1} depends on z_i, and only the top layer has one."""
    data, draws, repeats = make_data((1, 4, 4)), 20_000, 60
    model = make(data, scramble=0.15, inference=inference, batch_norm=norm, monte_carlo_samples=300)
    sampled = model.log_weights(data.train.images[:4], None, draws, seeded(0))
    assert sampled.shape == (draws, 4)
    losses = [model.loss(batch_of(data, 4), seeded(seed)) for seed in range(1, repeats + 1)]
    mean = {name: torch.stack([found[name] for found in losses]).mean() for name in losses[0]}
    error = (sampled.mean(1).var() / draws + torch.stack([found["loss"] for found in losses]).var() / repeats).sqrt()
    assert error < 0.02
    assert (sampled.mean() + mean["loss"]).abs() < 4 * error
    assert mean["kl"] > 20 * error  # so that a wrong divergence would show
    layers = model.infer(grey(data, 4), noises(model, 4 * draws))
    apart = []
    for i, layer in enumerate(layers):
        spread = layer.log_ratio.sum(1).std() / (4 * draws) ** 0.5
        assert (mean[f"kl_z{i + 1}"] + layer.log_ratio.sum(1).mean()).abs() < 6 * spread
        apart.append((layer.kl.sum(1).mean() + layer.log_ratio.sum(1).mean()).abs() / spread)
    assert apart[2] < 4
    assert max(apart[:2]) < 4 if inference == "ladder" else max(apart[:2]) > 10


def evidence(model: LadderVAE, image: Tensor) -> float:
    """log p(x) of a model with two layers of one unit each, by quadrature: the prior of z_1 is read off with noises that put z_2 on a grid."""
    above, below = torch.linspace(-7, 7, 281), torch.linspace(-15, 15, 3001)
    top = model.infer(image, [torch.zeros(1, 1)] * 2)[1]
    noise = ((above - top.mean[0]) / top.variance[0].sqrt())[:, None]
    low, high = model.infer(image.expand(len(above), -1, -1, -1), [torch.zeros_like(noise), noise])
    torch.testing.assert_close(high.z[:, 0], above, rtol=1e-4, atol=1e-4)
    pixels = -model.misfit(below[:, None], image.expand(len(below), -1, -1, -1)).double()
    prior = Normal(low.prior_mean.double(), low.prior_variance.double().sqrt()).log_prob(below.double())  # (281, 3001)
    inner = torch.logsumexp(prior + pixels, 1) + math.log(0.01)
    return float(torch.logsumexp(inner + Normal(0.0, 1.0).log_prob(above.double()), 0) + math.log(0.05))


@pytest.mark.parametrize("changes", [{}, {"share": False}, {"inference": "bottom-up"}, {"batch_norm": False}])
@torch.no_grad()
def test_bounds_rise_with_the_samples_to_the_exact_evidence(changes: dict[str, Any], make_data: Any) -> None:
    data, draws = make_data((1, 3, 3)), 40_000
    model = make(data, scramble=0.2, latents=(1, 1), widths=(6, 6), likelihood="gaussian", scale=0.4, **changes)
    images = data.train.images[:6]
    exact = np.array([evidence(model, image[None].float() / 255) for image in images])
    log_weights = model.log_weights(images, None, draws, seeded(0)).double()
    weights = (log_weights - torch.from_numpy(exact)).exp()  # their mean is 1
    error = weights.std(0) / draws**0.5
    assert error.max() < 0.03
    assert ((weights.mean(0) - 1).abs() < 4 * error).all()
    elbo, l10, l100 = (log_weights.unflatten(0, (-1, k)).logsumexp(1).mean(0).numpy() - math.log(k) for k in (1, 10, 100))
    assert (elbo < l10 - 0.005).all()
    assert (l10 < l100 - 0.001).all()
    assert (l100 < exact + 4 * error.numpy()).all()
    bounds = likelihood_bounds(model.log_weights, images, samples=5000, at_once=50_000, seed=1)
    np.testing.assert_allclose(bounds.importance_weighted, exact, atol=5 * 8**0.5 * error.max().item())


def log_weight_by_hand(model: LadderVAE, images: Tensor, noise: Sequence[Tensor], beta: float = 1.0) -> Tensor:
    layers = model.infer(images, noise)
    total = -model.misfit(layers[0].z, images)
    for layer in layers:
        prior = Normal(layer.prior_mean, layer.prior_variance.sqrt()).log_prob(layer.z).sum(1)
        total = total + beta * (prior - Normal(layer.mean, layer.variance.sqrt()).log_prob(layer.z).sum(1))
    return total


@pytest.mark.parametrize("inference", ["ladder", "bottom-up"])
@pytest.mark.parametrize("inside", [1, 4])
@torch.no_grad()
def test_the_importance_weighted_loss_is_minus_the_log_of_the_mean_weight(inference: str, inside: int, make_data: Any) -> None:
    data = make_data((1, 4, 4))
    outside = 3
    model = make(data, inference=inference, importance_samples=inside, monte_carlo_samples=outside, warm_up=1)
    model.set_warm_up(data, 0)
    images, n = grey(data, 8), 8
    noise = torch.randn(inside * outside * n, 9, generator=seeded(5)).view(inside, outside, n, 9)
    for step, beta in ((torch.tensor(0.0), 0.0), (END, 1.0)):
        found = model.loss(batch_of(data, n, step), seeded(5))
        if inside == 1:
            costs = []
            for m in range(outside):
                layers = model.infer(images, noise[0, m].split([4, 3, 2], 1))
                closed = layers if inference == "ladder" else layers[2:]  # of the others, the draw's own log-ratio
                ratios = log_weight_by_hand(model, images, noise[0, m].split([4, 3, 2], 1)) + model.misfit(layers[0].z, images)
                divergence = sum((layer.kl.sum(1) + layer.log_ratio.sum(1) for layer in closed), -ratios)
                costs.append((model.misfit(layers[0].z, images) + beta * divergence).mean())
            expected = torch.stack(costs).mean()
        else:
            drawn = torch.stack(
                [
                    torch.stack([log_weight_by_hand(model, images, noise[k, m].split([4, 3, 2], 1), beta) for m in range(outside)])
                    for k in range(inside)
                ]
            )
            expected = -drawn.double().exp().mean(0).log().mean().float()
        torch.testing.assert_close(found["loss"], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found["kl"], found["kl_z1"] + found["kl_z2"] + found["kl_z3"], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_log_weights_are_the_densities_of_what_was_drawn(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    for inference in ("ladder", "bottom-up"):
        model = make(data, inference=inference)
        found = model.log_weights(data.train.images[:5], None, 3, seeded(2))
        generator = seeded(2)
        for k in range(3):
            noise = torch.randn(5, 9, generator=generator)
            torch.testing.assert_close(found[k], log_weight_by_hand(model, grey(data, 5), noise.split([4, 3, 2], 1)), rtol=1e-4, atol=1e-3)
    with pytest.raises(QueryError, match="ask for one at least"):
        model.log_weights(data.train.images[:5], None, 0)


# ---- sampling -------------------------------------------------------------------------------------------------------
@torch.no_grad()
def ancestral(model: LadderVAE, image: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """z_1 of `n` draws from the prior by hand: noises are chosen layer by layer, from the top, so that each z is a draw from its prior."""
    images, noise = image.expand(n, -1, -1, -1), [torch.zeros(n, size) for size in model.settings.latents]
    for i in reversed(range(len(noise))):
        layer = model.infer(images, noise)[i]
        z = layer.prior_mean + layer.prior_variance.sqrt() * torch.randn(layer.mean.shape, generator=generator)
        noise[i] = (z - layer.mean) / layer.variance.sqrt()
    return z


def codes_of(z: Tensor) -> Tensor:
    return torch.cat([z, torch.zeros(len(z), 5)], 1)[..., None]


@torch.no_grad()
def test_samples_go_down_from_the_top(make_data: Any) -> None:
    data, n = make_data((1, 4, 4)), 20_000
    model = make(data, scramble=0.5)
    found = model.sample(n, seed=1)
    expected = model.decode(codes_of(ancestral(model, grey(data, 1), n, seeded(2))))
    flat = model.decode(codes_of(torch.randn(n, 4, generator=seeded(3))))

    def apart(one: Tensor, other: Tensor) -> tuple[float, float]:
        """Largest distance of the means and of the second moments of all pixels, in standard errors."""
        scores = []
        for power in (1, 2):
            a, b = one.flatten(1) ** power, other.flatten(1) ** power
            scores.append(((a.mean(0) - b.mean(0)).abs() / ((a.var(0) + b.var(0)) / n).sqrt()).max().item())
        return scores[0], scores[1]

    assert max(apart(found, expected)) < 4.5
    assert min(apart(flat, expected)) > 20  # what z_1 ~ N(0, I) would have given
    assert torch.equal(model.sample(5, seed=1), model.sample(5, seed=1))
    assert not torch.equal(model.sample(5, seed=1), model.sample(5, seed=2))
