"""Graph of the temporal causal-prior VAE: alignment, choice of edges, fit of coefficients."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_temporal import STEADY, make, seeded
from torch import Tensor

from batches import late_batch as batch_of
from intervae.causal.sem import kl_tangent
from intervae.data import Dataset, Split
from intervae.data.simulators import Motion
from intervae.models import TemporalCausalPriorVAE
from intervae.models.causal_prior.clips import as_clips
from intervae.models.causal_prior.graph_selection import (
    align_latents,
    choose_edges,
    fit_coefficients,
    fit_coefficients_and_scales,
    fix_probable_edges,
)


@pytest.fixture
def data() -> Dataset:
    return Motion(size=12, backgrounds=4).dataset(samples=64)


def give_latents(model: TemporalCausalPriorVAE, monkeypatch: pytest.MonkeyPatch, z: Tensor) -> None:
    """Replace `encode` so that it returns these latents (N, 6) for any clips."""
    codes = torch.arange(3 * len(z)).reshape(len(z), 3) / 100
    monkeypatch.setattr(
        model, "encode", lambda images, **_: torch.cat([z, codes], dim=1)[: len(images), :, None]
    )


def test_fit_recovers_coefficients_and_scales(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(data, STEADY)
    with torch.no_grad():
        model.sem.weights.mul_(0.6)
    data = Motion(size=12).dataset(samples=4000)
    z = torch.randn(len(data.train), 6, generator=seeded(0)) * torch.tensor(
        [1.0, 2.0, 0.5, 1.0, 1.0, 1.0]
    )
    z[:, 4] = 2 * z[:, 2] - z[:, 0]
    z[:, 5] = 2 * z[:, 3] - z[:, 1] + 0.3 * z[:, 5]
    give_latents(model, monkeypatch, z)
    fit_coefficients(model, data, 0)
    weights = {(cause, effect): weight for cause, effect, weight in model.graph.edges}
    assert weights.keys() == STEADY.keys()
    assert [weights[edge] for edge in STEADY][:2] == pytest.approx([-1.0, 2.0], abs=1e-4)
    assert [weights[edge] for edge in STEADY][2:] == pytest.approx([-1.0, 2.0], abs=0.03)
    assert model.sem.log_scales.exp().tolist() == pytest.approx(
        [1.0, 2.0, 0.5, 1.0, 1e-3, 0.3], rel=0.05
    )
    assert {tuple(row) for row in model.bank.tolist()} <= {
        tuple(row) for row in (torch.arange(3 * len(z)).reshape(-1, 3) / 100).tolist()
    }


def test_last_fit_has_the_scales_of_smallest_kl(data: Dataset) -> None:
    model = make(data, STEADY)
    fit_coefficients_and_scales(model, data, 0)
    mean, factor, log_det = model.posterior(as_clips(model, data.train.images))

    def divergence() -> float:
        return kl_tangent(mean, factor, model.sem, model.fixed, log_det=log_det).mean().item()

    best = divergence()
    for index in range(6):
        for factor_of_scale in (0.9, 1.1):
            with torch.no_grad():
                model.sem.log_scales[index] += math.log(factor_of_scale)
                assert divergence() > best
                model.sem.log_scales[index] -= math.log(factor_of_scale)
    fit_coefficients(model, data, 0)  # too small, since it ignores the posterior variance
    assert divergence() > best


def test_fit_with_collinear_causes_shares_the_coefficient(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(data, {**STEADY, ("z2_1", "z3_0"): 1.0})
    z = torch.randn(len(data.train), 6, generator=seeded(0))
    z[:, 3] = z[:, 2] + 1e-6 * torch.randn(len(z), generator=seeded(1))
    z[:, 4] = 2 * z[:, 2] - z[:, 0]
    give_latents(model, monkeypatch, z)
    fit_coefficients(model, data, 0)
    assert model.sem.weights[[0, 2, 3], 4].tolist() == pytest.approx(
        [-1.0, 1.0, 1.0], abs=1e-3
    )  # shared between the two


def test_probable_edges_are_fixed_and_no_longer_sampled(data: Dataset) -> None:
    model = make(data, selection="gumbel", sparsity=5.0)
    with torch.no_grad():
        model.sem.edge_logits.copy_(-model.sem.allowed)
        for cause, effect in ((0, 4), (2, 4)):
            model.sem.edge_logits[cause, effect] = 0.5
    fix_probable_edges(model, data, 0)
    assert [edge[:2] for edge in model.graph.edges] == [("z1_0", "z3_0"), ("z2_0", "z3_0")]
    assert torch.equal(model.edges, model.fixed)
    terms = model.loss(batch_of(data), seeded(0))
    with torch.no_grad():
        model.sem.edge_logits.mul_(-3)  # unused from here on
    repeated = model.loss(batch_of(data), seeded(0))
    assert all(
        torch.equal(terms[key], repeated[key])
        for key in ("loss", "reconstruction", "prediction", "kl")
    )
    assert np.array(model.state_to_log()["adjacency"]).shape == (9, 9)


def test_alignment_changes_the_latents_and_no_reconstruction(data: Dataset) -> None:
    model, clips = make(data, STEADY), data.test.images
    before, images_before = model.encode(clips), model.reconstruct(clips)
    align_latents(model, data, 0)
    after = model.encode(clips)
    assert torch.allclose(model.reconstruct(clips), images_before, atol=1e-4)
    assert not torch.allclose(after[:, :6], before[:, :6], atol=1e-2)
    assert torch.equal(after[:, 6:], before[:, 6:])
    _, factor, log_det = model.posterior(clips.float() / 255)
    assert torch.allclose(log_det, torch.linalg.slogdet(factor)[1], atol=1e-4)
    early = model.encode(data.train.images)[:, :4, 0].reshape(-1, 2)
    assert early.mean(0).abs().max() < 1e-3
    aligned = model.alignment.clone()
    align_latents(model, data, 0)  # aligned latents change only in sign
    assert torch.allclose(model.alignment.abs(), aligned.abs(), rtol=1e-2, atol=1e-3)


def test_edges_are_chosen_by_how_validation_frames_are_predicted(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latents of a known SEM and a decoder that draws them: the four true edges are chosen."""
    model = make(data)
    z = torch.randn(600, 6, generator=seeded(0))
    z[:, 4:] = 2 * z[:, 2:4] - z[:, :2] + 0.05 * z[:, 4:]
    clips = torch.zeros(600, 3, 1, 12, 12)
    clips[..., 0, 0, :2] = z.reshape(600, 3, 2) / 40 + 0.5  # two pixels are the latents
    train, validation = (
        Split((chunk * 255).to(torch.uint8), torch.zeros(len(chunk), 6))
        for chunk in (clips[:500], clips[500:])
    )
    many = replace(data, train=train, validation=validation)

    def read(frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = (frames[:, :, 0, 0, :2].flatten(1) - 0.5) * 40
        return mean, 0.01 * torch.eye(6).expand(len(mean), 6, 6), torch.zeros(len(mean))

    def show(latents: Tensor, codes: Tensor) -> Tensor:
        images = torch.zeros(len(latents), 3, 1, 12, 12)
        images[..., 0, 0, :2] = latents / 40 + 0.5
        return images

    monkeypatch.setattr(model, "posterior", read)
    monkeypatch.setattr(model, "decode_frames", show)
    choose_edges(model, many, 0)
    weights = {(cause, effect): weight for cause, effect, weight in model.graph.edges}
    assert weights.keys() == STEADY.keys()
    assert [weights[edge] for edge in STEADY] == pytest.approx(list(STEADY.values()), abs=0.02)
