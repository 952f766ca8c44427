"""An anti-aliased rasteriser for batches of small images: ellipses, boxes and strokes.

Positions are in frame units: every image is FRAME x FRAME of them at any size in pixels, x to the
right, y down. A pixel is blended by the fraction of it that a shape covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

FRAME = 96.0  # the published images are 96 pixels wide, so at size=96 a frame unit is a pixel
WHITE, BLACK, ORANGE, FIREBRICK, SKY_BLUE = (
    (255, 255, 255),
    (0, 0, 0),
    (255, 165, 0),
    (178, 34, 34),
    (135, 206, 250),
)
FAR = 1e4  # limit of positions in pixels; float32 would lose the sub-pixel part beyond

Colour = tuple[int, int, int]
# places x (w,) and y (h,) in frame units -> levels from 0 to 255, (3, n, h, w) or (3, h, w)
Texture = Callable[[np.ndarray, np.ndarray], np.ndarray]
Paint = Colour | Texture | None
Box = tuple[float, float, float, float]  # left, right, top, bottom


@dataclass(frozen=True)
class Axes:
    """Axes of a plot inside the image: data coordinates to frame units, and the clip box.

    The default margins are those of a one-inch matplotlib figure at 96 dots per inch, as in the
    published images; matplotlib clips to whole pixels.
    """

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    box: Box = (12.0, 86.4, 11.52, 85.44)
    clip: Box = (12.0, 86.0, 12.0, 85.0)

    @property
    def x_scale(self) -> float:
        return (self.box[1] - self.box[0]) / (self.x_range[1] - self.x_range[0])

    @property
    def y_scale(self) -> float:
        return (self.box[3] - self.box[2]) / (self.y_range[1] - self.y_range[0])

    def x(self, x: np.ndarray | float) -> np.ndarray:
        return self.box[0] + (np.asarray(x, dtype=np.float64) - self.x_range[0]) * self.x_scale

    def y(self, y: np.ndarray | float) -> np.ndarray:
        """Data coordinates point up, rows of the image down."""
        return self.box[3] - (np.asarray(y, dtype=np.float64) - self.y_range[0]) * self.y_scale


def draw_in_chunks(
    n: int, size: int, draw: Callable[[Raster, slice], None], clip: Box = (0.0, FRAME, 0.0, FRAME)
) -> np.ndarray:
    """Images (n, 3, size, size) uint8, drawn in chunks: `draw(raster, rows)` draws these rows."""
    images = np.empty((n, 3, size, size), dtype=np.uint8)
    for rows in _chunks(n, size):
        raster = Raster(rows.stop - rows.start, size, clip)
        draw(raster, rows)
        raster.write(images[rows])
    return images


def masks_in_chunks(
    n: int,
    size: int,
    draw: Callable[[Raster, slice], None],
    objects: Iterable[str],
    clip: Box = (0.0, FRAME, 0.0, FRAME),
) -> dict[str, np.ndarray]:
    """Masks (n, size, size) bool of the named objects, from the draw calls of their images.

    A mask has the pixels that the object covers at all, also where another is drawn over it.
    """
    masks = {name: np.zeros((n, size, size), dtype=bool) for name in objects}
    for rows in _chunks(n, size):
        draw(_MaskRaster({name: mask[rows] for name, mask in masks.items()}, size, clip), rows)
    return masks


def _chunks(n: int, size: int) -> Iterator[slice]:
    step = max(1, round(32 * (FRAME / size) ** 2))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


class Raster:
    """`n` white images (n, 3, size, size); shapes take (n,) arrays or numbers."""

    def __init__(self, n: int, size: int, clip: Box = (0.0, FRAME, 0.0, FRAME)) -> None:
        self.n, self.size, self.scale = n, size, size / FRAME
        self.object_name = ""
        self.pixels = np.full((n, 3, size, size), 255.0, dtype=np.float32)
        left, right, top, bottom = (edge * self.scale for edge in clip)
        self.clip = (left, right, top, bottom)
        centres = np.arange(size, dtype=np.float32) + np.float32(0.5)
        self.centres = centres
        self.clip_x, self.clip_y = _overlap(centres, left, right), _overlap(centres, top, bottom)

    @contextmanager
    def object(self, name: str) -> Iterator[None]:
        """Name the object of all shapes drawn inside the context, for `masks_in_chunks`."""
        outer, self.object_name = self.object_name, name
        yield
        self.object_name = outer

    def ellipse(
        self,
        x: np.ndarray | float,
        y: np.ndarray | float,
        rx: np.ndarray | float,
        ry: np.ndarray | float,
        colour: Paint,
    ) -> None:
        """Draw a filled ellipse of half-axes rx and ry; nothing if one of them is not positive."""
        cx, cy, rx, ry = (self._pixels(v) for v in (x, y, rx, ry))
        rx, ry = np.maximum(rx, 0), np.maximum(ry, 0)
        window = self._window(cx - rx, cx + rx, cy - ry, cy + ry)
        if window is None:
            return
        ys, xs = window
        # below 1 for an ellipse smaller than a pixel
        max_coverage = np.minimum(1.0, np.pi * rx * ry)
        rx, ry = np.maximum(rx, 1e-3), np.maximum(ry, 1e-3)
        u, v = (
            (self.centres[xs] - cx[:, None]) / rx[:, None],
            (self.centres[ys] - cy[:, None]) / ry[:, None],
        )  # (n, w), (n, h)
        level = np.sqrt((v * v)[:, :, None] + (u * u)[:, None, :])  # 1 on the edge
        np.maximum(level, np.float32(1e-4), out=level)  # a pixel in the very middle is covered
        steepness = np.sqrt(
            ((v / ry[:, None]) ** 2)[:, :, None] + ((u / rx[:, None]) ** 2)[:, None, :]
        )
        # (level - 1) * level / steepness: signed distance to the edge, to first order
        coverage = np.float32(1.0) - level
        coverage *= level
        coverage /= np.maximum(steepness, np.float32(1e-6))
        coverage += np.float32(0.5)
        self._paint(np.clip(coverage, 0, max_coverage[:, None, None], out=coverage), ys, xs, colour)

    def box(
        self,
        left: np.ndarray | float,
        right: np.ndarray | float,
        top: np.ndarray | float,
        bottom: np.ndarray | float,
        colour: Paint,
    ) -> None:
        """Draw an axis-aligned box with exact coverage; nothing if right < left or bottom < top.

        Arguments:
            colour: None for a box that only masks have, such as a gap between other shapes.
        """
        x0, x1, y0, y1 = (self._pixels(v) for v in (left, right, top, bottom))
        window = self._window(x0, x1, y0, y1)
        if window is None:
            return
        ys, xs = window
        across, down = (
            _overlap(self.centres[xs], x0[:, None], x1[:, None]),
            _overlap(self.centres[ys], y0[:, None], y1[:, None]),
        )
        self._paint(down[:, :, None] * across[:, None, :], ys, xs, colour)

    def stroke(
        self, x: np.ndarray, y: np.ndarray, width: float, colour: Paint, cap: float = 0.0
    ) -> None:
        """Draw a line through points x, y (n, k + 1); its square ends are `cap` beyond the last."""
        px, py, half, cap = (
            self._pixels(x),
            self._pixels(y),
            0.5 * width * self.scale,
            cap * self.scale,
        )
        reach = half + cap
        window = self._window(
            px.min(1) - reach, px.max(1) + reach, py.min(1) - reach, py.max(1) + reach
        )
        if window is None:
            return
        ys, xs = window
        dx, dy = np.diff(px, axis=1), np.diff(py, axis=1)  # (n, k)
        length = np.hypot(dx, dy)
        # unit vectors
        dx = np.where(length < 1e-4, np.float32(1), dx / np.maximum(length, 1e-4))
        dy = dy / np.maximum(length, 1e-4)
        last = dx.shape[1] - 1
        nearest: Any = np.float32(np.inf)  # squared distance to the line, (n, h, w)
        ends: Any = np.float32(1.0)  # coverage by the two half-planes at the ends
        for k in range(last + 1):
            u = self.centres[xs] - px[:, k, None]  # (n, w)
            v = self.centres[ys] - py[:, k, None]  # (n, h)
            along = (v * dy[:, k, None])[:, :, None] + (u * dx[:, k, None])[:, None, :]  # (n, h, w)
            aside = (v * dx[:, k, None])[:, :, None] - (u * dy[:, k, None])[:, None, :]
            if k == 0:
                ends = ends * np.clip(along + np.float32(0.5 + cap), 0, 1)
            if k == last:
                ends = ends * np.clip(
                    (length[:, k] + np.float32(0.5 + cap))[:, None, None] - along, 0, 1
                )
            low = -np.inf if k == 0 else 0.0
            high = np.inf if k == last else length[:, k, None, None]
            along -= np.clip(along, low, high)  # distance beyond an inner joint, which is rounded
            nearest = np.minimum(nearest, along * along + aside * aside)
        coverage = np.clip(
            np.float32(half + 0.5) - np.sqrt(nearest), 0, np.float32(min(1.0, 2 * half))
        )
        self._paint(coverage * ends, ys, xs, colour)

    def fill(self, picture: np.ndarray) -> None:
        """Paint one picture (3, size, size), of levels from 0 to 255, over every image."""
        self.pixels[:] = picture

    def write(self, images: np.ndarray) -> None:
        """Round the pixels into (n, 3, size, size) uint8."""
        self.pixels += np.float32(0.5)
        np.copyto(images, self.pixels, casting="unsafe")

    def _pixels(self, frame: np.ndarray | float) -> np.ndarray:
        values = np.clip(np.asarray(frame, dtype=np.float64) * self.scale, -FAR, FAR).astype(
            np.float32
        )
        return np.broadcast_to(values, (self.n,)) if values.ndim == 0 else values

    def _window(
        self, left: np.ndarray, right: np.ndarray, top: np.ndarray, bottom: np.ndarray
    ) -> tuple[slice, slice] | None:
        """Rows and columns that the shapes can cover; None if all are outside the clip box."""
        x0, x1 = max(float(left.min()), self.clip[0]), min(float(right.max()), self.clip[1])
        y0, y1 = max(float(top.min()), self.clip[2]), min(float(bottom.max()), self.clip[3])
        if x0 - x1 > 1 or y0 - y1 > 1:
            return None
        return slice(max(0, int(y0) - 1), min(self.size, int(y1) + 2)), slice(
            max(0, int(x0) - 1), min(self.size, int(x1) + 2)
        )

    def _paint(self, coverage: np.ndarray, ys: slice, xs: slice, colour: Paint) -> None:
        coverage *= self.clip_y[ys, None]
        coverage *= self.clip_x[xs]
        self._blend(coverage, ys, xs, colour)

    def _blend(self, coverage: np.ndarray, ys: slice, xs: slice, colour: Paint) -> None:
        if callable(colour):
            levels: Any = colour(*(self.centres[part] / self.scale for part in (xs, ys)))
        else:
            levels = np.array(colour or (), dtype=np.float32)
        for channel, level in enumerate(levels):
            under = self.pixels[:, channel, ys, xs]
            under += coverage * (level - under)


class _MaskRaster(Raster):
    """A raster that marks the covered pixels in `masks`, object -> (n, size, size) bool."""

    def __init__(self, masks: dict[str, np.ndarray], size: int, clip: Box) -> None:
        super().__init__(len(next(iter(masks.values()))), size, clip)
        self.masks = masks

    def _blend(self, coverage: np.ndarray, ys: slice, xs: slice, colour: Paint) -> None:
        if self.object_name:
            self.masks[self.object_name][:, ys, xs] |= coverage > 0


def _overlap(centres: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Fraction of each unit interval around `centres` that lies between `low` and `high`."""
    return np.maximum(np.minimum(centres + 0.5, high) - np.maximum(centres - 0.5, low), 0).astype(
        np.float32
    )
