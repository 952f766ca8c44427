"""Garden: a cloud before the sun, a poplar in the wind, and a solar balloon on a line.

A world of our own with occlusion and texture: the cloud hides the sun, the balloon hides the
poplar, and both hide hills and a brick wall. All objects are shaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.garden_background import PEG_X, PEG_Y, garden_background
from intervae.data.simulators.raster import (
    FRAME,
    Colour,
    Raster,
    draw_in_chunks,
    masks_in_chunks,
)
from intervae.data.variables import Variable

METRE = 8.0  # frame units; a picture is 12 m wide
SUNRISE, SUNSET = 6.0, 18.0  # hours
SUN_PATH_X, SUN_PATH_Y, SUN_PATH_RX, SUN_PATH_RY = 6.0, 6.4, 5.5, 3.4  # half an ellipse, m
SUN_RADIUS = 7.5  # frame units, as all sizes below
CLOUD_Y = 20.0
# x, y, half-axes of the puffs, from the middle of the cloud
PUFFS = (
    (-10.0, 2.0, 7.5, 5.5),
    (10.0, 2.5, 7.5, 5.0),
    (-3.5, -2.5, 8.0, 7.5),
    (5.0, -0.5, 7.5, 6.5),
    (0.0, 3.5, 12.0, 4.5),
)
TREE_X, TREE_BASE, TREE_HEIGHT = 66.0, 79.0, 42.0
CROWN_LOWEST, CROWN_STRETCH, TRUNK_WIDTH = 10.0, 1.3, 3.0
CROWN_RADII = (5.2, 6.4, 6.6, 5.8, 4.8, 3.4)  # from below
LEAVES = 0.35  # contrast of the leaves
BEND = 2.4  # of the top, per m/s of wind
BALLOON_RX, BALLOON_RY, LINE_WIDTH = 8.0, 9.0, 1.2
BASKET_WIDTH, BASKET_TOP, BASKET_BOTTOM = 5.0, 10.0, 13.5  # below the middle of the balloon
STRIPES = 5.5  # phase of the stripes at the edge of the balloon, radians

SHADE_WIDTH, SHADE_DEPTH = 1.5, 0.75  # of the cloud, m; share of the light that it takes
COLD_HEIGHT, LIFT = 1.2, 4.0  # height of the balloon in the dark, and its rise in full light, m
PUSH = 0.12  # drift per metre of height and m/s of wind
HEIGHT_NOISE, DRIFT_NOISE = 0.25, 0.3  # standard deviations, m
GRID_SIZE, GRID_SEED = 7200, 2026

SUN_COLOURS = ((255, 176, 40), (255, 246, 190))
CLOUD_COLOURS = ((150, 160, 178), (255, 255, 255))
LEAF_COLOURS = ((14, 44, 22), (92, 138, 52))
TRUNK_COLOUR = (74, 52, 34)
BALLOON_COLOURS = ((44, 40, 124), (252, 216, 96))
BASKET_COLOUR, LINE_COLOUR = (150, 104, 52), (236, 232, 220)


class Garden(Simulator):
    """Variables `sun`, `cloud`, `wind`, and of the balloon `balloon_height` and `balloon_drift`.

    `sun` is the hour of the day: the sun rises on the left at 6, is highest at 12 and sets on the
    right at 18. `cloud` is the middle of the cloud, in metres from the left edge of the picture,
    which shows 12 m x 12 m. `wind` is in m/s, to the right if positive; it bends the poplar.

    The light that the cloud leaves warms the balloon: `balloon_height` is the height of its middle
    above the peg in the lawn, in metres. The wind pushes it aside, the more the longer its line:
    `balloon_drift` is in metres to the right of the peg. Both have a noise of their own.
    """

    name: ClassVar[str] = "garden"
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("sun", unit="hours"),
        Variable("cloud", unit="m"),
        Variable("wind", unit="m/s"),
        Variable("balloon_height", unit="m"),
        Variable("balloon_drift", unit="m"),
    )
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges(
        [v.name for v in variables],
        [
            ("sun", "balloon_height"),
            ("cloud", "balloon_height"),
            ("balloon_height", "balloon_drift"),
            ("wind", "balloon_drift"),
        ],
    )
    exogenous_names: ClassVar[tuple[str, ...]] = ("sun", "cloud", "wind", "lift", "gust")
    objects: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "sun": ("sun",),
        "cloud": ("cloud",),
        "poplar": ("wind",),
        "balloon": ("balloon_height", "balloon_drift"),
    }

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 5): sun uniform in [8, 16], cloud [1, 11], wind [-5, 5]; lift and gust Gaussian."""
        uniform = rng.uniform([8.0, 1.0, -5.0], [16.0, 11.0, 5.0], size=(n, 3))
        normal = rng.normal(0.0, [HEIGHT_NOISE, DRIFT_NOISE], size=(n, 2))
        return np.concatenate([uniform, normal], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """7,200 draws with a fixed seed, every 4th for test; nobody has published a grid."""
        exogenous = self.sample_exogenous(GRID_SIZE, np.random.default_rng(GRID_SEED))
        return exogenous, np.arange(GRID_SIZE) % 4 == 0

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        if name == "balloon_height":
            sun_x, sun_y = _sun_position(values["sun"])
            light = (sun_y - SUN_PATH_Y) / SUN_PATH_RY  # sine of the elevation
            distance = (values["cloud"] - sun_x) / SHADE_WIDTH
            light = light * (1.0 - SHADE_DEPTH * np.exp(-0.5 * distance**2))
            return COLD_HEIGHT + LIFT * light + exogenous["lift"]
        if name == "balloon_drift":
            return PUSH * values["wind"] * values["balloon_height"] + exogenous["gust"]
        return exogenous[name]

    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> np.ndarray:
        """(N, 5) variables to (N, 3, size, size) uint8; `exogenous` is not used."""
        return draw_in_chunks(len(values), size, self._drawing(values, size))

    def object_masks(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> dict[str, np.ndarray]:
        return masks_in_chunks(len(values), size, self._drawing(values, size), self.objects)

    def _drawing(self, values: np.ndarray, size: int) -> Callable[[Raster, slice], None]:
        """Return the function that draws a slice of the rows of `values`, from back to front."""
        sun, cloud, wind, height, drift = self._values(values, size).T
        sun_x, sun_y = _sun_position(sun)
        sun_x, sun_y, cloud_x = METRE * sun_x, FRAME - METRE * sun_y, METRE * cloud
        bend = BEND * wind
        balloon_x, balloon_y = PEG_X + METRE * drift, PEG_Y - METRE * height
        background = garden_background(size)

        def draw(raster: Raster, rows: slice) -> None:
            raster.fill(background)
            with raster.object("sun"):
                _draw_ball(raster, sun_x[rows], sun_y[rows], SUN_RADIUS, SUN_RADIUS, SUN_COLOURS)
            with raster.object("cloud"):
                for x, y, rx, ry in PUFFS:
                    _draw_ball(raster, cloud_x[rows] + x, CLOUD_Y + y, rx, ry, CLOUD_COLOURS)
            with raster.object("poplar"):
                _draw_poplar(raster, bend[rows])
            with raster.object("balloon"):
                _draw_balloon(raster, balloon_x[rows], balloon_y[rows])

        return draw


def _sun_position(hour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x from the left and height above the lower edge of the picture, m."""
    angle = np.pi * (np.clip(hour, SUNRISE, SUNSET) - SUNRISE) / (SUNSET - SUNRISE)
    return (
        SUN_PATH_X - SUN_PATH_RX * np.cos(angle),
        SUN_PATH_Y + SUN_PATH_RY * np.sin(angle),
    )


def _draw_poplar(raster: Raster, bend: np.ndarray) -> None:
    """A trunk and a crown of balls, further aside with the square of their height."""
    share = np.linspace(0.0, 1.0, len(CROWN_RADII))
    trunk_x = TREE_X + bend[:, None] * np.array([0.0, 0.02])
    trunk_y = np.broadcast_to([TREE_BASE, TREE_BASE - 10.0], trunk_x.shape)
    raster.stroke(trunk_x, trunk_y, TRUNK_WIDTH, TRUNK_COLOUR)
    for up, radius in zip(share, CROWN_RADII, strict=True):
        height = CROWN_LOWEST + (TREE_HEIGHT - CROWN_LOWEST) * up
        x = TREE_X + bend * (height / TREE_HEIGHT) ** 2
        _draw_ball(
            raster, x, TREE_BASE - height, radius, CROWN_STRETCH * radius, LEAF_COLOURS, LEAVES
        )


def _draw_balloon(raster: Raster, x: np.ndarray, y: np.ndarray) -> None:
    """A line from the peg to the basket, the basket, and the balloon with its stripes."""
    line_x, line_y = (
        np.stack([np.full_like(x, PEG_X), x], 1),
        np.stack([np.full_like(y, PEG_Y), y + BASKET_TOP], 1),
    )
    raster.stroke(line_x, line_y, LINE_WIDTH, LINE_COLOUR)
    half = BASKET_WIDTH / 2
    raster.box(x - half, x + half, y + BASKET_TOP, y + BASKET_BOTTOM, BASKET_COLOUR)
    middle_x, middle_y = _columns(raster, x, y)

    def stripes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        across, down = (x - middle_x) / BALLOON_RX, (y[:, None] - middle_y) / BALLOON_RY
        stripe = 0.5 + np.cos(STRIPES * across * (1.0 + 0.3 * across**2))
        light = np.clip((1.0 - 0.25 * across) - 0.35 * down, 0.45, 1.1)
        return np.minimum(_mix(BALLOON_COLOURS, stripe) * light, np.float32(255.0))

    raster.ellipse(x, y, BALLOON_RX, BALLOON_RY, stripes)


def _draw_ball(
    raster: Raster,
    x: np.ndarray,
    y: np.ndarray | float,
    rx: float,
    ry: float,
    colours: tuple[Colour, Colour],
    grain: float = 0.0,
) -> None:
    """An ellipse lit from the upper left, with a pattern of `grain` that moves with it."""
    middle_x, middle_y = _columns(raster, x, y)

    def texture(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        across, down = x - middle_x, y[:, None] - middle_y  # (n, 1, w), (n, h, 1)
        weight = (0.6 - 0.3 / rx * across) - 0.5 / ry * down
        if grain:
            weight = weight + grain * np.sin(2.6 * across) * np.sin(2.1 * down)
        return _mix(colours, weight)

    raster.ellipse(x, y, rx, ry, texture)


def _columns(raster: Raster, *places: np.ndarray | float) -> list[np.ndarray]:
    """Places (n,) or numbers as (n, 1, 1) of float32, to compare with every pixel."""
    return [np.broadcast_to(p, (raster.n,)).astype(np.float32)[:, None, None] for p in places]


def _mix(colours: tuple[Colour, Colour], weight: np.ndarray) -> np.ndarray:
    """(3, ...) levels between two colours, the second where `weight` is 1 or more."""
    weight = np.clip(weight, 0.0, 1.0).astype(np.float32)
    first, second = np.array(colours, dtype=np.float32)
    return np.stack([a + (b - a) * weight for a, b in zip(first, second, strict=True)])
