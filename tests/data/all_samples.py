"""All samples of a data set, whatever their split."""

from __future__ import annotations

import numpy as np
import torch

from intervae.data import Dataset


def all_samples(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of all splits, one split after the other."""
    splits = dataset.splits.values()
    images = torch.cat([split.images for split in splits]).numpy()
    return images, torch.cat([split.labels for split in splits]).numpy()
