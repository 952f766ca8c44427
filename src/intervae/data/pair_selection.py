"""Selections among pairs of images: by draws per step, by action, by visible difference."""

from __future__ import annotations

import numpy as np
import torch

from intervae.data.dataset import CHUNK, Split


def draw_pairs(
    before: np.ndarray, after: np.ndarray, step: np.ndarray, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (P,) that `draws` draws with replacement from each step (P,) select."""
    order = np.argsort(step, kind="stable")
    counts = np.bincount(step)
    start = np.cumsum(counts) - counts
    chosen = [
        first + np.unique(rng.integers(count, size=draws))
        for first, count in zip(start, counts, strict=True)
        if count
    ]
    rows = order[np.concatenate(chosen)]
    return before[rows], after[rows]


def balance_actions(
    rows: np.ndarray, action: np.ndarray, actions: int, rng: np.random.Generator
) -> np.ndarray:
    """Return as many random rows of every action as the rarest action has, sorted."""
    shuffled = rng.permutation(rows)
    order = shuffled[np.argsort(action[shuffled], kind="stable")]
    counts = np.bincount(action[order], minlength=actions)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < counts.min()])


def images_differ(split: Split, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return (P,) whether the images of the rows before (P,) and after (P,) differ."""
    chunks = torch.from_numpy(np.stack([before, after])).split(CHUNK, dim=1)
    differ = [
        (split[first].images != split[second].images).flatten(1).any(1).cpu().numpy()
        for first, second in chunks
    ]
    return np.concatenate(differ) if differ else np.zeros(0, bool)
