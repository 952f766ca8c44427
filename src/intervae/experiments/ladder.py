"""The Ladder VAE's tables (Sønderby et al. 2016): likelihood bounds of hierarchies of 1 to 5 layers, and the units that each layer uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.experiments.base import Experiment, Numbers, Train
from intervae.metrics import likelihood_bounds
from intervae.models.ladder_vae import LadderVAE

LATENTS = (64, 32, 16, 8, 4)
ACTIVE_KL = 0.01  # nats below which a unit is inactive
BOUND_IMAGES, BOUND_PAIRS = 250, 50_000  # images that share a generator, pairs of image and draw at once


@dataclass(frozen=True)
class Bound(Train):
    """Train a hierarchy; the importance-weighted bound of all test images, and active units by their KL."""

    samples: int = 1000  # importance samples of the bound

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        assert isinstance(model, LadderVAE)
        images = model.observed(data.test.images)
        bounds = likelihood_bounds(
            model.log_weights, images, samples=self.samples, at_once=BOUND_PAIRS, images_at_once=BOUND_IMAGES, device=device, seed=seed
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
        numbers |= {"active_units": float(sum(active)), "active_units_above": float(sum(active[1:]))}
        numbers |= {f"active_units|z{i + 1}": float(count) for i, count in enumerate(active)}
        return numbers | {f"kl|z{i + 1}": float(layer.sum()) for i, layer in enumerate(layers)}


def rows(data: str, options: dict[str, Any], settings: dict[str, Any], paper: dict[str, tuple[float | None, ...]], samples: int) -> tuple[Bound, ...]:
    """Four variants of one to five layers; with one layer a ladder is the VAE with both additions, and is left out."""
    warm_up = settings["warm_up"]
    variants: dict[str, dict[str, Any]] = {
        "VAE": {"inference": "bottom-up", "batch_norm": False, "warm_up": 0},
        "VAE+BN": {"inference": "bottom-up", "batch_norm": True, "warm_up": 0},
        "VAE+BN+WU": {"inference": "bottom-up", "batch_norm": True, "warm_up": warm_up},
        "LVAE+BN+WU": {"inference": "ladder", "batch_norm": True, "warm_up": warm_up},
    }
    found = []
    for depth in range(1, len(LATENTS) + 1):
        for name, changes in variants.items():
            if depth == 1 and name.startswith("LVAE"):
                continue
            known = paper.get(name, (None,) * 5)[depth - 1]
            number = {} if known is None else {"log_likelihood": known}
            own = {**settings, **changes, "latents": LATENTS[:depth]}
            found.append(Bound(data, "ladder-vae", options, own, f"{name} {depth}", number, {"precision": "tf32"}, samples=samples))
    return tuple(found)


_SHOWN = ("log_likelihood", "elbo", "active_units", "active_units_above", "train_seconds")
_FIGURE = partial(figures.depth_curves, metric="log_likelihood", units="active_units")
_NOTES = (
    "`log_likelihood` is the importance-weighted bound in nats, mean over all test images; `elbo` the same with one sample. `active_units`: units "
    f"whose mean KL is above {ACTIVE_KL} nat, for each layer and in all; `active_units_above`: those above z1. The number after a variant's name "
    "is its number of layers, of 64, 32, 16, 8, 4 units. "
)
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

LVAE_MNIST = Experiment(
    "lvae-mnist",
    "Hierarchical VAEs and the Ladder VAE on MNIST, 1 to 5 layers",
    (
        Bound(
            "mnist",
            "ladder-vae",
            {"validation": 0.02},
            {**_BINARY, "batch_size": 512, "epochs": LONG_EPOCHS, "warm_up": LONG_EPOCHS // 4},
            "LVAE+BN+WU 5 long",
            {"log_likelihood": -82.12},
            {"precision": "tf32"},
            samples=5000,
        ),
        *rows("mnist", {"validation": 0.02}, {**_BINARY, "epochs": MNIST_EPOCHS, "warm_up": MNIST_EPOCHS // 4}, {}, 500),
    ),
    seeds=3,
    shown=_SHOWN,
    columns=_SHOWN,
    figure=partial(_FIGURE, title="Hierarchical VAEs on MNIST"),
    notes=_NOTES + f"The grid trains {MNIST_EPOCHS} epochs, `long` {LONG_EPOCHS}, with a cosine schedule from 6e-3 and batches of 1,024 and 512; the "
    "paper 2,000 at a constant rate, and its MNIST numbers other than the best are in a figure only. "
    "Pixels are binarised anew for every step, test pixels once for each "
    "model alike; the grid's bound takes 500 samples, that of `long` 5,000 as the paper's.",
)

LVAE_OMNIGLOT = Experiment(
    "lvae-omniglot",
    "Hierarchical VAEs and the Ladder VAE on Omniglot, 1 to 5 layers",
    rows("omniglot", {"validation": 0.02}, {**_BINARY, "epochs": OMNIGLOT_EPOCHS, "warm_up": OMNIGLOT_EPOCHS // 4}, _OMNIGLOT_PAPER, 500),
    seeds=3,
    shown=_SHOWN,
    columns=_SHOWN,
    figure=partial(_FIGURE, title="Hierarchical VAEs on Omniglot"),
    notes=_NOTES + f"{OMNIGLOT_EPOCHS} epochs with a cosine schedule from 6e-3 and batches of 1,024 (the paper: 1,500 at a constant rate). "
    "The pictures are the public 105 x 105 ones resized to 28 x 28, not the file that the paper used, so its numbers show the order only.",
)

LVAE_NORB = Experiment(
    "lvae-norb",
    "Hierarchical VAEs and the Ladder VAE on small NORB, 1 to 5 layers",
    rows(
        "norb",
        {"size": 32, "validation": 0.02},
        {"likelihood": "gaussian", "scale": 0.0, "activation": "tanh", "learning_rate": 2e-3, "epochs": 400, "warm_up": 100},
        _NORB_PAPER,
        500,
    ),
    seeds=3,
    shown=_SHOWN,
    columns=_SHOWN,
    figure=partial(_FIGURE, title="Hierarchical VAEs on small NORB"),
    notes=_NOTES + "Gaussian pixels with learned variances, tanh units. The paper: 4,000 epochs, warm-up over 1,000.",
)
