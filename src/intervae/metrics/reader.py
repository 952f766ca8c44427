"""A reader measures variables on pictures: kernel ridge regression with the kernel (1 + x.x')^2 on pictures of at most 32 pixels a side.

It is trained in closed form and in seconds, on pictures no model has made. On a simulator's pictures the variables are drawn
independently of one another, so that it reads a shadow from the shadow and not from the light, and pictures of do(effect) too.
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

from intervae.data.base import Variable
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.pictures import as_pictures

FINEST = 32  # pixels a side; larger pictures are averaged down
RIDGES = (10.0, 1.0, 0.1, 0.01)  # one is chosen for each variable on a fifth of the training pictures
USUAL_RIDGE = 0.1  # where there are too few pictures to choose
FEWEST_TO_CHOOSE = 20
MOST = 2000  # training pictures; time grows with the cube, memory with the square
AT_ONCE = 256  # pictures read at one time


@dataclass(frozen=True)
class Reader:
    """A trained reader: `reader(images)` gives (N, n) values in the variables' own units, a class for a binary or categorical one.

    With the centred pixels x_j (scaled to a mean squared norm of 1) of the training pictures: value(x) = sum_j a_j (1 + x.x_j)^2, and
    a = (K + ridge I)^-1 u for standardised values u, or one column of -1 and 1 for each class.
    """

    variables: tuple[Variable, ...]
    pixels: np.ndarray  # (training pictures, d)
    centre: np.ndarray  # (d,)
    scale: float
    codes: tuple[_Code, ...]
    coefficients: np.ndarray  # (training pictures, columns of all codes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    def __call__(self, images: Any) -> np.ndarray:
        pictures = as_pictures(images)
        return np.concatenate([self._read(pictures[i : i + AT_ONCE]) for i in range(0, len(pictures), AT_ONCE)])

    def _read(self, pictures: np.ndarray) -> np.ndarray:
        pixels = _shrink(pictures)
        if pixels.shape[1] != len(self.centre):
            raise DataError(f"this reader was trained on pictures of {len(self.centre)} values after shrinking, not {pixels.shape[1]}.")
        found = _kernel((pixels - self.centre) / self.scale, self.pixels) @ self.coefficients
        parts = np.split(found, np.cumsum([len(c.classes) or 1 for c in self.codes])[:-1], axis=1)
        return np.stack([code.decode(part) for code, part in zip(self.codes, parts, strict=True)], axis=1)

    def quality(self, images: Any, labels: np.ndarray, *, name: str = "reader") -> list[Measurement]:
        """How well it reads pictures it has not seen: `NAME_r2_min` of the continuous variables, `NAME_accuracy_min` of the others.

        Arguments:
            labels: (N, n) the truth. A continuous variable that is constant in it is left out and named in the parameters.
        """
        measured = self(images)
        r2, accuracy, majority, constant = {}, {}, {}, []
        for variable, ours, truth in zip(self.variables, measured.T, np.asarray(labels, dtype=np.float64).T, strict=True):
            if variable.kind != "continuous":
                accuracy[variable.name] = float((ours == truth).mean())
                majority[variable.name] = float(np.unique(truth, return_counts=True)[1].max() / len(truth))
            elif np.ptp(truth) == 0:
                constant.append(variable.name)
            else:
                r2[variable.name] = float(1 - np.square(ours - truth).sum() / np.square(truth - truth.mean()).sum())
        trained: dict[str, Any] = {"training_pictures": len(self.pixels), **({"constant": constant} if constant else {})}
        found = []
        if r2:
            found.append(Measurement(f"{name}_r2_min", min(r2.values()), len(measured), r2, parameters=trained, higher_is_better=True))
        if accuracy:
            both = {**trained, "majority": majority}
            found.append(Measurement(f"{name}_accuracy_min", min(accuracy.values()), len(measured), accuracy, parameters=both, higher_is_better=True))
        return found


@dataclass(frozen=True)
class _Code:
    """How a variable is regressed: standardised, or one column for each class."""

    mean: float
    std: float
    classes: tuple[float, ...] = ()

    @classmethod
    def of(cls, variable: Variable, values: np.ndarray) -> _Code:
        if variable.kind == "continuous":
            return cls(float(values.mean()), float(values.std()) or 1.0)
        return cls(0.0, 1.0, tuple(np.unique(values).tolist()))

    def encode(self, values: np.ndarray) -> np.ndarray:
        """(N,) to (N, columns)."""
        if not self.classes:
            return ((values - self.mean) / self.std)[:, None]
        return 2.0 * (values[:, None] == np.array(self.classes)) - 1

    def decode(self, columns: np.ndarray) -> np.ndarray:
        if not self.classes:
            return columns[:, 0] * self.std + self.mean
        return np.array(self.classes)[columns.argmax(1)]


def fit_reader(images: Any, labels: np.ndarray, variables: Sequence[Variable], *, seed: int = 0) -> Reader:
    """Train a reader on images (N, C, H, W), uint8 or in [0, 1], and labels (N, n) in own units; of more than MOST images, MOST at random."""
    given, table = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images), np.asarray(labels, dtype=np.float64)
    if table.shape != (len(given), len(variables)) or not np.isfinite(table).all():
        raise DataError(f"labels must be finite and ({len(given)}, {len(variables)}), one row per image, not {table.shape}.")
    rows = np.random.default_rng(seed).permutation(len(given))[:MOST]
    pixels, table = _shrink(as_pictures(given[rows])), table[rows]  # rows first: as floats they take four times the memory
    centre = pixels.mean(0)
    pixels = pixels - centre
    scale = float(np.sqrt(np.square(pixels).sum(1).mean())) or 1.0
    pixels = pixels / np.float32(scale)
    codes = tuple(_Code.of(v, column) for v, column in zip(variables, table.T, strict=True))
    targets = [code.encode(column) for code, column in zip(codes, table.T, strict=True)]
    kernel = _kernel(pixels, pixels)
    ridges = _choose_ridges(kernel, targets) if len(rows) >= FEWEST_TO_CHOOSE else [USUAL_RIDGE] * len(targets)
    columns = [np.empty((0, 0))] * len(targets)
    for ridge in set(ridges):
        chosen = [i for i, other in enumerate(ridges) if other == ridge]
        solved = _solve(kernel, ridge, np.concatenate([targets[i] for i in chosen], axis=1))
        for i, part in zip(chosen, np.split(solved, np.cumsum([targets[i].shape[1] for i in chosen])[:-1], axis=1), strict=True):
            columns[i] = part
    return Reader(tuple(variables), pixels, centre, scale, codes, np.concatenate(columns, axis=1))


def simulator_reader(
    simulator: Simulator, size: int, *, pictures: int = MOST, held_out: int = 500, seed: int = 0
) -> tuple[Reader, list[Measurement]]:
    """A reader of a simulator's pictures of `size` pixels, and its quality on `held_out` further ones.

    Every variable is drawn uniformly over its range (5% more at both ends) without regard to the others: what the mechanisms make of
    them does not matter, the simulator draws whatever it is given.
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

    reader = fit_reader(*draw(pictures), simulator.variables, seed=seed)
    return reader, reader.quality(*draw(held_out))


def _choose_ridges(kernel: np.ndarray, targets: Sequence[np.ndarray]) -> list[float]:
    """For each variable the ridge that reads the last fifth best when trained on the rest."""
    cut = math.ceil(0.8 * len(kernel))
    everything = np.concatenate(targets, axis=1)
    bounds = np.cumsum([t.shape[1] for t in targets])[:-1]
    errors = []
    for ridge in RIDGES:
        found = kernel[cut:, :cut] @ _solve(kernel[:cut, :cut], ridge, everything[:cut])
        errors.append([float(np.square(part).mean()) for part in np.split(found - everything[cut:], bounds, axis=1)])
    return [RIDGES[best] for best in np.argmin(errors, axis=0)]


def _solve(kernel: np.ndarray, ridge: float, targets: np.ndarray) -> np.ndarray:
    return scipy.linalg.solve(kernel + ridge * np.eye(len(kernel)), targets, assume_a="pos")


def _kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.square(1.0 + (left @ right.T).astype(np.float64))


def _shrink(pictures: np.ndarray) -> np.ndarray:
    """(N, C, H, W) to (N, d): averaged over squares until no side is above FINEST."""
    height, width = pictures.shape[2:]
    square = math.ceil(max(height, width) / FINEST)
    tensor = torch.from_numpy(pictures)
    if square > 1:
        tensor = functional.adaptive_avg_pool2d(tensor, (math.ceil(height / square), math.ceil(width / square)))
    return tensor.flatten(1).numpy()
