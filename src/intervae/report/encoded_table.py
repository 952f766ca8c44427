"""Rows of a data set as one table of latents and columns, the input of the report's statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from intervae.data import Dataset, Split
from intervae.models.base import Model
from intervae.models.batches import query_split

MAX_ROWS = 1000  # rows used for the report; more take longer and change little


@dataclass(frozen=True)
class EncodedTable:
    """Latents and columns of N rows, in the order of the model's graph."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: np.ndarray  # (N, p); latents inferred without labels where the encoder can
    without_labels: np.ndarray  # (N, p); latents inferred without the row's own labels
    with_labels: np.ndarray  # (N, p); latents inferred with the row's labels
    latents: int  # number of latents among the p names

    def column(self, name: str) -> np.ndarray:
        return self.values[:, self.names.index(name)]

    def kind(self, name: str) -> str:
        return self.kinds[self.names.index(name)]

    def is_latent(self, name: str) -> bool:
        return self.names.index(name) < self.latents


def encode_table(model: Model, data: Dataset, *, seed: int = 0) -> EncodedTable:
    """Encode at most MAX_ROWS rows of all splits with and without labels."""
    splits = sample_splits(data, MAX_ROWS, seed)
    labels = torch.cat([split.labels.cpu() for split in splits])

    def join_labels(latents: list[Tensor]) -> np.ndarray:
        return torch.cat([torch.cat(latents).cpu(), labels], dim=1).double().numpy()

    with_labels = join_labels([model.encode(s.images, s.labels)[..., 0] for s in splits])
    if model.needs_labels:
        values = with_labels
        without_labels = join_labels([_encode_with_swapped_labels(model, s, seed) for s in splits])
    else:
        encoded = [query_split(model, "encode", split)[..., 0] for split in splits]
        values = without_labels = join_labels(encoded)
    latents = len(model.latent_names)
    kinds = ("continuous",) * latents + tuple(v.kind for v in data.variables)
    return EncodedTable(model.node_names, kinds, values, without_labels, with_labels, latents)


def sample_splits(data: Dataset, max_rows: int, seed: int) -> list[Split]:
    """Sample about `max_rows` rows, from each split in proportion to its size."""
    splits = (data.train, data.validation, data.test)
    total = sum(map(len, splits))
    if total <= max_rows:
        return list(splits)
    rng = np.random.default_rng([seed, 11])
    sampled = []
    for split in splits:
        rows = rng.permutation(len(split))[: max(1, max_rows * len(split) // total)]
        sampled.append(split[torch.as_tensor(np.sort(rows))])
    return sampled


def _encode_with_swapped_labels(model: Model, split: Split, seed: int) -> Tensor:
    """Latents (N, m) of images given the labels of other images."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))
    labels = split.labels[order.to(split.labels.device)]
    return model.encode(split.images, labels)[..., 0].cpu()
