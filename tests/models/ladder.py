"""Small Ladder VAEs with weights far from their start, and what the tests hand to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.base import Batch, Dataset, Variable, build_dataset
from intervae.models import LadderVAE
from intervae.nets.norm import BatchNorm

SMALL: dict[str, Any] = {"latents": (4, 3, 2), "widths": (16, 12, 8), "warm_up": 0, "epochs": 2, "batch_size": 16}
END = torch.tensor(math.inf)  # the step at which every schedule is over


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(data: Dataset, *, scramble: float = 0.3, **settings: Any) -> LadderVAE:
    """A model in eval mode whose weights and kept statistics are far from their simple start: variances that differ, layers that talk."""
    model, generator = LadderVAE(data.spec, **{**SMALL, **settings}), seeded(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += scramble * torch.randn(parameter.shape, generator=generator)
        for part in model.modules():
            if isinstance(part, BatchNorm):
                part.mean += scramble * torch.randn(part.mean.shape, generator=generator)
                part.variance += torch.rand(part.variance.shape, generator=generator)
    return model


def grey(data: Dataset, n: int) -> Tensor:
    return data.train.images[:n].float() / 255


def noises(model: LadderVAE, n: int, seed: int = 0) -> list[Tensor]:
    return [torch.randn(n, size, generator=seeded(seed + i)) for i, size in enumerate(model.settings.latents)]


def batch_of(data: Dataset, n: int, step: Tensor = END) -> Batch:
    return {**data.train.batch(torch.arange(n)), "step": step}


def pictures(images: np.ndarray) -> Dataset:
    """A data set of (N, C, H, W) uint8 pictures, the last fifth for validation and test."""
    n = len(images)
    validation, test = (np.arange(n) >= 0.8 * n) & (np.arange(n) < 0.9 * n), np.arange(n) >= 0.9 * n
    return build_dataset("made", images, np.arange(n, dtype=float)[:, None], [Variable("a")], validation=validation, test=test)
