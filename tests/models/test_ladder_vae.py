"""The Ladder VAE against closed forms, quadrature and Monte Carlo: merging, bounds, inference and sampling; then its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from intervae.causal.gaussian import kl_diagonal
from intervae.data.base import Batch, Dataset, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics.likelihood import likelihood_bounds
from intervae.models import LadderVAE
from intervae.models.ladder_vae import Layer, merge
from intervae.nets.norm import BatchNorm

SMALL: dict[str, Any] = {"latents": (4, 3, 2), "widths": (16, 12, 8), "warm_up": 0, "epochs": 2, "batch_size": 16}
KINDS = [(inference, norm) for inference in ("ladder", "bottom-up") for norm in (False, True)]
END = torch.tensor(math.inf)  # the step at which every schedule is over


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(data: Dataset, *, scramble: float = 0.3, **settings: Any) -> LadderVAE:
    """A model in eval mode whose weights and kept statistics are far from their simple start: variances that differ, layers that talk."""
    model, generator = LadderVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scramble * torch.randn(parameter.shape, generator=generator)
        for part in model.modules():
            if isinstance(part, BatchNorm):
                part.mean += scramble * torch.randn(part.mean.shape, generator=generator)
                part.variance += torch.rand(part.variance.shape, generator=generator)
    return model


def grey(data: Dataset, n: int) -> Tensor:
    return data.train.images[:n].float() / 255


def noises(model: LadderVAE, n: int, seed: int = 0) -> list[Tensor]:
    return [torch.randn(n, size, generator=seeded(seed + i)) for i, size in enumerate(model.settings.latents)]


def batch_of(data: Dataset, n: int, step: Tensor = END) -> Batch:
    return {**data.train.batch(torch.arange(n)), "step": step}


def pictures(images: np.ndarray) -> Dataset:
    """A data set of (N, C, H, W) uint8 pictures, the last fifth for validation and test."""
    n = len(images)
    validation, test = (np.arange(n) >= 0.8 * n) & (np.arange(n) < 0.9 * n), np.arange(n) >= 0.9 * n
    return build_dataset("made", images, np.arange(n, dtype=float)[:, None], [Variable("a")], validation=validation, test=test)


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
    drawn = layer.log_ratio
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
        spread = layer.log_ratio.std() / (4 * draws) ** 0.5
        assert (mean[f"kl_z{i + 1}"] + layer.log_ratio.mean()).abs() < 6 * spread
        apart.append((layer.kl.sum(1).mean() + layer.log_ratio.mean()).abs() / spread)
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
                divergence = sum((layer.kl.sum(1) + layer.log_ratio for layer in closed), -ratios)
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


# ---- warm-up --------------------------------------------------------------------------------------------------------
@torch.no_grad()
def test_the_weight_of_the_divergence_rises_from_nothing_to_one(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, warm_up=4)
    model.set_warm_up(data, 0)
    end = 4 * (len(data.train) // 16)
    for step, weight in ((0.0, 0.0), (end / 4, 0.25), (end / 2, 0.5), (end, 1.0), (end + 1, 1.0), (100 * end, 1.0), (math.inf, 1.0)):
        found = model.loss(batch_of(data, 16, torch.tensor(step)), seeded(0))
        torch.testing.assert_close(found["loss"], found["reconstruction"] + weight * found["kl"], rtol=1e-6, atol=0)
    assert found["kl"] > 0.1
    at_once = make(data, warm_up=0)
    found = at_once.loss(batch_of(data, 16, torch.tensor(0.0)), seeded(0))
    torch.testing.assert_close(found["loss"], found["reconstruction"] + found["kl"], rtol=1e-6, atol=0)


def test_training_warms_up_and_validation_never_does(make_data: Any) -> None:
    data = make_data((1, 4, 4), samples=160)
    lines = [line for line in LadderVAE(data.spec, **{**SMALL, "warm_up": 2, "epochs": 3}).fit(data).history if "train" in line]
    steps = len(data.train) // 16
    assert len(lines) == 3
    for epoch, line in enumerate(lines):
        train, validation = line["train"], line["validation"]
        assert validation["loss"] == pytest.approx(validation["reconstruction"] + validation["kl"], rel=1e-5)
        weight = (train["loss"] - train["reconstruction"]) / train["kl"]  # a mean over the epoch, weighted by each step's divergence
        low, high = ((epoch * steps + step) / (2 * steps) for step in (0, steps - 1))
        assert min(low, 1) - 1e-4 <= weight <= min(high, 1) + 1e-4


# ---- pixels ---------------------------------------------------------------------------------------------------------
def test_pixels_are_drawn_with_their_grey_values_probability_anew_for_every_step(make_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data((1, 4, 4))
    model = make(data, binarise=True)
    seen: list[Tensor] = []
    infer = LadderVAE.infer
    monkeypatch.setattr(LadderVAE, "infer", lambda self, images, *rest: (seen.append(images), infer(self, images, *rest))[1])
    generator = seeded(0)
    with torch.no_grad():
        for _ in range(1000):
            model.loss(batch_of(data, 4), generator)
    drawn = torch.stack(seen)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    probability = grey(data, 4)
    spread = (probability * (1 - probability) / len(drawn)).sqrt()
    assert ((drawn.mean(0) - probability).abs() <= 4.5 * spread).all()
    assert 0.05 < probability.mean() < 0.95
    seen.clear()
    with torch.no_grad():
        make(data, binarise=False).loss(batch_of(data, 4), generator)
    assert torch.equal(seen[0], probability)


def test_what_is_observed_is_the_same_for_the_same_seed(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    one, other = make(data, binarise=True), make(data, binarise=True, scramble=0.1)
    images = data.train.images[:8]
    found = one.observed(images, seed=3)
    assert torch.equal(found, other.observed(images, seed=3))  # so that models are compared on the same pixels
    assert not torch.equal(found, one.observed(images, seed=4))
    assert set(found.unique().tolist()) == {0.0, 1.0}
    mean = torch.stack([one.observed(images, seed=seed) for seed in range(500)]).mean(0)
    assert (mean - grey(data, 8)).abs().max() < 5 * 0.5 / 500**0.5
    assert torch.equal(make(data).observed(images), grey(data, 8))


@torch.no_grad()
def test_learned_variances_make_a_gaussian_density_of_every_pixel() -> None:
    data = pictures(np.random.default_rng(0).integers(0, 256, (40, 1, 1, 2), dtype=np.uint8))
    model = make(data, likelihood="gaussian", scale=0.0, scramble=0.6)
    x = torch.linspace(-12, 13, 25_001)
    z = torch.randn(3, 4, generator=seeded(1))
    codes = torch.cat([z, torch.zeros(3, 5)], 1)[..., None]
    spreads = []
    for row, picture in zip(z, model.decode(codes), strict=True):
        moments = []
        for pixel in (0, 1):  # the other is held at the picture's own value
            values = picture.expand(len(x), 1, 1, 2).clone()
            values[:, 0, 0, pixel] = x
            density = (-model.misfit(row.expand(len(x), 4), values).double()).exp()
            density = density / torch.trapezoid(density, x.double())
            mean = torch.trapezoid(density * x, x.double())
            torch.testing.assert_close(mean.float(), picture[0, 0, pixel], rtol=1e-3, atol=1e-4)
            moments.append(torch.trapezoid(density * (x - mean).square(), x.double()).float().sqrt())
        any_values = torch.tensor([[[[0.2, 0.9]]]])
        expected = Normal(picture[0, 0], torch.stack(moments)).log_prob(any_values[0, 0, 0]).sum()
        torch.testing.assert_close(-model.misfit(row[None], any_values)[0], expected, rtol=1e-3, atol=1e-3)
        spreads += moments
    assert max(spreads) > 1.1 * min(spreads)


def test_variances_are_learned_from_how_much_a_pixel_varies() -> None:
    rng = np.random.default_rng(0)
    images = np.stack([rng.normal(0.5, 0.03, 800), rng.normal(0.5, 0.15, 800)], 1).clip(0, 1)
    data = pictures((255 * images).round().astype(np.uint8)[:, None, None, :])
    settings = {"latents": (1,), "widths": (4,), "likelihood": "gaussian", "scale": 0.0, "batch_size": 64, "epochs": 60, "learning_rate": 0.02}
    model = LadderVAE(data.spec, **{**SMALL, **settings})
    history = model.fit(data, tensorboard=False).history
    best = sum(0.5 * math.log(2 * math.pi * math.e * std**2) for std in (0.03, 0.15))  # what independent Gaussians cost
    last = [line for line in history if "validation" in line][-1]
    assert last["validation"]["loss"] == pytest.approx(best, abs=0.3)


# ---- units ----------------------------------------------------------------------------------------------------------
def test_the_divergence_of_a_unit_is_its_mean_over_all_images(make_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More images than are handled at once; some units are put at their prior, where a posterior says nothing."""
    data = make_data((1, 4, 4), samples=440)
    model = make(data)
    images = data.train.images[:300]
    found = model.unit_kl(images, seeded(0))
    generator = seeded(0)
    noise = [torch.randn(300, size, generator=generator) for size in (4, 3, 2)]
    with torch.no_grad():
        torch.testing.assert_close(found, torch.cat([layer.kl for layer in model.infer(grey(data, 300), noise)], 1).mean(0), rtol=1e-4, atol=1e-5)
    assert (found > 0.01).all()
    idle = torch.tensor([False, True, False, False])
    infer = LadderVAE.infer

    def partly(self: LadderVAE, *arguments: Any) -> list[Layer]:
        low, *others = infer(self, *arguments)
        mean, variance = torch.where(idle, low.prior_mean, low.mean), torch.where(idle, low.prior_variance, low.variance)
        return [low._replace(mean=mean, variance=variance), *others]

    monkeypatch.setattr(LadderVAE, "infer", partly)
    assert (model.unit_kl(images, seeded(0)) < 0.01).nonzero().flatten().tolist() == [1]


def test_pictures_that_share_nothing_leave_every_unit_inactive_and_two_kinds_of_picture_do_not() -> None:
    rng = np.random.default_rng(0)
    kinds = np.where(rng.random((800, 1, 1, 1)) < 0.5, np.eye(4) > 0, np.eye(4) == 0)
    active = {}
    for name, images in (("noise", rng.random((800, 1, 4, 4)) < 0.5), ("kinds", kinds ^ (rng.random((800, 1, 4, 4)) < 0.02))):
        data = pictures(images.astype(np.uint8) * 255)
        settings = {"latents": (2, 1), "widths": (16, 8), "epochs": 30, "batch_size": 64, "learning_rate": 5e-3, "batch_norm": False}
        model = LadderVAE(data.spec, **{**SMALL, **settings})
        model.fit(data, tensorboard=False)
        active[name] = (model.unit_kl(data.test.images, seeded(0)) > 0.02).sum().item()
    assert active["noise"] == 0
    assert active["kinds"] >= 1


# ---- training -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("changes", [{}, {"inference": "bottom-up"}, {"binarise": True}])
def test_after_training_the_statistics_of_batch_norm_are_those_of_the_whole_training_split(changes: dict[str, Any], make_data: Any) -> None:
    """One batch of all training pictures, normalised by its own statistics, gives what the kept ones give, with the noise of the seed."""
    data = make_data((1, 4, 4), samples=205)
    model = LadderVAE(data.spec, **{**SMALL, "epochs": 3, "learning_rate": 0.01, **changes})
    model.fit(data, seed=4, tensorboard=False)
    assert not model.training
    n = len(data.train)
    assert n % 16  # the last pictures are in no batch of the last epoch
    with torch.no_grad():
        for size in (n, 16):
            kept, own = (model.train(training).loss(batch_of(data, size), seeded(4)) for training in (False, True))
            apart = max((kept[name] - own[name]).abs().item() for name in kept)
            assert apart < 2e-3 if size == n else apart > 0.02
    model.eval()


def test_training_without_batch_norm_keeps_no_statistics(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, batch_norm=False)
    assert [phase.name for phase in model.phases()] == ["images"]
    assert not [part for part in model.modules() if isinstance(part, BatchNorm)]


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


# ---- what makes no sense --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"latents": ()}, "one size above 0 for each layer"),
        ({"latents": (4, 0)}, "one size above 0 for each layer"),
        ({"latents": (4, 3, 2), "widths": (16, 12)}, "one size above 0 for each layer"),
        ({"widths": (16, 0, 8)}, "one size above 0 for each layer"),
        ({"scale": 0.0}, "scale=0.0 must be larger than 0; 0 learns the variances of a gaussian"),
        ({"scale": 0.0, "likelihood": "laplace"}, "scale=0.0 must be larger than 0"),
        ({"scale": -1.0, "likelihood": "gaussian"}, "scale=-1.0 must be larger than 0"),
        ({"warm_up": -1}, "warm_up must be 0 or more"),
        ({"importance_samples": 0}, "importance_samples and monte_carlo_samples 1 or more"),
        ({"monte_carlo_samples": 0}, "importance_samples and monte_carlo_samples 1 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str, make_data: Any) -> None:
    with pytest.raises(UsageError, match=words):
        LadderVAE(make_data((1, 4, 4)).spec, **{**SMALL, **settings})


def test_clips_are_refused(make_data: Any) -> None:
    with pytest.raises(DataError, match="takes single images, not clips"):
        LadderVAE(replace(make_data((1, 4, 4)).spec, frames=3), **SMALL)
