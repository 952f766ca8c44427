"""A labelled grid of images: the values of factors as whole numbers, and images one step apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from intervae.data.dataset import Dataset
from intervae.data.missing_labels import missing_labels_error
from intervae.data.options import as_data_option
from intervae.data.transition_notes import PAIR_DUPLICATES, format_factors
from intervae.errors import DataError, UsageError

SPLITS = ("train", "validation", "test")
LARGEST_KEY = 2**62
SMALLEST_CYCLE = 3  # values; with two, the steps up and down would be the same


class FactorTable(NamedTuple):
    """Factors of the N images of all splits, as whole numbers."""

    names: tuple[str, ...]  # (F) factors
    codes: np.ndarray  # (N, F) rank of each value among the values of its factor
    split: np.ndarray  # (N,) index into SPLITS
    row: np.ndarray  # (N,) row within the split


def factor_values(dataset: Dataset) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names (F) and values (N, F) of the factors: a simulator's noises, or the labels."""
    splits = (dataset.train, dataset.validation, dataset.test)
    names, field = dataset.names, "labels"
    if dataset.simulator is not None and all("exogenous" in split.fields for split in splits):
        names, field = dataset.simulator.exogenous_names, "exogenous"
    if not names:
        raise DataError(
            f"{dataset.name} has no labels, which transitions need to find images one step apart."
        )
    values = torch.cat([split.fields[field] for split in splits]).cpu().numpy()
    if np.isnan(values).any():
        raise missing_labels_error(dataset, "transitions take no missing labels")
    return tuple(names), values


def factor_table(dataset: Dataset, ignored: Sequence[str] = ()) -> FactorTable:
    """Return the factors of all images, without the ignored columns."""
    all_names, values = factor_values(dataset)
    names = tuple(name for name in all_names if name not in ignored)
    if not names:
        raise UsageError(
            f"{dataset.name}: ignore= leaves no factor; known: {', '.join(all_names)}."
        )
    columns = [
        np.unique(values[:, all_names.index(name)], return_inverse=True)[1].reshape(-1)
        for name in names
    ]
    _check_few_values(dataset.name, names, [int(codes.max()) + 1 for codes in columns], len(values))
    lengths = [len(getattr(dataset, split)) for split in SPLITS]
    return FactorTable(
        names,
        np.stack(columns, axis=1),
        np.repeat(np.arange(len(SPLITS)), lengths),
        np.concatenate([np.arange(length) for length in lengths]),
    )


def _check_few_values(data: str, names: Sequence[str], sizes: Sequence[int], images: int) -> None:
    """Raise a DataError for factors that have a value of their own for most images."""
    many = [name for name, size in zip(names, sizes, strict=True) if size > max(images // 2, 2)]
    if not many:
        return
    problem = f"{data}: {many[0]!r} has {sizes[names.index(many[0])]} different values in "
    problem += f"{images} images"
    if len(many) == len(names):
        others = "is the only factor" if len(names) == 1 else "no other factor has few values"
        raise DataError(
            f"{problem} and {others}, so no two images are one step apart; transitions need two "
            f"or more factors with few values each, or round it and pass {PAIR_DUPLICATES}."
        )
    columns = ",".join(many)
    raise DataError(
        f"{problem}, so it has no steps; transitions need factors with few values: round it, or "
        f"pass ignore={columns!r} {as_data_option(f'ignore={columns}')} if the images of a pair "
        f"may differ in {'it' if len(many) == 1 else 'these'}."
    )


class FactorGrid:
    """Images indexed by their combination of factors.

    Each combination is one whole number, its key, whose digits in a mixed radix are the factors.

    Arguments:
        unique: whether every combination has one image; if not, partners are drawn by `rng` from
            the same split.
    """

    def __init__(
        self, dataset: Dataset, table: FactorTable, unique: bool, rng: np.random.Generator
    ) -> None:
        self.dataset_name, self.names, self.codes = dataset.name, table.names, table.codes
        self.unique, self.rng = unique, rng
        self.sizes = [int(size) for size in table.codes.max(axis=0) + 1]
        if len(SPLITS) * math.prod(self.sizes) > LARGEST_KEY:
            raise DataError(
                f"{dataset.name}: {len(self.names)} factors have more combinations than a 64-bit "
                "number can count; choose fewer variables."
            )
        products = accumulate(reversed(self.sizes[1:]), lambda a, b: a * b, initial=1)
        self.strides = list(products)[::-1]
        self.key = table.codes @ np.array(self.strides)
        if not unique:
            self.key = self.key + table.split * math.prod(self.sizes)
        self.order = np.argsort(self.key, kind="stable")
        self.sorted = self.key[self.order]
        if unique:
            self._check_unique(dataset)

    def _check_unique(self, dataset: Dataset) -> None:
        repeated = np.flatnonzero(self.sorted[1:] == self.sorted[:-1])
        if not len(repeated):
            return
        all_names, values = factor_values(dataset)
        first = values[self.order[repeated[0]]]
        label = format_factors(
            dataset, {name: float(first[all_names.index(name)]) for name in self.names}
        )
        raise DataError(
            f"{dataset.name}: two images have the same factors ({label}), so a pair may differ in "
            "more than these; add a column for the missing factor, or, to pair images that agree "
            f"in all other factors, pass {PAIR_DUPLICATES}."
        )

    def steps(self, factor: int, cyclic: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return images (P,) and images (P,) one step up in the factor, as rows of the table."""
        size, stride = self.sizes[factor], self.strides[factor]
        if cyclic and size < SMALLEST_CYCLE:
            raise UsageError(
                f"cyclic={self.names[factor]!r}: it has {size} values; a cycle needs "
                f"{SMALLEST_CYCLE} or more."
            )
        code, rows = self.codes[:, factor], np.arange(len(self.key))
        up = np.where(code < size - 1, stride, -(size - 1) * stride)
        lower = rows if cyclic else rows[code < size - 1]
        start, end = self._partners(lower, self.key[lower] + up[lower])
        if self.unique:
            return start, end
        # also from every image down, so that the rarer value does not limit the number of pairs
        down = np.where(code > 0, -stride, (size - 1) * stride)
        upper = rows if cyclic else rows[code > 0]
        upper_end, upper_start = self._partners(upper, self.key[upper] + down[upper])
        starts, ends = np.concatenate([start, upper_start]), np.concatenate([end, upper_end])
        pairs = np.unique(np.stack([starts, ends], axis=1), axis=0)
        return pairs[:, 0], pairs[:, 1]

    def _partners(self, rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows (n,) that have a partner with their key (n,), and the partners."""
        left = np.searchsorted(self.sorted, keys)
        exists = self.sorted[np.minimum(left, len(self.sorted) - 1)] == keys
        rows, left = rows[exists], left[exists]
        if not self.unique:
            right = np.searchsorted(self.sorted, keys[exists], side="right")
            left = left + self.rng.integers(right - left)
        return rows, self.order[left]
