"""Duplicates: images that are equal to the last bit, and splits that keep them together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from intervae.data.dataset import CHUNK, Dataset, Split
from intervae.data.progress import progress
from intervae.errors import DataError


def image_hashes(split: Split) -> np.ndarray:
    """Return a 64-bit hash of each image, (N,) uint64."""
    hashes: list[bytes] = []
    chunks = torch.arange(len(split)).split(CHUNK)
    for rows in progress(chunks, len(chunks), "images compared"):
        images = split[rows].images.cpu().numpy()
        hashes += [hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in images]
    return np.frombuffer(b"".join(hashes), np.uint64)


def resplit(dataset: Dataset, rows: Sequence[np.ndarray]) -> Dataset:
    """Return the same images in other splits.

    Arguments:
        rows: of the training, validation and test split, among all images in this order.
    """
    splits = (dataset.train, dataset.validation, dataset.test)
    images = dataset.train.with_fields(
        {name: torch.cat([split.fields[name] for split in splits]) for name in dataset.train.fields}
    )
    train, validation, test = (images[torch.from_numpy(chosen)] for chosen in rows)
    variables = tuple(
        variable.with_scale_of(train.labels[:, i].double().numpy())
        for i, variable in enumerate(dataset.variables)
    )
    return replace(dataset, train=train, validation=validation, test=test, variables=variables)


def keep_duplicates_together(dataset: Dataset, seed: int) -> Dataset:
    """Return the data set with all duplicates of an image in the split of a random one of them."""
    splits = (dataset.train, dataset.validation, dataset.test)
    hashes = np.concatenate([image_hashes(split) for split in splits])
    old = np.repeat(np.arange(len(splits)), [len(split) for split in splits])  # (N,) split
    group = np.unique(hashes, return_inverse=True)[1]
    order = np.random.default_rng([seed, 3]).permutation(len(group))
    split_of_group = np.empty(group.max() + 1, np.int64)
    split_of_group[group[order]] = old[order]  # the last image of a group in this order decides
    new = split_of_group[group]
    if np.array_equal(new, old):
        return dataset
    rows = [np.flatnonzero(new == number) for number in range(len(splits))]
    if not all(map(len, rows)):
        raise DataError(
            f"{dataset.name}: so many images are equal that keeping equal ones together leaves a "
            "split empty; give other images."
        )
    return resplit(dataset, rows)
