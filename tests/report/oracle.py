"""A CMCL whose latents are known: they are stored in the pixels. The test sets its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data import Dataset, Variable, build_dataset
from intervae.models.cmcl.model import CMCL

LEVELS = 256 * 256 - 1
REACH = 8.0  # latents lie between -REACH and REACH
TINY: dict[str, Any] = {
    "latents": 3,
    "embedding": 3,
    "channels": (4, 4),
    "posterior_widths": (8,),
    "prior_widths": (8,),
    "graph_widths": (8,),
}
VARIABLES = (
    Variable("a"),
    Variable("b", "binary", categories=("no", "yes")),
    Variable("c", "categorical", categories=("left", "mid", "right")),
)


def curved(x: np.ndarray, rng: np.random.Generator, noise: float = 0.5) -> np.ndarray:
    return np.tanh(2 * x) + 0.25 * x**2 + noise * rng.normal(size=len(x))


def encode_in_pixels(latents: np.ndarray) -> np.ndarray:
    """Store latents (N, m) in images (N, 1, 8, 8): each in two bytes at the start of a row."""
    codes = np.rint((latents.clip(-REACH, REACH) / REACH + 1) / 2 * LEVELS).astype(np.int64)
    images = np.zeros((len(latents), 1, 8, 8), np.uint8)
    images[:, 0, : latents.shape[1], 0] = codes // 256
    images[:, 0, : latents.shape[1], 1] = codes % 256
    return images


class Oracle(CMCL):
    """Encoder that reads the latents from the pixels.

    Given labels, the latent of index `copies` is the first label instead.
    """

    copies: int | None = None

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        pixels = torch.as_tensor(np.asarray(images)).to(torch.int64)[:, 0, : self.settings.latents]
        z = ((256 * pixels[..., 0] + pixels[..., 1]).double() / LEVELS * 2 - 1) * REACH
        if self.copies is not None and labels is not None:
            z[:, self.copies] = torch.as_tensor(labels)[:, 0].double()
        return z.float()[..., None]


def simulate(
    samples: int = 700, seed: int = 0, *, linear: bool = False, dependent_column: bool = False
) -> Dataset:
    """a -> z0, curved or linear; z1 -> b; c -> z2; optionally a column d that depends on a."""
    rng = np.random.default_rng(seed)
    a, z1, c = rng.normal(size=samples), rng.normal(size=samples), rng.integers(3, size=samples)
    b = rng.random(samples) < 1 / (1 + np.exp(-6 * z1))
    z0 = a + 0.6 * rng.normal(size=samples) if linear else curved(a, rng)
    latents = np.stack(
        [z0, z1, np.array([-3.0, 0.5, 2.0])[c] + 0.6 * rng.normal(size=samples)], axis=1
    )
    table, variables = [a, b, c], list(VARIABLES)
    if dependent_column:
        table.append(np.abs(a) + 0.5 * rng.normal(size=samples))
        variables.append(Variable("d"))
    return build_dataset("known", encode_in_pixels(latents), np.stack(table, axis=1), variables)


def oracle(data: Dataset, *edges: tuple[str, str, float], **settings: Any) -> Oracle:
    """Model with these edges (cause, effect, weight) and mechanisms fitted to them."""
    model = Oracle(data.spec, **{**TINY, **settings}).eval()
    z = model.encode(data.train.images, data.train.labels if model.needs_labels else None)[..., 0]
    names = model.node_names
    with torch.no_grad():
        model.standardiser.mean.copy_(z.mean(0))
        model.standardiser.variance.copy_(z.var(0))
        for cause, effect, weight in edges:
            model.influence[names.index(cause), names.index(effect)] = weight
            if cause in data.names and effect in model.latent_names:
                model.margins[data.names.index(cause), model.latent_names.index(effect)] = 50.0
            elif effect in data.names and cause in model.latent_names:
                model.margins[data.names.index(effect), model.latent_names.index(cause)] = -50.0
        model.edges.copy_(model.graph_mask)
    inputs = torch.cat([model.standardiser(z), model.inputs(data.train.labels)], dim=1)
    targets = torch.cat([model.standardiser(z), model.targets(data.train.labels)], dim=1)
    model.networks.refit(inputs, targets, model.edges, steps=150, rate=0.03, decay=1e-4)
    model.trained = True
    return model.eval()


TRUE = (("a", "z0", 0.8), ("z1", "b", 0.95), ("c", "z2", 0.9))
