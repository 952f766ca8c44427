"""Simulator of digits that a column rotates or shifts (CMCL, Mao et al. 2022, sec. 4.2, App. E.3).

`angle` ~ U(0, 10) rotates a digit by 0.9 angle^2 + N(0, 1) degrees; the paper does not give its
function, this one is ours. `offset` ~ U(-5, 5) shifts it by offset + N(0, 1) + N(0, 1) pixels.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.pixel_arrays import resize_images
from intervae.data.simulators.base import Simulator
from intervae.data.variables import Variable
from intervae.errors import DataError, QueryError, UsageError, unknown

DIGITS = 10
SAMPLES = 1000
CHUNK = 4096  # images moved together
TANH_SCALE = 3.0  # 6 tanh(v / 3) has slope 2 in the middle and 0.25 at the ends


class MovedDigits(Simulator):
    """Latents: the movement and `shape`, the index of the image; columns cause them.

    The movement is `rotation` (degrees, anticlockwise), caused by `angle`, or `shift` (pixels of
    28, downwards), caused by `offset`. `digit` causes `shape`.
    Noises: of the movement, index among the images of the digit, the column, the digit.

    Arguments:
        images: (10, p, 28, 28) uint8, p images of each digit.
        move: "rotation" or "shift".
        law: of a shift, "linear" as in the paper, or "tanh" for 6 tanh(offset / 3); of a rotation
            only "square".
        noise: standard deviation of the movement; by default 1 degree or sqrt(2) pixels.
    """

    name: ClassVar[str] = "moved-digits"
    laws: ClassVar[dict[str, tuple[str, ...]]] = {
        "rotation": ("square",),
        "shift": ("linear", "tanh"),
    }

    def __init__(
        self,
        images: np.ndarray,
        *,
        move: str = "rotation",
        law: str | None = None,
        noise: float | None = None,
    ) -> None:
        if move not in self.laws:
            raise unknown("move", move, self.laws)
        law = self.laws[move][0] if law is None else law
        if law not in self.laws[move]:
            raise unknown(f"law of {move}", law, self.laws[move])
        if noise is not None:
            is_number = isinstance(noise, int | float) and not isinstance(noise, bool)
            if not is_number or not 0 <= noise < 1e6:
                raise UsageError(f"noise={noise!r} must be a number, 0 or more.")
        if images.ndim != 4 or len(images) != DIGITS or images.dtype != np.uint8:
            raise DataError(
                "moved digits are made of (10, p, H, W) uint8, p images of each digit, "
                f"not of {images.dtype} {images.shape}."
            )
        self.images, self.each = images.reshape(-1, *images.shape[2:]), images.shape[1]
        self.move, self.law = move, law
        # `measure` compares with these movements
        if move == "rotation":
            self.column, self.range, default_noise = "angle", (0.0, 10.0), 1.0
            self.candidates, unit = np.arange(-45.0, 135.1, 1.5), "degrees"
        else:
            self.column, self.range, default_noise = "offset", (-5.0, 5.0), math.sqrt(2.0)
            self.candidates, unit = np.arange(-13.0, 13.01, 0.5), "pixels"
        self.noise = default_noise if noise is None else float(noise)
        digits = tuple(str(digit) for digit in range(DIGITS))
        shapes = tuple(f"{digit}-{k + 1}" for digit in digits for k in range(self.each))
        self.variables = (  # type: ignore[misc]
            Variable(move, unit=unit),
            Variable("shape", "categorical", categories=shapes),
            Variable(self.column),
            Variable("digit", "categorical", categories=digits),
        )
        self.latent_names, self.structured_names = (move, "shape"), (self.column, "digit")
        self.graph = CausalGraph.from_edges(  # type: ignore[misc]
            [v.name for v in self.variables], [(self.column, move), ("digit", "shape")]
        )
        self.exogenous_names = self.graph.names  # type: ignore[misc]

    # ---- mechanisms ------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 4): noise of the movement, index among the digit's images, column, digit."""
        which, digit = rng.integers(0, self.each, n), rng.integers(0, DIGITS, n)
        noise = rng.normal(0.0, self.noise, n)
        return np.stack([noise, which, rng.uniform(*self.range, n), digit], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError(
            "moved digits have no published grid, they are drawn at random; "
            "use sample_exogenous(n, rng)."
        )

    def movement(self, column: np.ndarray) -> np.ndarray:
        """Noise-free movement that a value of the column causes, f of the paper."""
        if self.law == "square":
            return 0.9 * np.square(column)
        if self.law == "linear":
            return np.asarray(column)
        return 2 * TANH_SCALE * np.tanh(np.asarray(column) / TANH_SCALE)

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        if name == self.move:
            return self.movement(values[self.column]) + exogenous[name]
        if name == "shape":
            return values["digit"] * self.each + exogenous["shape"]
        return exogenous[name]

    # ---- images ----------------------------------------------------------------------------------
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int | None = None
    ) -> np.ndarray:
        """Render nodes (N, 4) as images (N, 1, size, size) uint8, bilinear, black outside."""
        size = self.images.shape[-1] if size is None else size
        nodes = self._values(values, size)
        moved = self._move(self.images[self._image_index(nodes[:, 1])], nodes[:, 0])
        return resize_images(np.rint(moved).astype(np.uint8)[:, None], (size, size))

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images (N, 1, size, size) uint8 and nodes (N, 4) of the same noises under `do`."""
        values = self.simulate(exogenous, do)
        return self.render(values, exogenous, size=size), values

    def _image_index(self, shape: np.ndarray) -> np.ndarray:
        index = shape.astype(np.intp)
        if (index != shape).any() or (index < 0).any() or (index >= len(self.images)).any():
            raise DataError(
                f"'shape' must be a whole number from 0 to {len(self.images) - 1}, "
                "and 'digit' one from 0 to 9."
            )
        return index

    def _move(self, images: np.ndarray, amounts: np.ndarray) -> np.ndarray:
        """Move images (N, H, W) by amounts (N,); returns (N, H, W) floats."""
        chunks = []
        for start in range(0, len(images), CHUNK):
            part = torch.as_tensor(images[start : start + CHUNK].astype(np.float32))[:, None]
            amount = torch.as_tensor(amounts[start : start + CHUNK], dtype=torch.float32)
            affine = torch.zeros(len(part), 2, 3)  # from places of the result to the image
            if self.move == "rotation":
                turn = torch.deg2rad(amount)
                affine[:, 0, 0] = affine[:, 1, 1] = turn.cos()
                affine[:, 0, 1], affine[:, 1, 0] = -turn.sin(), turn.sin()
            else:
                affine[:, 0, 0] = affine[:, 1, 1] = 1.0
                affine[:, 1, 2] = -2 * amount / part.shape[2]
            grid = affine_grid(affine, list(part.shape), align_corners=False)
            moved = grid_sample(
                part, grid, mode="bilinear", padding_mode="zeros", align_corners=False
            )
            chunks.append(moved[:, 0])
        return torch.cat(chunks).numpy()

    # ---- measurement -----------------------------------------------------------------------------
    def measure(self, images: np.ndarray | Tensor, shape: np.ndarray | Tensor) -> np.ndarray:
        """Measure the rotation (degrees) or shift (pixels of 28) in images (N, 1, H, H): (N,).

        Each image is correlated with its digit, `shape` (N,), moved by all candidate amounts; a
        parabola through the neighbours refines the best. Blank images give nan.
        """
        pixels = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
        shapes = shape.detach().cpu() if isinstance(shape, Tensor) else shape
        index = self._image_index(np.asarray(shapes, dtype=np.float64))
        is_square = pixels.ndim == 4 and pixels.shape[1] == 1 and pixels.shape[2] == pixels.shape[3]
        if not is_square or len(pixels) != len(index):
            raise DataError(
                f"{len(index)} digits are measured on images ({len(index)}, 1, H, H), "
                f"not on shape {pixels.shape}."
            )
        size = pixels.shape[2]
        amounts = np.empty(len(pixels))
        for i in np.unique(index):
            copies = np.repeat(self.images[i][None], len(self.candidates), 0)
            moved = np.rint(self._move(copies, self.candidates)).astype(np.uint8)
            templates = _unit_length(resize_images(moved[:, None], (size, size)))
            rows = index == i
            amounts[rows] = self._peak(_unit_length(pixels[rows]) @ templates.T)
        return amounts

    def _peak(self, correlations: np.ndarray) -> np.ndarray:
        """Amounts (N,) at the maxima of correlations (N, candidates)."""
        best = np.clip(correlations.argmax(1), 1, len(self.candidates) - 2)
        rows = np.arange(len(correlations))
        low, middle, high = (correlations[rows, best + step] for step in (-1, 0, 1))
        curvature = low - 2 * middle + high
        with np.errstate(invalid="ignore", divide="ignore"):
            vertex = np.clip(0.5 * (low - high) / curvature, -1, 1)
            offset = np.where(curvature < 0, vertex, 0.0)
        step = self.candidates[1] - self.candidates[0]
        amounts = self.candidates[best] + offset * step
        return np.where(np.isfinite(correlations).all(1), amounts, np.nan)

    # ---- data ------------------------------------------------------------------------------------
    def dataset(
        self,
        *,
        size: int | None = None,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        name: str = "",
    ) -> Dataset:
        """Sample `samples` images, 1,000 by default, labelled with the column and the digit.

        The fields `latents` (N, 2) and `exogenous` are for evaluation only.
        """
        samples = SAMPLES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        exogenous = self.sample_exogenous(samples, np.random.default_rng([seed, 6]))
        values = self.simulate(exogenous)
        fields: dict[str, Any] = {
            "exogenous": exogenous,
            "latents": values[:, :2].astype(np.float32),
        }
        return build_dataset(
            name or self.name,
            self.render(values, exogenous, size=size),
            values[:, 2:],
            self.variables[2:],
            validation=validation,
            test=test,
            seed=seed,
            fields=fields,
            graph=self.graph,
            simulator=self,
        )


def _unit_length(images: np.ndarray) -> np.ndarray:
    """Centre images (N, 1, H, W) and scale them to length 1, (N, H W); nan if constant."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    flat = flat - flat.mean(1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat / np.where(length > 1e-9, length, np.nan)
