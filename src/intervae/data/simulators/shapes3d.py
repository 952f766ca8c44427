"""A room like that of 3D Shapes (Burgess and Kim 2018), ray-cast by us: the same six factors, so a stand-in where that file is not at hand.

An object of one of four shapes stands in a room; floor, wall and object have a hue each, and the camera goes round. The pictures are not
those of the published file. What hides what depends on (scale, shape, orientation) only, so these views are cast once each; a picture is then
a weighted sum of three colours, painted on the device when a batch needs it: the grid of 480,000 takes 33 MB instead of 5.9 GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data.base import CHUNK, Batch, Dataset, Split, Variable, build_dataset, split_rows
from intervae.data.simulators.base import SMALLEST, Simulator
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
WALL = 3.0  # from the middle of the room; the object is about 1.8 high
CAMERA = (6.5, 2.6)  # how far from the middle of the room, how high
LOOKS_AT = 0.95  # height
HALF_VIEW = math.tan(math.radians(19.0))  # half the width of the picture, one unit away
LIGHT = (np.array([[-0.5], [-0.65], [1.0]]) / np.linalg.norm([-0.5, -0.65, 1.0])).astype(np.float32)  # towards it; it stays with the room
AMBIENT, DIFFUSE, SHADOW, HIGHLIGHT, POLISH = 0.42, 0.58, 0.62, 0.35, 30
SATURATION = 0.85
RAYS = 192  # along each side of a small picture; several for each pixel, so that edges are smooth
CUBE, CYLINDER, SPHERE, CAPSULE = 0.78, (0.82, 1.65), 0.98, (0.64, 2.2)  # half a side; radius and height; radius; radius and height
FAR, NEAR = np.float32(np.inf), np.float32(1e-5)


class Shapes3d(Simulator):
    """Variables `floor_hue`, `wall_hue`, `object_hue` (0 to 1, once round the colours), `scale`, `shape` and `orientation`; no edges."""

    name: ClassVar[str] = "shapes3d-like"
    variables: ClassVar[tuple[Variable, ...]] = VARIABLES
    graph: ClassVar[CausalGraph] = CausalGraph.from_edges([v.name for v in VARIABLES], [])
    exogenous_names: ClassVar[tuple[str, ...]] = tuple(v.name for v in VARIABLES)

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 6): hues uniform in [0, 1), scale in [0.75, 1.25], orientation in [-30, 30] degrees, shapes equally often."""
        drawn = rng.uniform([0.0, 0.0, 0.0, 0.75, 0.0, -30.0], [1.0, 1.0, 1.0, 1.25, len(SHAPES), 30.0], size=(n, len(VARIABLES)))
        drawn[:, 4] = np.floor(drawn[:, 4])
        return drawn

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """All 480,000 combinations, the orientation changing fastest; no split was published, so the mask is empty."""
        values = grid_values(None)
        return values, np.zeros(len(values), bool)

    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        return exogenous[name]

    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = 64) -> np.ndarray:
        """(N, 6) variables to (N, 3, size, size) uint8; there is no noise that only the picture sees, so `exogenous` is not used."""
        table = self._values(values, size)
        views, which = _views(table, size)
        return _paint_all(torch.from_numpy(views), torch.from_numpy(which), torch.from_numpy(_colours(table[:, :3]))).numpy()

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
        """The grid of 10 x 10 x 10 x 8 x 4 x 15 pictures, or `samples` continuous random draws instead.

        Arguments:
            levels: a smaller grid: how many values of each factor, evenly spaced among the published ones, such as (5, 5, 5, 4, 4, 5);
                also as one text with commas.
            validation, test, seed: random splits.
        """
        options = {"size": size, "levels": levels, "samples": samples, "validation": validation, "test": test, "seed": seed}
        known: dict[str, Any] = {"graph": self.graph, "simulator": self, "source": {"name": self.name, "options": options}}
        if samples is not None:
            if levels is not None or isinstance(samples, bool) or not isinstance(samples, int) or samples < SMALLEST:
                raise UsageError(f"samples={samples!r} must be a whole number, {SMALLEST} or more, and goes without levels.")
            values = self.sample_exogenous(samples, np.random.default_rng(seed))
            images, known["fields"] = self.render(values, size=size), {"exogenous": values}
            return build_dataset(self.name, images, values, self.variables, validation=validation, test=test, seed=seed, **known)
        values = self._values(grid_values(levels), size)
        options["levels"] = None if levels is None else [len(np.unique(column)) for column in values.T]
        views, which = (torch.from_numpy(array) for array in _views(values, size))
        painted = {"view": which, "colours": torch.from_numpy(_colours(values[:, :3])), "exogenous": torch.from_numpy(values)}
        whole = PaintedSplit(views, labels=torch.from_numpy(values).float(), **painted)
        rows = split_rows(len(values), validation=validation, test=test, seed=seed)
        train, held, unseen = (whole[torch.from_numpy(chosen)] for chosen in rows)
        measured = tuple(v.measured_on(values[rows[0], i]) for i, v in enumerate(self.variables))
        return Dataset(self.name, train, held, unseen, variables=measured, **known)


def grid_values(levels: str | Sequence[int] | None) -> np.ndarray:
    """(N, 6) factors of the grid, or of a smaller one, the last factor changing fastest."""
    rows = level_rows(levels, [len(values) for values in FACTOR_VALUES])
    chosen = [values[kept] for values, kept in zip(FACTOR_VALUES, rows, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*chosen, indexing="ij")], axis=1)


def level_rows(levels: str | Sequence[int] | None, sizes: Sequence[int]) -> list[np.ndarray]:
    """Which of the `sizes` values of each factor to keep: `levels` of them, evenly spaced, the first and the last included; all without it."""
    try:
        asked = sizes if levels is None else [int(level) for level in (levels.split(",") if isinstance(levels, str) else levels)]
    except (TypeError, ValueError):
        asked = []
    if len(asked) != len(sizes) or not all(2 <= level <= size for level, size in zip(asked, sizes, strict=True)):
        limits = ", ".join(f"{v.name} {size}" for v, size in zip(VARIABLES, sizes, strict=True))
        raise UsageError(f"levels={levels!r} must be {len(sizes)} whole numbers, 2 or more and at most as many as there are: {limits}.")
    return [np.rint(np.linspace(0, size - 1, level)).astype(np.int64) for level, size in zip(asked, sizes, strict=True)]


# ---- painting -----------------------------------------------------------------------------------------------------------
class PaintedSplit(Split):
    """A split whose pictures are painted when they are asked for.

    Arguments:
        views: (V, 4, H, W) floats: how much of each pixel is floor, wall and object, each with its light, and how much white there is.
        fields: with `view` (N,), which of them, and `colours` (N, 3, 3), of floor, wall and object; neither is in a batch.
    """

    def __init__(self, views: Tensor, **fields: Tensor) -> None:
        self.views = views
        super().__init__(**fields)

    def with_fields(self, fields: dict[str, Tensor]) -> PaintedSplit:
        return PaintedSplit(self.views.to(fields["view"].device), **fields)

    @property
    def images(self) -> Tensor:
        """(N, 3, H, W) uint8, made anew at each call: take rows first, `split[:100].images`."""
        return _paint_all(self.views, self.fields["view"], self.fields["colours"])

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), 3, *self.views.shape[-2:])

    def batch(self, rows: Tensor) -> Batch:
        batch = {name: tensor.index_select(0, rows) for name, tensor in self.fields.items()}
        pixels = _paint(self.views, batch.pop("view"), batch.pop("colours"))
        return {"images": pixels.div_(255), **batch}


def _paint(views: Tensor, which: Tensor, colours: Tensor) -> Tensor:
    """(B, 3, H, W) floats, whole numbers from 0 to 255."""
    parts = views.index_select(0, which)  # (B, 4, H, W)
    image = parts[:, 3:].expand(-1, 3, -1, -1)
    for i in range(3):
        image = torch.addcmul(image, parts[:, i : i + 1], colours[:, i, :, None, None])
    return image.mul(255).clamp_(0, 255).round_()


def _paint_all(views: Tensor, which: Tensor, colours: Tensor) -> Tensor:
    images = torch.empty((len(which), 3, *views.shape[-2:]), dtype=torch.uint8, device=views.device)
    for start in range(0, len(which), CHUNK):
        rows = slice(start, start + CHUNK)
        images[rows] = _paint(views, which[rows], colours[rows]).to(torch.uint8)
    return images


def _colours(hues: np.ndarray) -> np.ndarray:
    """(N, k) hues, 0 red, 1/3 green, 2/3 blue, to (N, k, 3) float32 of one saturation and brightness."""
    around = (6.0 * (hues[..., None] % 1.0) + np.array([0.0, 4.0, 2.0])) % 6.0
    return (1.0 - SATURATION * (1.0 - np.clip(np.abs(around - 3.0) - 1.0, 0.0, 1.0))).astype(np.float32)


# ---- casting rays: vectors are (3, R), float32, in units of the room --------------------------------------------------------
def _views(values: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Of (N, 6) variables the different views (V, 4, size, size) float32, and which of them each is (N,)."""
    columns = [np.unique(column, return_inverse=True) for column in values[:, 3:].T]
    sizes = tuple(len(found) for found, _ in columns)
    keys, which = np.unique(np.ravel_multi_index([codes.reshape(-1) for _, codes in columns], sizes), return_inverse=True)
    seen = zip(*(found[codes] for (found, _), codes in zip(columns, np.unravel_index(keys, sizes), strict=True)), strict=True)
    views = [_cast(float(scale), int(np.clip(shape, 0, len(SHAPES) - 1)), float(turn), size) for scale, shape, turn in seen]
    return np.stack(views) if views else np.zeros((1, 4, size, size), np.float32), which.reshape(-1)


def _cast(scale: float, shape: int, turn: float, size: int) -> np.ndarray:
    """(4, size, size) float32: floor, wall and object with their light, and the white of the highlight."""
    finer = max(2, -(-RAYS // size))
    eye, direction = _camera(turn, size * finer)
    to_object, normal = _hit(eye, direction, shape, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        sides = (np.copysign(WALL, direction[:2]) - eye[:2]) / direction[:2]  # where the ray leaves the room
        to_floor = np.where(direction[2] < 0, -eye[2] / direction[2], FAR)
    back = sides[1] < sides[0]
    to_wall = np.where(back, sides[1], sides[0])
    surface = np.argmin([to_floor, to_wall, to_object], axis=0)  # 0 floor, 1 wall, 2 object
    inward = np.where(back, np.copysign(LIGHT[1], -direction[1] * LIGHT[1]), np.copysign(LIGHT[0], -direction[0] * LIGHT[0]))  # wall's normal . light
    facing = np.where(surface == 2, _dot(normal, LIGHT), np.where(surface == 1, inward, LIGHT[2]))
    light = AMBIENT + DIFFUSE * np.maximum(facing, 0.0)
    behind = np.flatnonzero(surface != 2)
    point = eye + np.minimum(to_floor, to_wall)[behind] * direction[:, behind]
    light[behind[_hit(point, LIGHT, shape, scale)[0] < FAR]] *= SHADOW
    seen = np.flatnonzero(surface == 2)
    half = LIGHT - direction[:, seen]
    white = np.zeros_like(light)
    white[seen] = HIGHLIGHT * np.clip(_dot(normal[:, seen], half) / np.sqrt(_dot(half, half)), 0.0, 1.0) ** POLISH
    parts = np.stack([light * (surface == i) for i in range(3)] + [white])
    return parts.reshape(4, size, finer, size, finer).mean(axis=(2, 4), dtype=np.float32)


def _camera(turn: float, rays: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the camera is (3, 1), and the directions (3, rays * rays) it looks in, row by row from the top left."""
    angle = math.radians(turn)
    eye = np.array([CAMERA[0] * math.sin(angle), -CAMERA[0] * math.cos(angle), CAMERA[1]])
    ahead = np.array([0.0, 0.0, LOOKS_AT]) - eye
    ahead /= np.linalg.norm(ahead)
    right = np.array([math.cos(angle), math.sin(angle), 0.0])
    up = np.cross(right, ahead)
    steps = HALF_VIEW * ((2 * np.arange(rays) + 1) / rays - 1)
    direction = ahead[:, None, None] + steps[None, None, :] * right[:, None, None] - steps[None, :, None] * up[:, None, None]
    direction = direction.reshape(3, -1).astype(np.float32)
    return eye[:, None].astype(np.float32), direction / np.sqrt(_dot(direction, direction))


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _hit(origin: np.ndarray, direction: np.ndarray, shape: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """How far rays (3, R) go before they meet the object, inf where they do not, and its normal there (3, R)."""
    solid: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] = (_cube, _cylinder, _sphere, _capsule)[shape]
    if scale <= 0:
        rays = np.broadcast(origin[0], direction[0]).size
        return np.full(rays, FAR), np.zeros((3, rays), np.float32)
    distance, normal = solid(origin / np.float32(scale), direction)
    return distance * np.float32(scale), normal


def _cube(origin: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = np.array([[0.0], [0.0], [CUBE]], np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [(side * np.float32(CUBE) + centre - origin) / direction for side in (-1, 1)]
    enter, leave = np.fmin(*ends), np.fmax(*ends)
    first, axis = enter.max(axis=0), enter.argmax(axis=0)
    distance = np.where((first < leave.min(axis=0)) & (first > NEAR), first, FAR)
    return distance, np.where(np.arange(3)[:, None] == axis, -np.sign(direction), np.float32(0.0))


def _cylinder(origin: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    radius, height = CYLINDER
    side, normal = _tube(origin, direction, radius, 0.0, height)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = (np.float32(height) - origin[2]) / direction[2]
        flat = (origin[0] + top * direction[0]) ** 2 + (origin[1] + top * direction[1]) ** 2
        top = np.where((top > NEAR) & (flat <= radius**2), top, FAR)
    return np.minimum(side, top), np.where(top < side, np.array([[0.0], [0.0], [1.0]], np.float32), normal)


def _sphere(origin: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _ball(origin, direction, SPHERE, SPHERE)


def _capsule(origin: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    radius, height = CAPSULE
    distance, normal = _tube(origin, direction, radius, radius, height - radius)
    for middle in (radius, height - radius):
        other, its_normal = _ball(origin, direction, radius, middle)
        normal = np.where(other < distance, its_normal, normal)
        distance = np.minimum(distance, other)
    return distance, normal


def _ball(origin: np.ndarray, direction: np.ndarray, radius: float, middle: float) -> tuple[np.ndarray, np.ndarray]:
    """A ball whose middle is so high above the floor."""
    offset = origin - np.array([[0.0], [0.0], [middle]], np.float32)
    along = _dot(offset, direction)
    inside = along**2 - _dot(offset, offset) + np.float32(radius**2)
    distance = -along - np.sqrt(np.maximum(inside, 0))
    normal = (offset + distance * direction) / np.float32(radius)
    return np.where((inside > 0) & (distance > NEAR), distance, FAR), normal


def _tube(origin: np.ndarray, direction: np.ndarray, radius: float, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """The upright round side between two heights."""
    a = direction[0] ** 2 + direction[1] ** 2
    b = origin[0] * direction[0] + origin[1] * direction[1]
    inside = b**2 - a * (origin[0] ** 2 + origin[1] ** 2 - np.float32(radius**2))
    distance = (-b - np.sqrt(np.maximum(inside, 0))) / np.maximum(a, NEAR)
    point = origin + distance * direction
    met = (inside > 0) & (distance > NEAR) & (point[2] >= low) & (point[2] <= high)
    return np.where(met, distance, FAR), point * np.array([[1.0 / radius], [1.0 / radius], [0.0]], np.float32)
