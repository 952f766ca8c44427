"""The rotation of the noises: what it must not change, and sources that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_causal_prior import align_at_random, make, seeded

from batches import late_batch as batch_of
from intervae.data import Dataset
from intervae.models import CausalPriorVAE
from intervae.models.causal_prior.unmixing import independent_rotation, rotate, unmix


@pytest.fixture
def data(make_data: Any) -> Dataset:
    return make_data((1, 6, 6))


def turn(model: CausalPriorVAE, angle: float) -> None:
    """Rotate the standardised noises of z1 and z3."""
    cosine, sine = math.cos(angle), math.sin(angle)
    at = torch.tensor([1, 3])
    model.rotation[at[:, None], at] = torch.tensor([[cosine, sine], [-sine, cosine]])


def test_rotation_keeps_images_density_and_roots(data: Dataset) -> None:
    model, images = make(data, divergence="mc"), batch_of(data)["images"]
    align_at_random(model)
    before, reconstructions = model.encode(images)[..., 0], model.reconstruct(images)
    weights, drawn = model.log_weights(images, None, 4, seeded(0)), model.draw_posterior(images)
    loss = model.loss(batch_of(data), seeded(3))["loss"].item()
    turn(model, 0.7)
    after = model.encode(images)[..., 0]
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    assert (after[:, 1] - before[:, 1]).abs().max() > 0.1
    # z1 = z0^2 + 0.5 (cos n1 / 0.5 + sin n3)
    noise = before[:, 1] - before[:, 0].square()
    expected = before[:, 0].square() + math.cos(0.7) * noise + 0.5 * math.sin(0.7) * before[:, 3]
    assert torch.allclose(after[:, 1], expected, atol=1e-5)
    assert torch.allclose(model.sem.log_density(after), model.sem.log_density(before), atol=1e-4)
    assert torch.allclose(model.reconstruct(images), reconstructions, atol=1e-5)
    assert model.loss(batch_of(data), seeded(3))["loss"].item() == loss
    assert torch.equal(model.log_weights(images, None, 4, seeded(0)), weights)
    turned = model.draw_posterior(images)
    assert torch.allclose(rotate(model, turned, model.rotation.T), drawn, atol=1e-5)


@pytest.mark.parametrize("angle", [0.3, -0.6])
def test_rotation_of_independent_sources_is_found(angle: float) -> None:
    sources = torch.rand(20_000, 3, generator=seeded(0)).double() * math.sqrt(12)
    mixing = torch.eye(3).double()
    mixing[:2, :2] = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    )
    mixed = sources @ mixing.T
    rotation = independent_rotation(mixed, mixed, seed=0)
    assert torch.allclose(rotation @ mixing, torch.eye(3).double(), atol=0.03)
    assert torch.allclose(rotation @ rotation.T, torch.eye(3).double(), atol=1e-9)


def test_a_source_spread_over_two_latents_is_gathered_in_one() -> None:
    """n1 = cos s1 - sin s2, and the rest of s2 is split between n2 and n3, with noise."""
    n, draw = 20_000, torch.Generator().manual_seed(1)
    sources = (torch.rand(n, 2, generator=draw).double() - 0.5) * math.sqrt(12)
    turned = torch.tensor([[0.9, -(0.19**0.5)], [0.19**0.5, 0.9]]).double()
    mixed = sources @ turned.T
    means = torch.stack([mixed[:, 0], 0.6 * mixed[:, 1], 0.8 * mixed[:, 1]], dim=1)
    noise = torch.randn(n, 1, generator=draw).double()
    draws = means + noise * torch.tensor([0.0, 0.8, -0.6])  # covariance I
    rotation = independent_rotation(means, draws, seed=0)
    correlation = torch.corrcoef(torch.cat([means @ rotation.T, sources], dim=1).T)[:3, 3:]
    assert correlation[0, 0] > 0.99
    assert correlation[:, 1].abs().max() > 0.99
    assert abs(correlation[0, 1]) < 0.05


def test_unmixing_turns_latents_without_effects_only(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """z1 = z0^2 + n1 with n1 and z3 mixed; z2 is constant, z0 has an effect."""
    model, n = make(data), len(data.train)
    uniform = (torch.rand(n, 3, generator=seeded(2)) - 0.5) * math.sqrt(12)
    cosine, sine = math.cos(0.5), math.sin(0.5)
    z = torch.zeros(n, 4)
    z[:, 0] = uniform[:, 0]
    z[:, 1] = z[:, 0].square() + 0.5 * (cosine * uniform[:, 1] - sine * uniform[:, 2])
    z[:, 3] = sine * uniform[:, 1] + cosine * uniform[:, 2]
    order = {float(image.sum()): row for row, image in enumerate(data.train.images.double())}

    def rows(images: torch.Tensor) -> list[int]:
        return [order[float(image.sum())] for image in images.double()]

    monkeypatch.setattr(model, "encode", lambda images: z[rows(images)][:, :, None])
    monkeypatch.setattr(model, "draw_posterior", lambda images, _: z[rows(images)])
    unmix(model, data, 0)
    assert torch.equal(model.rotation[0], torch.eye(4)[0])
    assert torch.equal(model.rotation[:, 0], torch.eye(4)[:, 0])
    assert torch.allclose(model.rotation @ model.rotation.T, torch.eye(4), atol=1e-5)
    assert model.rotation[2].abs().tolist() == pytest.approx([0, 0, 1, 0], abs=1e-5)
    assert model.rotation[1, 3] == pytest.approx(sine, abs=0.5)
