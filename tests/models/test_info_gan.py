"""InfoGAN: the information bound in closed form, gradients, and a small training run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intervae.data import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics.sample_diversity import diversity, mode_shares
from intervae.models import InfoGAN

TINY = {
    "noise": 3,
    "categories": (3, 2),
    "continuous": 2,
    "channels": (8,),
    "hidden": 16,
    "code_hidden": 8,
}
MODES = np.zeros((3, 1, 8, 8))
MODES[0, :, :3], MODES[1, :, :, :3], MODES[2, :, 4:, 4:] = 0.75, 0.75, 0.75


def make(**changes: Any) -> InfoGAN:
    return InfoGAN(Spec((1, 8, 8)), **{**TINY, **changes})


@pytest.fixture(scope="module")
def bands() -> Dataset:
    """300 images of 8 x 8 of varying brightness in three modes: two bands and a block."""
    rng = np.random.default_rng(0)
    brightness = rng.uniform(2 / 3, 4 / 3, size=300)
    samples = MODES[rng.integers(3, size=300)] * brightness[:, None, None, None]
    return build_dataset(
        "bands",
        (255 * samples).astype(np.uint8),
        brightness[:, None],
        [Variable("brightness")],
        test=0.1,
    )


@pytest.fixture(scope="module")
def trained(bands: Dataset) -> tuple[InfoGAN, list[dict[str, Any]]]:
    settings = {
        "noise": 8,
        "categories": (3,),
        "continuous": 1,
        "channels": (16,),
        "hidden": 64,
        "code_hidden": 32,
        "batch_size": 64,
        "epochs": 150,
    }
    model = InfoGAN(bands.spec, **settings)
    return model, model.fit(bands, seed=1).history


def check_not_collapsed(samples: Tensor, data: Dataset) -> None:
    """Assert 70% of the diversity of the data, and a tenth of the images in each of three modes."""
    assert float(diversity(samples.numpy(), data.train.images.numpy() / 255)) > 0.7
    assert float(mode_shares(samples.numpy(), MODES)) > 0.1


# ---- training ------------------------------------------------------------------------------
def test_the_losses_of_both_players_stay_finite(trained: Any) -> None:
    _, history = trained
    assert len(history) == 150
    for line in history:
        assert {
            f"{player}.{term}"
            for player in ("discriminator", "generator")
            for term in ("loss", "adversarial", "information")
        } == set(line["train"])
        assert np.isfinite([*line["train"].values(), *line["validation"].values()]).all()


def test_the_generator_does_not_collapse(trained: Any, bands: Dataset) -> None:
    check_not_collapsed(trained[0].sample(300, seed=0), bands)


def test_a_collapsed_generator_fails_the_check(trained: Any, bands: Dataset) -> None:
    samples = trained[0].sample(300, seed=0)
    nearest = ((samples[:, None] - torch.as_tensor(MODES)) ** 2).sum((2, 3, 4)).argmin(1)
    for collapsed in (
        samples[:1].expand(300, -1, -1, -1),
        samples[nearest > 0],
    ):  # one image; a missing mode
        with pytest.raises(AssertionError):
            check_not_collapsed(collapsed, bands)


def test_codes_are_recovered_from_generated_images(trained: Any) -> None:
    """The entropy of the categorical code is 1.10 nats; chance is a third, and 0 nats."""
    model, history = trained
    inputs, codes = model.draw_inputs(400, torch.zeros(()), torch.Generator().manual_seed(0))
    with torch.no_grad():
        predicted = model.predict_codes(model.generator(inputs))
    assert (predicted[:, 1:].argmax(1) == codes[:, 1:].argmax(1)).float().mean() > 0.95
    assert history[-1]["train"]["generator.information"] > 0.7


# ---- bound, Eq. 5 --------------------------------------------------------------------------
def bound(model: InfoGAN, predicted: Tensor, codes: Tensor) -> Tensor:
    model.code_reader = nn.Identity()  # type: ignore[assignment]
    return model.information(predicted, codes)


def test_the_bound_is_the_entropy_for_exact_codes_and_0_for_chance() -> None:
    model = make(continuous=0)
    codes = model.draw_codes(50, torch.zeros(()), torch.Generator().manual_seed(0))
    exact = bound(model, 100 * codes, codes)
    assert torch.allclose(exact, torch.full((50,), math.log(3) + math.log(2)), atol=1e-5)
    assert torch.allclose(bound(model, torch.zeros(50, 5), codes), torch.zeros(50), atol=1e-6)


def test_the_bound_of_continuous_codes_is_a_unit_gaussian() -> None:
    model = make(categories=())
    codes, predicted = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.2, 1.0]])
    expected = -0.5 * (0.3**2 + 2.0**2) - math.log(2 * math.pi) + 2 * math.log(2)
    assert bound(model, predicted, codes).item() == pytest.approx(expected, rel=1e-5)


def test_the_information_is_in_both_objectives(bands: Dataset) -> None:
    batch = {**bands.train.batch(torch.arange(16)), "step": torch.zeros(())}
    model = make(info_weight=0.7)
    for objective in (model.loss, model.discriminator_objective):
        terms = objective(batch, torch.Generator().manual_seed(0))
        assert terms["loss"].item() == pytest.approx(
            (terms["adversarial"] - 0.7 * terms["information"]).item(), rel=1e-6
        )


def test_the_losses_of_an_undecided_discriminator(bands: Dataset) -> None:
    """D(x) = 1/2: log 2 for the generator, 2 log 2 for the discriminator."""
    model = make()
    nn.init.zeros_(model.discriminator.weight)
    nn.init.zeros_(model.discriminator.bias)
    batch = bands.train.batch(torch.arange(16))
    assert model.loss(batch)["adversarial"].item() == pytest.approx(math.log(2), rel=1e-6)
    assert model.discriminator_objective(batch)["adversarial"].item() == pytest.approx(
        2 * math.log(2), rel=1e-6
    )


# ---- gradients -----------------------------------------------------------------------------
def networks_with_gradient(model: InfoGAN, loss: Tensor) -> set[str]:
    """Return the networks that get a gradient."""
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {
        name.split(".")[0]
        for name, p in model.named_parameters()
        if p.grad is not None and bool(p.grad.abs().sum() > 0)
    }


def test_the_discriminator_loss_does_not_train_the_generator(bands: Dataset) -> None:
    model, batch = make().train(), bands.train.batch(torch.arange(16))
    assert networks_with_gradient(model, model.discriminator_objective(batch)["loss"]) == {
        "trunk",
        "discriminator",
        "code_reader",
    }
    assert "generator" in networks_with_gradient(model, model.loss(batch)["loss"])
    discriminator, generator = model.phases()[0].players
    assert (discriminator.learning_rate, generator.learning_rate) == (2e-4, 1e-3)
    assert discriminator.betas == generator.betas == (0.5, 0.999)
    assert not any(p.startswith("trunk") for p in generator.parameters)


# ---- codes ---------------------------------------------------------------------------------
def test_codes_are_uniform() -> None:
    codes = make().draw_codes(20000, torch.zeros(()), torch.Generator().manual_seed(0))
    assert codes[:, :2].abs().max() <= 1
    assert torch.allclose(codes[:, :2].var(0), torch.full((2,), 1 / 3), atol=0.01)
    for block, size in ((codes[:, 2:5], 3), (codes[:, 5:], 2)):
        assert torch.equal(block.sum(1), torch.ones(20000))
        assert torch.allclose(block.mean(0), torch.full((size,), 1 / size), atol=0.015)


def test_latents_are_the_continuous_codes_then_the_probabilities() -> None:
    model = make()
    assert model.latent_names == ("c0", "c1", "d0_0", "d0_1", "d0_2", "d1_0", "d1_1")
    latents = model.encode(torch.rand(6, 1, 8, 8))
    assert latents.shape == (6, 7, 1)
    for block in (latents[:, 2:5, 0], latents[:, 5:, 0]):
        assert torch.allclose(block.sum(1), torch.ones(6), atol=1e-6)
    assert make(categories=(), continuous=4).latent_names == ("c0", "c1", "c2", "c3")


def test_decode_sets_the_noise_to_its_mean() -> None:
    model = make()
    codes = model.draw_codes(5, torch.zeros(()), torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.generator(torch.cat([torch.zeros(5, 3), codes], dim=1))
    assert torch.equal(model.decode(codes[..., None]), expected)
    with pytest.raises(QueryError, match="one dim each"):
        model.decode(torch.zeros(5, 7, 2))


def test_wrong_settings_and_queries_are_refused() -> None:
    for changes, message in (
        ({"categories": (), "continuous": 0}, "needs at least one code"),
        ({"categories": (1,)}, "2 categories or more"),
        ({"noise": -1}, "noise=-1"),
        ({"momentum": 1.0}, "momentum"),
        ({"channels": ()}, "channels"),
    ):
        with pytest.raises(UsageError, match=message):
            make(**changes)
    with pytest.raises(DataError, match="not clips"):
        InfoGAN(Spec((1, 8, 8), frames=4))
    with pytest.raises(QueryError, match=r"knows no causes.*causal-gan"):
        make().sample(2, {"c0": 1.0})
