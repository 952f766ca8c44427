"""Options of stacks of runs, and comparisons of runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

SEEDS = [3, 0, 7]


def lines(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in history]


def difference(one: Any, other: Any) -> float:
    """Return the largest relative difference of the tensors of two models."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(
        float((a.double() - b.double()).norm() / (a.double().norm() + 1e-6)) for a, b in pairs
    )


def same_weights(one: Any, other: Any) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def stacked(notes: list[str] | None = None, **options: Any) -> dict[str, Any]:
    """Return options of a stack that must not fall back, or whose notes go to `notes`."""
    notify = pytest.fail if notes is None else notes.append
    return {"device": "cpu", "stack": True, "notify": notify, "tensorboard": False, **options}
