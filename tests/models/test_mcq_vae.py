"""MCQ-VAE and VQ-VAE by themselves: what a code sees, and what is kept of a training."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from intervae.models import create
from intervae.models.mcq_vae import MCQVAE


@pytest.mark.parametrize(("size", "grid"), [((64, 64), (8, 8)), ((48, 32), (6, 4)), ((33, 47), (5, 6))])
def test_the_whole_picture_fills_the_grid(size: tuple[int, int], grid: tuple[int, int], make_data: Any) -> None:
    """Defect 10: pictures were padded, so that they filled a fifth of the grid."""
    model = MCQVAE(make_data((1, *size)).spec, filters=8, features=8, blocks=0)
    assert model.grid == grid
    for row, column in itertools.product((0, -1), (0, -1)):
        picture = torch.full((1, 1, *size), 0.5, requires_grad=True)
        model.encoder(picture)[0, :, row, column].sum().backward()
        assert picture.grad is not None
        assert picture.grad[0, 0, row, column] != 0
    far = torch.zeros(1, 1, *size)
    far[0, 0, 0, 0] = 1
    moved = (model.encoder(far) - model.encoder(torch.zeros_like(far))).abs().sum(1)[0]
    assert moved[0, 0] > 0
    assert moved[-1, -1] == 0  # a code tells of its part of the picture


@pytest.mark.parametrize(("reach", "seen"), [("local", 0), ("near", 1), ("wide", 5)])
def test_a_code_sees_as_far_as_its_reach(reach: str, seen: int, make_data: Any) -> None:
    """The codes that change when the patch in the middle does: itself, those next to it, or with four blocks all within 5 patches."""
    torch.manual_seed(0)
    model = MCQVAE(make_data((1, 52, 52)).spec, patch=4, filters=8, features=8, blocks=4, reach=reach)
    dark, bright = torch.zeros(1, 1, 52, 52), torch.zeros(1, 1, 52, 52)
    bright[..., 24:28, 24:28] = 1
    moved = (model.encoder(bright) - model.encoder(dark)).abs().sum(1)[0] > 0  # (13, 13)
    rows, columns = torch.meshgrid(torch.arange(13), torch.arange(13), indexing="ij")
    assert torch.equal(moved, torch.maximum((rows - 6).abs(), (columns - 6).abs()) <= seen)


def test_a_training_that_flies_apart_keeps_the_best_weights(make_data: Any) -> None:
    """The rate grows a hundredfold with every epoch, so that the last are ruined."""
    rates = {"schedule": "exponential", "decay": 100.0, "learning_rate": 1e-3, "epochs": 3, "clip": None}
    data = make_data((3, 16, 16), samples=256)
    model = create("vq-vae", data, patch=4, filters=8, features=8, codes=64, blocks=1, batch_size=16, **rates)
    history = model.fit(data, seed=0).history
    losses = [epoch["validation"]["loss"] for epoch in history if "validation" in epoch]
    assert min(losses) < losses[-1] / 2
    model.eval()
    kept = model.loss(data.validation.batch(torch.arange(len(data.validation))))["loss"].item()
    assert kept == pytest.approx(min(losses), rel=1e-4)
