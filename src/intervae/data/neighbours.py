"""Images that actions lead to on a labelled grid, and the best attainable accuracy of actions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intervae.data.dataset import Dataset
from intervae.data.duplicates import image_hashes
from intervae.data.factor_grid import SPLITS, FactorGrid, factor_table
from intervae.data.transitions import action_number
from intervae.errors import DataError


class Neighbours:
    """Images of a grid one or more steps away, in any split.

    Images are numbered over all splits: training, then validation, then test.

    Arguments:
        dataset: with transitions, and with one image for each combination of factors.
    """

    def __init__(self, dataset: Dataset) -> None:
        if dataset.transitions is None:
            raise DataError(
                f"{dataset.name} has no transitions; load it with transitions=True "
                "(--data-option transitions=true)."
            )
        self.dataset, self.pairs = dataset, dataset.transitions.train
        self.cyclic = dataset.transitions.cyclic
        self.table = factor_table(dataset, dataset.transitions.ignored)
        self.names, self.codes = self.table.names, self.table.codes
        self.grid = FactorGrid(dataset, self.table, True, np.random.default_rng(0))

    def after(self, split: str, rows: Tensor, action: str | int, times: int) -> Tensor:
        """Return the images (N, times) that 1, 2, ..., `times` actions lead to; -1 for none.

        Arguments:
            rows: (N,) of the split.
            action: name or number.
        """
        start, number = self.numbers(split, rows), action_number(self.dataset.actions, action)
        factor = self.names.index(self.pairs.factor_names[int(self.pairs.factor_of_action[number])])
        grid, step = self.grid, 1 - 2 * (number % 2)
        current = self.codes[start, factor][:, None]
        code = current + step * np.arange(1, times + 1)  # (N, times)
        inside = (code >= 0) & (code < grid.sizes[factor])
        if self.names[factor] in self.cyclic:
            code, inside = code % grid.sizes[factor], np.ones_like(inside)
        keys = grid.key[start, None] + (code - current) * grid.strides[factor]
        index = np.minimum(np.searchsorted(grid.sorted, keys), len(grid.sorted) - 1)
        exists = inside & (grid.sorted[index] == keys)
        return torch.from_numpy(np.where(exists, grid.order[index], -1))

    def numbers(self, split: str, rows: Tensor) -> np.ndarray:
        """Return the numbers (N,) of rows (N,) of a split among all images."""
        return int((self.table.split < SPLITS.index(split)).sum()) + rows.cpu().numpy()

    def images(self, numbers: Tensor) -> Tensor:
        """Return the images (N, C, H, W) uint8 of numbers (N,)."""
        images = torch.empty((len(numbers), *self.dataset.train.shape[1:]), dtype=torch.uint8)
        for number, split in enumerate(SPLITS):
            chosen = torch.from_numpy(self.table.split[numbers.numpy()] == number)
            if bool(chosen.any()):
                rows = torch.from_numpy(self.table.row[numbers[chosen].numpy()])
                images[chosen] = getattr(self.dataset, split)[rows].images.cpu()
        return images


def action_ceiling(dataset: Dataset) -> float:
    """Return the accuracy of actions on the test pairs that no method exceeds on average.

    It is below 1 if pairs that look alike have different actions: the most frequent action of
    equal pairs is the best guess. Equal images in other splits are not considered, so use data
    with `distinct`.
    """
    neighbours = Neighbours(dataset)
    images = np.unique(image_hashes(dataset.test), return_inverse=True)[1]
    rows = torch.arange(len(dataset.test))
    first = int(neighbours.numbers("test", rows[:1])[0])
    keys, actions = [], []
    for action in range(len(dataset.actions)):
        after = neighbours.after("test", rows, action, 1)[:, 0].numpy() - first
        before = np.flatnonzero(after >= 0)  # the image after is in the test split
        keys.append(images[before] * len(images) + images[after[before]])
        actions.append(np.full(len(before), action))
    looks, index = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.zeros((len(looks), len(dataset.actions)))
    np.add.at(counts, (index, np.concatenate(actions)), 1)
    assert dataset.transitions is not None
    pairs = dataset.transitions.test
    look = images[pairs.before.numpy()] * len(images) + images[pairs.after.numpy()]
    return float((counts.max(1) / counts.sum(1))[np.searchsorted(looks, look)].mean())
