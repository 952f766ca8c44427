"""Residual convolutional classifier of binary variables on images, for counterfactual metrics.

For pictures on which the kernel regressor of image_regressor.py is too weak, such as faces. All
variables are read by one network (He et al. 2016), trained on mirrored and shifted images. Both
classes of a variable have the same total weight: do(v = the other value) makes the rare class the
frequent one, and a classifier that hardly ever reads the rare one could not score it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.data import Variable
from intervae.errors import DataError
from intervae.metrics.axioms import f1_score
from intervae.metrics.base import Measurement
from intervae.metrics.image_similarity import as_float_images
from intervae.metrics.variable_regressor import VariableRegressor

EPOCHS = 40
BATCH = 128
WIDTHS = (32, 64, 128, 256)  # channels per stage; each stage halves the image
CELLS = 4  # per side, of the features that the last layer reads: attributes have a place
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.05
LARGEST_SHIFT = 1 / 16  # of an augmented image, in sides
IMAGES_AT_ONCE = 512  # for prediction


class AttributeClassifier(VariableRegressor):
    """A trained classifier; `classifier(images)` returns (N, n) of 0 and 1.

    Arguments:
        network: images (B, C, H, W) in [0, 1] to logits (B, n).
        training_images: number of images it was trained on.
    """

    def __init__(
        self, variables: Sequence[Variable], network: nn.Module, training_images: int
    ) -> None:
        self.variables, self.network = tuple(variables), network.eval()
        self._training_images = training_images

    @property
    def training_images(self) -> int:
        return self._training_images

    def __call__(self, images: Any) -> np.ndarray:
        return (self.logits(images) > 0).astype(np.float64)

    @torch.no_grad()
    def logits(self, images: Any) -> np.ndarray:
        """Return logits (N, n), the mean over each image and its mirror image."""
        floats = as_float_images(images)
        device = next(self.network.parameters()).device
        chunks = []
        for start in range(0, len(floats), IMAGES_AT_ONCE):
            x = torch.from_numpy(floats[start : start + IMAGES_AT_ONCE]).to(device)
            chunks.append((self.network(x) + self.network(x.flip(3))) / 2)
        return torch.cat(chunks).cpu().numpy()

    def quality(
        self, images: Any, labels: np.ndarray, *, name: str = "reader"
    ) -> list[Measurement]:
        """Return also `NAME_f1_min` of the value 1, and `NAME_balanced_accuracy_min`.

        Balanced accuracy is the mean over the classes of the fraction read correctly; variables
        with one value in `labels` have none.
        """
        predicted, truth = self(images), np.asarray(labels, dtype=np.float64)
        columns = {v.name: (predicted[:, i], truth[:, i]) for i, v in enumerate(self.variables)}
        f1 = {key: f1_score(values, true) for key, (values, true) in columns.items()}
        balanced = {
            key: float(np.mean([(values == c)[true == c].mean() for c in (0, 1)]))
            for key, (values, true) in columns.items()
            if np.ptp(true) > 0
        }
        return super().quality(images, labels, name=name) + [
            Measurement(
                f"{name}_{metric}_min",
                min(scores.values()),
                len(predicted),
                scores,
                parameters={"training_pictures": self.training_images},
                higher_is_better=True,
            )
            for metric, scores in (("f1", f1), ("balanced_accuracy", balanced))
            if scores
        ]


def fit_attribute_classifier(
    images: Any,
    labels: np.ndarray,
    variables: Sequence[Variable],
    *,
    device: str | torch.device = "cpu",
    epochs: int = EPOCHS,
    widths: Sequence[int] = WIDTHS,
    seed: int = 0,
) -> AttributeClassifier:
    """Train a classifier on images (N, C, H, W) and labels (N, n) of 0 and 1.

    Arguments:
        images: uint8 or floats in [0, 1].
        widths: channels per stage.
        seed: of initial weights, order and augmentation.
    """
    pixels = torch.from_numpy(as_float_images(images))
    table = _check_labels(labels, len(pixels), variables)
    generator = torch.Generator().manual_seed(seed)
    network = _build(pixels.shape[1], len(variables), widths)
    _initialise(network, generator)
    network.to(device).train()
    pixels, targets = pixels.to(device), torch.from_numpy(table).float().to(device)
    weights = _class_weights(targets)
    batch = min(BATCH, len(pixels))
    steps = epochs * (len(pixels) // batch)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps + 1)
    for _ in range(epochs):
        order = torch.randperm(len(pixels), generator=generator)
        for start in range(0, len(order) - batch + 1, batch):
            rows = order[start : start + batch].to(device)
            logits = network(augment(pixels[rows], generator))
            loss = functional.binary_cross_entropy_with_logits(
                logits, targets[rows], weights[0] + (weights[1] - weights[0]) * targets[rows]
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return AttributeClassifier(variables, network, len(pixels))


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images (B, C, H, W), half of them mirrored, each shifted by up to LARGEST_SHIFT."""
    count, _, height, width = images.shape
    flips = torch.rand(count, generator=generator) < 0.5
    largest = [max(int(side * LARGEST_SHIFT), 1) for side in (height, width)]
    shifts = [torch.randint(-m, m + 1, (count, 1), generator=generator) for m in largest]
    rows = (torch.arange(height) + shifts[0]).clamp(0, height - 1)  # (B, H), the edge repeated
    columns = (torch.arange(width) + shifts[1]).clamp(0, width - 1)
    columns = torch.where(flips[:, None], width - 1 - columns, columns)
    rows, columns = rows.to(images.device), columns.to(images.device)
    numbers = torch.arange(count, device=images.device)[:, None, None]
    moved = images.permute(0, 2, 3, 1)[numbers, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def _build(channels: int, outputs: int, widths: Sequence[int]) -> nn.Module:
    """Return a network of images (B, C, H, W) in [0, 1] to logits (B, outputs)."""
    inputs = (channels, *widths[:-1])
    blocks = [_Block(a, b, 2) for a, b in zip(inputs, widths, strict=True)]
    return nn.Sequential(
        nn.BatchNorm2d(channels),
        *blocks,
        nn.AdaptiveAvgPool2d(CELLS),
        nn.Flatten(),
        nn.Linear(widths[-1] * CELLS**2, outputs),
    )


def _initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights from `generator`, so that they do not depend on other runs."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01, generator=generator)
            nn.init.zeros_(module.bias)


def _class_weights(targets: Tensor) -> Tensor:
    """Return weights (2, n) with which both classes of each column have the same total."""
    share = targets.mean(0)
    weights = 0.5 / torch.stack([1 - share, share]).clamp_min(1 / len(targets))
    return torch.where((share > 0) & (share < 1), weights, 1.0)


def _check_labels(labels: np.ndarray, rows: int, variables: Sequence[Variable]) -> np.ndarray:
    table = np.asarray(labels, dtype=np.float64)
    if table.shape != (rows, len(variables)) or not np.isin(table, (0, 1)).all():
        raise DataError(
            f"labels must be 0 or 1 and ({rows}, {len(variables)}), one row per image and one "
            f"column per variable, not {table.shape} with other values or NaN."
        )
    return table
