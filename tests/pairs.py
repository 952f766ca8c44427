"""Pairs of pictures with actions between them, for tests of models of transitions."""

from __future__ import annotations

from dataclasses import replace

import torch

from intervae.data.base import Dataset
from intervae.data.transitions import DatasetTransitions, Transitions


def random_pairs(data: Dataset, actions: tuple[str, ...] = ("a+1", "a-1", "b+1", "b-1")) -> Dataset:
    """The same data with pairs that mean nothing: every row and another one, and an action."""

    def pairs(rows: int) -> Transitions:
        before, names = torch.arange(rows), tuple(name[:-2] for name in actions[::2])
        return Transitions(before, before.roll(1), before % len(actions), actions, torch.arange(len(actions)) // 2, names)

    made = DatasetTransitions(*(pairs(len(split)) for split in (data.train, data.validation, data.test)))
    return replace(data, transitions=made, actions=actions)
