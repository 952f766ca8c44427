"""Tables of the Ladder VAE (Sønderby et al. 2016): likelihood bounds and active units per layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.jobs import Train
from intervae.experiments.ladder_figures import PICTURES, copy_deepest, draw_run
from intervae.metrics import likelihood_bounds

LATENTS = (64, 32, 16, 8, 4)
ACTIVE_KL = 0.01  # nats below which a unit is inactive
BOUND_IMAGES = 250  # images per generator
BOUND_PAIRS = 50_000  # pairs of image and sample in memory at once


@dataclass(frozen=True)
class LikelihoodJob(Train):
    """Train a hierarchy; measure its bound and active units, and draw its figures."""

    samples: int = 1000  # importance samples of the bound

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        draw_run(model, data, folder, seed)
        images = model.observed_images(data.test.images)
        bounds = likelihood_bounds(
            model.log_weights,
            images,
            samples=self.samples,
            at_once=BOUND_PAIRS,
            images_at_once=BOUND_IMAGES,
            device=device,
            seed=seed,
        )
        numbers: Numbers = {
            "train_seconds": seconds,
            "log_likelihood": float(bounds.importance_weighted.mean()),
            "elbo": float(bounds.elbo.mean()),
            "effective_samples": float(bounds.effective_samples.mean()),
        }
        kl = model.unit_kl(images, torch.Generator().manual_seed(seed)).cpu().numpy()
        layers = np.split(kl, np.cumsum(model.settings.latents)[:-1])
        active = [int((layer > ACTIVE_KL).sum()) for layer in layers]
        numbers |= {
            "active_units": float(sum(active)),
            "active_units_above": float(sum(active[1:])),
        }
        numbers |= {
            MetricKey("active_units", f"z{i + 1}"): float(count) for i, count in enumerate(active)
        }
        return numbers | {
            MetricKey("kl", f"z{i + 1}"): float(layer.sum()) for i, layer in enumerate(layers)
        }


def likelihood_jobs(
    data: str,
    options: dict[str, Any],
    settings: dict[str, Any],
    paper: dict[str, tuple[float | None, ...]],
    samples: int,
    paper_differs: str = "",
) -> tuple[LikelihoodJob, ...]:
    """Return jobs of four variants with one to five layers.

    With one layer the ladder equals VAE+BN+WU, so that row is missing.
    """
    warm_up = settings["warm_up"]
    variants: dict[str, dict[str, Any]] = {
        "VAE": {"inference": "bottom-up", "batch_norm": False, "warm_up": 0},
        "VAE+BN": {"inference": "bottom-up", "batch_norm": True, "warm_up": 0},
        "VAE+BN+WU": {"inference": "bottom-up", "batch_norm": True, "warm_up": warm_up},
        "LVAE+BN+WU": {"inference": "ladder", "batch_norm": True, "warm_up": warm_up},
    }
    jobs = []
    for depth in range(1, len(LATENTS) + 1):
        for name, changes in variants.items():
            if depth == 1 and changes["inference"] == "ladder":
                continue
            published = paper.get(name, (None,) * 5)[depth - 1]
            jobs.append(
                LikelihoodJob(
                    data,
                    "ladder-vae",
                    options,
                    {**settings, **changes, "latents": LATENTS[:depth]},
                    f"{name} {depth}",
                    {} if published is None else {"log_likelihood": published},
                    {"precision": "tf32"},
                    samples=samples,
                    paper_differs=paper_differs,
                )
            )
    return tuple(jobs)


# rows with fine-tuning: Monte Carlo and importance samples; the first has no more samples than the
# training before, to tell the samples from the longer training
FINE_TUNED = {"fine-tuned MC=1": (1, 1), "fine-tuned": (10, 1), "fine-tuned IW=10": (10, 10)}


def fine_tuned(
    job: LikelihoodJob, epochs: int, paper: dict[str, float]
) -> tuple[LikelihoodJob, ...]:
    """Return a job with fine-tuning, its rate times 0.75 ten times over these epochs.

    Arguments:
        paper: name in FINE_TUNED -> the paper's bound.
    """
    return tuple(
        replace(
            job,
            variant=f"{job.variant.removesuffix(' long')} {name}",
            settings={
                **job.settings,
                "fine_tuning_epochs": epochs,
                "fine_tuning_decay": 0.75 ** (10 / epochs),
                "fine_tuning_monte_carlo_samples": monte_carlo,
                "fine_tuning_importance_samples": importance,
            },
            paper={"log_likelihood": paper[name]} if name in paper else {},
        )
        for name, (monte_carlo, importance) in FINE_TUNED.items()
    )


QUICK_VARIANTS = ("VAE 1", "VAE 2", "VAE+BN+WU 2", "LVAE+BN+WU 2")


def quick_jobs(
    data: str, options: dict[str, Any], settings: dict[str, Any]
) -> tuple[LikelihoodJob, ...]:
    """Return jobs of one and two small layers on 2,000 images, without the paper's numbers."""
    small = {**settings, "widths": (128, 64), "batch_size": 64, "epochs": 12, "warm_up": 3}
    jobs = likelihood_jobs(data, {**options, "samples": 2000}, small, {}, 50)
    return tuple(
        replace(job, settings={**job.settings, "latents": latents, "widths": (128, 64)[:depth]})
        for job in jobs
        if job.variant in QUICK_VARIANTS
        for depth in [len(job.settings["latents"])]
        for latents in [(16, 8)[:depth]]
    )


_SHOWN = ("log_likelihood", "elbo", "active_units", "active_units_above", "train_seconds")
_FIGURE = partial(figures.curves_over_depth, metric="log_likelihood", layers=("active_units", "kl"))
_BINARY: dict[str, Any] = {"binarise": True, "batch_size": 1024, "learning_rate": 6e-3}
_OMNIGLOT_PAPER: dict[str, tuple[float | None, ...]] = {
    "VAE": (-111.21, -110.58, -111.26, -111.58, -110.46),
    "VAE+BN": (-105.62, -105.51, -106.09, -105.66, -105.45),
    "VAE+BN+WU": (-104.51, -102.61, -102.52, -102.66, -102.48),
    "LVAE+BN+WU": (None, -102.63, -102.18, -102.21, -102.11),
}
_NORB_PAPER: dict[str, tuple[float | None, ...]] = {
    "VAE": (2741, 2792, 2786, 2689, 2654),
    "VAE+BN": (3198, 3224, 3235, 3201, 3198),
    "VAE+BN+WU": (3338, 3483, 3492, 3482, 3422),
    "LVAE+BN+WU": (None, 3272, 3519, 3449, 3455),
}

MNIST_EPOCHS, OMNIGLOT_EPOCHS, LONG_EPOCHS = 100, 200, 400

_LONG = LikelihoodJob(
    "mnist",
    "ladder-vae",
    {"validation": 0.02},
    {**_BINARY, "batch_size": 512, "epochs": LONG_EPOCHS, "warm_up": LONG_EPOCHS // 4},
    "LVAE+BN+WU 5 long",
    {"log_likelihood": -82.12},
    {"precision": "tf32"},
    samples=5000,
)
_QUICK_MNIST = quick_jobs("mnist", {"validation": 0.05}, {"binarise": True})

LVAE_MNIST = Experiment(
    "lvae-mnist",
    "Hierarchical VAEs and the Ladder VAE on MNIST, 1 to 5 layers",
    (
        _LONG,
        *fine_tuned(_LONG, LONG_EPOCHS, {"fine-tuned": -81.84, "fine-tuned IW=10": -81.74}),
        *likelihood_jobs(
            "mnist",
            {"validation": 0.02},
            {**_BINARY, "epochs": MNIST_EPOCHS, "warm_up": MNIST_EPOCHS // 4},
            {},
            500,
        ),
    ),
    seeds=3,
    shown=_SHOWN,
    columns=_SHOWN,
    figure=partial(_FIGURE, title="Hierarchical VAEs on MNIST"),
    notes=("lvae", "lvae-mnist"),
    pictures=PICTURES,
    gather=copy_deepest,
    quick=(*_QUICK_MNIST, *fine_tuned(_QUICK_MNIST[-1], 6, {})),
)

LVAE_OMNIGLOT = Experiment(
    "lvae-omniglot",
    "Hierarchical VAEs and the Ladder VAE on Omniglot, 1 to 5 layers",
    likelihood_jobs(
        "omniglot",
        {"validation": 0.02},
        {**_BINARY, "epochs": OMNIGLOT_EPOCHS, "warm_up": OMNIGLOT_EPOCHS // 4},
        _OMNIGLOT_PAPER,
        500,
        "28 x 28 images of an earlier paper; ours are the public ones, resized",
    ),
    seeds=3,
    shown=_SHOWN,
    columns=_SHOWN,
    figure=partial(_FIGURE, title="Hierarchical VAEs on Omniglot"),
    notes=("lvae", "lvae-omniglot"),
    pictures=PICTURES,
    gather=copy_deepest,
    quick=quick_jobs("omniglot", {"validation": 0.05}, {"binarise": True}),
)

LVAE_NORB = Experiment(
    "lvae-norb",
    "Hierarchical VAEs and the Ladder VAE on small NORB, 1 to 5 layers",
    likelihood_jobs(
        "norb",
        {"size": 32, "validation": 0.02},
        {
            "likelihood": "gaussian",
            "scale": 0.0,
            "activation": "tanh",
            "learning_rate": 2e-3,
            "epochs": 400,
            "warm_up": 100,
        },
        _NORB_PAPER,
        500,
    ),
    seeds=3,
    shown=_SHOWN,
    columns=_SHOWN,
    figure=partial(_FIGURE, title="Hierarchical VAEs on small NORB"),
    notes=("lvae", "lvae-norb"),
    pictures=PICTURES,
    gather=copy_deepest,
    quick=quick_jobs(
        "norb",
        {"size": 32, "validation": 0.05},
        {"likelihood": "gaussian", "scale": 0.0, "activation": "tanh"},
    ),
)
