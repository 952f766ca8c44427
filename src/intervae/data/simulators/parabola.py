"""Ovals on a parabola (causal-prior VAE, ICLR 2023 submission, sec. 5.1): y = x^2 + noise.

The grid, 6 scales x 40 rotations x 32 positions x 10 noises, is the paper's; the geometry in pixels
is our choice.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.ovals import SIDE, draw_ovals
from intervae.data.variables import Variable
from intervae.errors import UsageError

CENTRE_X, CENTRE_Y = 31.5, 46.0  # position of x = 0, y = 0
PER_X, PER_Y = 18.0, -24.0  # pixels per unit; y points up
HALF_AXES = (12.0, 7.0)  # of an oval of scale 1; the long one is horizontal at rotation 0
SCALES, ROTATIONS, POSITIONS, NOISES = 6, 40, 32, 10  # of the grid
LARGEST_NOISE = 0.25


class Parabola(Simulator):
    """Variables `x` (-1 to 1), `y` = x^2 + noise, `scale` (0.5 to 1), `rotation` (radians).

    x causes y. Rotations are anticlockwise. An oval looks the same after half a turn, so each image
    of the grid occurs twice.
    """

    name: ClassVar[str] = "parabola"
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("x"),
        Variable("y"),
        Variable("scale"),
        Variable("rotation", unit="radians"),
    )
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges([v.name for v in variables], [("x", "y")])
    exogenous_names: ClassVar[tuple[str, ...]] = ("x", "noise", "scale", "rotation")

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 4): x uniform in [-1, 1], noise [-0.25, 0.25], scale [0.5, 1], rotation [0, 2 pi)."""
        return rng.uniform(
            [-1.0, -LARGEST_NOISE, 0.5, 0.0], [1.0, LARGEST_NOISE, 1.0, 2 * np.pi], size=(n, 4)
        )

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """All 76,800 combinations: scale slowest, then rotation, x, noise; no test images."""
        scale, rotation = (
            np.linspace(0.5, 1.0, SCALES),
            np.arange(ROTATIONS) * (2 * np.pi / ROTATIONS),
        )
        x, noise = (
            np.linspace(-1.0, 1.0, POSITIONS),
            np.linspace(-LARGEST_NOISE, LARGEST_NOISE, NOISES),
        )
        scale, rotation, x, noise = (
            axis.ravel() for axis in np.meshgrid(scale, rotation, x, noise, indexing="ij")
        )
        return np.stack([x, noise, scale, rotation], axis=1), np.zeros(len(x), bool)

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        return values["x"] ** 2 + exogenous["noise"] if name == "y" else exogenous[name]

    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE
    ) -> np.ndarray:
        """(N, 4) variables to (N, 1, size, size) uint8; `exogenous` is not used.

        At 64 x 64 the half-axes are 12 and 7 times the scale; see `draw_ovals`.
        """
        x, y, scale, rotation = self._values(values, size).T
        centre = (CENTRE_X + PER_X * x, CENTRE_Y + PER_Y * y)
        return draw_ovals(centre, (HALF_AXES[0] * scale, HALF_AXES[1] * scale), rotation, size)

    def dataset(
        self,
        *,
        size: int = SIDE,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
    ) -> Dataset:
        """The grid, or `samples` continuous random draws; `seed` draws the samples and the splits.

        Two rows of the grid with the same image, half a turn apart, are in the same split.
        """
        if samples is not None and (
            isinstance(samples, bool) or not isinstance(samples, int) or samples < 8
        ):
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        exogenous = (
            self.published_grid()[0]
            if samples is None
            else self.sample_exogenous(samples, np.random.default_rng(seed))
        )
        values = self.simulate(exogenous)
        return build_dataset(
            self.name,
            self.render(values, size=size),
            values,
            self.variables,
            validation=validation,
            test=test,
            seed=seed,
            groups=_duplicate_groups() if samples is None else None,
            fields={"exogenous": exogenous},
            graph=self.graph,
            simulator=self,
            source={
                "name": self.name,
                "options": {
                    "size": size,
                    "samples": samples,
                    "validation": validation,
                    "test": test,
                    "seed": seed,
                },
            },
        )


def _duplicate_groups() -> np.ndarray:
    """(76,800,): a group number for each row of the grid, shared with the row half a turn away."""
    scale, rotation, rest = np.indices((SCALES, ROTATIONS, POSITIONS * NOISES)).reshape(3, -1)
    return np.ravel_multi_index(
        (scale, rotation % (ROTATIONS // 2), rest), (SCALES, ROTATIONS // 2, POSITIONS * NOISES)
    )
