"""Counterfactuals of faces: CelebA at 64x64, scored by a classifier trained on other pictures.

intervae reproduce counterfactual-celeba [--only smile] [--quick]

From a script, for a model trained elsewhere on `faces.data`:

    faces = load_faces("smile")
    measurements = measure_faces(model, faces)
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from intervae import figures
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Split, load_data
from intervae.errors import unknown
from intervae.evaluation import write_evaluation
from intervae.experiments.base import Experiment, Numbers
from intervae.experiments.jobs import Train, measured_numbers
from intervae.metrics.attribute_classifier import (
    EPOCHS,
    AttributeClassifier,
    fit_attribute_classifier,
)
from intervae.metrics.attribute_scores import counterfactual_attributes
from intervae.metrics.base import Measurement
from intervae.models.base import Model
from intervae.models.batches import QUERY_BATCH, spread_rows
from intervae.models.capabilities import without_pixel_noise
from intervae.report import write_figures

# data set -> options of the reader. `complex` has the variables of `beard` and a known graph.
LABELS: dict[str, dict[str, Any]] = {
    "smile": {"labels": "smile"},
    "beard": {"labels": "beard"},
    "simple": {"attributes": ["Smiling", "Eyeglasses"]},
    "complex": {"labels": "beard"},
    "faces": {"labels": "faces"},
}
# known edges; `beard` has none, each model learns its own from the labels
EDGES: dict[str, tuple[tuple[str, str], ...]] = {
    "smile": (("gender", "eyes_open"), ("smile", "eyes_open"), ("smile", "mouth_open")),
    "simple": (),
    "complex": (("age", "beard"), ("gender", "beard"), ("age", "bald"), ("gender", "bald")),
}
EDGES["faces"] = EDGES["smile"] + EDGES["complex"]
# of 10,000 pictures: 1,000 for the test, 450 for validation, 4,000 for the classifier, 4,550 to
# train models
SPLITS = {"validation": 0.05, "test": 0.1, "seed": 0}
CLASSIFIER_IMAGES = 4000  # at most half of the training split
TEST_IMAGES = 1000
SHEET_IMAGES = 8
_FITTING = threading.Lock()


class Faces(NamedTuple):
    """Faces for models and, disjoint from them, for the classifier that scores the models."""

    labels: str  # name in LABELS
    data: Dataset  # training, validation and test of models
    classifier: Split
    graph: CausalGraph | None  # known graph

    def test_images(self) -> Split:
        """Return at most TEST_IMAGES test pictures, the same for all models."""
        return self.data.test[spread_rows(len(self.data.test), TEST_IMAGES)]


# ---- data and classifier -------------------------------------------------------------------------
def load_faces(labels: str, **options: Any) -> Faces:
    """Load the faces of one of LABELS; the pictures of each part do not depend on the labels.

    Arguments:
        options: options of the reader, such as `size` or `samples`.
    """
    if labels not in LABELS:
        raise unknown("labels", labels, LABELS)
    return split_faces(labels, load_data("celeba", **{**SPLITS, **LABELS[labels], **options}))


def split_faces(labels: str, data: Dataset) -> Faces:
    """Take the pictures of the classifier from the training split, by a fixed seed."""
    order = torch.as_tensor(np.random.default_rng(0).permutation(len(data.train)))
    count = min(CLASSIFIER_IMAGES, len(order) // 2)
    rows, others = order[:count].sort().values, order[count:].sort().values
    edges = EDGES.get(labels)
    graph = None if edges is None else CausalGraph.from_edges(data.names, edges)
    return Faces(labels, replace(data, train=data.train[others]), data.train[rows], graph)


def scoring_classifier(
    faces: Faces, device: str | torch.device = "cpu", *, epochs: int = EPOCHS
) -> AttributeClassifier:
    """Return the classifier of these faces, trained once per process, label set and device."""
    images = faces.classifier.images
    # `beard` and `complex` have the same pictures and variables, so the same classifier
    key = (faces.data.names, tuple(images.shape), int(images.sum()), str(device), epochs)
    with _FITTING:
        if key not in _CLASSIFIERS:
            _CLASSIFIERS[key] = fit_attribute_classifier(
                images,
                faces.classifier.labels.cpu().numpy(),
                faces.data.variables,
                device=device,
                epochs=epochs,
            )
        return _CLASSIFIERS[key]


_CLASSIFIERS: dict[Any, AttributeClassifier] = {}


# ---- measures ------------------------------------------------------------------------------------
def measure_faces(
    model: Model, faces: Faces, classifier: AttributeClassifier | None = None
) -> list[Measurement]:
    """Measure a trained model on the test pictures; with their labels if it can take them.

    Arguments:
        classifier: that of `scoring_classifier`, which is also the default, on the model's device.
    """
    test = faces.test_images()
    return counterfactual_attributes(
        functools.partial(answer, model, labels=test.labels),
        test.images.cpu().numpy(),
        test.labels.cpu().numpy(),
        faces.data.variables,
        classifier or scoring_classifier(faces, model.device),
        model.graph,
    )


def answer(
    model: Model, images: np.ndarray, do: Mapping[str, Any], labels: torch.Tensor | None = None
) -> np.ndarray:
    """Return `model.counterfactual(images, do)`, QUERY_BATCH images at a time.

    The decoder answers alone, without the images' own pixel noise.

    Arguments:
        do: name -> (N,) values, one per image.
        labels: (N, n) of the images, passed to models that can take them.
    """
    chunks = []
    table = (
        labels.float().cpu() if model.counterfactual_takes_labels and labels is not None else None
    )
    for start in range(0, len(images), QUERY_BATCH):
        rows = slice(start, start + QUERY_BATCH)
        values = {name: torch.as_tensor(each[rows]).float() for name, each in do.items()}
        known = {} if table is None else {"labels": table[rows]}
        pictures = model.counterfactual(
            torch.as_tensor(images[rows]), values, **known, **without_pixel_noise(model)
        )
        chunks.append(pictures.cpu().clamp(0, 1).numpy())
    return np.concatenate(chunks)


def draw_sheet(model: Model, faces: Faces, path: Path) -> None:
    """Draw test pictures, their reconstructions, and do(v = the other value) of each variable."""
    test = faces.data.test[spread_rows(len(faces.data.test), SHEET_IMAGES)]
    images, labels = test.images.cpu().numpy(), test.labels.cpu().numpy()
    query = functools.partial(answer, model, images, labels=test.labels)
    columns = [images.astype(np.float32) / 255, query({})]
    columns += [query({name: 1 - labels[:, i]}) for i, name in enumerate(faces.data.names)]
    rows = []
    for k in range(len(images)):
        new_values = [
            f"{v.name} {v.format_value(1 - labels[k, i])}"
            for i, v in enumerate(faces.data.variables)
        ]
        pictures = np.stack([column[k] for column in columns])
        rows.append(figures.ClipRow(", ".join(new_values), pictures, generated=len(columns) - 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    heads = ["picture", "do()", *(f"do({name})" for name in faces.data.names)]
    title = "Test pictures under do() of the other value, which is named at the left"
    figures.clip_rows(path, rows, heads=heads, title=title)


# ---- experiment ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class TrainOnFaces(Train):
    """Train on faces, score counterfactuals, and draw a contact sheet in the run folder.

    Arguments:
        labels: name in LABELS.
        takes_graph: whether the model is given the known graph.
        classifier_epochs: epochs of the scoring classifier.
    """

    labels: str = "smile"
    takes_graph: bool = True
    classifier_epochs: int = EPOCHS

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        faces = split_faces(self.labels, self.load())
        known = {"graph": faces.graph} if self.takes_graph and faces.graph is not None else {}
        job = replace(self, settings={**self.settings, **known})
        model, seconds = job.train(faces.data, seed, device, folder)
        classifier = scoring_classifier(faces, device, epochs=self.classifier_epochs)
        measurements = measure_faces(model, faces, classifier)
        write_evaluation(folder, measurements)
        write_figures(model, faces.data, folder)
        draw_sheet(model, faces, folder / "figures" / "faces.png")
        return {"train_seconds": seconds, **measured_numbers(measurements)}


FLOW: dict[str, Any] = {
    "picture": "flow",
    "flow_widths": (64, 128, 128),
    "flow_steps": 12,
    "flow_hidden_classes": 0.15,
    "flow_guidance": 3.0,
    "mirrored": True,
    "batch_size": 128,
    "epochs": 110,
}
STRONG = {"flow_guidance": 12.0, "flow_confidence": 0.995, "epochs": 120}  # spoils some faces
# variant -> model, settings, whether it takes a known graph
MODELS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "rest": ("causal-vae", {"rest": 16}, True),
    "no rest": ("causal-vae", {}, True),
    "rest, no graph": ("condition-vae", {"rest": 16}, False),
    "vae": ("deep-scm", {"picture": "vae"}, True),
    "hvae": ("deep-scm", {"picture": "hvae"}, True),
}
FACES_MODELS = {"flow": FLOW, "strong flow": {**FLOW, **STRONG}}  # of all eight attributes
FACES_SEEDS = 3


def _jobs(labels: str) -> tuple[TrainOnFaces, ...]:
    flows = labels == "faces"
    models = {k: ("deep-scm", v, True) for k, v in FACES_MODELS.items()} if flows else MODELS
    options = {**SPLITS, **LABELS[labels], "size": 64}
    return tuple(
        TrainOnFaces(
            "celeba",
            model,
            options,
            settings,
            f"{labels} {variant}".replace(",", ""),
            training={"precision": "bf16"} if flows else {},
            seeds=FACES_SEEDS if flows else None,
            labels=labels,
            takes_graph=takes_graph,
        )
        for variant, (model, settings, takes_graph) in models.items()
    )


_EFFECTIVENESS = tuple(
    f"effectiveness_{metric}{reference}"
    for metric in ("accuracy", "f1")
    for reference in ("", "_doing_nothing", "_real_pictures")
)
_FLIPS = (
    "attribute_flips",
    "attribute_flips_reconstruction",
    "attribute_flips_excess",
    "attribute_flips_excess_worst",
)

COUNTERFACTUAL_CELEBA = Experiment(
    "counterfactual-celeba",
    "Counterfactuals of faces: CelebA, 64x64",
    tuple(job for labels in LABELS for job in _jobs(labels)),
    seeds=5,
    shown=(
        "composition_1",
        "composition_psnr",
        *_EFFECTIVENESS,
        "predictor_accuracy",
        "predictor_balanced_accuracy",
        "predictor_f1",
        *_FLIPS,
        "attribute_flips_worst",
        "train_seconds",
    ),
    columns=("composition_1", "composition_psnr", *_EFFECTIVENESS[:4], *_FLIPS),
    notes=("counterfactual-celeba",),
    quick=tuple(
        replace(
            job,
            options={**job.options, "size": 32, "samples": 300},
            settings={**job.settings, "epochs": 1},
            classifier_epochs=1,
        )
        for job in (*_jobs("smile"), _jobs("faces")[0])
    ),
)
