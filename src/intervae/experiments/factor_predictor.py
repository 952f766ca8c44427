"""A small network that predicts the factors of an image, fitted on real images of a grid."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from intervae.data import Dataset
from intervae.data.neighbours import Neighbours
from intervae.nets.images import ConvEncoder

BATCH = 256
_LOCK = threading.Lock()
_CACHE: dict[Any, Any] = {}


def shared_factor_predictor(
    data: Dataset, device: str, steps: int, channels: tuple[int, ...]
) -> Callable[[Tensor], Tensor]:
    """Return `fit_factor_predictor`, fitted once for all runs with the same data."""
    with _LOCK:
        key = (json.dumps(data.source, sort_keys=True, default=str), device, steps, channels)
        if key not in _CACHE:
            _CACHE[key] = fit_factor_predictor(data, device, steps, channels)
            if device.startswith("cuda"):
                torch.cuda.current_stream().synchronize()  # runs on other streams read the weights
        return _CACHE[key]


def fit_factor_predictor(
    data: Dataset, device: str, steps: int, channels: tuple[int, ...]
) -> Callable[[Tensor], Tensor]:
    """Fit a classifier of every factor's value on the training split.

    Returns:
        A function of images (B, C, H, W), uint8 or floats in [0, 1], to value numbers (B, F).
    """
    neighbours = Neighbours(data)
    train, sizes = data.train.to(device), list(neighbours.grid.sizes)
    codes = torch.from_numpy(neighbours.codes[: len(train)]).to(device)
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(0)
        network = ConvEncoder(data.spec.image_shape, sum(sizes), channels, 4 * channels[-1])
        network = network.to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    generator = torch.Generator(device).manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(train), (BATCH,), generator=generator, device=device)
        logits = network(train.batch(rows)["images"]).split(sizes, dim=1)
        losses = [
            functional.cross_entropy(scores, codes[rows, i]) for i, scores in enumerate(logits)
        ]
        optimiser.zero_grad()
        torch.stack(losses).sum().backward()
        optimiser.step()
        schedule.step()
    return functools.partial(_predict, network.eval(), sizes, device)


@torch.no_grad()
def _predict(network: ConvEncoder, sizes: list[int], device: str, images: Tensor) -> Tensor:
    pixels = images.to(device)
    pixels = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
    values = []
    for chunk in pixels.split(BATCH):
        logits = network(chunk).split(sizes, dim=1)
        values.append(torch.stack([scores.argmax(1) for scores in logits], dim=1))
    return torch.cat(values).cpu()
