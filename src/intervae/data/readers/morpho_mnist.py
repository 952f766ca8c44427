"""MorphoMNIST of DeepSCM (Pawlowski et al. 2020), made of the files of MNIST."""

from __future__ import annotations

import numpy as np

from intervae.data.dataset import Dataset
from intervae.data.readers.mnist import SIDE, read_part
from intervae.data.simulators.morpho_mnist import MorphoMnist


def morpho_mnist(
    *,
    size: int = SIDE,
    samples: int | None = None,
    slant: bool = False,
    validation: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Set thickness and intensity of every MNIST digit; the test split is that of MNIST.

    Arguments:
        size: side of the square images, 28, or more for a black border.
        samples: number of digits, drawn at random; default all 70,000, which are made once.
        slant: add the slant as a variable.
        validation, seed: fraction of the training images for validation, drawn at random.
    """
    train_images, train_digits = read_part("train")
    test_images, test_digits = read_part("t10k")
    images = np.concatenate([train_images, test_images])
    simulator = MorphoMnist(
        images,
        np.concatenate([train_digits, test_digits]),
        np.arange(len(images)) >= len(train_images),
        slant=slant,
    )
    return simulator.dataset(size=size, samples=samples, validation=validation, seed=seed)
