"""Figures of CT-VAE: each action repeated on one image (Fig. 5), masks and graphs (Fig. 6)."""

from __future__ import annotations

from pathlib import Path

import torch

from intervae import figures
from intervae.data import Dataset
from intervae.data.neighbours import Neighbours
from intervae.errors import DataError
from intervae.models.batches import spread_rows
from intervae.models.ct_vae.model import CTVAE

REPETITIONS = 6  # of each action
MECHANISM_IMAGES = 64  # over which masks and graphs are averaged
NEARLY_BEST = 0.85  # fraction of the best score that makes an image a candidate to start from
CANDIDATES = 512  # start images whose contrast is compared


def draw_actions(model: CTVAE, data: Dataset, path: Path) -> None:
    """Draw one test image under each action, done 1, 2, ... times."""
    rows = action_rows(model, data)
    heads = ["input", *(str(t) for t in range(1, max(len(row.clips) for row in rows)))]
    title = "A test image under each action, done 1, 2, ... times, as far as the data go"
    title += "; a pale frame is beyond the data" if any(row.beyond for row in rows) else ""
    figures.clip_rows(path, rows, heads=heads, title=title)


def draw_mechanisms(model: CTVAE, data: Dataset, path: Path) -> None:
    """Draw the changes, the intervention mask and the graph of each action."""
    images = data.test[spread_rows(len(data.test), MECHANISM_IMAGES)].images
    panels = []
    for action in model.spec.actions:
        result = model.action_mechanism(images, action)
        mask, changes = (
            values.unflatten(0, (model.settings.codebooks, *model.grid))
            for values in (result.mask, result.changes)
        )
        panels.append(figures.ActionPanel(action, result.edges, mask, changes))
    title = (
        "Changes: probability that a code changes; mask: that its parents are those of the "
        "action; graph: edges from codes before (columns) to codes after (rows). "
        f"White is 1; mean of {len(images)} test images"
    )
    figures.action_mechanisms(path, panels, title=title)


def action_rows(model: CTVAE, data: Dataset) -> list[figures.ClipRow]:
    """Return one row per action: a test image, then the action repeated within the data's grid.

    An action that the grid does not allow is done once.
    """
    row, steps = _start(data, model.spec.actions)
    start, rows = data.test[torch.tensor([row])].images, []
    for action, possible in zip(model.spec.actions, steps, strict=True):
        times = max(1, possible)
        frames = torch.cat(
            [start.cpu().float() / 255, model.act_repeatedly(start, action, times).cpu()[0]]
        )
        label = action if possible else f"{action}, beyond the data"
        rows.append(figures.ClipRow(label, frames, generated=times, beyond=times - possible))
    return rows


def _start(data: Dataset, actions: tuple[str, ...]) -> tuple[int, list[int]]:
    """Return the row of a test image and how often each action can be repeated from it.

    Rows score sum over actions and possible steps t of 1 / t; among those near the best score,
    the image of strongest contrast is chosen. Without a grid: a fixed row and REPETITIONS.
    """
    grid = _grid(data, actions)
    if grid is None:
        row = int(spread_rows(len(data.test), MECHANISM_IMAGES).median())
        return row, [REPETITIONS] * len(actions)
    rows = torch.arange(len(data.test))
    possible = torch.stack(
        [(grid.after("test", rows, a, REPETITIONS) >= 0).cumprod(1) for a in range(len(actions))],
        dim=1,
    )  # (N, actions, repetitions)
    score = (possible / torch.arange(1, REPETITIONS + 1)).sum((1, 2))
    candidates = (score >= NEARLY_BEST * score.max()).nonzero()[:CANDIDATES, 0]
    contrast = data.test[candidates].images.cpu().float().std((2, 3)).mean(1)
    row = int(candidates[contrast.argmax()])
    return row, possible[row].sum(1).tolist()


def _grid(data: Dataset, actions: tuple[str, ...]) -> Neighbours | None:
    """Return which image each action leads to; None if the labels do not determine it."""
    pairs = data.transitions
    if pairs is None or not pairs.unique or data.actions != actions:
        return None
    try:
        grid = Neighbours(data)
    except DataError:
        return None
    return grid if set(pairs.train.factor_names) <= set(grid.names) else None
