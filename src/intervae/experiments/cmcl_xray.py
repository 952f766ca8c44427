"""CMCL on chest X-rays (Mao et al. 2022, sec. 4.3, Fig. 5): edge, accuracy and heat maps.

intervae reproduce cmcl-xray [--only xray-like] [--quick]

The real images are read from the folder in INTERVAE_DATA.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from intervae import figures
from intervae.data import Dataset, Split
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.jobs import Train
from intervae.experiments.write import copy_pictures
from intervae.metrics import heat_map_energy, heat_map_iou
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.models.heat_maps import Link, encoder_blocks, heat_map, link_column
from intervae.report import write_figures

FIGURE_IMAGES = 8
REFERENCE_IMAGES = 256  # training images without the disease
ACCURACIES = ("accuracy", "balanced_accuracy", "auc")  # of one latent and of all
REFERENCE_BLOCK = -3  # of the encoder, for maps against a reference where there are no masks


@dataclass(frozen=True)
class TrainOnXRays(Train):
    """Train on X-rays, each seed with its own samples or held-out patients; score one column."""

    column: str = "disease"

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = replace(self, options={**self.options, "seed": seed}).load()
        model, seconds = self.train(data, seed, device, folder)
        write_figures(model, data, folder)
        edge = link_column(model, data, self.column)
        numbers = {
            "train_seconds": seconds,
            **direction_numbers(edge),
            **prediction_numbers(model, data, edge),
        }
        blocks = {"last block": -1, "reference": REFERENCE_BLOCK}
        if "mask" in data.test.fields:
            heat_numbers, blocks = heat_map_numbers(model, data, edge)
            numbers |= heat_numbers
        draw_heat_maps(model, data, edge, blocks["reference"], folder / "figures" / "ill.png")
        return numbers


# ---- scores --------------------------------------------------------------------------------------
def direction_numbers(edge: Link) -> Numbers:
    """Direction of the edge between the column and its latent; both 0 without an edge."""
    return {
        "column_causes": float(edge.edge == "column -> latent"),
        "latent_causes": float(edge.edge == "latent -> column"),
    }


def prediction_numbers(model: Model, data: Dataset, edge: Link) -> Numbers:
    """Logistic regressions of the column on its latent and on all latents, on test images."""
    from sklearn.linear_model import LogisticRegression

    column = data.names.index(edge.column)
    train, test = (
        query_split(model, "encode", split)[..., 0].numpy() for split in (data.train, data.test)
    )
    train_labels, test_labels = (
        split.labels[:, column].cpu().numpy() for split in (data.train, data.test)
    )
    majority, numbers = float(train_labels.mean() >= 0.5), Numbers()
    for name, latents in (
        ("link", [model.latent_names.index(edge.latent)]),
        ("all_latents", list(range(train.shape[1]))),
    ):
        mean, std = train[:, latents].mean(0), train[:, latents].std(0) + 1e-9
        regression = LogisticRegression(max_iter=1000)
        regression.fit((train[:, latents] - mean) / std, train_labels)
        probability = regression.predict_proba((test[:, latents] - mean) / std)[:, 1]
        scores = binary_scores(test_labels, probability, majority)
        numbers |= {key: scores[key] for key in ("majority_accuracy", "test_pictures")}
        numbers |= {f"{name}_{key}": scores[key] for key in ACCURACIES}
    return numbers


def binary_scores(labels: np.ndarray, probability: np.ndarray, majority: float) -> Numbers:
    """Scores of the predicted probabilities (N,) of 1, beside the more frequent answer."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    predicted, by_majority = probability > 0.5, float((labels == majority).mean())
    accuracy = float((predicted == labels).mean())
    return {
        "accuracy": accuracy,
        "above_majority": accuracy - by_majority,
        "majority_accuracy": by_majority,
        "balanced_accuracy": float(balanced_accuracy_score(labels, predicted)),
        "auc": float(roc_auc_score(labels, probability)),
        "test_pictures": float(len(labels)),
    }


def heat_map_numbers(model: Model, data: Dataset, edge: Link) -> tuple[Numbers, dict[str, int]]:
    """Heat inside the true masks of test images by kind of map, and the block of each kind.

    `last block`: Grad-CAM++ as in the paper. `best block`: Grad-CAM++ of the block that is best on
    validation images. `reference`: maps against training images in which the column is 0, of the
    block that is best on validation images.
    """
    reference = reference_images(data, edge)
    candidates = [-1 - k for k in range(len(encoder_blocks(model, data.test.images[:1])))]

    def best_block(reference: Tensor | None) -> int:
        energy = {
            block: _heat_map_scores(model, data.validation, edge, block, reference)[0]
            for block in candidates
        }
        return max(energy, key=lambda block: energy[block])

    blocks = {
        "last block": -1,
        "best block": best_block(None),
        "reference": best_block(reference),
    }
    numbers: Numbers = {}
    for kind, block in blocks.items():
        against = reference if kind == "reference" else None
        energy, iou = _heat_map_scores(model, data.test, edge, block, against)
        numbers[MetricKey("heat_map_energy", kind)] = energy
        numbers[MetricKey("heat_map_iou", kind)] = iou
        numbers[MetricKey("block", kind)] = float(block)
    index = model.latent_names.index(edge.latent)
    latent = query_split(model, "encode", data.test)[:, index, 0].numpy()
    opacity = data.test.fields["latents"][:, 0].cpu().numpy()
    correlation = abs(float(np.corrcoef(latent, opacity)[0, 1])) if latent.std() > 0 else 0.0
    numbers["mask_share"] = float(data.test.fields["mask"][_masked_rows(data.test)].float().mean())
    numbers["opacity_correlation"] = correlation
    return numbers, blocks


def reference_images(data: Dataset, edge: Link) -> Tensor:
    """Training images in which the column is 0."""
    is_zero = data.train.labels[:, data.names.index(edge.column)] == 0
    return data.train.images[is_zero.nonzero()[:REFERENCE_IMAGES, 0]]


def _masked_rows(split: Split) -> Tensor:
    return split.fields["mask"].flatten(1).any(1).nonzero()[:, 0]


def _heat_map_scores(
    model: Model, split: Split, edge: Link, block: int, reference: Tensor | None
) -> tuple[float, float]:
    """Energy inside the mask and IoU, over images with a mask."""
    rows = split[_masked_rows(split)]
    maps = heat_map(
        model, rows.images, edge.latent, sign=edge.sign, block=block, reference=reference
    ).numpy()
    masks = rows.fields["mask"].cpu().numpy()
    return heat_map_energy(maps, masks).value, heat_map_iou(maps, masks).value


# ---- figure --------------------------------------------------------------------------------------
def draw_heat_maps(model: Model, data: Dataset, edge: Link, block: int, path: Path) -> None:
    """Draw heat maps of test images in which the column is 1 (Fig. 5), of both kinds."""
    is_one = data.test.labels[:, data.names.index(edge.column)] == 1
    rows = data.test[is_one.nonzero()[:FIGURE_IMAGES, 0]]
    images, masks = rows.images, None
    if "mask" in rows.fields:
        masks = rows.fields["mask"].cpu().bool()
    label = f"{edge.text}, map of {'-' if edge.sign < 0 else ''}{edge.latent}"
    grad_cam = heat_map(model, images, edge.latent, sign=edge.sign)
    reference = reference_images(data, edge)
    against = heat_map(model, images, edge.latent, sign=edge.sign, block=block, reference=reference)
    figures.heat_maps(
        path,
        [
            figures.HeatMapRow(f"{label}: Grad-CAM++", images, grad_cam, masks),
            figures.HeatMapRow(
                f"{label}: against images without {edge.column}", images, against, masks
            ),
        ],
        title=f"Test images with {edge.column}",
    )


# ---- experiment ----------------------------------------------------------------------------------
SETTINGS: dict[str, Any] = {
    "latents": 10,
    "network": "pairs",
    "channels": (16, 32, 64),
    "contrast": False,  # edges have one direction only
    "likelihood": "gaussian",
    "scale": 0.2,
    "annealing": 0.7,
    "rate_schedule": "cosine",
    "learning_rate": 2e-3,
    "epochs": 100,
}
_COLUMNS = (
    "column_causes",
    "latent_causes",
    "link_accuracy",
    "majority_accuracy",
    "link_balanced_accuracy",
    "link_auc",
    "mask_share",
)
_REST = (
    "heat_map_energy",
    "heat_map_iou",
    "block",
    "opacity_correlation",
    "all_latents_accuracy",
    "all_latents_balanced_accuracy",
    "all_latents_auc",
    "test_pictures",
    "train_seconds",
)
PICTURES = ("causal", "anti-causal")  # on the page; patients' images have licences of their own
_SIMULATED = tuple((direction, {"direction": direction}) for direction in PICTURES)

CMCL_XRAY = Experiment(
    "cmcl-xray",
    "CMCL on chest X-rays, and on drawings with known masks",
    (
        *(
            TrainOnXRays("xray-like", "cmcl", options, SETTINGS, variant)
            for variant, options in _SIMULATED
        ),
        TrainOnXRays(
            "covid-cxr", "cmcl", {"size": 64}, {**SETTINGS, "epochs": 300}, "covid", column="covid"
        ),
    ),
    seeds=5,
    shown=(*_COLUMNS, *_REST),
    columns=_COLUMNS,
    notes=("cmcl-xray",),
    pictures=PICTURES,
    gather=partial(copy_pictures, "ill.png", PICTURES),
    quick=(
        TrainOnXRays(
            "xray-like",
            "cmcl",
            {"size": 16, "samples": 120},
            {**SETTINGS, "channels": (4, 8), "epochs": 2},
            "causal",
        ),
    ),
)
