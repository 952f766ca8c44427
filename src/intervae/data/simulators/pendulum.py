"""Pendulum (CausalVAE, Yang et al. 2021, sec. 6.1): a pendulum, a light and its shadow.

Mechanisms, geometry and grid are the authors'. Labels are exact; the authors truncate them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.dataset import Dataset
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.raster import (
    BLACK,
    FIREBRICK,
    ORANGE,
    Axes,
    Raster,
    draw_in_chunks,
    masks_in_chunks,
)
from intervae.data.variables import Variable
from intervae.errors import unknown

AXES = Axes(x_range=(0.0, 20.0), y_range=(-1.0, 21.0))
PIVOT_X, PIVOT_Y, ROD, BALL_RADIUS = 10.0, 10.5, 8.0, 1.5
SUN_Y, SUN_RADIUS = 20.5, 3.0
GROUND_Y, SHORTEST_SHADOW = -0.5, 3.0
LINE_WIDTH = 4.0  # 3 points at 96 dots per inch
OUTLINE = 2.0 / 3.0  # half of the 1-point outline that matplotlib puts round a disc, in frame units
SHADOW_ROWS = (82.0, 86.0)  # rows of the shadow in the frame, as the authors' renderer rounds them
DEGREES_PER_STEP = 0.9  # pi / 200
LOWEST_SINE = 1e-3  # limits the shadow of a light on the horizon to 9,500 units

LABELS = ("exact", "authors")


class Pendulum(Simulator):
    """Variables `pendulum`, `light` (degrees), `shadow_length`, `shadow_position` (canvas units).

    The pendulum hangs straight down at 0 and swings to the right for positive angles. The light is
    overhead at 90 and to the right below 90. `shadow_position` is the middle of the shadow.
    """

    name: ClassVar[str] = "pendulum"
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("pendulum", unit="degrees"),
        Variable("light", unit="degrees"),
        Variable("shadow_length", unit="canvas units"),
        Variable("shadow_position", unit="canvas units"),
    )
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges(
        [v.name for v in variables],
        [
            ("pendulum", "shadow_length"),
            ("pendulum", "shadow_position"),
            ("light", "shadow_length"),
            ("light", "shadow_position"),
        ],
    )
    exogenous_names: ClassVar[tuple[str, ...]] = ("pendulum", "light")
    objects: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rod and ball": ("pendulum",),
        "sun": ("light",),
        "shadow": ("shadow_length", "shadow_position"),
    }

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 2): pendulum uniform in [-36, 38.7] degrees, light uniform in [54, 132.3]."""
        return rng.uniform([-36.0, 54.0], [38.7, 132.3], size=(n, 2))

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """84 x 87 = 7,308 pairs of angles, light fastest; every 4th but the first is for test."""
        pendulum = np.arange(-40, 44)
        light = np.delete(np.arange(60, 148), 40)  # without 100: overhead
        steps = np.stack(np.meshgrid(pendulum, light, indexing="ij"), axis=-1).reshape(-1, 2)
        row = np.arange(len(steps))
        return DEGREES_PER_STEP * steps, (row % 4 == 0) & (row > 0)

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        if name in self.exogenous_names:
            return exogenous[name]
        pendulum, light = np.radians(values["pendulum"]), np.radians(values["light"])
        sine = _away_from_zero(np.sin(light))
        # signed shadow of rod and ball under parallel rays
        spread = (ROD + BALL_RADIUS) * np.cos(pendulum - light) / sine
        if name == "shadow_length":
            return np.maximum(SHORTEST_SHADOW, np.abs(spread))
        pivot_shadow = PIVOT_X - (PIVOT_Y - GROUND_Y) * np.cos(light) / sine
        return pivot_shadow + spread / 2

    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> np.ndarray:
        """(N, 4) variables to (N, 3, size, size) uint8; `exogenous` is not used.

        The ends of the shadow are exact; the authors' renderer rounds them to the nearest pixel.
        """
        drawing = self._drawing(values, size)
        return draw_in_chunks(len(values), size, drawing, AXES.clip)

    def object_masks(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> dict[str, np.ndarray]:
        drawing = self._drawing(values, size)
        return masks_in_chunks(len(values), size, drawing, self.objects, AXES.clip)

    def _drawing(self, values: np.ndarray, size: int) -> Callable[[Raster, slice], None]:
        """Return the function that draws a slice of the rows of `values`."""
        pendulum, light, length, position = self._values(values, size).T
        pendulum, light = np.radians(pendulum), np.radians(light)
        ball_x, ball_y = (
            AXES.x(PIVOT_X + ROD * np.sin(pendulum)),
            AXES.y(PIVOT_Y - ROD * np.cos(pendulum)),
        )
        rod_x, rod_y = (
            np.stack([np.full_like(ball_x, AXES.x(PIVOT_X)), ball_x], 1),
            np.stack([np.full_like(ball_y, AXES.y(PIVOT_Y)), ball_y], 1),
        )
        sun_x = AXES.x(PIVOT_X + (SUN_Y - PIVOT_Y) * np.cos(light) / _away_from_zero(np.sin(light)))
        left, right = AXES.x(position - length / 2), AXES.x(position + length / 2)

        def disc(radius: float) -> tuple[float, float]:
            return radius * AXES.x_scale + OUTLINE, radius * AXES.y_scale + OUTLINE

        def draw(raster: Raster, rows: slice) -> None:
            with raster.object("rod and ball"):
                raster.stroke(rod_x[rows], rod_y[rows], LINE_WIDTH, BLACK)
                raster.ellipse(ball_x[rows], ball_y[rows], *disc(BALL_RADIUS), FIREBRICK)
            with raster.object("sun"):
                raster.ellipse(sun_x[rows], AXES.y(SUN_Y), *disc(SUN_RADIUS), ORANGE)
            with raster.object("shadow"):
                raster.box(left[rows], right[rows], *SHADOW_ROWS, BLACK)

        return draw

    def dataset(
        self,
        *,
        size: int = 64,
        samples: int | None = None,
        validation: float = 0.1,
        seed: int = 0,
        labels: str = "exact",
    ) -> Dataset:
        """As `Simulator.dataset`; labels="authors" truncates the shadow's labels to whole numbers.

        The authors' angles are step numbers of 0.9 degrees. They stay in degrees here: normalised
        labels are the same, and do() has the units of the simulator with either labels.
        """
        if labels not in LABELS:
            raise unknown("labels of pendulum", labels, LABELS)
        return self._build(
            size=size,
            samples=samples,
            validation=validation,
            seed=seed,
            label=_truncate if labels == "authors" else None,
            labels=labels,
        )


def _truncate(values: np.ndarray) -> np.ndarray:
    """(N, 4) with the two shadow columns truncated to whole numbers."""
    return np.concatenate([values[:, :2], np.trunc(values[:, 2:])], axis=1)


def _away_from_zero(sine: np.ndarray) -> np.ndarray:
    return np.where(np.abs(sine) < LOWEST_SINE, np.copysign(LOWEST_SINE, sine), sine)
