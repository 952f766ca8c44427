"""Training of the Ladder VAE: warm-up, pixels, inactive units, batch norm, settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ladder import SMALL, grey, image_dataset, make, seeded
from torch import Tensor
from torch.distributions import Normal

from batches import late_batch as batch_of
from intervae.errors import DataError, UsageError
from intervae.models import LadderVAE
from intervae.models.ladder_vae.networks import LadderLayer
from intervae.nets.norm import BatchNorm


# ---- warm-up -------------------------------------------------------------------------------
@torch.no_grad()
def test_the_weight_of_the_kl_rises_from_zero_to_one(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, warm_up=4)
    model.set_warm_up(data, 0)
    end = 4 * (len(data.train) // 16)
    for step, weight in (
        (0.0, 0.0),
        (end / 4, 0.25),
        (end / 2, 0.5),
        (end, 1.0),
        (end + 1, 1.0),
        (100 * end, 1.0),
        (math.inf, 1.0),
    ):
        terms = model.loss(batch_of(data, 16, torch.tensor(step)), seeded(0))
        torch.testing.assert_close(
            terms["loss"], terms["reconstruction"] + weight * terms["kl"], rtol=1e-6, atol=0
        )
    assert terms["kl"] > 0.1
    at_once = make(data, warm_up=0)
    terms = at_once.loss(batch_of(data, 16, torch.tensor(0.0)), seeded(0))
    torch.testing.assert_close(
        terms["loss"], terms["reconstruction"] + terms["kl"], rtol=1e-6, atol=0
    )


def test_validation_uses_the_full_kl(make_data: Any) -> None:
    data = make_data((1, 4, 4), samples=160)
    lines = [
        line
        for line in LadderVAE(data.spec, **{**SMALL, "warm_up": 2, "epochs": 3}).fit(data).history
        if "train" in line
    ]
    steps = len(data.train) // 16
    assert len(lines) == 3
    for epoch, line in enumerate(lines):
        train, validation = line["train"], line["validation"]
        assert validation["loss"] == pytest.approx(
            validation["reconstruction"] + validation["kl"], rel=1e-5
        )
        weight = (train["loss"] - train["reconstruction"]) / train[
            "kl"
        ]  # mean over the epoch, weighted by the KL
        low, high = ((epoch * steps + step) / (2 * steps) for step in (0, steps - 1))
        assert min(low, 1) - 1e-4 <= weight <= min(high, 1) + 1e-4


# ---- pixels --------------------------------------------------------------------------------
def test_pixels_are_binarised_anew_at_every_step(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data((1, 4, 4))
    model = make(data, binarise=True)
    inputs: list[Tensor] = []
    infer = LadderVAE.infer
    monkeypatch.setattr(
        LadderVAE,
        "infer",
        lambda self, images, *rest: (inputs.append(images), infer(self, images, *rest))[1],
    )
    generator = seeded(0)
    with torch.no_grad():
        for _ in range(1000):
            model.loss(batch_of(data, 4), generator)
    drawn = torch.stack(inputs)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    probability = grey(data, 4)
    spread = (probability * (1 - probability) / len(drawn)).sqrt()
    assert ((drawn.mean(0) - probability).abs() <= 4.5 * spread).all()
    assert 0.05 < probability.mean() < 0.95
    inputs.clear()
    with torch.no_grad():
        make(data, binarise=False).loss(batch_of(data, 4), generator)
    assert torch.equal(inputs[0], probability)


def test_observed_images_depend_on_the_seed_only(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    first, second = make(data, binarise=True), make(data, binarise=True, scramble=0.1)
    images = data.train.images[:8]
    binary = first.observed_images(images, seed=3)
    assert torch.equal(binary, second.observed_images(images, seed=3))  # the same for every model
    assert not torch.equal(binary, first.observed_images(images, seed=4))
    assert set(binary.unique().tolist()) == {0.0, 1.0}
    mean = torch.stack([first.observed_images(images, seed=seed) for seed in range(500)]).mean(0)
    assert (mean - grey(data, 8)).abs().max() < 5 * 0.5 / 500**0.5
    assert torch.equal(make(data).observed_images(images), grey(data, 8))


@torch.no_grad()
def test_learned_variances_give_a_gaussian_density_per_pixel() -> None:
    data = image_dataset(np.random.default_rng(0).integers(0, 256, (40, 1, 1, 2), dtype=np.uint8))
    model = make(data, likelihood="gaussian", scale=0.0, scramble=0.6)
    x = torch.linspace(-12, 13, 25_001)
    z = torch.randn(3, 4, generator=seeded(1))
    codes = torch.cat([z, torch.zeros(3, 5)], 1)[..., None]
    spreads = []
    for row, picture in zip(z, model.decode(codes), strict=True):
        moments = []
        for pixel in (0, 1):  # the other has the image's value
            values = picture.expand(len(x), 1, 1, 2).clone()
            values[:, 0, 0, pixel] = x
            density = (-model.reconstruction_loss(row.expand(len(x), 4), values).double()).exp()
            density = density / torch.trapezoid(density, x.double())
            mean = torch.trapezoid(density * x, x.double())
            torch.testing.assert_close(mean.float(), picture[0, 0, pixel], rtol=1e-3, atol=1e-4)
            moments.append(
                torch.trapezoid(density * (x - mean).square(), x.double()).float().sqrt()
            )
        any_values = torch.tensor([[[[0.2, 0.9]]]])
        expected = Normal(picture[0, 0], torch.stack(moments)).log_prob(any_values[0, 0, 0]).sum()
        torch.testing.assert_close(
            -model.reconstruction_loss(row[None], any_values)[0], expected, rtol=1e-3, atol=1e-3
        )
        spreads += moments
    assert max(spreads) > 1.1 * min(spreads)


def test_variances_of_pixels_are_learned() -> None:
    rng = np.random.default_rng(0)
    images = np.stack([rng.normal(0.5, 0.03, 800), rng.normal(0.5, 0.15, 800)], 1).clip(0, 1)
    data = image_dataset((255 * images).round().astype(np.uint8)[:, None, None, :])
    settings = {
        "latents": (1,),
        "widths": (4,),
        "likelihood": "gaussian",
        "scale": 0.0,
        "batch_size": 64,
        "epochs": 60,
        "learning_rate": 0.02,
    }
    model = LadderVAE(data.spec, **{**SMALL, **settings})
    history = model.fit(data, tensorboard=False).history
    best = sum(
        0.5 * math.log(2 * math.pi * math.e * std**2) for std in (0.03, 0.15)
    )  # of independent Gaussians
    last = [line for line in history if "validation" in line][-1]
    assert last["validation"]["loss"] == pytest.approx(best, abs=0.3)


# ---- units ---------------------------------------------------------------------------------
@pytest.mark.parametrize("inference", ["ladder", "bottom-up"])
def test_unit_kls_sum_to_the_terms_of_the_loss(inference: str, make_data: Any) -> None:
    """Also bottom-up, where only the top layer has a closed form."""
    data = make_data((1, 4, 4), samples=300)
    model, n = make(data, inference=inference), 64
    with torch.no_grad():
        terms = model.loss(batch_of(data, n), seeded(3))
        units = model.layer_kls(
            model.infer(grey(data, n), torch.randn(n, 9, generator=seeded(3)).split([4, 3, 2], 1))
        )
        for i, kl in enumerate(units):
            torch.testing.assert_close(
                kl.sum(1).mean(), terms[f"kl_z{i + 1}"], rtol=1e-5, atol=1e-5
            )
        generator = seeded(4)
        noise = [torch.randn(n, size, generator=generator) for size in (4, 3, 2)]
        expected = torch.cat(model.layer_kls(model.infer(grey(data, n), noise)), 1).mean(0)
    torch.testing.assert_close(
        model.unit_kl(data.train.images[:n], seeded(4)), expected, rtol=1e-4, atol=1e-5
    )


def test_unit_kl_is_the_mean_over_all_images(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More images than fit one batch; a unit at its prior is inactive."""
    data = make_data((1, 4, 4), samples=440)
    model = make(data)
    images = data.train.images[:300]
    kl = model.unit_kl(images, seeded(0))
    generator = seeded(0)
    noise = [torch.randn(300, size, generator=generator) for size in (4, 3, 2)]
    with torch.no_grad():
        torch.testing.assert_close(
            kl,
            torch.cat([layer.kl for layer in model.infer(grey(data, 300), noise)], 1).mean(0),
            rtol=1e-4,
            atol=1e-5,
        )
    assert (kl > 0.01).all()
    idle = torch.tensor([False, True, False, False])
    infer = LadderVAE.infer

    def with_idle_unit(self: LadderVAE, *arguments: Any) -> list[LadderLayer]:
        low, *others = infer(self, *arguments)
        mean, variance = (
            torch.where(idle, low.prior_mean, low.mean),
            torch.where(idle, low.prior_variance, low.variance),
        )
        return [low._replace(mean=mean, variance=variance), *others]

    monkeypatch.setattr(LadderVAE, "infer", with_idle_unit)
    assert (model.unit_kl(images, seeded(0)) < 0.01).nonzero().flatten().tolist() == [1]


def test_noise_images_leave_all_units_inactive() -> None:
    rng = np.random.default_rng(0)
    kinds = np.where(rng.random((800, 1, 1, 1)) < 0.5, np.eye(4) > 0, np.eye(4) == 0)
    active = {}
    for name, images in (
        ("noise", rng.random((800, 1, 4, 4)) < 0.5),
        ("kinds", kinds ^ (rng.random((800, 1, 4, 4)) < 0.02)),
    ):
        data = image_dataset(images.astype(np.uint8) * 255)
        settings = {
            "latents": (2, 1),
            "widths": (16, 8),
            "epochs": 30,
            "batch_size": 64,
            "learning_rate": 5e-3,
            "batch_norm": False,
        }
        model = LadderVAE(data.spec, **{**SMALL, **settings})
        model.fit(data, tensorboard=False)
        active[name] = (model.unit_kl(data.test.images, seeded(0)) > 0.02).sum().item()
    assert active["noise"] == 0
    assert active["kinds"] >= 1


# ---- training ------------------------------------------------------------------------------
@pytest.mark.parametrize("changes", [{}, {"inference": "bottom-up"}, {"binarise": True}])
def test_after_training_batch_norm_has_statistics_of_the_whole_split(
    changes: dict[str, Any], make_data: Any
) -> None:
    """A batch of all training images, normalised by itself, has the same loss as in eval mode."""
    data = make_data((1, 4, 4), samples=205)
    model = LadderVAE(data.spec, **{**SMALL, "epochs": 3, "learning_rate": 0.01, **changes})
    model.fit(data, seed=4, tensorboard=False)
    assert not model.training
    n = len(data.train)
    assert n % 16  # the last images are in no batch of an epoch
    with torch.no_grad():
        for size in (n, 16):
            running, own = (
                model.train(training).loss(batch_of(data, size), seeded(4))
                for training in (False, True)
            )
            difference = max((running[name] - own[name]).abs().item() for name in running)
            assert difference < 2e-3 if size == n else difference > 0.02
    model.eval()


def test_training_without_batch_norm_has_no_statistics(make_data: Any) -> None:
    data = make_data((1, 4, 4))
    model = make(data, batch_norm=False)
    assert [phase.name for phase in model.phases()] == ["images"]
    assert not [layer for layer in model.modules() if isinstance(layer, BatchNorm)]


# ---- what makes no sense -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latents": ()}, "one size above 0 for each layer"),
        ({"latents": (4, 0)}, "one size above 0 for each layer"),
        ({"latents": (4, 3, 2), "widths": (16, 12)}, "one size above 0 for each layer"),
        ({"widths": (16, 0, 8)}, "one size above 0 for each layer"),
        ({"scale": 0.0}, "scale=0.0 must be larger than 0, or 0 for a gaussian likelihood"),
        ({"scale": 0.0, "likelihood": "laplace"}, "scale=0.0 must be larger than 0"),
        ({"scale": -1.0, "likelihood": "gaussian"}, "scale=-1.0 must be larger than 0"),
        ({"warm_up": -1}, "warm_up=-1 must be 0 or more"),
        ({"importance_samples": 0}, "importance_samples=0 must be 1 or more"),
        ({"monte_carlo_samples": 0}, "monte_carlo_samples=0 must be 1 or more"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str, make_data: Any) -> None:
    with pytest.raises(UsageError, match=message):
        LadderVAE(make_data((1, 4, 4)).spec, **{**SMALL, **settings})


def test_clips_are_refused(make_data: Any) -> None:
    with pytest.raises(DataError, match="takes single images, not clips"):
        LadderVAE(replace(make_data((1, 4, 4)).spec, frames=3), **SMALL)
