"""Flow (CausalVAE, Yang et al. 2021, sec. 6.1): a ball raises the water, which flows from a hole.

Mechanisms, geometry, grid and split are the authors'. Labels are exact; the authors truncate them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.raster import (
    BLACK,
    FIREBRICK,
    FRAME,
    SKY_BLUE,
    Axes,
    Raster,
    draw_in_chunks,
    masks_in_chunks,
)
from intervae.data.variables import Variable
from intervae.errors import DataError

AXES = Axes(x_range=(0.0, 20.0), y_range=(0.0, 20.0))
CUP_RIGHT = 8.0
WATER_BASE = 5.0  # the water level is WATER_BASE + water
GAP = 0.4  # the gap in the wall is [hole, hole + GAP]
BALL_X, BALL_FLOOR = 5.5, 0.5
GRAVITY, LANDING_Y = 0.98, 0.5
# shifted exponential distribution, fitted to the jets of 2,500 published images
WOBBLE_LEAST, WOBBLE_SCALE = 0.0085, 0.0035
JET_SEGMENTS = 24

# in frame units, as measured on the published images
LINE_WIDTH = 8.0 / 3.0  # 2 points at 96 dots per inch
OUTLINE = 2.0 / 3.0  # half of the 1-point outline of a disc or box in matplotlib
LEFT_WALL, RIGHT_WALL, GROUND = 23.5, 42.5, 85.5  # centres of the lines
WALL_TOP = 15.5
SNAP = 0.5  # mean downward shift of horizontal edges by rounding in the authors' renderer


class Flow(Simulator):
    """Variables `ball` (radius), `water` and `hole` (heights), `flow` (x of the jet at y = 0.5).

    All in canvas units. Noises: the ball, the water without the ball, the hole, and the `wobble` of
    the jet, a change of gravity that affects only the image, by 0.6% of the length of the jet.
    """

    name: ClassVar[str] = "flow"
    variables: ClassVar[tuple[Variable, ...]] = tuple(
        Variable(name, unit="canvas units") for name in ("ball", "water", "flow", "hole")
    )
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges(
        [v.name for v in variables], [("ball", "water"), ("water", "flow"), ("hole", "flow")]
    )
    exogenous_names: ClassVar[tuple[str, ...]] = ("ball", "raw_water", "hole", "wobble")
    objects: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "water": ("water",),
        "ball": ("ball",),
        "gap": ("hole",),  # in the right wall, of which the rest never changes
        "jet": ("flow", "hole"),
    }

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 4): ball uniform in [5/30, 34/30], raw water [1, 3.9], hole [2, 14/3]; wobble."""
        uniform = rng.uniform([5 / 30, 1.0, 2.0], [34 / 30, 3.9, 14 / 3], size=(n, 3))
        return np.concatenate([uniform, _wobble(n, rng)], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """30 balls x 30 waters x 9 holes = 8,100, hole fastest; every 5th is a test image.

        The authors' file names collide (6,874 files remain, 824 names are in both splits); here all
        8,100 exist. The authors' wobbles are unknown; ours have a fixed seed.
        """
        ball, raw_water, hole = np.arange(5, 35) / 30, np.arange(10, 40) / 10, np.arange(6, 15) / 3
        grid = np.stack(np.meshgrid(ball, raw_water, hole, indexing="ij"), axis=-1).reshape(-1, 3)
        wobble = _wobble(len(grid), np.random.default_rng(2021))
        return np.concatenate([grid, wobble], axis=1), np.arange(len(grid)) % 5 == 4

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        if name == "water":
            return values["ball"] ** 3 + exogenous["raw_water"]
        if name == "flow":
            pressure, drop = (
                np.maximum(values["water"], 0.0),
                np.maximum(values["hole"] - LANDING_Y, 0.0),
            )
            return CUP_RIGHT + np.sqrt(2 * GRAVITY * pressure * drop)
        return exogenous[name]

    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> np.ndarray:
        """(N, 4) variables to (N, 3, size, size) uint8.

        `exogenous` has the wobble of the jet; without it the jet lands exactly at `flow`.
        """
        drawing = self._drawing(values, exogenous, size)
        return draw_in_chunks(len(values), size, drawing, AXES.clip)

    def object_masks(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> dict[str, np.ndarray]:
        drawing = self._drawing(values, exogenous, size)
        return masks_in_chunks(len(values), size, drawing, self.objects, AXES.clip)

    def _drawing(
        self, values: np.ndarray, exogenous: np.ndarray | None, size: int
    ) -> Callable[[Raster, slice], None]:
        """Return the function that draws a slice of the rows of `values`."""
        ball, water, flow, hole = self._values(values, size).T
        radius = np.maximum(ball, 0.0)
        ball_y, ball_rx, ball_ry = (
            AXES.y(radius + BALL_FLOOR),
            radius * AXES.x_scale,
            radius * AXES.y_scale,
        )
        water_top = AXES.y(WATER_BASE + water) + SNAP - OUTLINE
        gap_top, gap_bottom = AXES.y(hole + GAP) + SNAP, np.maximum(AXES.y(hole) + SNAP, WALL_TOP)
        jet_x, jet_y = _jet(hole, flow, self._wobble_of(exogenous, len(ball)))
        outline = np.where(radius > 0, OUTLINE, 0.0)
        half = LINE_WIDTH / 2

        def draw(raster: Raster, rows: slice) -> None:
            with raster.object("water"):
                raster.box(
                    LEFT_WALL - OUTLINE, RIGHT_WALL + OUTLINE, water_top[rows], FRAME, SKY_BLUE
                )
            with raster.object("ball"):
                raster.ellipse(
                    AXES.x(BALL_X),
                    ball_y[rows],
                    (ball_rx + outline)[rows],
                    (ball_ry + outline)[rows],
                    FIREBRICK,
                )
            raster.box(LEFT_WALL - half, LEFT_WALL + half, WALL_TOP, FRAME, BLACK)
            right_wall = (RIGHT_WALL - half, RIGHT_WALL + half)
            raster.box(*right_wall, WALL_TOP, gap_top[rows], BLACK)
            raster.box(*right_wall, gap_bottom[rows], FRAME, BLACK)
            with raster.object("gap"):
                gap = (np.maximum(gap_top, WALL_TOP)[rows], gap_bottom[rows])
                raster.box(*right_wall, *gap, None)
            with raster.object("jet"):
                raster.stroke(jet_x[rows], jet_y[rows], LINE_WIDTH, SKY_BLUE, cap=half)
            raster.box(0.0, FRAME, GROUND - half, GROUND + half, BLACK)

        return draw

    def _wobble_of(self, exogenous: np.ndarray | None, n: int) -> np.ndarray:
        if exogenous is None:
            return np.zeros(n)
        noises = self._table(exogenous, self.exogenous_names, "noises")
        if len(noises) != n:
            raise DataError(
                f"flow: {len(noises)} rows of noises do not match {n} rows of variables; "
                "give as many."
            )
        return noises[:, self.exogenous_names.index("wobble")]


def _wobble(n: int, rng: np.random.Generator) -> np.ndarray:
    return WOBBLE_LEAST + rng.exponential(WOBBLE_SCALE, size=(n, 1))


def _jet(hole: np.ndarray, flow: np.ndarray, wobble: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (N, k + 1) of the jet from the hole to the landing point, in frame units.

    The authors draw x = 8 + sqrt(2 (0.98 + e) water (hole - y)). In terms of `flow` it is the same
    curve, and follows do(flow).
    """
    reach = (flow - CUP_RIGHT) * np.sqrt(np.maximum(1 + wobble / GRAVITY, 0.0))
    drop = np.maximum(hole - LANDING_Y, 0.0)
    visible = np.minimum(1.0, 20.0 / np.maximum(np.abs(reach), 1e-9))  # fraction on the canvas
    t = np.linspace(0.0, 1.0, JET_SEGMENTS + 1) * visible[:, None]
    return AXES.x(CUP_RIGHT + reach[:, None] * t), AXES.y(hole[:, None] - drop[:, None] * t**2)
