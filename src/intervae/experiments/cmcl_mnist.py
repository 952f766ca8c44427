"""CMCL on rotated and shifted digits (Mao et al. 2022, sec. 4.2 and App. E.3, Figs. 4 and 6).

intervae reproduce cmcl-mnist [--only shift] [--quick]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from intervae import figures
from intervae.data import Dataset
from intervae.data.simulators.moved_digits import DIGITS, MovedDigits
from intervae.discovery.edge_directions import direction_margin
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.jobs import Train
from intervae.experiments.write import copy_pictures
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.models.heat_maps import link_column
from intervae.report import write_figures

VALUES = 10  # of do(), over the range of the column
SHUFFLES = 10  # of the rows of a latent, for the margin by chance


@dataclass(frozen=True)
class TrainOnMovedDigits(Train):
    """Train on moved digits, each seed with other images; score the edge and images under do()."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = replace(self, options={**self.options, "first": seed + 1, "seed": seed + 100}).load()
        model, seconds = self.train(data, seed, device, folder)
        write_figures(model, data, folder)
        draw_digits(model, data, folder / "figures" / "do.png")
        return {
            "train_seconds": seconds,
            **edge_numbers(model, data),
            **margin_numbers(model, data, seed),
            **movement_numbers(model, data),
        }


# ---- scores --------------------------------------------------------------------------------------
def edge_numbers(model: Model, data: Dataset) -> Numbers:
    """Number of latents that each column causes and is caused by.

    `edge_right` is 1 for a column that causes a latent and is caused by none.
    """
    numbers: Numbers = {}
    latents, graph = set(model.latent_names), model.graph
    for column in data.names:
        caused = len(latents & set(graph.children(column)))
        causing = len(latents & set(graph.parents(column)))
        counts = {
            "edge_right": float(caused > 0 and causing == 0),
            "latents_caused": float(caused),
            "latents_causing": float(causing),
        }
        numbers |= {MetricKey(name, column): value for name, value in counts.items()}
    return numbers


def margin_numbers(model: Model, data: Dataset, seed: int) -> Numbers:
    """Direction margin of the column and its latent on training rows, and with shuffled rows.

    The second is due to the density of the column alone: a uniform column looks like a cause.
    """
    simulator = _simulator(data)
    column = data.train.labels[:, data.names.index(simulator.column)].double().cpu().numpy()
    latent = _linked_latent(model, data, query_split(model, "encode", data.train)).double().numpy()
    rng = np.random.default_rng(seed)
    shuffled = [direction_margin(column, rng.permutation(latent)) for _ in range(SHUFFLES)]
    return {
        "direction_margin": direction_margin(column, latent),
        "direction_margin_shuffled": float(np.mean(shuffled)),
    }


def movement_numbers(model: Model, data: Dataset) -> Numbers:
    """Movement measured in test images under do(): rank correlation with the value, and error.

    `do_spearman` is over all images and values, `do_spearman_per_picture` the mean over images.
    Images without a measurable movement are left out and counted in `do_blank`. `truth_spearman`
    is the score of the simulator's own images.
    """
    simulator, rows = _simulator(data), data.test
    column, size = simulator.column, data.spec.image_shape[-1]
    values = np.linspace(*simulator.range, VALUES)
    shape, exogenous = rows.fields["latents"][:, 1].cpu(), rows.fields["exogenous"].cpu().numpy()
    measured, true = [], []
    for value in values:
        do = {column: float(value)}
        measured.append(simulator.measure(model.counterfactual(rows.images, do).cpu(), shape))
        true_images, _ = simulator.counterfactual(exogenous, do, size=size)
        true.append(simulator.measure(true_images, shape))
    movements = np.stack(measured)  # (values, N)
    valid = np.isfinite(movements)
    expected = np.broadcast_to(simulator.movement(values)[:, None], movements.shape)
    set_values = np.broadcast_to(values[:, None], movements.shape)
    per_image = [
        rank_correlation(values[ok], row[ok]) for row, ok in zip(movements.T, valid.T, strict=True)
    ]
    unchanged = simulator.measure(rows.images.cpu(), shape)
    reconstructed = model.reconstruct(rows.images).cpu()
    labels = rows.labels[:, data.names.index(column)].cpu().numpy()
    latent = _linked_latent(model, data, model.encode(rows.images)).cpu().numpy()
    return {
        "do_spearman": rank_correlation(set_values[valid], movements[valid]),
        "do_spearman_per_picture": float(np.mean(per_image)),
        "do_error": float(np.abs(movements - expected)[valid].mean()) if valid.any() else 0.0,
        "unchanged_error": float(np.nanmean(np.abs(unchanged - expected))),
        "truth_spearman": rank_correlation(set_values.ravel(), np.stack(true).ravel()),
        "do_blank": float((~valid).mean()),
        "latent_spearman": abs(rank_correlation(labels, latent)),
        "reconstruction_pixel_mae": float(
            (reconstructed - rows.images.cpu().float() / 255).abs().mean()
        ),
    }


def _simulator(data: Dataset) -> MovedDigits:
    assert isinstance(data.simulator, MovedDigits)
    return data.simulator


def _linked_latent(model: Model, data: Dataset, latents: Tensor) -> Tensor:
    """(N,) of latents (N, m, 1): the one linked to the column that moves the digits."""
    latent = link_column(model, data, _simulator(data).column).latent
    return latents[:, model.latent_names.index(latent), 0]


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman correlation; 0 where one of them is constant."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(scipy.stats.spearmanr(a, b).statistic)


# ---- figure --------------------------------------------------------------------------------------
def draw_digits(model: Model, data: Dataset, path: Path) -> None:
    """Draw a test image of each digit and the same under do() of ten values (Figs. 4 and 6)."""
    simulator = _simulator(data)
    values = np.linspace(*simulator.range, VALUES)
    digits = data.test.labels[:, data.names.index("digit")].cpu()
    rows = []
    for digit in range(DIGITS):
        indices = (digits == digit).nonzero()[:, 0]
        if not len(indices):
            continue
        image = data.test.images[indices[:1]]
        generated = [
            model.counterfactual(image, {simulator.column: float(v)}).cpu() for v in values
        ]
        clips = torch.cat([image.cpu().float() / 255, *generated])
        rows.append(figures.ClipRow(str(digit), clips, generated=VALUES))
    title = f"Each digit under do({simulator.column} = ...), inferred from its image alone"
    figures.clip_rows(path, rows, heads=["image", *(f"{v:.1f}" for v in values)], title=title)


# ---- experiment ----------------------------------------------------------------------------------
PICTURES = ("angle", "offset", "offset-bent")
SETTINGS: dict[str, Any] = {
    "latents": 2,  # one per column
    "network": "mlp",
    "contrast": False,  # no column is an effect
    "likelihood": "gaussian",
    "scale": 0.2,
    "annealing": 0.7,
    "rate_schedule": "cosine",
    "learning_rate": 2e-3,
    "epochs": 400,
}
_SHOWN = (
    "do_spearman",
    "do_spearman_per_picture",
    "truth_spearman",
    "do_error",
    "unchanged_error",
    "latent_spearman",
)
_MARGINS = ("direction_margin", "direction_margin_shuffled")
_DATA: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("mnist-rotation", "angle", {}),
    ("mnist-shift", "offset", {}),
    ("mnist-shift", "offset bent", {"law": "tanh"}),
)


def _jobs(
    options: dict[str, Any], settings: dict[str, Any], suffix: str = ""
) -> tuple[TrainOnMovedDigits, ...]:
    return tuple(
        TrainOnMovedDigits(data, "cmcl", {**options, **own}, settings, f"{column}{suffix}")
        for data, column, own in _DATA
    )


CMCL_MNIST = Experiment(
    "cmcl-mnist",
    "CMCL on rotated and shifted digits",
    (*_jobs({}, SETTINGS), *_jobs({}, {**SETTINGS, "latents": 10}, " with 10 latents")),
    seeds=5,
    shown=(
        "edge_right",
        "latents_caused",
        "latents_causing",
        *_MARGINS,
        *_SHOWN,
        "do_blank",
        "reconstruction_pixel_mae",
        "train_seconds",
    ),
    columns=(*_SHOWN, *_MARGINS),
    notes=("cmcl-mnist",),
    pictures=PICTURES,
    gather=partial(copy_pictures, "do.png", PICTURES),
    quick=_jobs({"size": 16, "samples": 200}, {**SETTINGS, "epochs": 2}),
)
