"""Figures of a run, as `train` and `reproduce` draw them at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.data import Dataset
from intervae.files import read_text
from intervae.models.base import Model
from intervae.models.batches import query_split, spread_rows
from intervae.models.capabilities import HasGraph

FIGURE_IMAGES = 8  # images, or frames of a clip, in a figure
FIGURE_CLIPS = 4


def write_figures(model: Model, data: Dataset, folder: Path) -> list[Path]:
    """Draw the figures common to all models and the model's own; return the paths written.

    Rows with missing labels are left out.
    """
    data = data.complete()
    out = folder / "figures"
    written = [_draw_reconstructions(model, data, out / "reconstructions.png")]
    log = read_log(folder / "metrics.jsonl")
    epochs = [line for line in log if "train" in line]
    if epochs:
        written.append(out / "training.png")
        figures.training_curves(written[-1], epochs)
    if isinstance(model, HasGraph):
        graph, truth = model.graph, None
        if data.graph is not None and data.graph.names == graph.names:
            truth = data.graph
        for suffix in ("png", "svg"):
            written.append(out / f"graph.{suffix}")
            undirected = model.undirected_edges
            figures.draw_graph(written[-1], graph, true_graph=truth, undirected=undirected)
        history = [np.array(line["adjacency"]) for line in log if "adjacency" in line]
        if history:
            written.append(out / "adjacency.png")
            figures.adjacency_history(written[-1], history, model.latent_names, true_graph=truth)
    for name, draw in model.figures(data).items():
        written.append(out / name)
        draw(written[-1])
    return written


def _draw_reconstructions(model: Model, data: Dataset, path: Path) -> Path:
    rows = data.test[spread_rows(len(data.test), FIGURE_IMAGES)]
    images, reconstructed = rows.images, query_split(model, "reconstruct", rows)
    columns = FIGURE_IMAGES
    if data.spec.frames is not None:
        images, reconstructed = clip_frames(images), clip_frames(reconstructed)
        columns = min(data.spec.frames, FIGURE_IMAGES)
    figures.reconstructions(path, images, reconstructed, columns=columns)
    return path


def clip_frames(clips: torch.Tensor) -> torch.Tensor:
    """Return frames of the first FIGURE_CLIPS clips (N, T, C, H, W) as images (n, C, H, W).

    At most FIGURE_IMAGES frames of each clip, evenly spaced from its first to its last.
    """
    frames = min(clips.shape[1], FIGURE_IMAGES)
    at = np.linspace(0, clips.shape[1] - 1, frames).round().astype(int)
    return clips[:FIGURE_CLIPS, at].flatten(0, 1)


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics.jsonl; none where there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in read_text(path).splitlines()]
