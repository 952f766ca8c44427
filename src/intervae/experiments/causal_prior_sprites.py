"""Experiment: the temporal causal-prior VAE on Sprites, animated characters (Li and Mandt 2018).

Not in the paper.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.data import Dataset, Split
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.jobs import Train
from intervae.models.base import Model

HISTORY = 3  # frames from which the others are predicted
CLASSIFIER_CLIPS = 2000  # training clips of the label classifiers
FIGURE_CLIPS = 4


@dataclass(frozen=True)
class SpritesTraining(Train):
    """Train on animated characters; predict frames, and classify labels from the latents."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        numbers = {
            "train_seconds": seconds,
            "edges": float(model.fixed.sum()),
            **prediction_metrics(model, data),
            **label_metrics(model, data),
        }
        draw_figure(model, data, folder / "figures")
        return numbers


def prediction_metrics(model: Model, data: Dataset) -> Numbers:
    """Mean squared pixel errors on test clips, beside two references; overall, by step, by action.

    The references are a copy of the last given frame, and the reconstruction of the true frame.
    """
    chunks: dict[str, list[torch.Tensor]] = {}
    for chunk in data.test.chunks():
        clips = chunk.images.float() / 255
        history, truth = clips[:, :HISTORY], clips[:, HISTORY:]
        predictions = {
            "extrapolation_mse": model.extrapolate(history, truth.shape[1]).cpu(),
            "copy_mse": history[:, -1:].expand_as(truth),
            "truth_mse": model.reconstruct(clips)[:, HISTORY:].cpu(),
        }
        for name, prediction in predictions.items():
            chunks.setdefault(name, []).append((prediction - truth).square().mean((2, 3, 4)))
    actions = data.test.labels[:, data.names.index("action")].numpy().astype(int)
    categories = data.variables[data.names.index("action")].categories
    numbers: Numbers = {}
    for name, values in chunks.items():
        errors = torch.cat(values).numpy()  # (N, steps)
        numbers[name] = float(errors.mean())
        numbers |= {
            MetricKey(name, f"step {step + 1}"): float(errors[:, step].mean())
            for step in range(errors.shape[1])
        }
        numbers |= {
            MetricKey(name, category): float(errors[actions == code].mean())
            for code, category in enumerate(categories)
        }
    return numbers


def label_metrics(model: Model, data: Dataset) -> Numbers:
    """Test accuracy of each label by logistic regression on the latents of the first window.

    `read_off_frames` on the latents of the frames, `read_off_still` on the background code,
    `by_chance` of the most frequent category.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # random rows, since clips are stored by action
    rows = np.sort(np.random.default_rng(0).permutation(len(data.train))[:CLASSIFIER_CLIPS])
    train, test, d = data.train[rows], data.test, len(model.fixed)
    codes_train, codes_test = (encode_split(model, split) for split in (train, test))
    numbers: Numbers = {}
    for column, name in enumerate(data.names):
        labels_train, labels_test = (
            split.labels[:, column].numpy().astype(int) for split in (train, test)
        )
        most_frequent = np.bincount(labels_train).argmax()
        numbers[MetricKey("by_chance", name)] = float((labels_test == most_frequent).mean())
        for metric, columns in (
            ("read_off_frames", slice(0, d)),
            ("read_off_still", slice(d, None)),
        ):
            classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                classifier.fit(codes_train[:, columns], labels_train)
            score = classifier.score(codes_test[:, columns], labels_test)
            numbers[MetricKey(metric, name)] = float(score)
    return numbers


def encode_split(model: Model, split: Split) -> np.ndarray:
    """Latents (N, n) of all clips of a split."""
    chunks = [model.encode(chunk.images)[..., 0].cpu() for chunk in split.chunks()]
    return torch.cat(chunks).numpy()


def draw_figure(model: Model, data: Dataset, folder: Path) -> None:
    """Draw extrapolation.png: predicted frames of test clips above the true ones."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.linspace(0, len(data.test) - 1, FIGURE_CLIPS).round().astype(int)
    clips = data.test[numbers].images.float() / 255
    predicted = model.extrapolate(clips[:, :HISTORY], clips.shape[1] - HISTORY).cpu()
    rows = []
    for clip, after in zip(clips, predicted, strict=True):
        rows.append(
            figures.ClipRow("model", torch.cat([clip[:HISTORY], after]), generated=len(after))
        )
        rows.append(figures.ClipRow("truth", clip))
    heads = [
        *(f"given {t + 1}" for t in range(HISTORY)),
        *(f"+{t + 1}" for t in range(clips.shape[1] - HISTORY)),
    ]
    figures.clip_rows(folder / "extrapolation.png", rows, heads=heads, pairs=2)


_SETTINGS: dict[str, Any] = {
    "latents": 8,
    "background": "median",
    "background_size": 64,
    "network": "conv",
    "hidden": 256,
    "reconstruction_weight": 20.0,
    "epochs": 60,
    "refit_epochs": 20,
    "learning_rate": 1e-3,
    "schedule": "cosine",
}
_QUICK: dict[str, Any] = {
    **_SETTINGS,
    "network": "mlp",
    "widths": (256, 256),
    "reconstruction_weight": 40.0,
    "epochs": 25,
    "refit_epochs": 6,
    "warm_up": 300,
    "learning_rate": 3e-3,
}
_COLUMNS = ("extrapolation_mse", "copy_mse", "truth_mse", "edges", "train_seconds")

CAUSAL_PRIOR_SPRITES = Experiment(
    "causal-prior-sprites",
    "The temporal causal-prior VAE on animated characters (Sprites)",
    (SpritesTraining("sprites", "temporal-causal-prior-vae", {"size": 32}, _SETTINGS),),
    seeds=3,
    shown=(*_COLUMNS, "read_off_frames", "read_off_still", "by_chance"),
    columns=_COLUMNS,
    notes=("causal-prior-sprites",),
    pictures=("extrapolation",),
    quick=(
        SpritesTraining(
            "sprites", "temporal-causal-prior-vae", {"size": 16, "samples": 3000}, _QUICK
        ),
    ),
)
