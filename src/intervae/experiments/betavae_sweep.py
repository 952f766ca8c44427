"""The beta-VAE metric over beta and the number of latents (Higgins et al. 2017, Figure 6, right).

The weight is normalised by sizes: beta = normalised beta x pixels / latents.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from intervae import figures
from intervae.data import Dataset
from intervae.experiments.base import Experiment, Numbers
from intervae.experiments.betavae import DisentanglementJob
from intervae.figures.result_rows import Row
from intervae.models.storage import load_model
from intervae.models.vae import VAE

PIXELS = 64 * 64
IMAGES = 4096  # test images of the terms
STEPS, REACH = 9, 3.0  # images of a traversal, and its range; the prior has variance 1
SHOWN_LATENTS = 6  # of a figure of traversals, those with the largest KL
ACTIVE_KL = 0.01  # nats below which a latent is inactive


@dataclass(frozen=True)
class SweepJob(DisentanglementJob):
    """Train a beta-VAE; measure the scores, the terms of its loss and active latents."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        numbers = super().run(seed, device, folder)
        data, model = self.load(), load_model(folder, device)
        assert isinstance(model, VAE)
        kl = latent_kl(model, data)
        target = folder / "figures"
        target.mkdir(parents=True, exist_ok=True)
        draw_traversals(target / "traversals.png", model, data, kl, self.variant)
        batch = data.test.to(device).batch(torch.arange(min(IMAGES, len(data.test))).to(device))
        with torch.no_grad():
            generator = torch.Generator(device).manual_seed(seed)
            terms = model.loss({**batch, "step": torch.zeros((), device=device)}, generator)
        return numbers | {
            "reconstruction": float(terms["reconstruction"]),
            "kl": float(kl.sum()),
            "active_units": float((kl > ACTIVE_KL).sum()),
        }


@torch.no_grad()
def latent_kl(model: VAE, data: Dataset) -> torch.Tensor:
    """Return the mean KL(q(z | x) || N(0, 1)) of each latent over test images, (n,)."""
    mean, log_variance = model.posterior(model.as_images(data.test.images[:IMAGES]))
    kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)
    return kl.sum(-1).mean(0).cpu()


@torch.no_grad()
def traversals(model: VAE, image: torch.Tensor, latents: Sequence[int]) -> torch.Tensor:
    """Return (latents, STEPS, C, H, W): one image with one latent from -REACH to REACH."""
    codes = model.encode(image).repeat(len(latents) * STEPS, 1, 1)
    values = torch.linspace(-REACH, REACH, STEPS, device=codes.device)
    for k, latent in enumerate(latents):
        codes[k * STEPS : (k + 1) * STEPS, latent] = values[:, None]
    return model.decode(codes).unflatten(0, (len(latents), STEPS))


def draw_traversals(
    path: Path, model: VAE, data: Dataset, kl: torch.Tensor, variant: str = ""
) -> None:
    """Draw a row per latent, by falling KL, from the first test image."""
    latents = kl.argsort(descending=True)[:SHOWN_LATENTS].tolist()
    images = traversals(model, data.test.images[:1], latents).cpu().numpy()
    rows = [
        figures.ClipRow(f"z{latent}, KL {kl[latent]:.2f} nats", pictures)
        for latent, pictures in zip(latents, images, strict=True)
    ]
    heads = [f"{value:+.2f}" for value in torch.linspace(-REACH, REACH, STEPS).tolist()]
    title = "One test image with one latent moved" + (f"; {variant}" if variant else "")
    figures.clip_rows(path, rows, heads=heads, title=title)


# ---- the experiment ------------------------------------------------------------------------------
METRICS = {  # metric -> title of its grid, and whether the largest number is dark
    "beta_vae_score": ("beta-VAE score", True),
    "reconstruction": ("-log p(x | z), nats", False),
    "active_units": ("active latents", True),
}


def variant_of(latents: int, normalised: float) -> str:
    return f"latents {latents}, normalised beta {normalised:g}"


def parse_variant(variant: str) -> tuple[int, float] | None:
    """Return latents and normalised beta of a variant, None for other texts."""
    match = re.fullmatch(r"latents (\d+), normalised beta ([\d.e+-]+)", variant)
    return (int(match[1]), float(match[2])) if match else None


def sweep(
    sizes: Sequence[int],
    weights: Sequence[float],
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
    **changes: Any,
) -> tuple[SweepJob, ...]:
    """Return a job for each number of latents and each normalised beta."""
    return tuple(
        SweepJob(
            "dsprites",
            "beta-vae",
            options,
            {**settings, "latents": size, "beta": weight * PIXELS / size},
            variant_of(size, weight),
            **changes,
        )
        for size in sizes
        for weight in weights
    )


def draw_sweep(path: Path, rows: Sequence[Row]) -> None:
    """Draw a grid per metric: a row per number of latents, a column per normalised beta."""
    places = {row["variant"]: place for row in rows if (place := parse_variant(row["variant"]))}
    sizes = sorted({size for size, _ in places.values()})
    weights = sorted({weight for _, weight in places.values()})
    grids = []
    for metric, (title, high_is_dark) in METRICS.items():
        numbers = {
            places[row["variant"]]: row["mean"]
            for row in rows
            if row["metric"] == metric and not row["part"] and row["variant"] in places
        }
        if numbers:
            values = [[numbers.get((size, weight)) for weight in weights] for size in sizes]
            labels = [str(size) for size in sizes], [f"{weight:g}" for weight in weights]
            grids.append(
                figures.NumberGrid(
                    title,
                    *labels,
                    values,
                    down="latents",
                    across="normalised beta",
                    high_is_dark=high_is_dark,
                )
            )
    figures.number_grids(path, grids, title="beta-VAEs over the weight and the number of latents")


def copy_traversals(runs: Mapping[str, Path], stem: Path) -> None:
    """Copy traversals of the largest model by weight: lowest, middle and highest."""
    places = {place: folder for name, folder in runs.items() if (place := parse_variant(name))}
    if not places:
        return
    size = max(size for size, _ in places)
    weights = sorted(weight for other, weight in places if other == size)
    chosen = (weights[0], weights[len(weights) // 2], weights[-1])
    for name, weight in zip(PICTURES, chosen, strict=True):
        source = places[size, weight] / "figures" / "traversals.png"
        if source.is_file():
            shutil.copyfile(source, stem.with_name(f"{stem.name}-{name}.png"))


PICTURES = ("traversals-low-beta", "traversals-middle-beta", "traversals-high-beta")
_COLUMNS = (
    "beta_vae_score",
    "factor_vae_score",
    "reconstruction",
    "kl",
    "active_units",
    "train_seconds",
)
_FULL: dict[str, Any] = {
    "network": "mlp-1200",
    "batch_size": 512,
    "epochs": 30,
    "learning_rate": 1e-3,
}
_QUICK: dict[str, Any] = {
    "channels": (8, 16, 16, 16),
    "hidden": 64,
    "batch_size": 32,
    "epochs": 1,
    "learning_rate": 3e-3,
}

BETA_VAE_SWEEP = Experiment(
    "betavae-sweep",
    "The beta-VAE metric over beta and the number of latents",
    sweep(
        (5, 10, 20, 32, 64),
        (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
        {},
        _FULL,
        training={"precision": "tf32"},
    ),
    seeds=3,
    shown=_COLUMNS,
    columns=_COLUMNS,
    notes=("betavae-sweep",),
    figure=draw_sweep,
    pictures=PICTURES,
    gather=copy_traversals,
    quick=sweep(
        (4, 16),
        (0.001, 0.01, 0.1),
        {"file": "downsampled"},
        _QUICK,
        points=(1000, 500),
    ),
)
