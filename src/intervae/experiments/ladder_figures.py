"""Figures 2 to 6 of the Ladder VAE from a run: bound and KL over training, PCA, samples."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from intervae import figures
from intervae.data import Dataset
from intervae.figures.class_scatters import COLOURS
from intervae.models.base import Model

IMAGES = 2000  # test images of the PCA
COLUMNS, ROWS = 10, 5  # of samples
FAMILIES = {"vae": "VAE", "ladder": "LVAE+BN+WU"}  # name in pictures -> start of the variant
TRAINED = ("images", "fine-tuning")  # phases with epochs
DRAWN = ("training", "pca", "samples")
PICTURES = tuple(f"{family}-{name}" for name in DRAWN for family in FAMILIES)


def draw_run(model: Model, data: Dataset, folder: Path, seed: int = 0) -> None:
    """Draw training.png, pca.png and samples.png into figures/ of a run."""
    target = folder / "figures"
    target.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["phase"] in TRAINED]
    figures.training_curves(
        target / "training.png", epochs, title="Negative bound and KL of each layer over training"
    )
    classes, names = image_classes(data)
    figures.class_scatter(
        target / "pca.png",
        layer_components(model, data, seed),
        classes,
        names,
        title="Two principal components of samples of each layer, test images",
    )
    samples = model.sample(ROWS * COLUMNS, seed=seed).cpu().numpy()
    rows = [
        figures.ClipRow("", samples[k * COLUMNS : (k + 1) * COLUMNS], generated=COLUMNS)
        for k in range(ROWS)
    ]
    figures.clip_rows(target / "samples.png", rows, title="Samples of the model")


def image_classes(data: Dataset) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the class (N,) of the first IMAGES test images, and the names of the classes.

    Data without a categorical label of few categories have one class.
    """
    count = min(IMAGES, len(data.test))
    for column, variable in enumerate(data.variables):
        if variable.kind == "categorical" and len(variable.categories) <= len(COLOURS):
            labels = data.test.labels[:count, column].cpu().numpy().astype(int)
            return labels, tuple(variable.categories)
    return np.zeros(count, int), ("test images",)


@torch.no_grad()
def layer_components(model: Model, data: Dataset, seed: int = 0) -> dict[str, np.ndarray]:
    """Return layer -> two principal components (N, 2) of one posterior sample per test image."""
    images = model.observed_images(data.test.images[:IMAGES])
    generator = torch.Generator().manual_seed(seed)
    noise = [
        torch.randn(len(images), size, generator=generator).to(model.device)
        for size in model.settings.latents
    ]
    layers = model.infer(images, noise)
    return {
        f"z{i + 1}": principal_components(layer.z.double().cpu().numpy())
        for i, layer in enumerate(layers)
    }


def principal_components(points: np.ndarray) -> np.ndarray:
    """Return the first two principal components (N, 2) of points (N, d), padded with zeros."""
    centred = points - points.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    components = centred @ directions[:2].T
    return np.pad(components, ((0, 0), (0, 2 - components.shape[1])))


def copy_deepest(runs: Mapping[str, Path], stem: Path) -> None:
    """Copy the figures of the deepest model of each family to NAME-FAMILY-FIGURE.png."""
    for family, start in FAMILIES.items():
        depths = {
            int(match[1]): folder
            for variant, folder in runs.items()
            if (match := re.fullmatch(rf"{re.escape(start)} (\d+)", variant))
        }
        if not depths:
            continue
        for name in DRAWN:
            source = depths[max(depths)] / "figures" / f"{name}.png"
            if source.is_file():
                shutil.copyfile(source, stem.with_name(f"{stem.name}-{family}-{name}.png"))
