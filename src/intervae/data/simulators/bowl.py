"""Discs that grow with the square of their distance from the middle (ours): two causes, one effect.

A second image world for priors with quadratic equations, beside `parabola`.
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
from intervae.errors import QueryError, UsageError

IMAGES = 20_000
MIDDLE, PER_UNIT = 31.5, 18.0  # pixels of the 64 x 64 image; y points up
RADIUS, GROWTH = 5.0, 3.0  # in these pixels, at growth 0 and per unit of it
LARGEST_NOISE = 0.25


class Bowl(Simulator):
    """Variables `x` and `y` (-1 to 1), and `growth` = x^2 + y^2 + noise.

    x and y cause the growth. At 64 x 64 the disc is at column 31.5 + 18 x and row 31.5 - 18 y, and
    its radius is 5 + 3 growth.
    """

    name: ClassVar[str] = "bowl"
    variables: ClassVar[tuple[Variable, ...]] = (Variable("x"), Variable("y"), Variable("growth"))
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges(
        [v.name for v in variables], [("x", "growth"), ("y", "growth")]
    )
    exogenous_names: ClassVar[tuple[str, ...]] = ("x", "y", "noise")

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 3): x and y uniform in [-1, 1], noise in [-0.25, 0.25]."""
        return rng.uniform([-1, -1, -LARGEST_NOISE], [1, 1, LARGEST_NOISE], size=(n, 3))

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError(
            "bowl has no published grid; use sample_exogenous(n, rng) for random images."
        )

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        if name == "growth":
            return values["x"] ** 2 + values["y"] ** 2 + exogenous["noise"]
        return exogenous[name]

    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE
    ) -> np.ndarray:
        """(N, 3) variables to (N, 1, size, size) uint8; `exogenous` is not used."""
        x, y, growth = self._values(values, size).T
        radius = RADIUS + GROWTH * growth
        centre = (MIDDLE + PER_UNIT * x, MIDDLE - PER_UNIT * y)
        return draw_ovals(centre, (radius, radius), np.zeros(len(x)), size)

    def dataset(
        self,
        *,
        size: int = SIDE,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
    ) -> Dataset:
        """`samples` random draws (None: 20,000); `seed` draws the samples and the splits."""
        samples = IMAGES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        exogenous = self.sample_exogenous(samples, np.random.default_rng(seed))
        values = self.simulate(exogenous)
        splits = {"validation": validation, "test": test, "seed": seed}
        return build_dataset(
            self.name,
            self.render(values, size=size),
            values,
            self.variables,
            fields={"exogenous": exogenous},
            graph=self.graph,
            simulator=self,
            source={"name": self.name, "options": {"size": size, "samples": samples, **splits}},
            validation=validation,
            test=test,
            seed=seed,
        )
