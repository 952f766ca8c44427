"""Small Ladder VAEs with perturbed weights, and their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data import Dataset, Variable, build_dataset
from intervae.models import LadderVAE
from intervae.nets.norm import BatchNorm

SMALL: dict[str, Any] = {
    "latents": (4, 3, 2),
    "widths": (16, 12, 8),
    "warm_up": 0,
    "epochs": 2,
    "batch_size": 16,
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(data: Dataset, *, scramble: float = 0.3, **settings: Any) -> LadderVAE:
    """Return a model in eval mode with perturbed weights and statistics."""
    model, generator = LadderVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scramble * torch.randn(parameter.shape, generator=generator)
        for layer in model.modules():
            if isinstance(layer, BatchNorm):
                layer.mean += scramble * torch.randn(layer.mean.shape, generator=generator)
                layer.variance += torch.rand(layer.variance.shape, generator=generator)
    return model


def grey(data: Dataset, n: int) -> Tensor:
    return data.train.images[:n].float() / 255


def noises(model: LadderVAE, n: int, seed: int = 0) -> list[Tensor]:
    return [
        torch.randn(n, size, generator=seeded(seed + i))
        for i, size in enumerate(model.settings.latents)
    ]


def image_dataset(images: np.ndarray) -> Dataset:
    """Return a data set of uint8 images (N, C, H, W), the last fifth for validation and test."""
    n = len(images)
    validation, test = (np.arange(n) >= 0.8 * n) & (np.arange(n) < 0.9 * n), np.arange(n) >= 0.9 * n
    return build_dataset(
        "made",
        images,
        np.arange(n, dtype=float)[:, None],
        [Variable("a")],
        validation=validation,
        test=test,
    )
