"""The beta-VAE metric on dSprites (Higgins et al. 2017, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.data.readers.dsprites import RENDERED_AGAIN, DspritesGrid
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.jobs import Train
from intervae.metrics import beta_vae_score_from_simulator, factor_vae_score_from_simulator
from intervae.models.base import Model

# factors of the metric; shapes are random
FACTORS = ("scale", "orientation", "position_x", "position_y")
CHUNK = 8192  # images encoded at once
MAX_CODES = 64  # per image; longer codes are computed on demand instead of for the whole grid


@dataclass(frozen=True)
class DisentanglementJob(Train):
    """Train a representation on dSprites and score it on the whole grid."""

    batch: int = 64  # pairs per point
    points: tuple[int, int] = (10_000, 5_000)  # training and test points of the classifier

    @property
    def trains_stacks(self) -> bool:
        return self.model != "ground-truth"

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        grid = data.grid
        assert isinstance(grid, DspritesGrid)
        numbers: Numbers = {}
        if self.model == "ground-truth":
            codes: Any = grid.values(grid.classes(np.arange(len(grid))))[
                :, [grid.names.index(name) for name in FACTORS]
            ]
            codes = codes / codes.std(0)
        else:
            model, seconds = self.train(data, seed, device, folder)
            numbers["train_seconds"] = seconds
            grid = grid.to(device)
            codes = encode_grid(model, grid) if len(model.latent_names) <= MAX_CODES else model

        def represent(chosen: np.ndarray) -> np.ndarray:
            if isinstance(codes, np.ndarray):
                return codes[chosen]
            return codes.encode(grid.images(grid.classes(chosen)))[..., 0].cpu().numpy()

        simulator = GridSimulator(grid, seed)
        training, test = self.points
        options: dict[str, Any] = {
            "batch": self.batch,
            "training": training,
            "test": test,
            "seed": seed,
            "names": FACTORS,
        }
        for score in (beta_vae_score_from_simulator, factor_vae_score_from_simulator):
            measurement = score(represent, simulator.rows, simulator.draw, **options)
            numbers[measurement.metric] = measurement.value
            numbers |= {
                MetricKey(measurement.metric, name): value
                for name, value in measurement.per_variable.items()
            }
        return numbers


class GridSimulator:
    """Rows of the dSprites grid with given classes of some factors; the others are random.

    Arguments:
        factors: names of the factors that are given and drawn.
        shape: class of the shape where it is not among `factors`; None for random shapes.
        halved: whether only the lower half of the values of each factor is drawn.
    """

    def __init__(
        self,
        grid: DspritesGrid,
        seed: int,
        factors: Sequence[str] = FACTORS,
        *,
        shape: int | None = None,
        halved: bool = False,
    ) -> None:
        self.grid, self.shape = grid, shape
        self.columns = [grid.names.index(name) for name in factors]
        sizes = [grid.factor_sizes[column] for column in self.columns]
        self.limits = [-(-size // 2) for size in sizes] if halved else sizes
        self._shapes = np.random.default_rng([seed, 7])

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return classes of the factors (n, f), uniform and independent."""
        return rng.integers(0, self.limits, (n, len(self.columns)))

    def rows(self, factors: np.ndarray) -> np.ndarray:
        """Return rows of the grid (N,) with these classes of the factors (N, f)."""
        classes = np.zeros((len(factors), len(self.grid.names)), np.int64)
        classes[:, 0] = (
            self._shapes.integers(self.grid.factor_sizes[0], size=len(factors))
            if self.shape is None
            else self.shape
        )
        classes[:, self.columns] = factors
        return self.grid.rows(classes)


@torch.no_grad()
def encode_grid(model: Model, grid: DspritesGrid) -> np.ndarray:
    """Return the codes (N, n) of all images of the grid, averaged over the dims of each latent."""
    chunks = np.array_split(np.arange(len(grid)), -(-len(grid) // CHUNK))
    return np.concatenate(
        [model.encode(grid.images(grid.classes(rows))).mean(-1).cpu().numpy() for rows in chunks]
    )


_FITTED: dict[str, Any] = {"latents": 10}
_TRAINED: dict[str, Any] = {
    "latents": 10,
    "network": "mlp-1200",
    "batch_size": 512,
    "epochs": 30,
    "learning_rate": 1e-3,
}
_CLAMPED: dict[str, Any] = {
    **_TRAINED,
    "pooled": False,
    "intrinsic": ("shape",),
    "batch_size": 500,
    "epochs": 15,
}
_ADVERSARIAL: dict[str, Any] = {"categories": (3,), "continuous": 5, "batch_size": 256, "epochs": 4}
_ROWS: tuple[tuple[str, dict[str, Any], str, float], ...] = (
    ("ground-truth", {}, "", 1.0),
    ("raw-pixels", {}, "", 0.4575),
    ("pca", _FITTED, "", 0.849),
    ("ica", _FITTED, "", 0.4203),
    ("dc-ign", _CLAMPED, "", 0.993),
    ("info-gan", _ADVERSARIAL, "", 0.735),
    ("untrained-vae", {"latents": 10, "network": "mlp-1200"}, "", 0.4414),
    ("vae", _TRAINED, "", 0.6158),
    ("beta-vae", {**_TRAINED, "beta": 4.0}, "", 0.9923),
)
_QUICK: dict[str, Any] = {
    "latents": 10,
    "channels": (8, 16, 16, 16),
    "hidden": 64,
    "batch_size": 256,
    "epochs": 3,
    "learning_rate": 2e-3,
}
_QUICK_ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ground-truth", {}),
    ("pca", {**_FITTED, "fitted_on": 5000}),
    ("vae", _QUICK),
    ("beta-vae", {**_QUICK, "beta": 4.0}),
)

BETA_VAE_METRIC = Experiment(
    "betavae-metric",
    "The beta-VAE metric on dSprites",
    tuple(
        DisentanglementJob(
            "dsprites",
            model,
            {},
            settings,
            variant,
            {"beta_vae_score": score},
            {"precision": "tf32"},
            paper_differs=RENDERED_AGAIN,
        )
        for model, settings, variant, score in _ROWS
    ),
    seeds=3,
    shown=("beta_vae_score", "factor_vae_score", "train_seconds"),
    notes=("betavae-metric",),
    columns=("beta_vae_score", "factor_vae_score", "train_seconds"),
    figure=partial(
        figures.horizontal_bars,
        metric="beta_vae_score",
        chance=1 / len(FACTORS),
        title="The beta-VAE metric on dSprites",
    ),
    quick=tuple(
        DisentanglementJob("dsprites", model, {"file": "downsampled"}, settings, points=(1000, 500))
        for model, settings in _QUICK_ROWS
    ),
)
