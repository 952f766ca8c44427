"""Guidance that rises picture by picture, mirrored pictures, and the predictor's dropout."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import intervae
from intervae.causal.variable_types import VariableType
from intervae.data import Dataset
from intervae.errors import QueryError, UsageError
from intervae.models.deep_scm.model import mirror_half
from intervae.models.deep_scm.predictor import VariablePredictor
from intervae.models.deep_scm.rising_guidance import predict_until_confident
from intervae.nets.picture_mechanism import PictureNoise
from intervae.testing import ramps
from intervae.testing.case import first_batch

SETTINGS = {
    "picture": "flow",
    "flow_widths": (8,),
    "flow_steps": 4,
    "flow_hidden_classes": 0.2,
    "channels": (8, 8),
    "hidden": 16,
    "epochs": 2,
    "batch_size": 16,
}


class Grey:
    """A flow whose pictures have the guidance as their grey value."""

    guidance = 32.0

    def predict(
        self,
        noise: PictureNoise,
        parents: Tensor,
        pixel_temperature: float = 0.0,
        factual: Tensor | None = None,
        guidance: float | None = None,
    ) -> Tensor:
        factor = self.guidance if guidance is None else guidance
        return torch.full((len(parents), 1, 8, 8), 1.0 if factual is None else factor)


def test_every_picture_gets_the_smallest_factor_that_suffices() -> None:
    """Factors are 1, 2, 4, ..., 32; pictures need 0, 1.5, 4, 30 and more than there is.

    The last one gets the factor of the highest confidence, here the first.
    """
    needed = torch.tensor([0.0, 1.5, 4.0, 30.0, 100.0])
    asked = []

    def confidence(pictures: Tensor, rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return (pictures.mean((1, 2, 3)) >= needed[rows] - 1e-3).float()

    noise = PictureNoise((torch.zeros(5, 1, 8, 8),), torch.zeros(5, 0, 8, 8))
    parents = torch.zeros(5, 2)
    flow: Any = Grey()
    answer = predict_until_confident(flow, noise, parents, parents, confidence, 0.9)
    values = answer.mean((1, 2, 3))
    torch.testing.assert_close(values, torch.tensor([1.0, 2.0, 4.0, 32.0, 1.0]))
    assert asked == [5, 4, 3, 2, 2, 2]  # a picture that is done is not computed again


def test_pictures_that_no_factor_convinces_get_the_most_convincing() -> None:
    """Confidence rises until the factor 8 and falls after it, as on spoiled pictures."""

    def confidence(pictures: Tensor, rows: Tensor) -> Tensor:
        return 0.5 - 0.1 * (pictures.mean((1, 2, 3)).log2() - 3).abs()

    noise = PictureNoise((torch.zeros(3, 1, 8, 8),), torch.zeros(3, 0, 8, 8))
    flow: Any = Grey()
    parents = torch.zeros(3, 2)
    answer = predict_until_confident(flow, noise, parents, parents, confidence, 0.9)
    torch.testing.assert_close(answer.mean((1, 2, 3)), torch.full((3,), 8.0))


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Images with a number and a class."""
    return ramps(samples=80, kinds=("continuous", "binary"))


def test_only_pictures_with_a_new_class_are_guided(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = intervae.create("deep-scm", data, graph="empty", **SETTINGS)
    model.fit(data, seed=0, device="cpu", progress=False)
    images, labels = data.test.images[:8], data.test.labels[:8]
    number, binary = data.names
    new_class = {binary: torch.ones(8)}
    new_number = {number: labels[:, 0] + 0.1}
    plain = [model.counterfactual(images, do, labels) for do in (new_class, new_number)]
    model.settings = dataclasses.replace(model.settings, flow_confidence=0.999, flow_guidance=4.0)
    model.picture.guidance = 4.0
    guided = [model.counterfactual(images, do, labels) for do in (new_class, new_number)]
    moved = (guided[0] - plain[0]).abs().amax((1, 2, 3))
    changed = labels[:, 1] == 0
    assert 0 < changed.sum() < 8
    assert (moved[~changed] == 0).all()
    assert (moved[changed] > 1e-4).any()
    assert torch.equal(guided[1], plain[1])

    # a predictor that is sure of the new class at once leaves every picture unguided
    def sure(images: Tensor) -> Tensor:
        return torch.full((len(images), 2), 30.0)

    monkeypatch.setattr(model.predictor, "forward", sure)
    assert torch.equal(model.counterfactual(images, new_class, labels), plain[0])
    nothing = model.counterfactual(images, {}, labels)
    torch.testing.assert_close(nothing, images.float() / 255, rtol=0, atol=1e-4)


@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_confidence_outside_its_range_is_refused(data: Dataset, value: float) -> None:
    with pytest.raises(UsageError, match="flow_confidence"):
        intervae.create("deep-scm", data, graph="empty", flow_confidence=value)


# ---- augmentation -------------------------------------------------------------------------------
def test_mirrored_training_mirrors_half_of_the_images(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.rand(400, 1, 16, 16)
    augmented = mirror_half(images, torch.Generator().manual_seed(0))
    unchanged = (augmented == images).flatten(1).all(1)
    mirrored = (augmented == images.flip(-1)).flatten(1).all(1)
    assert (unchanged | mirrored).all()
    assert 0.4 < mirrored.float().mean() < 0.6
    batch = {**first_batch(data), "images": images}
    batch["labels"] = data.train.labels[:1].expand(400, -1)
    model = intervae.create("deep-scm", data, graph="empty", mirrored=True, **SETTINGS)
    painted = []

    def record(images: torch.Tensor, *rest: Any) -> Any:
        painted.append(images)
        return type(model.picture).loss(model.picture, images, *rest)

    monkeypatch.setattr(model.picture, "loss", record)
    model.loss(batch, torch.Generator().manual_seed(0))
    assert torch.equal(painted[0], augmented)


# ---- dropout -------------------------------------------------------------------------------------
def test_dropout_is_drawn_from_the_generator_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    types = [VariableType("binary"), VariableType("binary")]
    predictor = VariablePredictor((1, 16, 16), types, (8, 8), 32, dropout=0.5)
    image = torch.rand(1, 1, 16, 16)

    def draw(seed: int, count: int = 1) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return predictor.outputs_for_training(image.expand(count, -1, -1, -1), generator)

    with torch.no_grad():
        assert torch.equal(draw(0), draw(0))
        assert not torch.equal(draw(0), draw(1))
        predictor.network.dense[2] = torch.nn.Identity()  # linear: the mean is then exact
        many, expected = draw(2, 20_000), predictor(image)
        error = (many.mean(0) - expected[0]).abs() / (many.std(0) / 20_000**0.5)
    assert (error < 4).all()
    predictor.eval()  # validation reads without dropout
    assert torch.equal(draw(0), predictor(image))


def test_classes_alone_have_dropout_by_default(data: Dataset) -> None:
    classes = ramps(kinds=("binary", "categorical"))
    assert intervae.create("deep-scm", classes, graph="empty").predictor.dropout == 0.5
    assert intervae.create("deep-scm", data, graph="empty").predictor.dropout == 0
    fixed = intervae.create("deep-scm", data, graph="empty", predictor_dropout=0.2)
    assert fixed.predictor.dropout == 0.2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"picture": "vae", "flow_guidance": 3.0}, "flow_guidance=3 needs picture=flow"),
        ({"picture": "hvae", "flow_confidence": 0.9}, "flow_confidence=0.9 needs picture=flow"),
        ({"picture": "flow", "flow_confidence": 0.9}, "flow_confidence=0.9 needs flow_guidance"),
    ],
)
def test_guidance_that_would_do_nothing_is_refused(
    data: Dataset, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        intervae.create("deep-scm", data, graph="empty", **settings)


def test_noise_of_another_shape_is_refused(data: Dataset) -> None:
    model = intervae.create("deep-scm", data, graph="empty", **SETTINGS)
    images = data.test.images[:4]
    latents, rest = model.encode(images), model.abduct_picture(images)
    assert model.decode(latents, **rest).shape == images.shape
    for wrong in (
        {**rest, "noise": rest["noise"][:, 1:]},
        {**rest, "noise": rest["noise"][:2]},
        {**rest, "factual": rest["factual"][:, :1]},
    ):
        with pytest.raises(QueryError, match="as abduct_picture returns them"):
            model.decode(latents, **wrong)
