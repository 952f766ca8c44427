"""Pictures that are equal to the last bit: a frame that comes twice, a shape turned by its own symmetry. What is known of one is known of all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from intervae.data.base import CHUNK, Dataset, Split
from intervae.data.images import progress
from intervae.errors import DataError


def picture_numbers(split: Split) -> np.ndarray:
    """(N,) uint64, the same number for equal pictures and, but for one chance in 2^64, no other."""
    found: list[bytes] = []
    chunks = torch.arange(len(split)).split(CHUNK)
    for rows in progress(chunks, len(chunks), "pictures compared"):
        pictures = split[rows].images.cpu().numpy()
        found += [hashlib.blake2b(picture.tobytes(), digest_size=8).digest() for picture in pictures]
    return np.frombuffer(b"".join(found), np.uint64)


def resplit(dataset: Dataset, rows: Sequence[np.ndarray]) -> Dataset:
    """The same pictures in other splits: rows of training, validation and test, among all in this order."""
    parts = (dataset.train, dataset.validation, dataset.test)
    whole = dataset.train.with_fields({name: torch.cat([part.fields[name] for part in parts]) for name in dataset.train.fields})
    train, validation, test = (whole[torch.from_numpy(chosen)] for chosen in rows)
    measured = tuple(v.measured_on(train.labels[:, i].double().numpy()) for i, v in enumerate(dataset.variables))
    return replace(dataset, train=train, validation=validation, test=test, variables=measured)


def keep_together(dataset: Dataset, seed: int) -> Dataset:
    """Put equal pictures that are in several splits into the one that a picture of them, drawn at random, is in."""
    parts = (dataset.train, dataset.validation, dataset.test)
    numbers = np.concatenate([picture_numbers(part) for part in parts])
    split = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    group = np.unique(numbers, return_inverse=True)[1]
    order = np.random.default_rng([seed, 3]).permutation(len(group))
    drawn = np.empty(group.max() + 1, np.int64)
    drawn[group[order]] = split[order]  # the last of each group in this order
    together = drawn[group]
    if np.array_equal(together, split):
        return dataset
    rows = [np.flatnonzero(together == number) for number in range(len(parts))]
    if not all(map(len, rows)):
        raise DataError(f"{dataset.name}: its pictures are so much alike that equal ones, kept together, leave a split empty; give other pictures.")
    return resplit(dataset, rows)
