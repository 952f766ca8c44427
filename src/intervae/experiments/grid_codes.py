"""Codes of all images of the dSprites grid, as means or samples of the posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from intervae.data.readers.dsprites import DspritesGrid
from intervae.experiments.betavae import CHUNK, FACTORS, MAX_CODES, encode_grid
from intervae.models.base import Model
from intervae.models.vae import VAE


class GridCodes:
    """Codes of the images of the grid.

    Arguments:
        model: the representation; without one, codes are the factors of FACTORS, standardised.
    """

    def __init__(self, grid: DspritesGrid, seed: int, model: Model | None = None) -> None:
        self.grid, self.model = grid, model
        self.own_scale: Any = 1.0 if model is None else own_scale(model)
        self._noise = np.random.default_rng([seed, 8])
        self._means: np.ndarray | None = None
        if model is None:
            columns = [grid.names.index(name) for name in FACTORS]
            values = grid.values(grid.classes(np.arange(len(grid))))[:, columns]
            self._means = values / values.std(0)
        elif len(model.latent_names) <= MAX_CODES:
            self._means = encode_grid(model, grid)
        self._deviations: np.ndarray | None = None

    def represent(self, rows: np.ndarray) -> np.ndarray:
        """Return the codes (N, n) of rows of the grid."""
        if self._means is not None:
            return self._means[rows]
        assert self.model is not None
        images = self.grid.images(self.grid.classes(rows))
        return self.model.encode(images)[..., 0].cpu().numpy()

    def draw(self, rows: np.ndarray) -> np.ndarray:
        """Return samples (N, n) of the posterior of a VAE."""
        if self._deviations is None:
            assert isinstance(self.model, VAE)
            self._deviations = posterior_deviations(self.model, self.grid)
        means = self.represent(rows)
        return means + self._deviations[rows] * self._noise.standard_normal(means.shape)


@torch.no_grad()
def posterior_deviations(model: VAE, grid: DspritesGrid) -> np.ndarray:
    """Return the posterior standard deviations (N, n) of all images of the grid."""
    chunks = np.array_split(np.arange(len(grid)), -(-len(grid) // CHUNK))
    log_variances = [
        model.posterior(model.as_images(grid.images(grid.classes(rows))))[1].mean(-1).cpu().numpy()
        for rows in chunks
    ]
    return np.exp(0.5 * np.concatenate(log_variances))


def own_scale(model: Model) -> Any:
    """Return the factor of each code from unit variance to the scale of usual programs, (n,).

    PCA: coordinates along orthonormal components. ICA: sources of unit norm over the images fitted
    on, as scikit-learn had them by default until version 1.2. Others have their own scale already.
    """
    if model.name == "pca":
        return model.get_parameter("decoding").norm(dim=1).cpu().numpy()
    return model.settings.fitted_on**-0.5 if model.name == "ica" else 1.0
