"""Transitions (CT-VAE, Gendron et al. 2023, sec. 4): pairs of images that differ in one factor by
one step, and the action between them.

    data = load_data("cars3d", transitions=True)    # or with_transitions(dataset), for any grid
    data = load_data("cars3d", transitions={"cyclic": ["azimuth"], "draws": 1000})
    data.actions                      # ("car+1", "car-1", "azimuth+1", ...), also data.spec.actions
    pairs = data.transitions.train    # Transitions: before, after, action (T,) int64
    TransitionSplit(data.train, pairs)          # batches: images, after_images, action, ...
    TransitionSplit(Split(codes=codes), pairs)  # batches over cached codes: codes, after_codes, ...

Both images of a pair are in the same split. Each two images one step apart give two pairs, with
opposite actions. `Dataset.source` stores the options, so `reload` makes the same pairs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.dataset import Batch, Split
from intervae.errors import DataError, IntervaeError, UsageError, unknown


@dataclass(frozen=True)
class Transitions:
    """Pairs of rows of one split, and the action of each.

    Arguments:
        before, after: (T,) int64 rows of the split's images.
        action: (T,) int64 indices into `action_names`.
        factor_of_action: (A,) int64 indices into `factor_names`.
    """

    before: Tensor
    after: Tensor
    action: Tensor
    action_names: tuple[str, ...]
    factor_of_action: Tensor
    factor_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, rows: Any) -> Transitions:
        """Return the selected pairs (a slice, a list, a tensor)."""
        return replace(
            self, before=self.before[rows], after=self.after[rows], action=self.action[rows]
        )

    @property
    def counts(self) -> Tensor:
        """Number of pairs of each action, (A,)."""
        return torch.bincount(self.action, minlength=len(self.action_names))

    def to(self, device: torch.device | str) -> Transitions:
        names = ("before", "after", "action", "factor_of_action")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


@dataclass(frozen=True)
class DatasetTransitions:
    """The pairs of each split of a Dataset.

    Arguments:
        cyclic: factors whose largest value is followed by the smallest.
        unique: whether the images of a pair differ only in the action and in `ignored` columns.
        ignored: columns in which the images of a pair may differ.
    """

    train: Transitions
    validation: Transitions
    test: Transitions
    cyclic: tuple[str, ...] = ()
    unique: bool = True
    ignored: tuple[str, ...] = ()


class TransitionSplit(Split):
    """Pairs of a split's rows as samples.

    A batch holds the fields of the rows before, the same of the rows after as `after_...`, and
    `action`.

    Arguments:
        pool: images, or codes cached for each.
        transitions: pairs of its rows.
    """

    def __init__(self, pool: Split, transitions: Transitions) -> None:
        self.pool, self.fields, self.transitions = pool, pool.fields, transitions.to(pool.device)

    @property
    def images(self) -> Tensor:
        return self.pool.images

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pool.shape

    @property
    def streamed(self) -> bool:
        return self.pool.streamed

    def __len__(self) -> int:
        return len(self.transitions)

    def __getitem__(self, rows: Any) -> TransitionSplit:
        return TransitionSplit(self.pool, self.transitions[rows])

    def to(self, device: torch.device | str) -> TransitionSplit:
        return TransitionSplit(self.pool.to(device), self.transitions)

    def batch(self, rows: Tensor) -> Batch:
        pairs = self.transitions
        after = self.pool.batch(pairs.after.index_select(0, rows))
        return {
            **self.pool.batch(pairs.before.index_select(0, rows)),
            **{f"after_{name}": value for name, value in after.items()},
            "action": pairs.action.index_select(0, rows),
        }


def action_factors(actions: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """Return the factors of actions such as "azimuth+1", and the factor of each, (A,) int64."""
    if not all(name.endswith(("+1", "-1")) for name in actions):
        raise DataError(
            "actions must be called after their factor, such as azimuth+1 and azimuth-1, not "
            f"{', '.join(actions)}."
        )
    changed = [name[:-2] for name in actions]
    factors = tuple(dict.fromkeys(changed))
    return factors, torch.tensor([factors.index(name) for name in changed], dtype=torch.int64)


def action_number(
    actions: Sequence[str], action: Any, error: type[IntervaeError] = UsageError
) -> int:
    """Return the number of an action given by name or number."""
    if isinstance(action, str) and action in actions:
        return actions.index(action)
    is_number = isinstance(action, int | np.integer) and not isinstance(action, bool)
    if is_number and 0 <= action < len(actions):
        return int(action)
    raise unknown("action", action, actions, error)
