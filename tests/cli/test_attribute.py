"""`intervae attribute`, and the figures of a transition model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from command import intervae, refused, succeeded
from intervae.data import Dataset
from intervae.models import Model
from intervae.models.ct_vae.explanations import Explanations
from intervae.models.ct_vae.model import CTVAE
from intervae.report import write_figures
from pairs import random_pairs


@pytest.fixture
def data(make_data: Any) -> Dataset:
    return random_pairs(make_data((3, 16, 16)))


@pytest.fixture
def model(data: Dataset, make_model: Any) -> Model:
    return make_model("ct-vae", data)


def write_images(data: Dataset, folder: Path) -> list[Path]:
    paths = [folder / "before.png", folder / "after.png"]
    for path, image in zip(paths, data.test.images, strict=False):
        Image.fromarray(np.moveaxis(image.numpy(), 0, -1)).save(path)
    return paths


def explained(
    monkeypatch: pytest.MonkeyPatch, action: float, none: float, unrelated: float
) -> None:
    """Patch CT-VAE: two images differ in their codes and have these log-likelihoods."""
    explanations = Explanations(
        torch.tensor([[action - 1, action, action - 2, action - 3]]),
        torch.tensor([none]),
        torch.tensor([unrelated]),
    )
    monkeypatch.setattr(CTVAE, "explain", lambda self, before, after: explanations)
    monkeypatch.setattr(
        CTVAE,
        "codes",
        lambda self, images: torch.from_numpy(images[:, 0, 0, :16].astype(np.int64)) % 8,
    )


def test_actions_are_sorted_by_probability(
    data: Dataset, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "run")
    images = write_images(data, tmp_path)
    explained(monkeypatch, -0.1, -2.0, -1.0)
    rows = json.loads(
        succeeded(intervae("attribute", tmp_path / "run", *images, "--device", "cpu", "--json")).out
    )
    chances_of_all = model.attribute(data.test.images[:1].numpy(), data.test.images[1:2].numpy())[
        0
    ].tolist()
    expected = dict(zip(data.actions, chances_of_all, strict=True))
    assert {row["action"]: row["probability"] for row in rows} == pytest.approx(expected, abs=1e-5)
    chances = [row["probability"] for row in rows]
    assert chances == sorted(chances, reverse=True)
    fits = {row["action"]: row["log_likelihood"] for row in rows}
    assert fits == pytest.approx(dict(zip(data.actions, (-1.1, -0.1, -2.1, -3.1), strict=True)))
    assert {
        (row["log_likelihood_of_no_action"], row["log_likelihood_unrelated"]) for row in rows
    } == {(-2.0, -1.0)}
    assert {row["explained_best_by"] for row in rows} == {"action"}
    shown = succeeded(
        intervae("attribute", tmp_path / "run", *images, "--device", "cpu")
    ).out.splitlines()
    assert [line.split() for line in shown] == [
        [row["action"], f"{row['probability']:.3f}"] for row in rows
    ]


@pytest.mark.parametrize(
    ("fits", "best", "words"),
    [
        (
            (-0.5, -0.2, -1.0),
            "no action",
            "note: the two images fit better to nothing having been done than to any action",
        ),
        (
            (-2.0, -3.0, -1.0),
            "unrelated",
            "note: the second image fits better to an unrelated image",
        ),
        (
            (-2.0, -1.5, -1.0),
            "unrelated",
            "note: the second image fits better to an unrelated image",
        ),
    ],
)
def test_pairs_that_no_action_explains_get_a_note(
    fits: tuple[float, float, float],
    best: str,
    words: str,
    data: Dataset,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model.save(tmp_path / "run")
    explained(monkeypatch, *fits)
    output = intervae(
        "attribute", tmp_path / "run", *write_images(data, tmp_path), "--device", "cpu", "--json"
    )
    assert output.code == 0
    assert output.err.startswith(words)
    assert len(output.err.splitlines()) == 1
    assert [row["explained_best_by"] for row in json.loads(output.out)] == [best] * 4
    shown = intervae(
        "attribute", tmp_path / "run", *write_images(data, tmp_path), "--device", "cpu"
    ).out.splitlines()
    assert shown[0] == f"explained best by: {best}; if it was one of the actions:"
    assert [line.split()[0] for line in shown[1:]] == [
        row["action"] for row in json.loads(output.out)
    ]


def test_pairs_that_the_best_action_explains_badly_get_a_note(
    data: Dataset, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(model, CTVAE)
    explained(monkeypatch, -0.5, -2.0, -1.0)  # best by the second action
    for usual, noted in ((-0.4, True), (-0.6, False)):
        model.usual.copy_(torch.tensor([0.0, usual, 0.0, 0.0]))
        model.save(tmp_path / "run")
        output = intervae(
            "attribute",
            tmp_path / "run",
            *write_images(data, tmp_path),
            "--device",
            "cpu",
            "--json",
        )
        assert output.code == 0
        assert (
            output.err.startswith(
                "note: the best action explains these images less well than nearly all"
            )
            == noted
        )
        assert {(row["explained_best_by"], row["unusual"]) for row in json.loads(output.out)} == {
            ("action", noted)
        }


def test_two_equal_images_get_a_note(data: Dataset, model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    before, _ = write_images(data, tmp_path)
    output = intervae("attribute", tmp_path / "run", before, before, "--device", "cpu", "--json")
    assert output.code == 0
    assert output.err.startswith("note: the model sees no difference between the two images")
    assert isinstance(model, CTVAE)
    alone = model.explain(data.test.images[:1], data.test.images[:1])
    assert json.loads(output.out)[0]["explained_best_by"] == "same codes"
    assert json.loads(output.out)[0]["log_likelihood_of_no_action"] == pytest.approx(
        alone.none.item(), rel=1e-4
    )


@pytest.mark.parametrize(
    ("mode", "size", "words"),
    [
        ("L", (16, 16), ["{file} is grey, but the run's images are in colour"]),
        ("RGBA", (16, 16), ["images: 1 had an alpha channel and were laid on white"]),
        ("RGB", (64, 32), ["{file} is 64 x 32 (width x height) and is stretched to 16 x 16"]),
        (
            "LA",
            (16, 24),
            [
                "images: 1 had an alpha",
                "{file} is 16 x 24 (width x height) and is stretched",
                "{file} is grey",
            ],
        ),
        ("RGB", (64, 64), []),
        ("RGB", (100, 101), []),  # to the pixel the same
    ],
)
def test_conversion_of_an_image_gets_a_note(
    mode: str,
    size: tuple[int, int],
    words: list[str],
    data: Dataset,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model.save(tmp_path / "run")
    before, _ = write_images(data, tmp_path)
    explained(monkeypatch, -0.1, -2.0, -1.0)
    Image.new(mode, size, "teal").save(tmp_path / "other.png")
    output = intervae(
        "attribute", tmp_path / "run", before, tmp_path / "other.png", "--device", "cpu"
    )
    lines = output.err.splitlines()
    assert output.code == 0
    assert len(lines) == len(words), lines
    for line, word in zip(lines, words, strict=True):
        assert line.startswith("note: " + word.format(file=tmp_path / "other.png"))


def test_colour_image_for_a_grey_run_gets_a_note(
    make_data: Any, make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model("ct-vae", random_pairs(make_data((1, 16, 16)))).save(tmp_path / "run")
    explained(monkeypatch, -0.1, -2.0, -1.0)
    Image.new("RGB", (16, 16), (7, 7, 7)).save(tmp_path / "grey.png")
    Image.new("RGB", (16, 16), "teal").save(tmp_path / "teal.png")
    output = intervae(
        "attribute",
        tmp_path / "run",
        tmp_path / "grey.png",
        tmp_path / "teal.png",
        "--device",
        "cpu",
    )
    assert [line.partition(" is in colour")[0] for line in output.err.splitlines()] == [
        f"note: {tmp_path / 'teal.png'}"
    ]


def test_model_without_actions_names_models_with_them(
    data: Dataset, make_model: Any, tmp_path: Path
) -> None:
    make_model("vae", data).save(tmp_path / "run")
    refused(
        intervae("attribute", tmp_path / "run", *write_images(data, tmp_path)),
        1,
        "vae cannot answer attribute()",
        "ct-vae",
    )


def test_missing_image_file_is_named(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "run")
    refused(
        intervae("attribute", tmp_path / "run", tmp_path / "no.png", tmp_path / "no.png"),
        1,
        "no.png' does not exist; check its path",
    )
    refused(
        intervae("attribute", tmp_path / "run", tmp_path, tmp_path),
        1,
        f"image '{tmp_path}' is a folder; give the file of a picture",
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is an empty file (0 bytes)"), (b"no picture", "cannot be read (not an image")],
)
def test_broken_image_file_is_refused(
    content: bytes, words: str, model: Model, tmp_path: Path
) -> None:
    model.save(tmp_path / "run")
    (tmp_path / "broken.png").write_bytes(content)
    message = refused(
        intervae("attribute", tmp_path / "run", *[tmp_path / "broken.png"] * 2),
        1,
        "broken.png",
        words,
        "give another file",
    )
    assert "remove its row" not in message


def test_actions_and_mechanisms_are_drawn(data: Dataset, model: Model, tmp_path: Path) -> None:
    model.fit(data, out=tmp_path / "run", tensorboard=False)
    written = {path.name for path in write_figures(model, data, tmp_path / "run")}
    assert {"reconstructions.png", "training.png", "actions.png", "mechanisms.png"} <= written
