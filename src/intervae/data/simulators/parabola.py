"""Ovals on a parabola (causal-prior VAE, ICLR 2023 submission, sec. 5.1): a white oval whose height follows the square of its place.

The paper states the grid, 6 scales x 40 rotations x 32 places x 10 noises, and y = x^2 + noise; the geometry in pixels is our choice.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.simulators.base import Simulator
from intervae.errors import UsageError

SIDE = 64  # pixels of the paper's pictures; the geometry below is in these, the middle of the first one at 0
CENTRE_X, CENTRE_Y = 31.5, 46.0  # where x = 0, y = 0 is
PER_X, PER_Y = 18.0, -24.0  # larger y is higher up
HALF_AXES = (12.0, 7.0)  # of an oval of scale 1, the long one level at rotation 0
SCALES, ROTATIONS, PLACES, NOISES = 6, 40, 32, 10
LARGEST_NOISE = 0.25
ROWS_AT_ONCE = 2**17  # rows of sub-pixels


class Parabola(Simulator):
    """Variables `x` (-1 to 1), `y` = x^2 + noise, `scale` (0.5 to 1) and `rotation` (radians, anticlockwise); only x causes y.

    An oval looks the same after half a turn, so each picture of the grid is there twice, under two rotations.
    """

    name: ClassVar[str] = "parabola"
    variables: ClassVar[tuple[Variable, ...]] = (Variable("x"), Variable("y"), Variable("scale"), Variable("rotation", unit="radians"))
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges([v.name for v in variables], [("x", "y")])
    exogenous_names: ClassVar[tuple[str, ...]] = ("x", "noise", "scale", "rotation")

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 4): x uniform in [-1, 1], noise in [-0.25, 0.25], scale in [0.5, 1], rotation in [0, 2 pi)."""
        return rng.uniform([-1.0, -LARGEST_NOISE, 0.5, 0.0], [1.0, LARGEST_NOISE, 1.0, 2 * np.pi], size=(n, 4))

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """All 76,800 combinations, scale slowest, then rotation, x and noise; the paper keeps no test images, so the mask is empty."""
        scale, rotation = np.linspace(0.5, 1.0, SCALES), np.arange(ROTATIONS) * (2 * np.pi / ROTATIONS)
        x, noise = np.linspace(-1.0, 1.0, PLACES), np.linspace(-LARGEST_NOISE, LARGEST_NOISE, NOISES)
        scale, rotation, x, noise = (axis.ravel() for axis in np.meshgrid(scale, rotation, x, noise, indexing="ij"))
        return np.stack([x, noise, scale, rotation], axis=1), np.zeros(len(x), bool)

    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        return values["x"] ** 2 + exogenous["noise"] if name == "y" else exogenous[name]

    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE) -> np.ndarray:
        """(N, 4) variables to (N, 1, size, size) uint8; there is no noise that only the picture sees, so `exogenous` is not used.

        From 64 pixels on pictures are black and white: a pixel is white where its middle is inside the oval. Below that a pixel is the
        mean of as many sub-pixels as make the picture 64 wide or more, so that at 32, 16 or 8 it is the 64 x 64 picture, average-pooled.
        """
        x, y, scale, rotation = self._values(values, size).T
        finer = -(-SIDE // size)  # sub-pixels along each side of a pixel
        unit = finer * size / SIDE  # sub-pixels per pixel of the paper
        centre = ((CENTRE_X + PER_X * x + 0.5) * unit - 0.5, (CENTRE_Y + PER_Y * y + 0.5) * unit - 0.5)
        half_axes = tuple(np.maximum(scale, 0.0) * (unit * half) for half in HALF_AXES)
        images = np.empty((len(x), 1, size, size), np.uint8)
        step = max(1, ROWS_AT_ONCE // (finer * size))
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            chunk = [part[rows] for part in (*centre, *half_axes, rotation)]
            images[rows, 0] = _fill(*_runs(*chunk, side=finer * size), size, finer)
        return images

    def dataset(self, *, size: int = SIDE, samples: int | None = None, validation: float = 0.1, test: float = 0.2, seed: int = 0) -> Dataset:
        """The whole grid, or `samples` continuous random draws; `seed` draws the samples and the splits.

        Two rows of the grid that show the same picture, half a turn apart, are in the same split.
        """
        if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 8):
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        exogenous = self.published_grid()[0] if samples is None else self.sample_exogenous(samples, np.random.default_rng(seed))
        values = self.simulate(exogenous)
        return build_dataset(
            self.name,
            self.render(values, size=size),
            values,
            self.variables,
            validation=validation,
            test=test,
            seed=seed,
            groups=_twins() if samples is None else None,
            fields={"exogenous": exogenous},
            graph=self.graph,
            simulator=self,
            source={"name": self.name, "options": {"size": size, "samples": samples, "validation": validation, "test": test, "seed": seed}},
        )


def _twins() -> np.ndarray:
    """(76,800,) a number for each row of the grid that it shares with the row half a turn away."""
    scale, rotation, rest = np.indices((SCALES, ROTATIONS, PLACES * NOISES)).reshape(3, -1)
    return np.ravel_multi_index((scale, rotation % (ROTATIONS // 2), rest), (SCALES, ROTATIONS // 2, PLACES * NOISES))


def _runs(x: np.ndarray, y: np.ndarray, long: np.ndarray, short: np.ndarray, rotation: np.ndarray, *, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Which sub-pixels of each row have their middle inside an oval: from `first` up to, without, `end`, both (n, side).

    Inside is A u^2 + 2 B u v + C v^2 <= 1 for the offsets u to the right and v downwards, with A C - B^2 = 1 / (long * short)^2, so
    the row v is cut at u = (-B v -+ sqrt(A - (v / (long * short))^2)) / A.
    """
    drawn = (long > 0) & (short > 0)
    long, short = np.where(drawn, long, 1.0), np.where(drawn, short, 1.0)
    cosine, sine = np.cos(rotation), np.sin(rotation)
    a = (cosine / long) ** 2 + (sine / short) ** 2
    b = cosine * sine * (short**-2 - long**-2)  # v downwards, rotation anticlockwise
    v = np.arange(side) - y[:, None]  # (n, side)
    squared = a[:, None] - (v / (long * short)[:, None]) ** 2
    middle = x[:, None] - (b / a)[:, None] * v
    reach = np.sqrt(np.maximum(squared, 0.0)) / a[:, None]
    first = np.clip(np.ceil(middle - reach), 0, side).astype(np.intp)
    end = np.clip(np.floor(middle + reach) + 1, 0, side).astype(np.intp)
    return first, np.where((squared >= 0) & drawn[:, None], np.maximum(end, first), first)


def _fill(first: np.ndarray, end: np.ndarray, size: int, finer: int) -> np.ndarray:
    """Runs of sub-pixels (n, finer * size) to (n, size, size) uint8, 255 where a pixel is wholly inside a run."""
    side = finer * size
    before = np.clip(np.arange(side + 1)[:, None] - finer * np.arange(size), 0, finer).astype(np.uint8)  # of a pixel's columns, those before a place
    covered = before[end] - before[first]  # (n, side, size) sub-pixels of a row
    if finer > 1:
        covered = covered.reshape(len(first), size, finer, size).sum(axis=2, dtype=np.uint8)  # at most 64, as no picture is smaller than 8
    levels = np.rint(255.0 * np.arange(finer**2 + 1) / finer**2).astype(np.uint8)
    return levels[covered] if finer > 1 else covered * np.uint8(255)
