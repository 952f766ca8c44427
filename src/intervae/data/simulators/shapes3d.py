"""Simulated 3D Shapes: a ray-cast room with the six factors of 3D Shapes (Burgess and Kim 2018).

An object of one of four shapes stands in a room; floor, wall and object have a hue each, and the
camera moves around. The images differ from those of the published file. The geometry depends on
(scale, shape, orientation) only, so each such view is cast once, and an image is a weighted sum of
three colours: the grid of 480,000 images takes 33 MB instead of 5.9 GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset, split_rows
from intervae.data.dataset import Dataset
from intervae.data.simulators.base import SMALLEST, Simulator
from intervae.data.simulators.painted_split import PaintedSplit, hues_to_colours, paint_images
from intervae.data.simulators.ray_casting import cast_view
from intervae.data.variables import Variable
from intervae.errors import UsageError

SHAPES = ("cube", "cylinder", "sphere", "capsule")
HUES, SCALES, ORIENTATIONS = 10, 8, 15
FACTOR_VALUES = (  # as published, in this order
    *(np.arange(HUES) / HUES,) * 3,
    np.linspace(0.75, 1.25, SCALES),
    np.arange(len(SHAPES), dtype=np.float64),
    np.linspace(-30.0, 30.0, ORIENTATIONS),
)
VARIABLES = (
    Variable("floor_hue"),
    Variable("wall_hue"),
    Variable("object_hue"),
    Variable("scale"),
    Variable("shape", "categorical", categories=SHAPES),
    Variable("orientation", unit="degrees"),
)


class Shapes3d(Simulator):
    """Variables `floor_hue`, `wall_hue`, `object_hue`, `scale`, `shape`, `orientation`; no edges.

    A hue of 0 to 1 goes once round the colour circle.
    """

    name: ClassVar[str] = "shapes3d-like"
    variables: ClassVar[tuple[Variable, ...]] = VARIABLES
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges([v.name for v in VARIABLES], [])
    exogenous_names: ClassVar[tuple[str, ...]] = tuple(v.name for v in VARIABLES)

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (n, 6) draws, uniform over the published ranges, shapes equally often."""
        draws = rng.uniform(
            [0.0, 0.0, 0.0, 0.75, 0.0, -30.0],
            [1.0, 1.0, 1.0, 1.25, len(SHAPES), 30.0],
            size=(n, len(VARIABLES)),
        )
        draws[:, 4] = np.floor(draws[:, 4])
        return draws

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all 480,000 combinations and an empty test mask, as no split was published."""
        values = grid_values(None)
        return values, np.zeros(len(values), bool)

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        return exogenous[name]

    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64
    ) -> np.ndarray:
        """Return (N, 3, size, size) uint8 for variables (N, 6); `exogenous` is not used."""
        table = self._values(values, size)
        views, index = _cast_views(table, size)
        colours = torch.from_numpy(hues_to_colours(table[:, :3]))
        return paint_images(torch.from_numpy(views), torch.from_numpy(index), colours).numpy()

    def dataset(
        self,
        *,
        size: int = 64,
        levels: str | Sequence[int] | None = None,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
    ) -> Dataset:
        """Return the grid of 10 x 10 x 10 x 8 x 4 x 15 images, or `samples` continuous draws.

        Arguments:
            size: side of the square images in pixels.
            levels: number of evenly spaced values of each factor for a smaller grid, such as
                (5, 5, 5, 4, 4, 5); also as one text with commas.
            samples: number of random draws, instead of the grid.
            validation, test, seed: random splits.
        """
        options = {
            "size": size,
            "levels": levels,
            "samples": samples,
            "validation": validation,
            "test": test,
            "seed": seed,
        }
        origin: dict[str, Any] = {
            "graph": self.graph,
            "simulator": self,
            "source": {"name": self.name, "options": options},
        }
        splits: dict[str, Any] = {"validation": validation, "test": test, "seed": seed}
        if samples is not None:
            if (
                levels is not None
                or isinstance(samples, bool)
                or not isinstance(samples, int)
                or samples < SMALLEST
            ):
                raise UsageError(
                    f"samples={samples!r} must be a whole number, {SMALLEST} or more, "
                    "and goes without levels."
                )
            values = self.sample_exogenous(samples, np.random.default_rng(seed))
            images = self.render(values, size=size)
            fields = {"exogenous": values}
            return build_dataset(
                self.name, images, values, self.variables, fields=fields, **splits, **origin
            )
        values = self._values(grid_values(levels), size)
        if levels is not None:
            options["levels"] = [len(np.unique(column)) for column in values.T]
        views, index = _cast_views(values, size)
        grid = PaintedSplit(
            torch.from_numpy(views),
            labels=torch.from_numpy(values).float(),
            view=torch.from_numpy(index),
            colours=torch.from_numpy(hues_to_colours(values[:, :3])),
            exogenous=torch.from_numpy(values),
        )
        rows = split_rows(len(values), **splits)
        train, held_out, test_split = (grid[torch.from_numpy(part)] for part in rows)
        variables = tuple(v.with_scale_of(values[rows[0], i]) for i, v in enumerate(self.variables))
        return Dataset(self.name, train, held_out, test_split, variables=variables, **origin)


def grid_values(levels: str | Sequence[int] | None) -> np.ndarray:
    """Return (N, 6) factors of the grid, or of a smaller one, the last factor changing fastest."""
    rows = level_rows(levels, [len(values) for values in FACTOR_VALUES])
    factors = [values[chosen] for values, chosen in zip(FACTOR_VALUES, rows, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*factors, indexing="ij")], axis=1)


def level_rows(levels: str | Sequence[int] | None, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return which of the `sizes` values of each factor to use.

    `levels` of them, evenly spaced, with the first and the last; all for None.
    """
    try:
        words = levels.split(",") if isinstance(levels, str) else levels
        counts = list(sizes) if words is None else [int(level) for level in words]
    except (TypeError, ValueError):
        counts = []
    if len(counts) != len(sizes) or not all(
        2 <= count <= size for count, size in zip(counts, sizes, strict=True)
    ):
        limits = ", ".join(f"{v.name} {size}" for v, size in zip(VARIABLES, sizes, strict=True))
        raise UsageError(
            f"levels={levels!r} must be {len(sizes)} whole numbers, 2 or more and at most as many "
            f"as there are: {limits}."
        )
    return [
        np.rint(np.linspace(0, size - 1, count)).astype(np.int64)
        for count, size in zip(counts, sizes, strict=True)
    ]


def _cast_views(values: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct views (V, 4, size, size) of variables (N, 6), and an index (N,)."""
    columns = [np.unique(column, return_inverse=True) for column in values[:, 3:].T]
    sizes = tuple(len(distinct) for distinct, _ in columns)
    codes = [inverse.reshape(-1) for _, inverse in columns]
    keys, index = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    key_codes = np.unravel_index(keys, sizes)
    scales, shapes, orientations = (
        distinct[code] for (distinct, _), code in zip(columns, key_codes, strict=True)
    )
    views = [
        cast_view(float(scale), int(np.clip(shape, 0, len(SHAPES) - 1)), float(orientation), size)
        for scale, shape, orientation in zip(scales, shapes, orientations, strict=True)
    ]
    stacked = np.stack(views) if views else np.zeros((1, 4, size, size), np.float32)
    return stacked, index.reshape(-1)
