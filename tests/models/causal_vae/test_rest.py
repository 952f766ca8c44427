"""The rest of CausalVAE and ConditionVAE: what no label names has its own latents, kept by do()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import intervae
from intervae.causal.gaussian import kl_diagonal, kl_standard_normal
from intervae.data import Dataset, Variable, build_dataset
from intervae.errors import UsageError
from intervae.models import MODELS
from intervae.nets.likelihood import negative_log_likelihood
from intervae.nets.rest_map import split_gaussian
from intervae.testing import check_model

REST: dict[str, Any] = {"rest": 2, "rest_width": 8}


def bars(n: int = 600, size: int = 16) -> tuple[Dataset, Any]:
    """A bright bar at the labelled column, over a grey background that no label names."""
    rng = np.random.default_rng(0)
    column, grey = rng.uniform(0, size, n), rng.uniform(0.0, 0.6, n)

    def render(column: np.ndarray, grey: np.ndarray) -> np.ndarray:
        distance = np.abs(np.arange(size) + 0.5 - column[:, None])
        bar = np.clip(2.5 - distance, 0, 1)[:, None, None, :]  # (n, 1, 1, size)
        pixels = grey[:, None, None, None] * (1 - bar) + 0.9 * bar
        return np.round(255 * np.broadcast_to(pixels, (len(column), 1, size, size))).astype("uint8")

    data = build_dataset(
        "bars",
        render(column, grey),
        column[:, None],
        [Variable("column")],
        fields={"grey": grey[:, None]},
    )
    return data, render


@pytest.mark.parametrize("name", ["causal-vae", "condition-vae"])
def test_models_with_a_rest_pass_the_common_checks(name: str) -> None:
    def settings(data: Dataset) -> dict[str, Any]:
        graph = {"graph": data.graph or "joint"} if name == "causal-vae" else {}
        return {**REST, **graph}

    assert "do leaves non-descendants" in check_model(MODELS[name], settings)


def test_do_keeps_what_no_label_names() -> None:
    """Without a rest the grey is lost; without the bottleneck the rest draws the bar as well."""
    data, render = bars()
    grey = data.test.fields["grey"][:, 0].numpy()
    truth = torch.tensor(render(np.full(len(grey), 4.0), grey)) / 255

    def error(**settings: Any) -> float:
        small = {"channels": (16, 32), "hidden": 64, "epochs": 40, "batch_size": 16}
        model = intervae.create("condition-vae", data, rest_width=16, **small, **settings)
        model.fit(data, seed=0)
        answer = model.counterfactual(data.test.images, {"column": 4.0})
        return float((answer - truth).abs().mean())

    with_rest, without = error(rest=4), error(rest=0)
    assert with_rest < 0.04
    assert with_rest < 0.4 * without
    doing_nothing = float((data.test.images / 255 - truth).abs().mean())
    assert error(rest=4, first_rest_weight=0.05) > 0.8 * doing_nothing


@pytest.mark.parametrize("decoder", ["joint", "layers"])
def test_do_nothing_is_the_reconstruction_and_the_rest_enters_it(decoder: str) -> None:
    data, _ = bars(80)
    layers = {"layers": "column"} if decoder == "layers" else {}
    model = intervae.create(
        "condition-vae", data, decoder=decoder, epochs=1, batch_size=16, **layers, **REST
    )
    model.fit(data, seed=0)
    images = data.test.images[:6]
    rest = model.abduct_picture(images)["rest"]
    assert rest.shape == (6, 2, 4, 4)
    plain = model.reconstruct(images)
    alone = {"pixel_temperature": 0.0}
    assert torch.equal(model.counterfactual(images, {}, **alone), plain)
    assert torch.equal(model.decode(model.encode(images), rest=rest), plain)
    assert not torch.equal(model.decode(model.encode(images)), plain)
    after = model.intervene(model.encode(images), {"column": 3.0})
    answer = model.counterfactual(images, {"column": 3.0}, **alone)
    assert torch.equal(answer, model.decode(after, rest=rest))


def test_the_mean_of_log_weights_is_the_elbo_with_the_rest() -> None:
    """Pixels that depend on nothing make log p(x | z) constant; what is left is minus the KL."""
    data, _ = bars(40)
    model = intervae.create(
        "condition-vae", data, prior_std=0.9, absolute_error_weight=0.0, dims=2, **REST
    )
    with torch.no_grad():
        model.decoder.output[2].weight.zero_()
        for parameter in model.rest_encoder.parameters():
            parameter.mul_(0.5)
    images, labels, draws = data.test.images[:3], data.test.labels[:3], 4000
    weights = model.log_weights(images, labels, draws, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x, u = images.float() / 255, model.spec.normalise(labels)
        mean, log_variance = model.posterior(x)
        divergence = kl_diagonal(mean, log_variance, u[..., None], 2 * np.log(0.9))
        divergence = divergence + kl_standard_normal(*split_gaussian(model.rest_encoder(x)))
        output = model.paint(model.encode(images))
        pixels = -negative_log_likelihood(output, x, "bernoulli", 0.1)
    spread = weights.std(0) / draws**0.5
    assert (spread < 0.3).all()
    assert ((weights.mean(0) - (pixels - divergence)).abs() < 4 * spread).all()


def test_a_decoder_that_no_rest_enters_is_refused() -> None:
    data, _ = bars(40)
    with pytest.raises(UsageError, match="rest needs decoder=joint"):
        intervae.create("condition-vae", data, decoder="per-concept", rest=2)
