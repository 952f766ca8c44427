"""Convolutional networks that read variables on images, one for each variable, for metrics.

They are trained on a simulator's images of independently drawn variables, so that no network can
read an effect off its cause. For images on which the kernel regressor of image_regressor.py is too
weak, such as handwriting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.data import Variable
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.image_similarity import as_float_images
from intervae.metrics.variable_regressor import VariableRegressor

EPOCHS = 12
BATCH = 256
CHANNELS = (24, 48, 96)
HIDDEN = 128
LEARNING_RATE = 2e-3
IMAGES_AT_ONCE = 1024  # for prediction


class VariableNetworks(VariableRegressor):
    """Trained networks; `networks(images)` returns (N, n) values in the variables' units.

    Arguments:
        variables: mean and std of the continuous ones are those of the training images.
        networks: images (B, C, H, W) in [0, 1] to a standardised value (B, 1) or logits (B, K).
        training_images: number of images they were trained on.
    """

    def __init__(
        self,
        variables: Sequence[Variable],
        networks: Sequence[nn.Module],
        training_images: int,
    ) -> None:
        self.variables = tuple(variables)
        self.networks = [network.eval() for network in networks]
        self._training_images = training_images

    @property
    def training_images(self) -> int:
        return self._training_images

    @torch.no_grad()
    def __call__(self, images: Any) -> np.ndarray:
        pixels = torch.from_numpy(as_float_images(images))
        device = next(self.networks[0].parameters()).device
        chunks = [
            torch.stack(
                [
                    _read(variable, network(chunk.to(device)))
                    for variable, network in zip(self.variables, self.networks, strict=True)
                ],
                dim=1,
            ).cpu()
            for chunk in pixels.split(IMAGES_AT_ONCE)
        ]
        return torch.cat(chunks).double().numpy()

    def quality(
        self, images: Any, labels: np.ndarray, *, name: str = "reader"
    ) -> list[Measurement]:
        """Return also `NAME_error`: mean |read - label| in units, headline in deviations."""
        difference = np.abs(self(images) - np.asarray(labels, dtype=np.float64)).mean(0)
        errors = {
            v.name: float(value)
            for v, value in zip(self.variables, difference, strict=True)
            if v.kind == "continuous"
        }
        relative = [errors[v.name] / v.std for v in self.variables if v.name in errors]
        error = Measurement(
            f"{name}_error",
            float(np.mean(relative)) if relative else 0.0,
            len(labels),
            errors,
            parameters={
                "training_pictures": self.training_images,
                "headline": "mean over variables of error / standard deviation",
            },
            higher_is_better=False,
        )
        return super().quality(images, labels, name=name) + ([error] if errors else [])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights by name, for a cache."""
        return {
            f"{variable.name}.{key}": value.cpu().numpy()
            for variable, network in zip(self.variables, self.networks, strict=True)
            for key, value in network.state_dict().items()
        }


def fit_variable_networks(
    images: Any,
    labels: np.ndarray,
    variables: Sequence[Variable],
    *,
    device: str | torch.device = "cpu",
    epochs: int = EPOCHS,
    seed: int = 0,
) -> VariableNetworks:
    """Train a network for each variable on images (N, C, H, W) and labels (N, n) in units."""
    pixels = torch.from_numpy(as_float_images(images)).to(device)
    table = np.asarray(labels, dtype=np.float64)
    if table.shape != (len(pixels), len(variables)) or not np.isfinite(table).all():
        raise DataError(
            f"labels must be finite and ({len(pixels)}, {len(variables)}), one row per image, "
            f"not {table.shape}."
        )
    scaled = [v.with_scale_of(column) for v, column in zip(variables, table.T, strict=True)]
    networks = [
        _fit(pixels, torch.as_tensor(column), variable, epochs, seed + i)
        for i, (variable, column) in enumerate(zip(scaled, table.T, strict=True))
    ]
    return VariableNetworks(scaled, networks, len(pixels))


def build_variable_networks(
    arrays: Mapping[str, np.ndarray],
    variables: Sequence[Variable],
    image_shape: Sequence[int],
    training_images: int,
    *,
    device: str | torch.device = "cpu",
) -> VariableNetworks:
    """Return the networks with the weights of `VariableNetworks.arrays`.

    Arguments:
        variables: those of the networks, with their scale.
    """
    networks = []
    for variable in variables:
        network, prefix = _build(image_shape, variable, seed=0), f"{variable.name}."
        weights = {
            key.removeprefix(prefix): torch.from_numpy(value.copy())
            for key, value in arrays.items()
            if key.startswith(prefix)
        }
        network.load_state_dict(weights)
        networks.append(network.to(device))
    return VariableNetworks(variables, networks, training_images)


def independent_draws(
    simulator: Simulator, n: int, size: int, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw images (n, C, size, size) and variables (n, m), each with its own distribution.

    The columns of a sample are permuted, except for variables of `simulator.without_true_image`,
    which stay with the noises that show them.
    """
    rng = np.random.default_rng(seed)
    exogenous = simulator.sample_exogenous(n, rng)
    values = simulator.simulate(exogenous)
    for i, variable in enumerate(simulator.variables):
        if variable.name not in simulator.without_true_image:
            values[:, i] = values[rng.permutation(n), i]
    return simulator.render(values, exogenous, size=size), values


def _read(variable: Variable, outputs: Tensor) -> Tensor:
    """Return values (B,) in units of outputs (B, 1) or logits (B, K)."""
    if variable.kind == "continuous":
        return variable.denormalise(outputs[:, 0])
    return outputs.argmax(1).to(outputs.dtype)


def _fit(pixels: Tensor, values: Tensor, variable: Variable, epochs: int, seed: int) -> nn.Module:
    device, batch = pixels.device, min(BATCH, len(pixels))
    network = _build(pixels.shape[1:], variable, seed).to(device).train()
    continuous = variable.kind == "continuous"
    targets = (variable.normalise(values).float() if continuous else values.long()).to(device)
    steps = epochs * (len(pixels) // batch)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps + 1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(pixels), generator=generator).to(device)
        for start in range(0, len(order) - batch + 1, batch):
            rows = order[start : start + batch]
            outputs = network(pixels[rows])
            loss = (
                functional.smooth_l1_loss(outputs[:, 0], targets[rows], beta=0.1)
                if continuous
                else functional.cross_entropy(outputs, targets[rows])
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network


def _build(image_shape: Sequence[int], variable: Variable, seed: int) -> nn.Module:
    """Return a network with weights drawn with `seed`; the two first convolutions halve images."""
    colours, height, width = image_shape
    outputs = 1 if variable.kind == "continuous" else max(len(variable.categories), 2)
    first, second, third = CHANNELS
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(colours, first, 5, padding=2),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1),
            nn.GELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(third * (height // 4) * (width // 4), HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, outputs),
        )
