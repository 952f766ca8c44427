"""Images and labels as arrays, shared by the tests of array files and of torch Datasets."""

from __future__ import annotations

import numpy as np

from intervae.data import Dataset

N = 24
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (N, 3, 6, 8)).astype(np.uint8)  # (N, C, H, W)
LABELS = np.stack([np.arange(N), np.arange(N) % 2, RNG.permutation(N) / 7], axis=1)
NAMES = np.array(["number", "odd", "x"])


def check_pixels(dataset: Dataset, expected: np.ndarray = PIXELS) -> None:
    """Check the image of each number, the first label, over all splits."""
    images = {
        int(row[0]): image.numpy()
        for split in dataset.splits.values()
        for image, row in zip(split.images, split.labels, strict=True)
    }
    assert sorted(images) == list(range(N))
    for i, image in images.items():
        np.testing.assert_array_equal(image, expected[i])
