"""Missing labels and models: a model that takes them gets NaN, every other one refuses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intervae as package
from command import SMALL, cell, intervae, refused, succeeded
from intervae.data import Batch, Dataset, load_data
from intervae.discovery import complete_rows_notes, discover, discover_labels
from intervae.errors import DataError, QueryError
from intervae.evaluation import evaluate
from intervae.models import MODELS, Model, create
from intervae.models.phases import Phase, Player
from intervae.testing import check_model, ramps

NAN = float("nan")


@dataclass(frozen=True)
class LabelMeanSettings:
    epochs: int = 40
    batch_size: int = 8


class LabelMean(Model):
    """Mean of each label over the rows that have it, and mean brightness over all rows."""

    name, title, Settings = "label-mean", "Means of labels", LabelMeanSettings
    latent_names = ("z",)
    accepts_missing_labels = True

    def build(self) -> None:
        self.mean = nn.Parameter(0.1 * torch.randn(len(self.spec.variables)))
        self.brightness = nn.Parameter(0.1 * torch.randn(()))
        self.received: list[Tensor] = []

    def phases(self) -> list[Phase]:
        player = Player(self.loss, learning_rate=0.05)
        return [Phase("all", (player,), self.settings.epochs, self.settings.batch_size)]

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        self.received.append(batch["labels"])
        error = self.mean - self.spec.normalise(batch["labels"])
        labels = torch.where(error.isnan(), torch.zeros_like(error), error).square().sum(1).mean()
        images = (self.brightness - batch["images"].mean((1, 2, 3))).square().mean()
        return {"loss": labels + images, "labels": labels, "images": images}

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        pixels = self.as_images(images)
        shift = 0 if labels is None else self.as_labels(labels, len(pixels)).nan_to_num().sum(1)
        return (pixels.mean((1, 2, 3)) + shift)[:, None, None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        grey = self.as_latents(latents)[..., None] + self.brightness
        return grey.clamp(0, 1).expand(-1, *self.spec.image_shape)

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        generator = self.sampling_generator(n, seed)
        return self.decode(torch.rand(n, 1, 1, generator=generator).to(self.device))


@pytest.fixture
def registered() -> Iterator[None]:
    package.register_model(LabelMean)
    yield
    del MODELS[LabelMean.name]


def with_missing(data: Dataset) -> Dataset:
    """Return the data; every second training row has no label, every fourth one lacks `a`."""
    labels = data.train.labels.clone()
    labels[::2], labels[1::4, 0] = NAN, NAN
    return replace(data, train=data.train.with_fields({**data.train.fields, "labels": labels}))


# ---- a model that takes them --------------------------------------------------------------------
def test_nan_labels_reach_the_loss_and_all_images_are_trained_on() -> None:
    data = with_missing(ramps())
    model = LabelMean(data.spec)
    model.fit(data)
    missing = torch.cat(model.received[1:]).isnan()
    assert missing.any()
    assert not missing.all()
    expected = data.spec.normalise(data.train.labels).nanmean(0)
    assert model.mean.detach().numpy() == pytest.approx(expected.numpy(), abs=0.1)
    brightness = data.train.images.float().mean() / 255
    assert model.brightness.item() == pytest.approx(brightness.item(), abs=0.02)


def test_a_resumed_run_with_missing_labels_equals_an_uninterrupted_one(
    tmp_path: Path, interrupt: Callable[[int], None]
) -> None:
    data = with_missing(ramps())
    options: dict[str, Any] = {"checkpoint_seconds": 0, "tensorboard": False}
    LabelMean(data.spec, epochs=4).fit(data, out=tmp_path / "whole", **options)
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        LabelMean(data.spec, epochs=4).fit(data, out=tmp_path / "parts", **options)
    LabelMean(data.spec, epochs=4).fit(data, out=tmp_path / "parts", resume=True, **options)
    weights = [tmp_path / run / "model.safetensors" for run in ("whole", "parts")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_common_checks_train_it_on_missing_labels() -> None:
    checks = ["missing labels", "resume", "save and load after training"]
    assert set(check_model(LabelMean, {"epochs": 2}, only=checks)) == set(checks)

    class Careless(LabelMean):
        def loss(self, batch: Batch, generator: Any = None) -> dict[str, Tensor]:
            error = (self.mean - self.spec.normalise(batch["labels"])).square().mean()
            return {"loss": error, "labels": error}

    with pytest.raises(AssertionError, match="fails the check 'missing labels'"):
        check_model(Careless, {"epochs": 2}, only=["missing labels"])


def test_encode_takes_missing_labels_but_no_infinite_ones() -> None:
    data = with_missing(ramps())
    model = LabelMean(data.spec)
    images = data.train.images[:2]
    assert torch.equal(model.encode(images, torch.full((2, 3), NAN)), model.encode(images))
    with pytest.raises(QueryError, match="the labels hold NaN or infinite values"):
        model.encode(images, torch.full((2, 3), torch.inf))


def test_evaluation_measures_rows_with_all_labels() -> None:
    data = ramps()
    labels = data.test.labels.clone()
    labels[::3, 1] = NAN
    data = replace(data, test=data.test.with_fields({**data.test.fields, "labels": labels}))
    messages: list[str] = []
    complete = evaluate(LabelMean(data.spec), data.complete())
    measured = evaluate(LabelMean(data.spec), data, notify=messages.append)
    assert [m.to_json() for m in measured] == [m.to_json() for m in complete]
    used = len(data.test) - len(labels[::3])
    assert f"measured on the {used} of {len(data.test)} test rows that have all labels" in messages


def test_a_folder_with_missing_cells_is_trained_on_from_the_command_line(
    registered: None, folder: Path, tmp_path: Path
) -> None:
    cell(5, 2, "")(folder)
    (folder / "more.png").write_bytes((folder / "00.png").read_bytes())
    run = tmp_path / "run"
    options = ["--data-option", "unlabelled=keep", "--data-option", "labelled=0.5"]
    trained = succeeded(
        intervae("train", "label-mean", "--data", folder, *options, "--epochs", 2, "--out", run)
    )
    assert "note: labels.csv, line 5: 'width' has no value" in trained.out
    assert "labels missing)" in trained.out
    assert "(labelled=0.5)" in trained.out
    saved = json.loads((run / "config.json").read_text())["data"]["options"]
    assert (saved["unlabelled"], saved["labelled"]) == ("keep", 0.5)
    succeeded(intervae("evaluate", run, "--metric", "reconstruction"))
    succeeded(intervae("resume", run))


# ---- every other model --------------------------------------------------------------------------
REFUSING = ("causal-vae", "vae", "ivae", "pca", "cmcl", "info-gan", "raw-pixels")


@pytest.mark.parametrize("name", REFUSING)
def test_other_models_refuse_missing_labels_in_one_sentence(
    name: str, folder: Path, tmp_path: Path
) -> None:
    cell(5, 2, "")(folder)
    message = refused(
        intervae("train", name, "--data", folder, "--out", tmp_path / "run"),
        1,
        f"labels.csv, line 5: 'width' has no value, but {name} takes no missing labels; fill it in",
    )
    assert "remove the row" in message
    assert "leave it out with variables= (--variables)" in message
    assert not (tmp_path / "run").exists()
    chosen = load_data(folder, variables=["level"])
    assert create(name, chosen, **({"graph": "joint"} if name == "causal-vae" else {}))


def test_the_error_names_the_models_that_take_missing_labels(registered: None) -> None:
    data = with_missing(ramps())
    advice = r"or use a model that takes missing labels \(deep-scm, label-mean\)\.$"
    place = r"^made, sample 0 of the train split: 'a' has no value \(\d+ of 64 rows\)"
    with pytest.raises(DataError, match=rf"{place}, but vae takes no missing labels; .*{advice}"):
        create("vae", data)
    model = create("vae", ramps())
    with pytest.raises(DataError, match=advice):
        model.fit(replace(ramps(), train=data.train))
    with pytest.raises(DataError, match=advice):
        evaluate(model, replace(ramps(), train=data.train))
    with pytest.raises(QueryError, match="clean them first or use a model that takes missing"):
        create("ivae", ramps()).encode(data.train.images[:2], data.train.labels[:2])


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("labelled=0.25", "labels: kept in 14 of 58 training rows and hidden in the others"),
        ("unlabelled=keep", "images: 1 not in labels.csv and taken into the training split"),
    ],
)
def test_hidden_labels_are_refused_with_the_option_to_leave_out(
    option: str, place: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "more.png").write_bytes((folder / "00.png").read_bytes())
    command = ["train", "vae", "--data", folder, *SMALL, "--data-option", option]
    message = refused(intervae(*command, "--out", tmp_path / "run"), 1, place)
    assert f"leave {option.partition('=')[0]}= out" in message


# ---- graphs -------------------------------------------------------------------------------------
def test_discovery_from_labels_uses_complete_rows_with_a_note() -> None:
    full = ramps(samples=300)
    data = with_missing(full)
    is_complete = ~data.train.missing.any(1)
    rows = full.train.labels[is_complete].numpy()
    result = discover_labels(data, "notears", seed=0)
    expected = discover(rows, "notears", names=data.names, kinds=["continuous"] * 3, seed=0)
    np.testing.assert_array_equal(result.graph.weights, expected.graph.weights)
    counts = f"the {len(rows)} of {len(full.train)} training rows that have all labels"
    assert result.notes[-1].text == f"graph: learned from {counts}"
    assert complete_rows_notes(full) == []
    labels = torch.full_like(data.train.labels, NAN)
    nothing = replace(data, train=data.train.with_fields({**data.train.fields, "labels": labels}))
    with pytest.raises(DataError, match="made: no training row has all labels, so no graph"):
        discover_labels(nothing)
