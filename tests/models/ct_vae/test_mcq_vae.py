"""MCQ-VAE and VQ-VAE: the receptive field of a code, and the best weights of a training."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from intervae.models import create
from intervae.models.ct_vae.mcq_vae import MCQVAE


@pytest.mark.parametrize(
    ("size", "grid"), [((64, 64), (8, 8)), ((48, 32), (6, 4)), ((33, 47), (5, 6))]
)
def test_the_image_fills_the_grid(
    size: tuple[int, int], grid: tuple[int, int], make_data: Any
) -> None:
    """Authors' code: images were padded and filled a fifth of the grid."""
    model = MCQVAE(make_data((1, *size)).spec, filters=8, features=8, blocks=0)
    assert model.grid == grid
    for row, column in itertools.product((0, -1), (0, -1)):
        image = torch.full((1, 1, *size), 0.5, requires_grad=True)
        model.encoder(image)[0, :, row, column].sum().backward()
        assert image.grad is not None
        assert image.grad[0, 0, row, column] != 0
    corner = torch.zeros(1, 1, *size)
    corner[0, 0, 0, 0] = 1
    change = (model.encoder(corner) - model.encoder(torch.zeros_like(corner))).abs().sum(1)[0]
    assert change[0, 0] > 0
    assert change[-1, -1] == 0  # outside of the receptive field


@pytest.mark.parametrize(("reach", "radius"), [("local", 0), ("near", 1), ("wide", 5)])
def test_reach_sets_the_receptive_field(reach: str, radius: int, make_data: Any) -> None:
    """Positions within `radius` of a changed patch change; `wide` has four blocks of 3 x 3."""
    torch.manual_seed(0)
    model = MCQVAE(
        make_data((1, 52, 52)).spec, patch=4, filters=8, features=8, blocks=4, reach=reach
    )
    dark, bright = torch.zeros(1, 1, 52, 52), torch.zeros(1, 1, 52, 52)
    bright[..., 24:28, 24:28] = 1
    changed = (model.encoder(bright) - model.encoder(dark)).abs().sum(1)[0] > 0  # (13, 13)
    rows, columns = torch.meshgrid(torch.arange(13), torch.arange(13), indexing="ij")
    distance = torch.maximum((rows - 6).abs(), (columns - 6).abs())
    assert torch.equal(changed, distance <= radius)


def test_diverging_training_keeps_the_best_weights(make_data: Any) -> None:
    """A learning rate that grows a hundredfold per epoch makes the last epochs diverge."""
    rates = {
        "schedule": "exponential",
        "decay": 100.0,
        "learning_rate": 1e-3,
        "epochs": 3,
        "clip": None,
    }
    data = make_data((3, 16, 16), samples=256)
    model = create(
        "vq-vae", data, patch=4, filters=8, features=8, codes=64, blocks=1, batch_size=16, **rates
    )
    history = model.fit(data, seed=0).history
    losses = [epoch["validation"]["loss"] for epoch in history if "validation" in epoch]
    assert min(losses) < losses[-1] / 2
    model.eval()
    final = model.loss(data.validation.batch(torch.arange(len(data.validation))))["loss"].item()
    assert final == pytest.approx(min(losses), rel=1e-4)
