"""Counterfactuals of faces on a tiny zip of drawn faces: splits, classifier, scores, quick form."""

from __future__ import annotations

import io
import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from intervae.causal.graph import CausalGraph
from intervae.experiments import EXPERIMENTS, counterfactual_celeba, run_experiment
from intervae.experiments.counterfactual_celeba import (
    COUNTERFACTUAL_CELEBA,
    EDGES,
    LABELS,
    Faces,
    answer,
    draw_sheet,
    load_faces,
    measure_faces,
    scoring_classifier,
)
from intervae.models import MODELS
from intervae.models.base import Model

ATTRIBUTES = (
    "Bald",
    "Eyeglasses",
    "Male",
    "Mouth_Slightly_Open",
    "Narrow_Eyes",
    "No_Beard",
    "Smiling",
    "Young",
)
N = 300


def drawn_face(number: int, values: np.ndarray) -> bytes:
    """A JPEG with one band per attribute, bright if it is 1, and the number as a colour."""
    pixels = np.empty((218, 178, 3), np.uint8)
    pixels[:] = (2 * (number % 100), 80 * (number // 100), 128)
    for k, value in enumerate(values):
        row = 20 + 178 * k // 8
        pixels[row : row + 22, 20:158] = 230 if value else 20
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "celeba").mkdir()
    table = np.random.default_rng(0).integers(0, 2, (N, len(ATTRIBUTES)))
    lines = [str(N), " ".join(ATTRIBUTES)]
    with zipfile.ZipFile(folder / "celeba" / "faces.zip", "w") as archive:
        for i, row in enumerate(table):
            archive.writestr(f"img_align_celeba/{i + 1:06}.jpg", drawn_face(i, row))
            lines.append(f"{i + 1:06}.jpg " + " ".join(str(2 * int(v) - 1) for v in row))
    (folder / "celeba" / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def drawn_faces(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERVAE_DATA", str(home))
    monkeypatch.setattr(counterfactual_celeba, "_CLASSIFIERS", {})


def pictures_of(faces: Faces) -> list[set[bytes]]:
    """The pictures of training, validation, test and classifier."""
    splits = [*faces.data.splits.values(), faces.classifier]
    return [{picture.numpy().tobytes() for picture in split.images} for split in splits]


def test_parts_are_disjoint_and_the_same_for_all_labels() -> None:
    pictures = [pictures_of(load_faces(labels, size=32)) for labels in LABELS]
    for first, second in itertools.combinations(pictures[0], 2):
        assert not first & second
    assert [len(split) for split in pictures[0]] == [128, 14, 30, 128]
    assert all(each == pictures[0] for each in pictures[1:])


def test_known_graphs_are_over_the_variables_of_their_labels() -> None:
    for labels in LABELS:
        faces = load_faces(labels, size=32)
        assert (faces.graph is None) == (labels == "beard")
        if faces.graph is not None:
            assert faces.graph.names == faces.data.names
            assert {edge[:2] for edge in faces.graph.edges} == set(EDGES[labels])
    smile = load_faces("smile", size=32)
    assert smile.data.graph is not None
    assert smile.graph is not None
    assert smile.graph.shd(smile.data.graph) == 0


def test_the_classifier_is_trained_once_for_equal_pictures_and_variables() -> None:
    faces = [load_faces(labels, size=32) for labels in ("beard", "complex", "simple")]
    beard, complex_labels, simple = (scoring_classifier(each, epochs=1) for each in faces)
    assert beard is complex_labels
    assert simple is not beard
    assert simple.names == ("Smiling", "Eyeglasses")
    assert simple.training_images == len(faces[2].classifier)


class Redrawn:
    """A model that knows how faces are drawn; `broken` also changes the other attributes."""

    device = torch.device("cpu")
    counterfactual_takes_labels = False

    def __init__(self, faces: Faces, broken: bool = False) -> None:
        self.graph, self.names = CausalGraph.empty(faces.data.names), faces.data.names
        self.broken = broken

    def counterfactual(self, images: torch.Tensor, do: dict[str, Any]) -> torch.Tensor:
        after = images.clone()
        for name, value in do.items():
            names = self.names if self.broken else (name,)
            for each in names:
                k = ATTRIBUTES.index(each)
                # the centre square of the published picture, 178 pixels wide, is all that is read
                level = torch.as_tensor(value).float() * (210 / 255) + 20 / 255
                after[:, :, 4 * k : 4 * k + 4, 4:28] = level[:, None, None, None]
        return after


@pytest.fixture
def simple() -> Faces:
    return load_faces("simple", size=32)


def test_a_simulator_scores_as_real_pictures_and_flips_nothing(simple: Faces) -> None:
    classifier = scoring_classifier(simple, epochs=40)
    model: Any = Redrawn(simple)
    results = {m.metric: m for m in measure_faces(model, simple, classifier)}
    assert results["predictor_accuracy_min"].value > 0.9
    accuracy = results["effectiveness_accuracy"]
    assert accuracy.value == pytest.approx(accuracy.parameters["real_pictures"]["value"], abs=0.1)
    assert accuracy.parameters["doing_nothing"]["value"] < 0.1
    assert results["attribute_flips_excess_worst"].value < 0.1
    assert results["composition_1"].value == 0
    broken: Any = Redrawn(simple, broken=True)
    worse = {m.metric: m for m in measure_faces(broken, simple, classifier)}
    assert worse["effectiveness_accuracy"].value == pytest.approx(accuracy.value, abs=0.1)
    assert worse["attribute_flips_excess"].value > 0.3


def test_answers_in_batches_have_the_value_of_each_picture(
    simple: Faces, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = Redrawn(simple)
    images = simple.data.test.images.numpy().astype(np.float32) / 255
    values = (np.arange(len(images)) % 3 == 0).astype(np.float64)
    at_once = answer(model, images, {"Smiling": values})
    monkeypatch.setattr(counterfactual_celeba, "QUERY_BATCH", 7)
    assert np.array_equal(answer(model, images, {"Smiling": values}), at_once)


def test_labels_reach_a_model_that_takes_them(
    simple: Faces, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Labelled(Redrawn):
        counterfactual_takes_labels = True

        def counterfactual(
            self, images: torch.Tensor, do: dict[str, Any], labels: torch.Tensor | None = None
        ) -> torch.Tensor:
            received.append(labels)
            return super().counterfactual(images, do)

    received: list[torch.Tensor | None] = []
    monkeypatch.setattr(counterfactual_celeba, "QUERY_BATCH", 7)
    model: Any = Labelled(simple)
    test = simple.data.test
    answer(model, test.images.numpy().astype(np.float32) / 255, {}, test.labels)
    rows = [labels for labels in received if labels is not None]
    assert len(rows) > 1
    assert torch.equal(torch.cat(rows), test.labels.float())


def test_contact_sheet_is_drawn(simple: Faces, tmp_path: Path) -> None:
    model: Any = Redrawn(simple)
    draw_sheet(model, simple, tmp_path / "figures" / "faces.png")
    assert (tmp_path / "figures" / "faces.png").stat().st_size > 1000


def test_every_label_set_has_every_model_with_valid_settings() -> None:
    assert COUNTERFACTUAL_CELEBA in EXPERIMENTS
    assert COUNTERFACTUAL_CELEBA.seeds == 5
    assert len(COUNTERFACTUAL_CELEBA.jobs) == 22
    assert len({job.key for job in COUNTERFACTUAL_CELEBA.jobs}) == 22
    for job in COUNTERFACTUAL_CELEBA.jobs:
        kind: type[Model] = MODELS[job.model]
        kind.Settings(**job.settings)
    assert not COUNTERFACTUAL_CELEBA.pictures  # pictures of people are never published


def test_the_quick_form_writes_numbers_and_no_face(tmp_path: Path) -> None:
    document = run_experiment(
        COUNTERFACTUAL_CELEBA, quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path
    )
    metrics = {row["metric"] for row in document["rows"]}
    assert set(COUNTERFACTUAL_CELEBA.shown) <= metrics
    assert not list(tmp_path.glob("*.png"))
    assert len(list(tmp_path.glob("runs/*/*/figures/faces.png"))) == 6
