"""Ladder VAE: merging and inference against closed forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ladder import grey, make, noises, seeded
from torch.distributions import Normal

from batches import late_batch as batch_of
from intervae.causal.gaussian import kl_diagonal
from intervae.models.ladder_vae.networks import LadderLayer, merge_gaussians

KINDS = [(inference, norm) for inference in ("ladder", "bottom-up") for norm in (False, True)]


# ---- Gaussians -----------------------------------------------------------------------------
def test_merging_is_the_product_of_two_densities() -> None:
    cases = torch.tensor(
        [
            [0.3, 0.5, -1.0, 2.0],
            [2.0, 0.05, -1.0, 0.3],
            [0.0, 1.0, 4.0, 1.0],
            [1.0, 3.0, 1.5, 0.02],
        ],
        dtype=torch.float64,
    )
    means, variances = merge_gaussians(*cases.T)
    x = torch.linspace(-15, 15, 60_001, dtype=torch.float64)
    for (m1, v1, m2, v2), mean, variance in zip(cases, means, variances, strict=True):
        product = (Normal(m1, v1.sqrt()).log_prob(x) + Normal(m2, v2.sqrt()).log_prob(x)).exp()
        density = product / torch.trapezoid(product, x)
        torch.testing.assert_close(mean, torch.trapezoid(density * x, x), rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(
            variance, torch.trapezoid(density * (x - mean).square(), x), rtol=1e-6, atol=1e-8
        )
        torch.testing.assert_close(
            density, Normal(mean, variance.sqrt()).log_prob(x).exp(), rtol=1e-5, atol=1e-9
        )


def test_merging_with_flat_and_with_sharp_priors() -> None:
    mean, variance = torch.tensor([0.7]), torch.tensor([0.2])
    torch.testing.assert_close(
        merge_gaussians(mean, variance, torch.tensor([5.0]), torch.tensor([1e9])), (mean, variance)
    )
    torch.testing.assert_close(
        merge_gaussians(mean, variance, torch.tensor([5.0]), torch.tensor([1e-9])),
        (torch.tensor([5.0]), torch.tensor([1e-9])),
    )


def test_the_kl_of_a_layer_is_closed_form_and_the_mean_log_ratio() -> None:
    draws = 200_000
    generator = seeded(0)
    mean, prior_mean = torch.randn(2, 1, 3, generator=generator)
    variance, prior_variance = 0.2 + torch.rand(2, 1, 3, generator=generator)
    noise = torch.randn(draws, 3, generator=generator)
    layer = LadderLayer(
        mean + variance.sqrt() * noise,
        *(t.expand(draws, 3) for t in (mean, variance, prior_mean, prior_variance)),
    )
    torch.testing.assert_close(
        layer.kl[:1].sum(1),
        kl_diagonal(mean, variance.log(), prior_mean, prior_variance.log()),
        rtol=1e-5,
        atol=1e-6,
    )
    for unit in range(3):
        alone = torch.distributions.kl_divergence(
            Normal(mean[0, unit], variance[0, unit].sqrt()),
            Normal(prior_mean[0, unit], prior_variance[0, unit].sqrt()),
        )
        torch.testing.assert_close(layer.kl[0, unit], alone, rtol=1e-5, atol=1e-6)
    drawn = layer.log_ratio.sum(1)
    assert drawn.shape == (draws,)
    assert (drawn.mean() + layer.kl[0].sum()).abs() < 4 * drawn.std() / draws**0.5


# ---- inference -----------------------------------------------------------------------------
def test_a_lower_posterior_is_image_evidence_times_the_prior(
    make_data: Any,
) -> None:
    """1 / s2_q - 1 / s2_p and mu_q / s2_q - mu_p / s2_p do not depend on the samples above.

    With separate top-down networks they do.
    """
    data = make_data((1, 4, 4))
    for share in (True, False):
        model = make(data, share_generative=share)
        evidence = []
        for seed in (0, 100):
            low, middle, top = model.infer(grey(data, 8), noises(model, 8, seed))
            assert (top.prior_mean == 0).all()
            assert (top.prior_variance == 1).all()
            precisions = [1 / layer.variance - 1 / layer.prior_variance for layer in (low, middle)]
            weighted = [
                layer.mean / layer.variance - layer.prior_mean / layer.prior_variance
                for layer in (low, middle)
            ]
            evidence.append([*precisions, *weighted, top.mean, top.variance])
            assert all((precision > 0).all() for precision in precisions) or not share
        differences = [(a - b).abs().max().item() for a, b in zip(*evidence, strict=True)]
        assert max(differences[4:]) == 0
        assert max(differences[:4]) < 1e-3 if share else min(differences[:4]) > 1e-2


def test_bottom_up_inference_samples_each_layer_from_the_one_below(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, inference="bottom-up")
    images, noise = grey(data, 8), noises(model, 8)
    low, middle, top = model.infer(images, noise)
    other_top = [*noise[:2], -noise[2]]
    again = model.infer(images, other_top)
    assert torch.equal(again[0].mean, low.mean)
    assert torch.equal(again[2].mean, top.mean)  # q(z_3 | z_2) does not depend on z_3
    assert not torch.equal(again[1].prior_mean, middle.prior_mean)  # p(z_2 | z_3) does
    again = model.infer(images, [-noise[0], *noise[1:]])
    assert torch.equal(again[0].mean, low.mean)
    assert not torch.equal(again[1].mean, middle.mean)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_ladder_of_one_layer_is_the_vae(training: bool, samples: int, make_data: Any) -> None:
    data = make_data((1, 4, 4))
    ladder, bottom_up = (
        make(data, latents=(5,), widths=(8,), inference=kind, importance_samples=samples)
        for kind in ("ladder", "bottom-up")
    )
    weights, others = ladder.state_dict(), bottom_up.state_dict()
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in others.items())
    terms = [
        model.train(training).loss(batch_of(data, 16), seeded(3)) for model in (ladder, bottom_up)
    ]
    assert terms[0].keys() == terms[1].keys()
    assert all(torch.equal(terms[0][name], terms[1][name]) for name in terms[0])
    codes = [model.eval().encode(data.test.images) for model in (ladder, bottom_up)]
    assert torch.equal(*codes)


def test_samples_are_reparametrised_and_repeat_the_batch(
    make_data: Any,
) -> None:
    data = make_data((1, 4, 4))
    for inference in ("ladder", "bottom-up"):
        model = make(data, inference=inference)
        images, noise = grey(data, 4), noises(model, 12)
        layers = model.infer(images, noise)
        for layer, drawn in zip(layers, noise, strict=True):
            torch.testing.assert_close(layer.z, layer.mean + layer.variance.sqrt() * drawn)
        for k in range(3):
            rows = slice(4 * k, 4 * k + 4)
            single = model.infer(images, [drawn[rows] for drawn in noise])
            for layer, alone in zip(layers, single, strict=True):
                for tensor, expected in zip(layer, alone, strict=True):
                    torch.testing.assert_close(tensor[rows], expected, rtol=1e-4, atol=1e-5)


def test_codes_are_the_means_of_all_layers_and_only_z1_is_decoded(
    make_data: Any,
) -> None:
    data = make_data((1, 4, 4))
    for inference in ("ladder", "bottom-up"):
        model = make(data, inference=inference)
        assert model.latent_names == (
            "z1_0",
            "z1_1",
            "z1_2",
            "z1_3",
            "z2_0",
            "z2_1",
            "z2_2",
            "z3_0",
            "z3_1",
        )
        codes = model.encode(data.train.images[:6])
        noiseless = model.infer(
            grey(data, 6), [torch.zeros(6, size) for size in (4, 3, 2)]
        )  # without noise z is the mean
        torch.testing.assert_close(
            codes[..., 0], torch.cat([layer.mean for layer in noiseless], 1), rtol=1e-5, atol=1e-6
        )
        changed = codes.clone()
        changed[:, 4:] += 1
        assert torch.equal(model.decode(changed), model.decode(codes))
        changed[:, 3] += 1
        assert not torch.equal(model.decode(changed), model.decode(codes))


@pytest.mark.parametrize("upward", ["hidden", "mean"])
def test_the_upward_pass_uses_hidden_units_or_means(upward: str, make_data: Any) -> None:
    """Through one mean the top depends on one direction of the images, through hidden units on
    several.
    """
    data = make_data((1, 4, 4))
    model = make(data, latents=(1, 4), widths=(8, 8), upward_input=upward)
    image = grey(data, 1)
    jacobian: Any = torch.autograd.functional.jacobian(
        lambda x: model.infer(x, None)[1].mean, image
    )
    strengths = torch.linalg.svdvals(jacobian.reshape(4, -1))
    assert strengths[0] > 1e-2
    assert (strengths[1] > 1e-2 * strengths[0]) == (upward == "hidden")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share_generative": False},
        {"upward_input": "mean"},
        {"inference": "bottom-up"},
        {"scale": 0.0, "likelihood": "gaussian"},
    ],
)
def test_every_parameter_has_a_gradient(changes: dict[str, Any], make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, **changes).train()
    model.loss(batch_of(data, 16), seeded(0))["loss"].backward()
    assert [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ] == []
    sizes = {
        share: sum(
            p.numel() for p in make(data, **{**changes, "share_generative": share}).parameters()
        )
        for share in (True, False)
    }
    assert (sizes[False] > sizes[True]) == (model.settings.inference == "ladder")
