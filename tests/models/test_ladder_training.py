"""How the Ladder VAE is trained: warm-up, binary pixels, learned variances, units that fall silent, batch norm; and settings that make no sense."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ladder import SMALL, batch_of, grey, make, pictures, seeded
from torch import Tensor
from torch.distributions import Normal

from intervae.errors import DataError, UsageError
from intervae.models import LadderVAE
from intervae.models.ladder_vae import Layer
from intervae.nets.norm import BatchNorm


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
@pytest.mark.parametrize("inference", ["ladder", "bottom-up"])
def test_the_units_of_a_hierarchy_cost_what_its_loss_says(inference: str, make_data: Any) -> None:
    """Bottom-up as well, where only the top layer has a closed form: with the same draws a layer's units add up to its term of the loss."""
    data = make_data((1, 4, 4), samples=300)
    model, n = make(data, inference=inference), 64
    with torch.no_grad():
        terms = model.loss(batch_of(data, n), seeded(3))
        units = model.unit_kls(model.infer(grey(data, n), torch.randn(n, 9, generator=seeded(3)).split([4, 3, 2], 1)))
        for i, part in enumerate(units):
            torch.testing.assert_close(part.sum(1).mean(), terms[f"kl_z{i + 1}"], rtol=1e-5, atol=1e-5)
        generator = seeded(4)
        noise = [torch.randn(n, size, generator=generator) for size in (4, 3, 2)]
        expected = torch.cat(model.unit_kls(model.infer(grey(data, n), noise)), 1).mean(0)
    torch.testing.assert_close(model.unit_kl(data.train.images[:n], seeded(4)), expected, rtol=1e-4, atol=1e-5)


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
        ({"warm_up": -1}, "warm_up=-1 must be 0 or more"),
        ({"importance_samples": 0}, "importance_samples=0 must be 1 or more"),
        ({"monte_carlo_samples": 0}, "monte_carlo_samples=0 must be 1 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str, make_data: Any) -> None:
    with pytest.raises(UsageError, match=words):
        LadderVAE(make_data((1, 4, 4)).spec, **{**SMALL, **settings})


def test_clips_are_refused(make_data: Any) -> None:
    with pytest.raises(DataError, match="takes single images, not clips"):
        LadderVAE(replace(make_data((1, 4, 4)).spec, frames=3), **SMALL)
