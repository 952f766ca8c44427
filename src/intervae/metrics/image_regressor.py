"""Kernel ridge regression of variables on images, for metrics of counterfactuals.

The kernel is (1 + x.x')^2 on images of at most 32 pixels a side; the fit is in closed form. A
simulator's regressor is fitted on images of independently drawn variables, so that it cannot
predict an effect from its cause.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor
from torch.nn import functional

from intervae.data import Variable
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.image_similarity import as_float_images
from intervae.metrics.variable_regressor import VariableRegressor

LARGEST_SIDE = 32  # pixels; larger images are averaged down
RIDGES = (10.0, 1.0, 0.1, 0.01)  # candidates, chosen per variable on a fifth of the training images
DEFAULT_RIDGE = 0.1  # with too few images to choose
MIN_ROWS_TO_CHOOSE = 20
MAX_IMAGES = 2000  # for training; time is cubic, memory quadratic
IMAGES_AT_ONCE = 256  # for prediction


@dataclass(frozen=True)
class ImageRegressor(VariableRegressor):
    """A fitted regressor; `regressor(images)` returns (N, n) values in the variables' units.

    Binary and categorical variables are classified. With the training images' centred pixels x_j,
    scaled to a mean squared norm of 1: value(x) = sum_j a_j (1 + x.x_j)^2, a = (K + ridge I)^-1 u
    for standardised values u, or one column of -1 and 1 for each class.
    """

    variables: tuple[Variable, ...]
    pixels: np.ndarray  # (training images, d)
    centre: np.ndarray  # (d,)
    scale: float
    targets: tuple[_Target, ...]
    coefficients: np.ndarray  # (training images, columns of all targets)

    @property
    def training_images(self) -> int:
        return len(self.pixels)

    def __call__(self, images: Any) -> np.ndarray:
        floats = as_float_images(images)
        return np.concatenate(
            [
                self._predict(floats[i : i + IMAGES_AT_ONCE])
                for i in range(0, len(floats), IMAGES_AT_ONCE)
            ]
        )

    def _predict(self, images: np.ndarray) -> np.ndarray:
        pixels = _shrink(images)
        if pixels.shape[1] != len(self.centre):
            raise DataError(
                f"this regressor was trained on images of {len(self.centre)} values after "
                f"shrinking, not {pixels.shape[1]}."
            )
        outputs = _kernel((pixels - self.centre) / self.scale, self.pixels) @ self.coefficients
        columns = _split_columns(outputs, [len(t.classes) or 1 for t in self.targets])
        return np.stack(
            [target.decode(values) for target, values in zip(self.targets, columns, strict=True)],
            axis=1,
        )


@dataclass(frozen=True)
class _Target:
    """Regression target of a variable: standardised, or one column for each class."""

    mean: float
    std: float
    classes: tuple[float, ...] = ()

    @classmethod
    def of(cls, variable: Variable, values: np.ndarray) -> _Target:
        if variable.kind == "continuous":
            return cls(float(values.mean()), float(values.std()) or 1.0)
        return cls(0.0, 1.0, tuple(np.unique(values).tolist()))

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Values (N,) to columns (N, columns)."""
        if not self.classes:
            return ((values - self.mean) / self.std)[:, None]
        return 2.0 * (values[:, None] == np.array(self.classes)) - 1

    def decode(self, columns: np.ndarray) -> np.ndarray:
        """Columns (N, columns) to values (N,)."""
        if not self.classes:
            return columns[:, 0] * self.std + self.mean
        return np.array(self.classes)[columns.argmax(1)]


def fit_image_regressor(
    images: Any, labels: np.ndarray, variables: Sequence[Variable], *, seed: int = 0
) -> ImageRegressor:
    """Fit a regressor on images (N, C, H, W) and labels (N, n) in the variables' units.

    Images are uint8 or in [0, 1]; of more than MAX_IMAGES a random subset is used.
    """
    array = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    table = np.asarray(labels, dtype=np.float64)
    if table.shape != (len(array), len(variables)) or not np.isfinite(table).all():
        raise DataError(
            f"labels must be finite and ({len(array)}, {len(variables)}), one row per image, "
            f"not {table.shape}."
        )
    rows = np.random.default_rng(seed).permutation(len(array))[:MAX_IMAGES]
    # rows are selected first, as floats take four times the memory
    pixels, table = _shrink(as_float_images(array[rows])), table[rows]
    centre = pixels.mean(0)
    pixels = pixels - centre
    scale = float(np.sqrt(np.square(pixels).sum(1).mean())) or 1.0
    pixels = pixels / np.float32(scale)
    targets = tuple(_Target.of(v, column) for v, column in zip(variables, table.T, strict=True))
    encoded = [target.encode(column) for target, column in zip(targets, table.T, strict=True)]
    kernel = _kernel(pixels, pixels)
    ridges = (
        _choose_ridges(kernel, encoded)
        if len(rows) >= MIN_ROWS_TO_CHOOSE
        else [DEFAULT_RIDGE] * len(encoded)
    )
    coefficients = [np.empty((0, 0))] * len(encoded)
    for ridge in set(ridges):
        same = [i for i, choice in enumerate(ridges) if choice == ridge]
        solution = _solve(kernel, ridge, np.concatenate([encoded[i] for i in same], axis=1))
        widths = [encoded[i].shape[1] for i in same]
        for i, columns in zip(same, _split_columns(solution, widths), strict=True):
            coefficients[i] = columns
    return ImageRegressor(
        tuple(variables), pixels, centre, scale, targets, np.concatenate(coefficients, axis=1)
    )


def simulator_regressor(
    simulator: Simulator,
    size: int,
    *,
    images: int = MAX_IMAGES,
    held_out: int = 500,
    seed: int = 0,
) -> tuple[ImageRegressor, list[Measurement]]:
    """Fit a regressor on a simulator's images of `size` pixels; return it and its quality.

    Every variable is drawn uniformly over its range, extended by 5% at both ends, independently of
    the others. The quality is measured on `held_out` further images.
    """
    rng = np.random.default_rng(seed)
    natural = simulator.simulate(simulator.sample_exogenous(4096, rng))  # (4096, n)
    low, high = natural.min(0), natural.max(0)
    margin = 0.05 * (high - low)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        values = rng.uniform(low - margin, high + margin, (n, len(low)))
        for i, variable in enumerate(simulator.variables):
            if variable.kind != "continuous":
                values[:, i] = rng.choice(np.unique(natural[:, i]), n)
        return simulator.render(values, simulator.sample_exogenous(n, rng), size=size), values

    regressor = fit_image_regressor(*draw(images), simulator.variables, seed=seed)
    return regressor, regressor.quality(*draw(held_out))


def _choose_ridges(kernel: np.ndarray, encoded: Sequence[np.ndarray]) -> list[float]:
    """Return the best ridge of each variable on the last fifth of the images."""
    cut = math.ceil(0.8 * len(kernel))
    targets = np.concatenate(encoded, axis=1)
    widths = [columns.shape[1] for columns in encoded]
    errors = []
    for ridge in RIDGES:
        predicted = kernel[cut:, :cut] @ _solve(kernel[:cut, :cut], ridge, targets[:cut])
        residuals = _split_columns(predicted - targets[cut:], widths)
        errors.append([float(np.square(columns).mean()) for columns in residuals])
    return [RIDGES[best] for best in np.argmin(errors, axis=0)]


def _split_columns(table: np.ndarray, widths: Sequence[int]) -> list[np.ndarray]:
    return np.split(table, np.cumsum(widths)[:-1], axis=1)


def _solve(kernel: np.ndarray, ridge: float, targets: np.ndarray) -> np.ndarray:
    return scipy.linalg.solve(kernel + ridge * np.eye(len(kernel)), targets, assume_a="pos")


def _kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.square(1.0 + (left @ right.T).astype(np.float64))


def _shrink(images: np.ndarray) -> np.ndarray:
    """Average (N, C, H, W) over squares until no side exceeds LARGEST_SIDE; flatten to (N, d)."""
    height, width = images.shape[2:]
    square = math.ceil(max(height, width) / LARGEST_SIDE)
    tensor = torch.from_numpy(images)
    if square > 1:
        tensor = functional.adaptive_avg_pool2d(
            tensor, (math.ceil(height / square), math.ceil(width / square))
        )
    return tensor.flatten(1).numpy()
