"""Experiment: the causal-prior VAE on ovals along a parabola (ICLR 2023 submission, sec. 5.1).

Beside isotropic priors and a control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.causal.sem.equations import SEM
from intervae.data import Dataset
from intervae.data.simulators.parabola import Parabola
from intervae.experiments.base import Experiment, Numbers
from intervae.experiments.jobs import Train
from intervae.metrics.energy_distance import energy_distance
from intervae.models.base import Model
from intervae.models.causal_prior.settings import CausalPriorVAESettings, allowed_edges

ACTIVE_VARIANCE = 0.01  # minimum variance of the posterior means of an active latent
DRAWS = 4000  # draws of a prior for energy distances
MAP_SIZE = 31  # positions along each axis of a response map
MAP_SCALES, MAP_ROTATIONS = 3, 8  # scales and rotations that a response map averages over
POINTS = 2000  # points of a scatter plot
STEPS, REACH = 9, 2.0  # images of a traversal, and its range in standard deviations
ARRAYS = "figures/arrays.npz"


@dataclass(frozen=True)
class ParabolaTraining(Train):
    """Train on ovals; compare latents with positions and with draws of the SEM.

    The arrays of the figures are stored in the run folder.

    Arguments:
        first_seed: training seed of seed 0 of the table. Seeds below 80 were inspected while the
            method was developed.
    """

    first_seed: int = 100

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed + self.first_seed, device, folder)
        model = model.to("cpu")
        order = latent_order(model, data, seed)
        numbers = {
            "train_seconds": seconds,
            **position_metrics(model, data, order),
            **distance_metrics(model, data, order, seed),
        }
        (folder / ARRAYS).parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = figure_arrays(model, data, order)
        np.savez_compressed(folder / ARRAYS, **arrays)
        return numbers


# ---- numbers -----------------------------------------------------------------------------------
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


# ---- figures -----------------------------------------------------------------------------------
def figure_arrays(model: Model, data: Dataset, order: list[int]) -> dict[str, np.ndarray]:
    """Arrays of Figs. 1 to 3: two latents and their prior, response maps, traversals of noises."""
    rows = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(0))[:POINTS]
    encoded = model.draw_posterior(data.test.images[rows], 0).numpy()[:, order[:2]]
    simulator, d = data.simulator, model.settings.latents
    assert isinstance(simulator, Parabola)
    axes = np.linspace(1.25, -0.25, MAP_SIZE), np.linspace(-1, 1, MAP_SIZE)
    y, x = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
    responses = []
    for scale in np.linspace(0.5, 1.0, MAP_SCALES):
        for rotation in np.arange(MAP_ROTATIONS) * np.pi / MAP_ROTATIONS:
            values = np.stack([x, y, np.full_like(x, scale), np.full_like(x, rotation)], axis=1)
            images = torch.from_numpy(simulator.render(values, size=model.spec.image_shape[-1]))
            responses.append(
                model.encode(images)[:, order, 0].numpy().T.reshape(d, MAP_SIZE, MAP_SIZE)
            )
    noises = torch.zeros(d * STEPS, d)
    for k, i in enumerate(order):
        noises[k * STEPS : (k + 1) * STEPS, i] = (
            torch.linspace(-REACH, REACH, STEPS) * model.noise_scales[i]
        )
    traversals = model.traverse(noises)
    return {
        "encoded": encoded.astype(np.float32),
        "prior": model.draw_latents(POINTS, torch.Generator().manual_seed(0))
        .numpy()[:, order[:2]]
        .astype(np.float32),
        "responses": np.mean(responses, axis=0).astype(np.float32),
        "traversals": (traversals * 255)
        .round()
        .byte()
        .numpy()
        .reshape(d, STEPS, *model.spec.image_shape),
    }


def draw_figures(folders: Mapping[str, Path], stem: Path) -> None:
    """Draw the three figures, with a panel or rows for each job with stored arrays."""
    arrays = {}
    for label, folder in folders.items():
        if (folder / ARRAYS).is_file():
            with np.load(folder / ARRAYS, allow_pickle=False) as stored:
                arrays[label] = dict(stored)
    if not arrays:
        return
    d = len(next(iter(arrays.values()))["responses"])
    panels = {label: (stored["prior"], stored["encoded"]) for label, stored in arrays.items()}
    figures.prior_and_posterior(
        stem.with_name(f"{stem.name}-latents.png"),
        panels,
        ("z0", "z1"),
        title="Prior and encoded images",
    )
    maps = {label: stored["responses"] for label, stored in arrays.items()}
    note = (
        "mean of each latent over scales and rotations, an oval at every position; "
        "the data is along a parabola"
    )
    figures.response_maps(
        stem.with_name(f"{stem.name}-responses.png"),
        maps,
        [f"z{i}" for i in range(d)],
        note=note,
        title="Response to positions",
    )
    rows = [
        figures.ClipRow(f"{label}, n{i}", stored["traversals"][i].astype(np.float32) / 255)
        for label, stored in arrays.items()
        for i in range(d)
    ]
    heads = [f"{value:+.1f}" for value in np.linspace(-REACH, REACH, STEPS)]
    title = "Traversals of each noise, in standard deviations"
    figures.clip_rows(
        stem.with_name(f"{stem.name}-traversals.png"), rows, heads=heads, pairs=d, title=title
    )


# ---- table -------------------------------------------------------------------------------------
def _jobs(
    options: dict[str, Any], settings: dict[str, Any], epochs: int, first_seed: int, control: bool
) -> tuple[ParabolaTraining, ...]:
    """Jobs of the causal prior, the control, and isotropic priors trained for `epochs`."""
    variants: dict[str, dict[str, Any]] = {"causal prior": {}}
    if control:
        variants["isotropic after alignment"] = {"isotropic": True}
    variants |= {
        f"isotropic, beta {beta:g}": {"edges": (), "beta": beta, "epochs": epochs}
        for beta in (1.0, 4.0)
    }
    return tuple(
        ParabolaTraining(
            "parabola",
            "causal-prior-vae",
            options,
            {**settings, **changes},
            variant,
            first_seed=first_seed,
        )
        for variant, changes in variants.items()
    )


_QUICK: dict[str, Any] = {
    "reconstruction_weight": 16.0,
    "restarts": 8,
    "first_epochs": 8,
    "finalists": 3,
    "trial_epochs": 6,
    "epochs": 16,
}
_COLUMNS = (
    "r2_x",
    "r2_y",
    "other_r2",
    "energy_distance",
    "own_energy_distance",
    "r2_x_from_all",
    "r2_y_from_all",
)

CAUSAL_PRIOR_PARABOLA = Experiment(
    "causal-prior-parabola",
    "The causal-prior VAE on ovals along a parabola",
    _jobs({}, {}, 36, 100, control=True),
    seeds=10,
    shown=(
        *_COLUMNS,
        "active_units",
        "correlation_z1_z0_squared",
        "reconstruction_mse",
        "train_seconds",
    ),
    columns=_COLUMNS,
    notes=("causal-prior-parabola",),
    pictures=("latents", "responses", "traversals"),
    gather=draw_figures,
    quick=_jobs({"size": 16, "samples": 20_000}, _QUICK, 24, 0, control=False),
)
