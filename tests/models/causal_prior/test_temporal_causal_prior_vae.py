"""The temporal causal-prior VAE: posterior and loss against closed forms, backgrounds, errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_temporal import STEADY, make, seeded
from torch.distributions import MultivariateNormal, kl_divergence

from batches import late_batch as batch_of
from intervae.data import Dataset
from intervae.data.simulators import Motion
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import TemporalCausalPriorVAE
from intervae.models.causal_prior.clips import random_window
from intervae.models.causal_prior.posterior import gaussian_head

EARLIER, LAST = slice(0, 4), slice(4, 6)  # of the variables z1_0, z1_1, z2_0, z2_1, z3_0, z3_1


@pytest.fixture
def data() -> Dataset:
    return Motion(size=12, backgrounds=4).dataset(samples=64)


@pytest.fixture
def longer() -> Dataset:
    return Motion(size=16, frames=5, backgrounds=4).dataset(samples=64)


def test_posterior_is_block_diagonal_over_frames(data: Dataset) -> None:
    model, clips = make(data), batch_of(data)["images"]
    mean, factor, log_det = model.posterior(clips)
    for t in range(3):
        frame_mean, block, _ = gaussian_head(model.frame_encoder(clips[:, t]), 2)
        at = slice(2 * t, 2 * t + 2)
        assert torch.allclose(mean[:, at], frame_mean, atol=1e-6)
        assert torch.allclose(factor[:, at, at], block, atol=1e-6)
        assert factor[:, at, [i for i in range(6) if i // 2 != t]].abs().max() == 0
    assert torch.allclose(log_det, torch.linalg.slogdet(factor)[1], atol=1e-5)


def test_edges_go_forward_in_time_only(data: Dataset) -> None:
    model = make(data, latents=4)
    assert model.sem.allowed.sum() == 48  # the paper's candidates
    for j, i in model.sem.allowed.nonzero().tolist():
        assert j // 4 < i // 4
    fitted = make(data, selection="gumbel")
    fitted.fit(data)
    assert fitted.graph.edges
    assert all(cause[1] < effect[1] for cause, effect, _ in fitted.graph.edges)
    assert fitted.latent_names == ("z1_0", "z1_1", "z2_0", "z2_1", "z3_0", "z3_1", "b0", "b1", "b2")


def test_loss_has_the_closed_form_kl_of_the_linear_sem(data: Dataset) -> None:
    model, batch = make(data, STEADY, reconstruction_weight=4.0, beta=0.5), batch_of(data)
    with torch.no_grad():
        model.sem.log_scales.copy_(torch.linspace(-1, 0.5, 6))
    clips = batch["images"]
    mean, factor, _ = model.posterior(clips)
    z = mean + torch.einsum("bij,bj->bi", factor, torch.randn(16, 6, generator=seeded(1)))
    code = model.background_encoder(clips.median(1).values)
    predicted = 2 * z[:, 2:4] - z[:, 0:2]  # from the draws, not from the means
    frames = [
        model.decoder(torch.cat([latents, code], 1))
        for latents in (z[:, 0:2], z[:, 2:4], z[:, 4:6], predicted)
    ]
    errors = [
        ((frame - clips[:, t]) ** 2).sum((1, 2, 3)).mean().item()
        for frame, t in zip(frames, (0, 1, 2, 2), strict=True)
    ]
    mixing = torch.linalg.inv(
        torch.eye(6).double() - (model.fixed * model.sem.weights).detach().double().T
    )
    variances = torch.diag((2 * model.sem.log_scales.detach().double()).exp())
    prior = MultivariateNormal(torch.zeros(6).double(), mixing @ variances @ mixing.T)
    kl = (
        kl_divergence(MultivariateNormal(mean.double(), scale_tril=factor.double()), prior)
        .mean()
        .item()
    )
    terms = {key: value.item() for key, value in model.loss(batch, seeded(1)).items()}
    assert terms["reconstruction"] == pytest.approx(sum(errors[:3]), rel=1e-4)
    assert terms["prediction"] == pytest.approx(errors[3], rel=1e-4)
    assert terms["kl"] == pytest.approx(kl, rel=1e-4)
    assert terms["loss"] == pytest.approx(
        4.0 * sum(errors) + 0.5 * kl, rel=1e-4
    )  # no penalty on fixed edges


def test_beta_rises_over_the_warm_up_and_fixed_edges_have_no_penalty(data: Dataset) -> None:
    model = make(data, selection="gumbel", sparsity=3.0, warm_up=8, beta=2.0)
    for step, beta in ((0, 0.0), (2, 0.5), (4, 1.0), (8, 2.0), (math.inf, 2.0)):
        terms = {
            key: value.item()
            for key, value in model.loss(
                batch_of(data, step=torch.tensor(float(step))), seeded(0)
            ).items()
        }
        assert terms["edges"] == pytest.approx(12 / (1 + math.exp(-2.0)), rel=1e-5)
        expected = (
            10 * (terms["reconstruction"] + terms["prediction"])
            + beta * terms["kl"]
            + 3.0 * terms["edges"]
        )
        assert terms["loss"] == pytest.approx(expected, rel=1e-5)
    model.is_fixed.fill_(1.0)
    terms = {
        key: value.item()
        for key, value in model.loss(batch_of(data, step=torch.zeros(())), seeded(0)).items()
    }
    assert terms["loss"] == pytest.approx(
        10 * (terms["reconstruction"] + terms["prediction"]) + 2 * terms["kl"], rel=1e-5
    )


def test_prediction_error_has_gradients_for_the_coefficients(data: Dataset) -> None:
    model = make(data)
    model.loss(batch_of(data), seeded(0))["prediction"].backward()
    gradient = model.sem.weights.grad
    assert gradient is not None
    assert (gradient[EARLIER, LAST].abs() > 0).all()
    gradient[EARLIER, LAST] = 0
    assert gradient.abs().max() == 0


def test_longer_clips_are_cut_into_windows_of_successive_frames(longer: Dataset) -> None:
    model = make(longer)
    clips = torch.arange(5.0)[None, :, None, None, None].expand(300, 5, 1, 16, 16)
    cut = random_window(clips, 3, seeded(0))[:, :, 0, 3, 3]
    assert torch.equal(cut - cut[:, :1], torch.tensor([0.0, 1.0, 2.0]).expand(300, 3))
    assert torch.bincount(cut[:, 0].long(), minlength=3).min() > 60  # 0, 1 and 2, about as often
    model.fit(longer)
    latents = model.encode(longer.test.images)
    assert latents.shape[1:] == (9, 1)
    assert model.decode(latents).shape[1:] == (3, 1, 16, 16)
    reconstructed = model.reconstruct(longer.test.images)
    assert reconstructed.shape == longer.test.images.shape
    assert torch.allclose(reconstructed[:, :3], model.decode(latents), atol=1e-5)


def test_background_is_the_given_image_or_the_median_over_frames(data: Dataset) -> None:
    from_data, median = make(data, background="given"), make(data)
    clips, background = data.test.images, data.test.fields["background"]
    as_floats = background.float() / 255
    latents = from_data.encode(clips, background=background)
    assert torch.allclose(latents[:, 6:, 0], from_data.background_encoder(as_floats), atol=1e-6)
    assert torch.equal(latents, from_data.encode(clips, background=as_floats))
    median_code = from_data.background_encoder((clips.float() / 255).median(1).values)
    for fallback in (
        from_data.encode(clips),
        median.encode(clips),
        median.encode(clips, background=background),
    ):
        assert torch.allclose(fallback[:, 6:, 0], median_code, atol=1e-6)
    assert not torch.allclose(median_code, latents[:, 6:, 0], atol=1e-3)
    assert torch.equal(latents[:, :6], median.encode(clips)[:, :6])
    losses = [model.loss(batch_of(data), seeded(0))["loss"].item() for model in (from_data, median)]
    assert losses[0] != losses[1]
    blank = {**batch_of(data), "background": torch.zeros(16, 1, 12, 12)}
    assert from_data.loss(blank, seeded(0))["loss"].item() != losses[0]
    assert median.loss(blank, seeded(0))["loss"].item() == losses[1]


def test_background_given_needs_the_field_background(data: Dataset, make_data: Any) -> None:
    without = make_data((1, 12, 12), frames=3)
    with pytest.raises(DataError, match="background=median"):
        make(without, background="given").fit(without)
    make(data, background="given").fit(data)


def test_errors_for_clips_of_another_length_or_shape(
    data: Dataset, make_data: Any, make_model: Any
) -> None:
    model, five = make(data), torch.zeros(2, 5, 1, 12, 12)
    for clips in (five, five[0]):
        with pytest.raises(
            QueryError,
            match=r"clips of shape \(3, 1, 12, 12\).*encode takes 3 frames.*any number",
        ):
            model.encode(clips)
    with pytest.raises(
        QueryError,
        match=r"\(frames, channels, height, width\), not \(2, 3, 1, 12, 11\); resize or transpose",
    ):
        model.encode(five[:, :3, ..., 1:])
    with pytest.raises(QueryError, match="a clip has frames"):
        model.encode(five[0, 0])
    with pytest.raises(
        QueryError,
        match=r"\(2, 5, 1, 12, 12\) is that of clips; pass one frame.*temporal-causal-prior-vae",
    ):
        make_model("vae", make_data((1, 12, 12))).encode(five)


def test_repr_of_clips_has_the_number_of_frames(data: Dataset) -> None:
    assert "(1, 12, 12) uint8, clips of 3 frames" in repr(data)


def test_errors_for_invalid_clips_and_backgrounds(data: Dataset) -> None:
    model = make(data, background="given")
    good, still = torch.full((2, 4, 1, 12, 12), 0.5), torch.full((2, 1, 12, 12), 0.5)
    nan, high = good.clone(), good.clone()
    nan[1, 2, 0, 3, 3], high[0, 0, 0, 0, 0] = float("nan"), 1.5
    for frames, words in (
        (nan, "NaN"),
        (high, r"\[0, 1\]"),
        (good[..., :-1], "must be"),
        (good[0, 0], "must be"),
        (good[:0], "must be"),
        ("a", "array"),
    ):
        with pytest.raises(QueryError, match=words):
            model.extrapolate(frames, 1)
    for background, words in (
        (nan[1, 2], "NaN"),
        (still[:1], "one for each clip"),
        (still[..., 1:], "one for each clip"),
        ("a", "array"),
    ):
        with pytest.raises(QueryError, match=words):
            model.encode(good[:, :3], background=background)
    assert torch.equal(
        model.encode(good[0, :3], background=still[0]),
        model.encode(good[:1, :3], background=still[:1]),
    )


def test_errors_for_images_short_clips_and_invalid_settings(data: Dataset, make_data: Any) -> None:
    with pytest.raises(DataError, match="causal-prior-vae"):
        TemporalCausalPriorVAE(make_data((1, 12, 12)).spec)
    with pytest.raises(DataError, match="set window= lower"):
        TemporalCausalPriorVAE(data.spec, window=4)
    for settings in (
        {"window": 1},
        {"latents": 0},
        {"background_size": 0},
        {"warm_up": -1},
        {"rounds": 0},
        {"tolerance": 1.0},
        {"beta": -1.0},
    ):
        with pytest.raises(UsageError, match="must be"):
            TemporalCausalPriorVAE(data.spec, **settings)
