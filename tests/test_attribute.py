"""`intervae attribute`, and the pictures of a model of transitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command import intervae, refused, succeeded
from intervae.data.base import Dataset
from intervae.models import Model
from intervae.report import write_figures
from pairs import random_pairs


@pytest.fixture
def data(make_data: Any) -> Dataset:
    return random_pairs(make_data((3, 16, 16)))


@pytest.fixture
def model(data: Dataset, make_model: Any) -> Model:
    return make_model("ct-vae", data)


def write_pictures(data: Dataset, folder: Path) -> list[Path]:
    paths = [folder / "before.png", folder / "after.png"]
    for path, image in zip(paths, data.test.images, strict=False):
        Image.fromarray(np.moveaxis(image.numpy(), 0, -1)).save(path)
    return paths


def test_the_actions_are_listed_with_their_probabilities_the_likeliest_first(data: Dataset, model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    pictures = write_pictures(data, tmp_path)
    rows = json.loads(succeeded(intervae("attribute", tmp_path / "run", *pictures, "--device", "cpu", "--json")).out)
    expected = dict(zip(data.actions, model.attribute(data.test.images[0], data.test.images[1])[0].tolist(), strict=True))
    assert {row["action"]: row["probability"] for row in rows} == pytest.approx(expected, abs=1e-5)
    chances = [row["probability"] for row in rows]
    assert chances == sorted(chances, reverse=True)
    shown = succeeded(intervae("attribute", tmp_path / "run", *pictures, "--device", "cpu")).out.splitlines()
    assert [line.split() for line in shown] == [[row["action"], f"{row['probability']:.3f}"] for row in rows]


def test_a_model_that_knows_no_actions_says_who_does(data: Dataset, make_model: Any, tmp_path: Path) -> None:
    make_model("vae", data).save(tmp_path / "run")
    refused(intervae("attribute", tmp_path / "run", *write_pictures(data, tmp_path)), 1, "vae cannot answer attribute()", "ct-vae")


def test_a_picture_that_is_not_there_is_named(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    refused(intervae("attribute", tmp_path / "run", tmp_path / "no.png", tmp_path / "no.png"), 1, "no.png")


def test_actions_and_their_mechanisms_are_drawn(data: Dataset, model: Model, tmp_path: Path) -> None:
    model.fit(data, out=tmp_path / "run", tensorboard=False)
    written = {path.name for path in write_figures(model, data, tmp_path / "run")}
    assert {"reconstructions.png", "training.png", "actions.png", "mechanisms.png"} <= written
