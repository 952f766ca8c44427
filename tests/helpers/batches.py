"""Batches of training images for calls of loss()."""

import math

import torch
from torch import Tensor

from intervae.data import Dataset

END = torch.tensor(math.inf)  # a step after the end of every schedule


def batch_of(data: Dataset, n: int = 8, step: float | Tensor = 0.0) -> dict[str, Tensor]:
    """Return the first `n` training rows, at a training step."""
    return {**data.train.batch(torch.arange(n)), "step": torch.as_tensor(step)}


def late_batch(data: Dataset, n: int = 16, step: Tensor = END) -> dict[str, Tensor]:
    """Return `batch_of` after the end of every schedule."""
    return batch_of(data, n, step)
