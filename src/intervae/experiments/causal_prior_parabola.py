"""The causal-prior VAE on ovals along a parabola (ICLR 2023 submission, sec. 5.1), beside isotropic priors and a control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.causal.sem import SEM
from intervae.data.base import Dataset
from intervae.data.simulators.parabola import Parabola
from intervae.experiments.base import Experiment, Numbers, Train
from intervae.metrics.energy import energy_distance
from intervae.models.causal_prior_vae import CausalPriorVAE, CausalPriorVAESettings, allowed_edges

ACTIVE_VARIANCE = 0.01  # of a latent's means over test pictures, above which it is active
DRAWS = 4000  # of a prior
MAP, SHOWN_SCALES, SHOWN_ROTATIONS, SHOWN_POINTS = 31, 3, 8, 2000
STEPS, REACH = 9, 2.0  # pictures of a traversal, and how many standard deviations it goes either way
ARRAYS = "figures/arrays.npz"


@dataclass(frozen=True)
class Ovals(Train):
    """Train on the ovals; compare latents with places and with draws of the SEM, and keep what the pictures are drawn from."""

    first_seed: int = 100  # seeds 0, 1, ... of the table are first_seed, ...: others were looked at while the recipe was found

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed + self.first_seed, device, folder)
        assert isinstance(model, CausalPriorVAE)
        model = model.to("cpu")
        order = latent_order(model, data, seed)
        numbers = {"train_seconds": seconds, **places(model, data, order), **distances(model, data, order, seed)}
        (folder / ARRAYS).parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / ARRAYS, **arrays(model, data, order))  # type: ignore[arg-type]
        return numbers


# ---- numbers --------------------------------------------------------------------------------------------------------
def parabola_prior(model: CausalPriorVAE) -> SEM:
    """z1 = z0^2 + n1 over as many latents as the model has: what the latents of every model are compared with."""
    defaults = CausalPriorVAESettings(latents=model.settings.latents)
    scales = [*defaults.scales, *[1.0] * defaults.latents][: defaults.latents]
    return SEM(allowed_edges(defaults.edges, model.latent_names), form=defaults.form, scales=scales, learn_scales=False, learn_edges=False)


def latent_order(model: CausalPriorVAE, data: Dataset, seed: int) -> list[int]:
    """The latents that stand for z0 and z1, then the others: their own order where the prior has edges, and for an isotropic prior, which knows
    no order, the one that brings the encoded training pictures nearest to draws of the SEM."""
    d = model.settings.latents
    if model.settings.edges:
        return list(range(d))
    some = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:1000]  # the grid is stored scale by scale
    encoded = model.encode_with_spread(data.train.images[some], seed).numpy()
    draws = parabola_prior(model).sample(1000, torch.Generator().manual_seed(seed)).numpy()
    orders = [[i, j, *(k for k in range(d) if k not in (i, j))] for i, j in permutations(range(d), 2)]
    return min(orders, key=lambda order: energy_distance(encoded[:, order], draws).value)


def places(model: CausalPriorVAE, data: Dataset, order: list[int]) -> Numbers:
    """R^2 of x with the latent in the place of z0 and of y with that of z1, of both from all latents, and of the other active latents on (x, y)."""
    z = model.encode(data.test.images)[:, order, 0].numpy().astype(np.float64)
    place = data.test.labels.numpy()[:, :2].astype(np.float64)
    active = z.var(0) > ACTIVE_VARIANCE
    others = [explained(place, z[:, i]) for i in range(2, z.shape[1]) if active[i]]
    made = model.reconstruct(data.test.images)
    return {
        "r2_x": float(np.corrcoef(z[:, 0], place[:, 0])[0, 1] ** 2) if active[0] else 0.0,
        "r2_y": float(np.corrcoef(z[:, 1], place[:, 1])[0, 1] ** 2) if active[1] else 0.0,
        "r2_x_from_all": explained(z, place[:, 0]),
        "r2_y_from_all": explained(z, place[:, 1]),
        "other_r2": max(others, default=0.0),
        "active_units": float(active.sum()),
        "correlation_z1_z0_squared": float(np.corrcoef(z[:, 1], z[:, 0] ** 2)[0, 1]),
        "reconstruction_mse": float((made - data.test.images.float() / 255).square().mean()),
    }


def explained(causes: np.ndarray, effect: np.ndarray) -> float:
    """R^2 of the linear regression of effect (N,) on causes (N, n)."""
    design = np.pad(causes, ((0, 0), (0, 1)), constant_values=1.0)
    left = effect - design @ np.linalg.lstsq(design, effect, rcond=None)[0]
    return float(1 - left.var() / effect.var())


def distances(model: CausalPriorVAE, data: Dataset, order: list[int], seed: int) -> Numbers:
    """Energy distances of encoded test pictures, with the posteriors' noise, from draws of the SEM, and from draws of the prior of the training."""
    encoded = model.encode_with_spread(data.test.images, seed).numpy()
    generator = torch.Generator().manual_seed(seed)
    draws, own = parabola_prior(model).sample(DRAWS, generator).numpy(), model.draw_latents(DRAWS, generator).numpy()
    return {
        "energy_distance": energy_distance(encoded[:, order], draws, seed=seed).value,
        "own_energy_distance": energy_distance(encoded, own, seed=seed).value,
    }


# ---- pictures -------------------------------------------------------------------------------------------------------
def arrays(model: CausalPriorVAE, data: Dataset, order: list[int]) -> dict[str, np.ndarray]:
    """What Figs. 1 to 3 of the paper show of a model: two latents and their prior, responses to places, traversals of the noises."""
    some = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(0))[:SHOWN_POINTS]
    encoded = model.encode_with_spread(data.test.images[some], 0).numpy()[:, order[:2]]
    world, d = data.simulator, model.settings.latents
    assert isinstance(world, Parabola)
    y, x = (part.ravel() for part in np.meshgrid(np.linspace(1.25, -0.25, MAP), np.linspace(-1, 1, MAP), indexing="ij"))
    responses = []
    for scale in np.linspace(0.5, 1.0, SHOWN_SCALES):
        for rotation in np.arange(SHOWN_ROTATIONS) * np.pi / SHOWN_ROTATIONS:
            values = np.stack([x, y, np.full_like(x, scale), np.full_like(x, rotation)], axis=1)
            images = torch.from_numpy(world.render(values, size=model.spec.image_shape[-1]))
            responses.append(model.encode(images)[:, order, 0].numpy().T.reshape(d, MAP, MAP))
    noises = torch.zeros(d * STEPS, d)
    for k, i in enumerate(order):
        noises[k * STEPS : (k + 1) * STEPS, i] = torch.linspace(-REACH, REACH, STEPS) * model.noise_scales[i]
    made = model.traverse(noises)
    return {
        "encoded": encoded.astype(np.float32),
        "prior": model.draw_latents(SHOWN_POINTS, torch.Generator().manual_seed(0)).numpy()[:, order[:2]].astype(np.float32),
        "responses": np.mean(responses, axis=0).astype(np.float32),
        "traversals": (made * 255).round().byte().numpy().reshape(d, STEPS, *model.spec.image_shape),
    }


def draw(folders: Mapping[str, Path], stem: Path) -> None:
    """The three figures, with a panel or rows for each job whose arrays are there."""
    found = {}
    for label, folder in folders.items():
        if (folder / ARRAYS).is_file():
            with np.load(folder / ARRAYS, allow_pickle=False) as stored:
                found[label] = dict(stored)
    if not found:
        return
    d = len(next(iter(found.values()))["responses"])
    panels = {label: (kept["prior"], kept["encoded"]) for label, kept in found.items()}
    figures.prior_and_posterior(stem.with_name(f"{stem.name}-latents.png"), panels, ("z0", "z1"), title="Prior and encoded pictures")
    maps = {label: kept["responses"] for label, kept in found.items()}
    note = "mean of each latent for an oval at every place, over scales and rotations; the data lie along a parabola"
    figures.response_maps(stem.with_name(f"{stem.name}-responses.png"), maps, [f"z{i}" for i in range(d)], note=note, title="Response to places")
    rows = [figures.ClipRow(f"{label}, n{i}", kept["traversals"][i].astype(np.float32) / 255) for label, kept in found.items() for i in range(d)]
    heads = [f"{value:+.1f}" for value in np.linspace(-REACH, REACH, STEPS)]
    title = "Each noise moved alone, in its standard deviations"
    figures.clip_rows(stem.with_name(f"{stem.name}-traversals.png"), rows, heads=heads, pairs=d, title=title)


# ---- the table ------------------------------------------------------------------------------------------------------
def _rows(options: dict[str, Any], settings: dict[str, Any], epochs: int, first_seed: int, control: bool) -> tuple[Ovals, ...]:
    """The causal prior, the control, and isotropic priors trained for `epochs`, about as many steps as the other two in all."""
    variants: dict[str, dict[str, Any]] = {"causal prior": {}}
    if control:
        variants["isotropic after alignment"] = {"isotropic": True}
    variants |= {f"isotropic, beta {beta:g}": {"edges": (), "beta": beta, "epochs": epochs} for beta in (1.0, 4.0)}
    return tuple(
        Ovals("parabola", "causal-prior-vae", options, {**settings, **own}, variant, first_seed=first_seed) for variant, own in variants.items()
    )


_QUICK: dict[str, Any] = {"reconstruction_weight": 16.0, "restarts": 8, "first_epochs": 8, "finalists": 3, "trial_epochs": 6, "epochs": 16}
_COLUMNS = ("r2_x", "r2_y", "other_r2", "energy_distance", "own_energy_distance", "r2_x_from_all", "r2_y_from_all")

CAUSAL_PRIOR_PARABOLA = Experiment(
    "causal-prior-parabola",
    "The causal-prior VAE on ovals along a parabola",
    _rows({}, {}, 36, 100, control=True),
    seeds=10,
    shown=(*_COLUMNS, "active_units", "correlation_z1_z0_squared", "reconstruction_mse", "train_seconds"),
    columns=_COLUMNS,
    notes="76,800 pictures of 64 x 64 (20,000 of 16 x 16 in the quick form, seed 0, no control), five latents, the prior z1 = z0^2 + n1 given "
    "as in the paper. `causal prior` is the whole recipe: 24 starts, the six whose latents an affine map makes most like the prior are tried with "
    "it, the best of these goes on; no label is looked at. `isotropic after alignment` is the same recipe with N(0, I) in the place of the SEM "
    "wherever it is the prior, so that its latents may drift from where the alignment put them. `isotropic` is the plain VAE with a full "
    "covariance, a single start of as many epochs as one network of the recipe sees. `r2_x`, `r2_y`: squared correlation of z0 with x and of z1 "
    "with y on test pictures; the isotropic priors have no order of latents, so theirs are put in the one that brings training pictures nearest "
    "to the SEM, and `_from_all`, x and y regressed on all latents, is the fairer comparison. `other_r2`: the largest R2 of another active latent "
    f"(variance of its means above {ACTIVE_VARIANCE}) on (x, y), which sees linear dependence only. `energy_distance`: between encoded pictures, the "
    "posteriors' noise included, and draws of the SEM, for every model; `own_energy_distance`: the same with draws of the prior that the model "
    "was trained under, which isotropic models match better, as nothing ties their latents to places. Seeds 0 to 9 of the table are 100 to 109, "
    "of the training; the pictures are the same for all. Seeds below 80 were looked at, with the truth, while the recipe was found. The "
    "committed run chose the order of isotropic latents on, and shows in its first picture, the first pictures of the grid alone, which have "
    "the smallest ovals, and moved n1 of the control by half as much as it says; all three are mended since.",
    pictures=("latents", "responses", "traversals"),
    gather=draw,
    quick=_rows({"size": 16, "samples": 20_000}, _QUICK, 24, 0, control=False),
)
