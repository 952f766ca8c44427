"""Where actions lead to on a grid of pictures, and how far two pictures tell the action between them at all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intervae.data.base import Dataset
from intervae.data.transitions import SPLITS, Cells, action_number, factor_codes
from intervae.data.twins import picture_numbers
from intervae.errors import DataError


class Neighbours:
    """The pictures of a grid one step and more away, in whichever split they are: what repeated actions should lead to.

    Arguments:
        dataset: with transitions, and with one picture for each combination of factors.
    """

    def __init__(self, dataset: Dataset) -> None:
        if dataset.transitions is None:
            raise DataError(f"{dataset.name} has no transitions; load it with transitions=True (--data-option transitions=true).")
        self.dataset, self.pairs, self.cyclic = dataset, dataset.transitions.train, dataset.transitions.cyclic
        self.names, self.codes, self.part, self.row = factor_codes(dataset, dataset.transitions.ignored)
        self.cells = Cells(dataset, self.names, self.codes, self.part, True, np.random.default_rng(0))

    def after(self, split: str, rows: Tensor, action: str | int, times: int) -> Tensor:
        """(N, times): the pictures that repeating an action, by name or number, 1, 2, ... times leads to from the rows (N,) of a split; -1 for none.

        A picture is told by its number among all: those of the training split come first, then validation, then test; see `images`.
        """
        start, number = self.numbers(split, rows), action_number(self.dataset.actions, action)
        factor = self.names.index(self.pairs.factor_names[int(self.pairs.factor_of_action[number])])
        step, size, stride = 1 - 2 * (number % 2), self.cells.sizes[factor], self.cells.strides[factor]
        code = self.codes[start, factor][:, None] + step * np.arange(1, times + 1)  # (N, times)
        inside = (code >= 0) & (code < size)
        if self.names[factor] in self.cyclic:
            code, inside = code % size, np.ones_like(inside)
        wanted = self.cells.key[start, None] + (code - self.codes[start, factor][:, None]) * stride
        place = np.minimum(np.searchsorted(self.cells.sorted, wanted), len(self.cells.sorted) - 1)
        found = inside & (self.cells.sorted[place] == wanted)
        return torch.from_numpy(np.where(found, self.cells.order[place], -1))

    def numbers(self, split: str, rows: Tensor) -> np.ndarray:
        """The numbers among all pictures of the rows of a split."""
        return int((self.part < SPLITS.index(split)).sum()) + rows.cpu().numpy()

    def images(self, numbers: Tensor) -> Tensor:
        """(N,) numbers of pictures to the pictures (N, C, H, W) uint8."""
        out = torch.empty((len(numbers), *self.dataset.train.shape[1:]), dtype=torch.uint8)
        for number, split in enumerate(SPLITS):
            chosen = torch.from_numpy(self.part[numbers.numpy()] == number)
            if bool(chosen.any()):
                out[chosen] = getattr(self.dataset, split)[torch.from_numpy(self.row[numbers[chosen].numpy()])].images.cpu()
        return out


def best_guess(dataset: Dataset) -> float:
    """The accuracy of actions on the test pairs that no method can exceed on average, as some pairs look alike and have different actions.

    Of all pairs of the test split that show the same two pictures, the most frequent action is taken to be guessed. Equal pictures in other
    splits are not looked at: without `distinct` the number is too large.
    """
    near = Neighbours(dataset)
    pictures = np.unique(picture_numbers(dataset.test), return_inverse=True)[1]
    rows, first = torch.arange(len(dataset.test)), int((near.part < SPLITS.index("test")).sum())
    shown, actions = [], []
    for action in range(len(dataset.actions)):
        after = near.after("test", rows, action, 1)[:, 0].numpy() - first  # rows of the test split where they are 0 or more
        before = np.flatnonzero(after >= 0)
        shown.append(pictures[before] * len(pictures) + pictures[after[before]])
        actions.append(np.full(len(before), action))
    look, of = np.unique(np.concatenate(shown), return_inverse=True)
    counts = np.zeros((len(look), len(dataset.actions)))
    np.add.at(counts, (of, np.concatenate(actions)), 1)
    assert dataset.transitions is not None
    pairs = dataset.transitions.test
    asked = np.searchsorted(look, pictures[pairs.before.numpy()] * len(pictures) + pictures[pairs.after.numpy()])
    return float((counts.max(1) / counts.sum(1))[asked].mean())
