"""The beta-VAE metric on dSprites (Higgins et al. 2017, Table 1): how well a linear classifier tells which factor two pictures share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.data.readers.dsprites import DspritesGrid
from intervae.experiments.base import Experiment, Numbers, Train
from intervae.metrics import beta_vae_score_from_simulator, factor_vae_score_from_simulator
from intervae.models.base import Model

FACTORS = ("scale", "orientation", "position_x", "position_y")  # of the metric; the shape is drawn at random and not asked for
ENCODED_AT_ONCE = 8192
MOST_CODES = 64  # per picture; longer codes are not kept for the whole grid but computed when drawn


@dataclass(frozen=True)
class Score(Train):
    """Train a representation on dSprites and score it on the whole grid."""

    batch: int = 64  # pairs of a point
    points: tuple[int, int] = (10_000, 5_000)  # that train and test the classifier

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        grid = data.grid
        assert isinstance(grid, DspritesGrid)
        numbers: Numbers = {}
        if self.model == "ground-truth":
            codes: Any = grid.values(grid.classes(np.arange(len(grid))))[:, [grid.names.index(name) for name in FACTORS]]
            codes = codes / codes.std(0)
        else:
            model, seconds = self.train(data, seed, device, folder)
            numbers["train_seconds"] = seconds
            grid = grid.to(device)
            codes = encode_grid(model, grid) if len(model.latent_names) <= MOST_CODES else model
        shapes = np.random.default_rng([seed, 7])

        def rows(factors: np.ndarray) -> np.ndarray:
            """Rows of the grid with these classes of FACTORS (N, 4), and any shape."""
            classes = np.zeros((len(factors), len(grid.names)), np.int64)
            classes[:, grid.names.index("shape")] = shapes.integers(grid.factor_sizes[0], size=len(factors))
            classes[:, [grid.names.index(name) for name in FACTORS]] = factors
            return grid.rows(classes)

        def represent(chosen: np.ndarray) -> np.ndarray:
            return codes[chosen] if isinstance(codes, np.ndarray) else codes.encode(grid.images(grid.classes(chosen)))[..., 0].cpu().numpy()

        def draw(n: int, rng: np.random.Generator) -> np.ndarray:
            return rng.integers(0, [grid.factor_sizes[grid.names.index(name)] for name in FACTORS], (n, len(FACTORS)))

        training, test = self.points
        how: dict[str, Any] = {"batch": self.batch, "training": training, "test": test, "seed": seed, "names": FACTORS}
        for score in (beta_vae_score_from_simulator, factor_vae_score_from_simulator):
            found = score(represent, rows, draw, **how)
            numbers[found.metric] = found.value
            numbers |= {f"{found.metric}|{name}": value for name, value in found.per_variable.items()}
        return numbers


@torch.no_grad()
def encode_grid(model: Model, grid: DspritesGrid) -> np.ndarray:
    """The codes (N, n) of every picture of the grid, each the mean over a latent's dims."""
    parts = np.array_split(np.arange(len(grid)), -(-len(grid) // ENCODED_AT_ONCE))
    return np.concatenate([model.encode(grid.images(grid.classes(part))).mean(-1).cpu().numpy() for part in parts])


_FITTED: dict[str, Any] = {"latents": 10}
_TRAINED: dict[str, Any] = {"latents": 10, "network": "mlp-1200", "batch_size": 512, "epochs": 30, "learning_rate": 1e-3}
_CLAMPED: dict[str, Any] = {**_TRAINED, "pooled": False, "intrinsic": ("shape",), "batch_size": 500, "epochs": 15}
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

BETA_VAE_METRIC = Experiment(
    "betavae-metric",
    "The beta-VAE metric on dSprites",
    tuple(
        Score("dsprites", model, {}, settings, variant, {"beta_vae_score": score}, {"precision": "tf32"}) for model, settings, variant, score in _ROWS
    ),
    seeds=3,
    shown=("beta_vae_score", "factor_vae_score", "train_seconds"),
    notes="Accuracy of a logistic regression that is told the mean distance of the codes of 64 pairs, and says which of scale, orientation and "
    "the two positions the pairs share; 10,000 points train it and 5,000 test it, drawn from the whole grid of 737,280 pictures, shapes at "
    "random. Chance is 0.25. `factor_vae_score` is FactorVAE's metric on the same factors.",
    columns=("beta_vae_score", "factor_vae_score", "train_seconds"),
    figure=partial(figures.ranking, metric="beta_vae_score", chance=1 / len(FACTORS), title="The beta-VAE metric on dSprites"),
)
