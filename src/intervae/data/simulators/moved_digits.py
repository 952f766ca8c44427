"""Digits that a column of a table turns or shifts (CMCL, Mao et al. 2022, sec. 4.2 and App. E.3): real pictures, a known cause, true do().

`angle` ~ U(0, 10) turns a digit by 0.9 angle^2 + N(0, 1) degrees; `offset` ~ U(-5, 5) shifts it by offset + N(0, 1) + N(0, 1) pixels. The
paper leaves the turning function open, which is ours.
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
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import resize_images
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError, QueryError, UsageError, unknown

DIGITS = 10
SAMPLES = 1000
AT_ONCE = 4096  # pictures that are moved together
BEND = 3.0  # of the bent shift, 6 tanh(v / 3): its slope falls from 2 in the middle to 0.25 at the ends


class MovedDigits(Simulator):
    """Latents `rotation` (degrees, anticlockwise) or `shift` (pixels of 28, downwards), and `shape`, which picture it is.

    The columns are `angle` or `offset`, which causes the movement, and `digit`, which causes the shape.
    Noises: of the movement, which of a digit's pictures, the column, the digit.

    Arguments:
        pictures: (10, p, 28, 28) uint8, p pictures of each digit.
        move: "rotation" or "shift".
        law: of the shift, "linear" (the paper's) or "tanh", 6 tanh(offset / 3); of the rotation there is only "square".
        noise: standard deviation of the movement's noise; 1 degree or sqrt(2) pixels without it.
    """

    name: ClassVar[str] = "moved-digits"
    laws: ClassVar[dict[str, tuple[str, ...]]] = {"rotation": ("square",), "shift": ("linear", "tanh")}

    def __init__(self, pictures: np.ndarray, *, move: str = "rotation", law: str | None = None, noise: float | None = None) -> None:
        if move not in self.laws:
            raise unknown("move", move, self.laws)
        law = self.laws[move][0] if law is None else law
        if law not in self.laws[move]:
            raise unknown(f"law of {move}", law, self.laws[move])
        if noise is not None and (isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 <= noise < 1e6):
            raise UsageError(f"noise={noise!r} must be a number, 0 or more.")
        if pictures.ndim != 4 or len(pictures) != DIGITS or pictures.dtype != np.uint8:
            raise DataError(f"moved digits are made of (10, p, H, W) uint8, p pictures of each digit, not of {pictures.dtype} {pictures.shape}.")
        self.pictures, self.each = pictures.reshape(-1, *pictures.shape[2:]), pictures.shape[1]
        self.move, self.law = move, law
        self.column, self.range = ("angle", (0.0, 10.0)) if move == "rotation" else ("offset", (-5.0, 5.0))
        self.noise = (1.0 if move == "rotation" else math.sqrt(2.0)) if noise is None else float(noise)
        # what `measure` tries: the reach of the law and its noise, in steps that it refines
        self.tried = np.arange(-45.0, 135.1, 1.5) if move == "rotation" else np.arange(-13.0, 13.01, 0.5)
        digits = tuple(str(digit) for digit in range(DIGITS))
        self.variables = (  # type: ignore[misc]
            Variable(move, unit="degrees" if move == "rotation" else "pixels"),
            Variable("shape", "categorical", categories=tuple(f"{digit}-{k + 1}" for digit in digits for k in range(self.each))),
            Variable(self.column),
            Variable("digit", "categorical", categories=digits),
        )
        self.latent_names, self.structured_names = (move, "shape"), (self.column, "digit")
        self.graph = CausalGraph.from_edges([v.name for v in self.variables], [(self.column, move), ("digit", "shape")])  # type: ignore[misc]
        self.exogenous_names = self.graph.names  # type: ignore[misc]

    # ---- mechanisms -------------------------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 4): the noise of the movement, which of a digit's pictures, the column, the digit."""
        which, digit = rng.integers(0, self.each, n), rng.integers(0, DIGITS, n)
        return np.stack([rng.normal(0.0, self.noise, n), which, rng.uniform(*self.range, n), digit], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError("moved digits have no published grid, they are drawn at random; use sample_exogenous(n, rng).")

    def movement(self, column: np.ndarray) -> np.ndarray:
        """How far the column moves a digit, without the noise: f of the paper."""
        if self.law == "square":
            return 0.9 * np.square(column)
        return np.asarray(column) if self.law == "linear" else 2 * BEND * np.tanh(np.asarray(column) / BEND)

    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        if name == self.move:
            return self.movement(values[self.column]) + exogenous[name]
        return values["digit"] * self.each + exogenous["shape"] if name == "shape" else exogenous[name]

    # ---- pictures ---------------------------------------------------------------------------------------------------
    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int | None = None) -> np.ndarray:
        """(N, 4) nodes to (N, 1, size, size) uint8: bilinear, black where the picture ends; another size than the digits' by resizing."""
        size = self.pictures.shape[-1] if size is None else size
        table = self._values(values, size)
        moved = self._moved(self.pictures[self._rows(table[:, 1])], table[:, 0])
        return resize_images(np.rint(moved).astype(np.uint8)[:, None], (size, size))

    def counterfactual(self, exogenous: np.ndarray, do: Do, *, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What the same noises would have shown under `do`: images (N, 1, size, size) uint8 and all nodes (N, 4)."""
        values = self.simulate(exogenous, do)
        return self.render(values, exogenous, size=size), values

    def _rows(self, shape: np.ndarray) -> np.ndarray:
        rows = shape.astype(np.intp)
        if (rows != shape).any() or (rows < 0).any() or (rows >= len(self.pictures)).any():
            raise DataError(f"'shape' must be a whole number from 0 to {len(self.pictures) - 1}, and 'digit' one from 0 to 9.")
        return rows

    def _moved(self, pictures: np.ndarray, by: np.ndarray) -> np.ndarray:
        """(N, H, W) pictures, each moved by its (N,) amount, as (N, H, W) floats."""
        out = []
        for start in range(0, len(pictures), AT_ONCE):
            part = torch.as_tensor(pictures[start : start + AT_ONCE].astype(np.float32))[:, None]
            amount = torch.as_tensor(by[start : start + AT_ONCE], dtype=torch.float32)
            affine = torch.zeros(len(part), 2, 3)
            if self.move == "rotation":
                turn = torch.deg2rad(amount)
                affine[:, 0, 0] = affine[:, 1, 1] = turn.cos()  # where a pixel of the result lies in the picture
                affine[:, 0, 1], affine[:, 1, 0] = -turn.sin(), turn.sin()
            else:
                affine[:, 0, 0] = affine[:, 1, 1] = 1.0
                affine[:, 1, 2] = -2 * amount / part.shape[2]
            grid = affine_grid(affine, list(part.shape), align_corners=False)
            out.append(grid_sample(part, grid, mode="bilinear", padding_mode="zeros", align_corners=False)[:, 0])
        return torch.cat(out).numpy()

    # ---- measuring --------------------------------------------------------------------------------------------------
    def measure(self, images: np.ndarray | Tensor, shape: np.ndarray | Tensor) -> np.ndarray:
        """How far a digit is turned (degrees) or shifted (pixels of 28) in pictures (N, 1, H, H), those of a model too: (N,).

        The picture of `shape` (N,), the second column of the field `latents`, is moved by every amount in steps; the amount whose picture
        correlates best is refined by a parabola through its neighbours. Where a picture is blank, the answer is nan.
        """
        pixels = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
        rows = self._rows(np.asarray(shape.detach().cpu() if isinstance(shape, Tensor) else shape, dtype=np.float64))
        if pixels.ndim != 4 or pixels.shape[1] != 1 or pixels.shape[2] != pixels.shape[3] or len(pixels) != len(rows):
            raise DataError(f"{len(rows)} digits are measured on pictures ({len(rows)}, 1, H, H), not on shape {pixels.shape}.")
        size = pixels.shape[2]
        found = np.empty(len(pixels))
        for row in np.unique(rows):
            tried = np.rint(self._moved(np.repeat(self.pictures[row][None], len(self.tried), 0), self.tried)).astype(np.uint8)
            examples = _unit(resize_images(tried[:, None], (size, size)))
            mine = rows == row
            found[mine] = self._peak(_unit(pixels[mine]) @ examples.T)
        return found

    def _peak(self, match: np.ndarray) -> np.ndarray:
        """(N, tried) correlations to the amounts (N,) at their peaks."""
        best = np.clip(match.argmax(1), 1, len(self.tried) - 2)
        low, middle, high = (match[np.arange(len(match)), best + step] for step in (-1, 0, 1))
        curve = low - 2 * middle + high
        with np.errstate(invalid="ignore", divide="ignore"):
            off = np.where(curve < 0, np.clip(0.5 * (low - high) / curve, -1, 1), 0.0)
        return np.where(np.isfinite(match).all(1), self.tried[best] + off * (self.tried[1] - self.tried[0]), np.nan)

    # ---- data -------------------------------------------------------------------------------------------------------
    def dataset(
        self, *, size: int | None = None, samples: int | None = None, validation: float = 0.1, test: float = 0.2, seed: int = 0, name: str = ""
    ) -> Dataset:
        """`samples` pictures, 1,000 without it, labelled with the column and the digit; the field `latents` (N, 2) is for evaluation only."""
        samples = SAMPLES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        exogenous = self.sample_exogenous(samples, np.random.default_rng([seed, 6]))
        values = self.simulate(exogenous)
        fields: dict[str, Any] = {"exogenous": exogenous, "latents": values[:, :2].astype(np.float32)}
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


def _unit(images: np.ndarray) -> np.ndarray:
    """(N, 1, H, W) to (N, H W), each centred and of length 1; nan where a picture is one grey."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    flat = flat - flat.mean(1, keepdims=True)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat / np.where(length > 1e-9, length, np.nan)
