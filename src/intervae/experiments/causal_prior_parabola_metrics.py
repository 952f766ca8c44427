"""Metrics of the causal-prior VAE on `parabola`: positions, noises, distance from the prior."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np
import torch

from intervae.causal.sem.equations import SEM
from intervae.data import Dataset
from intervae.experiments.base import Numbers
from intervae.metrics.energy_distance import energy_distance
from intervae.models.base import Model
from intervae.models.causal_prior.settings import CausalPriorVAESettings, allowed_edges

ACTIVE_VARIANCE = 0.01  # minimum variance of the posterior means of an active latent
DRAWS = 4000  # draws of a prior for energy distances
STEPS = 9  # images of a traversal


def parabola_prior(model: Model) -> SEM:
    """The SEM z1 = z0^2 + n1 over the latents of the model; the reference for all models."""
    defaults = CausalPriorVAESettings(latents=model.settings.latents)
    scales = [*defaults.scales, *[1.0] * defaults.latents][: defaults.latents]
    return SEM(
        allowed_edges(defaults.edges, model.latent_names),
        form=defaults.form,
        scales=scales,
        learn_scales=False,
        learn_edges=False,
    )


def latent_order(model: Model, data: Dataset, seed: int) -> list[int]:
    """Indices of the latents in the roles of z0 and z1, then of the others.

    For a prior with edges their own order. For an isotropic prior the order in which encoded
    training images are closest to draws of the SEM.
    """
    d = model.settings.latents
    if model.settings.edges:
        return list(range(d))
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.train), generator=generator)[:1000]
    encoded = model.draw_posterior(data.train.images[rows], seed).numpy()
    draws = parabola_prior(model).sample(1000, torch.Generator().manual_seed(seed)).numpy()
    orders = [
        [i, j, *(k for k in range(d) if k not in (i, j))] for i, j in permutations(range(d), 2)
    ]
    return min(orders, key=lambda order: energy_distance(encoded[:, order], draws).value)


def position_metrics(model: Model, data: Dataset, order: list[int]) -> Numbers:
    """R^2 of x and y with z0 and z1, from all latents, and of other active latents on (x, y)."""
    z = model.encode(data.test.images)[:, order, 0].numpy().astype(np.float64)
    position = data.test.labels.numpy()[:, :2].astype(np.float64)
    active = z.var(0) > ACTIVE_VARIANCE
    other_r2 = [explained(position, z[:, i]) for i in range(2, z.shape[1]) if active[i]]
    images = model.reconstruct(data.test.images)
    return {
        "r2_x": float(np.corrcoef(z[:, 0], position[:, 0])[0, 1] ** 2) if active[0] else 0.0,
        "r2_y": float(np.corrcoef(z[:, 1], position[:, 1])[0, 1] ** 2) if active[1] else 0.0,
        "r2_x_from_all": explained(z, position[:, 0]),
        "r2_y_from_all": explained(z, position[:, 1]),
        "other_r2": max(other_r2, default=0.0),
        "active_units": float(active.sum()),
        "correlation_z1_z0_squared": float(np.corrcoef(z[:, 1], z[:, 0] ** 2)[0, 1]),
        "reconstruction_mse": float((images - data.test.images.float() / 255).square().mean()),
    }


def explained(inputs: np.ndarray, target: np.ndarray) -> float:
    """R^2 of the linear regression of `target` (N,) on `inputs` (N, n)."""
    design = np.pad(inputs, ((0, 0), (0, 1)), constant_values=1.0)
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    return float(1 - residual.var() / target.var())


def distance_metrics(model: Model, data: Dataset, order: list[int], seed: int) -> Numbers:
    """Energy distances of posterior draws of test images from the SEM and the model's prior."""
    encoded = model.draw_posterior(data.test.images, seed).numpy()
    generator = torch.Generator().manual_seed(seed)
    reference = parabola_prior(model).sample(DRAWS, generator).numpy()
    prior = model.draw_latents(DRAWS, generator).numpy()
    return {
        "energy_distance": energy_distance(encoded[:, order], reference, seed=seed).value,
        "own_energy_distance": energy_distance(encoded, prior, seed=seed).value,
    }


def noise_metrics(model: Model, data: Dataset, order: list[int]) -> Numbers:
    """Squared correlations of n1 = z1 - z0^2 with the true noise y - x^2, and with the scale."""
    z = model.encode(data.test.images)[:, order[:2], 0].numpy().astype(np.float64)
    noise = z[:, 1] - (z[:, 0] ** 2 if model.edges.any() else 0.0)
    x, y, scale, _ = data.test.labels.numpy().astype(np.float64).T
    return {
        "noise_r2": float(np.corrcoef(noise, y - x**2)[0, 1] ** 2),
        "noise_scale_r2": float(np.corrcoef(noise, scale)[0, 1] ** 2),
    }


def figure_metrics(arrays: Mapping[str, np.ndarray]) -> Numbers:
    """How much other latents respond to the position, and whether traversals of n1 fade.

    `other_response` is the largest standard deviation of a map of z2, z3, ... over the positions
    that the data has, divided by that of z0; `brightness` is that of the dimmest image of the
    traversal of n1, divided by that of its middle.
    """
    spreads = np.nanstd(arrays["responses"], axis=(1, 2))
    brightness = arrays["traversals"][1].sum((1, 2, 3), dtype=np.float64)
    return {
        "other_response": float(spreads[2:].max() / spreads[0]),
        "brightness": float(brightness.min() / max(brightness[STEPS // 2], 1.0)),
    }
