"""decoder=layers in CausalVAE and ConditionVAE: layers, what do() may change, storage, loss."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae
from intervae.data import Dataset, Variable, build_dataset
from intervae.data.simulators import Pendulum
from intervae.errors import QueryError, UsageError
from intervae.evaluation import evaluate
from intervae.models.causal_vae.layers import layer_loss, opacity_limit, region_of
from intervae.nets.layer_opacity import limit_opacity
from intervae.nets.layered_decoder import LayeredDecoder

SETTINGS: dict[str, Any] = {
    "decoder": "layers",
    "channels": (8, 8),
    "hidden": 32,
    "dims": 2,
    "epochs": 2,
    "batch_size": 32,
    "layer_hidden": 16,
    "layer_pixels": 64,
}
GROUPS = "pendulum,light,shadow_length+shadow_position"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Pendulum().dataset(size=24, samples=400)


@pytest.fixture(scope="module")
def trained(data: Dataset) -> Any:
    model = intervae.create("causal-vae", data, graph=data.graph, layers=GROUPS, **SETTINGS)
    model.fit(data, seed=0)
    return model


def test_the_layers_of_a_trained_model_name_their_variables(trained: Any) -> None:
    assert [layer.variables for layer in trained.layers] == [
        ("pendulum",),
        ("light",),
        ("shadow_length", "shadow_position"),
    ]
    assert trained.layers[0].explained > 0.3


def test_layers_alone_add_up_to_the_picture(trained: Any, data: Dataset, tmp_path: Path) -> None:
    """Picture = share of the background * background + sum of (layer - grey) + shares * grey."""
    images = data.test.images[:5]
    latents = trained.encode(images)
    background, *layers = trained.paint_layers(latents).unbind(1)
    shares = trained.decoder.shares(trained.decoder.layer_logits(latents.mean(-1)))
    shares = shares[:, :, None].unflatten(3, (24, 24))
    rebuilt = shares[:, 0] * background
    for layer, share in zip(layers, shares[:, 1:].unbind(1), strict=True):
        rebuilt = rebuilt + (layer - 0.5) + 0.5 * share
    torch.testing.assert_close(rebuilt, trained.reconstruct(images), atol=1e-5, rtol=0)
    trained.figures(data)["layers.png"](tmp_path / "layers.png")
    assert (tmp_path / "layers.png").stat().st_size > 5000
    joint = intervae.create("condition-vae", data, **{**SETTINGS, "decoder": "joint"})
    with pytest.raises(QueryError, match="decoder=layers"):
        joint.paint_layers(latents)


def test_evaluate_compares_the_layers_with_the_objects(trained: Any, data: Dataset) -> None:
    (result,) = evaluate(trained, data, ["object_layers"])
    assert result.value == 1.0
    assert set(result.per_variable) == {"rod and ball", "sun", "shadow"}


def test_do_on_an_effect_leaves_pixels_outside_its_region_bit_equal(
    trained: Any, data: Dataset
) -> None:
    images = data.test.images[:8]
    do = {"shadow_length": 9}
    plain, after = (
        trained.reconstruct(images),
        trained.counterfactual(images, do, pixel_temperature=0),
    )
    region = trained.decoder.regions[4].reshape(24, 24).bool()
    assert 0 < region.float().mean() < 0.9
    assert torch.equal(plain[..., ~region], after[..., ~region])
    assert not torch.equal(plain, after)


def test_pixel_noise_is_kept_where_no_changed_layer_paints(trained: Any, data: Dataset) -> None:
    """u = x - g(z): outside of what the shadow's layer paints the answer is the image itself."""
    images = data.test.images[:8]
    x = images.float() / 255
    do = {"shadow_length": 9, "shadow_position": 5}
    alone, answer = (trained.counterfactual(images, do, pixel_temperature=t) for t in (0.0, 1.0))
    before = trained.encode(images)
    values = [z.mean(-1) for z in (before, trained.intervene(before, do))]
    shadow = [
        trained.decoder.compose(trained.decoder.layer_logits(v)).weights[:, 2] for v in values
    ]
    keep = (1 - torch.maximum(*shadow)).clamp(min=0).unflatten(1, (24, 24))[:, None]
    expected = alone + keep * (x - trained.reconstruct(images))
    torch.testing.assert_close(answer, expected.clamp(0, 1), atol=1e-5, rtol=0)
    untouched = (keep > 0.999).expand_as(x)
    assert untouched.float().mean() > 0.2
    torch.testing.assert_close(answer[untouched], x[untouched], atol=2e-3, rtol=0)
    torch.testing.assert_close(trained.counterfactual(images, do), answer, atol=0, rtol=0)


def test_empty_do_returns_the_image_with_its_pixel_noise(trained: Any, data: Dataset) -> None:
    images = data.test.images[:8]
    x = images.float() / 255
    torch.testing.assert_close(trained.counterfactual(images, {}), x, atol=1e-6, rtol=0)
    unchanged = trained.counterfactual(images, {"light": lambda v: v})
    torch.testing.assert_close(unchanged, x, atol=1e-3, rtol=0)  # effects are computed again
    half = trained.counterfactual(images, {}, pixel_temperature=0.5)
    torch.testing.assert_close(half, (x + trained.reconstruct(images)) / 2, atol=1e-6, rtol=0)


def test_evaluate_shows_the_decoder_alone_beside_kept_pixel_noise(
    trained: Any, data: Dataset
) -> None:
    results = {m.metric: m for m in evaluate(trained, data, ["counterfactual", "outside_mask"])}
    for metric in ("counterfactual_pixel_mae", "outside_mask_mae"):
        alone = results[metric].parameters["decoder_alone"]
        assert set(alone) == {"value", *data.names}
        assert alone["value"] > results[metric].value  # noise that is kept is right outside
    axioms = {m.metric: m for m in evaluate(trained, data, ["axioms"])}
    error = (trained.reconstruct(data.test.images) - data.test.images / 255).abs().mean()
    assert axioms["composition_1"].value == pytest.approx(float(error), rel=0.05)


def test_layers_begin_with_labels_and_end_with_latents(trained: Any, data: Dataset) -> None:
    batch = data.train.batch(torch.arange(64))
    z = torch.full((64, 4, trained.dims), 7.0)
    u = trained.spec.normalise(batch["labels"])
    generator = torch.Generator().manual_seed(0)

    def share_of_labels(progress: float) -> float:
        values = trained.layer_values(z, batch, torch.tensor(progress), generator)
        assert bool(((values == 7).all(1) | ((values - u).abs() < 0.2).all(1)).all())
        return float((values != 7).all(1).float().mean())

    assert share_of_labels(0.0) == 1.0
    assert 0.3 < share_of_labels(0.25) < 0.7
    assert share_of_labels(0.5) == share_of_labels(1.0) == 0.0


def test_a_run_with_layers_loads_with_them(data: Dataset, tmp_path: Path) -> None:
    model = intervae.create("condition-vae", data, layers=GROUPS, **SETTINGS)
    model.fit(data, seed=3, out=tmp_path / "run")
    copy = intervae.load(tmp_path / "run")
    images = data.test.images[:4]
    assert copy.layers == model.layers
    assert torch.equal(copy.reconstruct(images), model.reconstruct(images))
    assert torch.isfinite(copy.log_weights(images, data.test.labels[:4], 2)).all()


def test_a_variable_that_no_pixel_shows_is_a_warning_and_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 2))
    images = np.zeros((300, 1, 16, 16), dtype=np.uint8)
    for image, place in zip(images[:, 0], np.clip(table[:, 0] * 3 + 6, 0, 12), strict=True):
        image[6:10, int(place) : int(place) + 4] = 255
    data = build_dataset("made", images, table, [Variable("place"), Variable("unseen")])
    model = intervae.create("condition-vae", data, **SETTINGS)
    with pytest.warns(UserWarning, match="no pixel shows 'unseen'"):
        model.fit(data, seed=0)
    assert [layer.variables for layer in model.layers] == [("place",)]
    pictures = data.test.images[:5]
    after = model.counterfactual(pictures, {"unseen": 2.0}, pixel_temperature=0.0)
    assert torch.equal(after, model.reconstruct(pictures))
    with_noise = model.counterfactual(pictures, {"unseen": 2.0})
    torch.testing.assert_close(with_noise, pictures / 255, atol=1e-6, rtol=0)


def test_wrong_layers_are_errors_in_a_sentence(data: Dataset) -> None:
    def make(layers: str) -> None:
        intervae.create("condition-vae", data, **{**SETTINGS, "layers": layers})

    with pytest.raises(UsageError, match="unknown variable in a layer 'sun'"):
        make("pendulum,sun")
    with pytest.raises(UsageError, match="more than 3 layers of several variables"):
        make("pendulum+light,light+shadow_length,pendulum+shadow_length,light+shadow_position")
    with pytest.raises(UsageError, match="needs labelled variables"):
        intervae.create("causal-vae-unsup", data, decoder="layers")


# ---- loss ---------------------------------------------------------------------------------------
def decoder() -> LayeredDecoder:
    torch.manual_seed(0)
    result = LayeredDecoder(3, (1, 8, 8), groups=1, hidden=16)
    region = torch.zeros(8, 8)
    region[:2] = 1
    result.set_layers([[0], [1, 2]], torch.full((1, 8, 8), 0.5), regions=[torch.ones(8, 8), region])
    return result


def test_a_layer_behind_another_one_learns_at_the_start() -> None:
    """Its colour gets the share 1 / (1 + exp(l) + exp(2 l)) of the gradient, with the limit l."""
    decoder = LayeredDecoder(2, (1, 1, 1))
    shares = []
    for progress in (0.0, 0.25, 0.5, 1.0):
        limit = opacity_limit(torch.tensor(progress))
        logits = torch.tensor([[[[0.0], [-50.0]], [[0.0], [50.0]]]], requires_grad=True)
        picture = decoder.compose(limit_opacity(logits, limit)).pixels
        (gradient,) = torch.autograd.grad(picture.sum(), logits)
        shares.append(float(gradient[0, 0, 0, 0]) / 0.25)  # of sigmoid'(0)
        size = float(limit)
        assert shares[-1] == pytest.approx(1 / (1 + math.exp(size) + math.exp(2 * size)), rel=1e-3)
    assert shares[0] > 0.05  # with 3 in the place of 1 it was .002, and some layers never came back
    assert shares == sorted(shares, reverse=True)
    assert float(opacity_limit(torch.tensor(1.0))) == 12


def test_late_in_training_the_loss_is_the_absolute_error() -> None:
    layered, values, images = decoder(), torch.randn(4, 3), torch.rand(4, 1, 8, 8)
    layered.requires_grad_(False)
    loss, _ = layer_loss(layered, values, images, torch.tensor(1.0))
    with torch.no_grad():
        error = (torch.sigmoid(layered(values)) - images).abs().sum((1, 2, 3)).mean()
    assert float(loss) == pytest.approx(float(error) / 0.1, rel=1e-4)
    assert float(layer_loss(layered, values, images, torch.tensor(math.inf))[0]) == float(loss)


def test_the_loss_of_drawn_pixels_estimates_that_of_all() -> None:
    layered, values, images = decoder(), torch.randn(4, 3), torch.rand(4, 1, 8, 8)
    generator = torch.Generator().manual_seed(0)
    for progress in (0.0, 1.0):
        step = torch.tensor(progress)
        with torch.no_grad():
            whole = layer_loss(layered, values, images, step)
            draws = [
                torch.stack(
                    layer_loss(layered, values, images, step, layered.draw_pixels(8, generator))
                )
                for _ in range(400)
            ]
        assert torch.allclose(torch.stack(draws).mean(0), torch.stack(whole), rtol=0.05)


def test_painting_what_single_variables_paint_right_has_a_price() -> None:
    layered, values = decoder().requires_grad_(False), torch.randn(4, 3)
    with torch.no_grad():
        alone = layered.compose(layered.layer_logits(values)[:, :1]).pixels.unflatten(2, (8, 8))
    _, price = layer_loss(layered, values, alone, torch.tensor(1.0))
    _, less = layer_loss(layered, values, (alone + 0.5) % 1, torch.tensor(1.0))
    assert float(price) > float(less) >= 0


def test_a_region_is_a_box_with_a_margin() -> None:
    gain = torch.zeros(12, 12)
    gain[3, 2:6] = 1.0  # in a picture of twice the size: rows 6 and 7, columns 4 to 11
    gain[9, 9] = 0.001  # noise
    region = region_of(gain, (24, 24))
    assert region[5:9, 2:14].all()  # a quarter more on every side
    assert float(region.sum()) == 4 * 12
    assert not region_of(torch.zeros(12, 12), (24, 24)).any()


def test_the_background_is_of_images_spread_over_the_split(data: Dataset) -> None:
    """A grid starts with images of one value: their median would show its object."""
    order = data.train.labels[:, 0].argsort()
    model = intervae.create("causal-vae", data, graph=data.graph, layers=GROUPS, **SETTINGS)
    model.prepare_pictures(replace(data, train=data.train[order]), 0)
    expected = (data.train.images.float() / 255).median(0).values
    torch.testing.assert_close(model.decoder.background, expected)
