"""White ovals on black, filled exactly to the pixel: the images of `parabola` and `bowl`."""

from __future__ import annotations

import numpy as np

SIDE = 64  # pixels of the unit of the geometry; the centre of the first pixel is 0
CHUNK_ROWS = 2**17  # rows of sub-pixels per chunk


def draw_ovals(
    centre: tuple[np.ndarray, np.ndarray],
    half_axes: tuple[np.ndarray, np.ndarray],
    rotation: np.ndarray,
    size: int,
) -> np.ndarray:
    """Images (N, 1, size, size) uint8 of ovals, in pixels of an image of 64 x 64.

    From 64 pixels on images are black and white: a pixel is white if its centre is inside the
    oval. Smaller images are average-pooled, at 32, 16 or 8 from the 64 x 64 image.

    Arguments:
        centre: column and row (N,).
        half_axes: (N,) each; negative ones are 0. The first is horizontal at rotation 0.
        rotation: radians, anticlockwise (N,).
        size: width of the images.
    """
    finer = -(-SIDE // size)  # sub-pixels along each side of a pixel
    unit = finer * size / SIDE  # sub-pixels per pixel of the 64 x 64 image
    placed = [(position + 0.5) * unit - 0.5 for position in centre]
    placed += [np.maximum(half, 0.0) * unit for half in half_axes]
    images = np.empty((len(rotation), 1, size, size), np.uint8)
    step = max(1, CHUNK_ROWS // (finer * size))
    for start in range(0, len(rotation), step):
        rows = slice(start, start + step)
        chunk = [values[rows] for values in (*placed, rotation)]
        images[rows, 0] = _fill(*_runs(*chunk, side=finer * size), size, finer)
    return images


def _runs(
    x: np.ndarray,
    y: np.ndarray,
    long: np.ndarray,
    short: np.ndarray,
    rotation: np.ndarray,
    *,
    side: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Sub-pixels [first, end) of each row whose centre is inside an oval, both (n, side).

    Inside is A u^2 + 2 B u v + C v^2 <= 1 for offsets u to the right and v down, with
    A C - B^2 = 1 / (long * short)^2. Row v is cut at
    u = (-B v -+ sqrt(A - (v / (long * short))^2)) / A.
    """
    positive = (long > 0) & (short > 0)
    long, short = np.where(positive, long, 1.0), np.where(positive, short, 1.0)
    cosine, sine = np.cos(rotation), np.sin(rotation)
    a = (cosine / long) ** 2 + (sine / short) ** 2
    b = cosine * sine * (short**-2 - long**-2)  # v down, rotation anticlockwise
    v = np.arange(side) - y[:, None]  # (n, side)
    squared = a[:, None] - (v / (long * short)[:, None]) ** 2
    middle = x[:, None] - (b / a)[:, None] * v
    reach = np.sqrt(np.maximum(squared, 0.0)) / a[:, None]
    first = np.clip(np.ceil(middle - reach), 0, side).astype(np.intp)
    end = np.clip(np.floor(middle + reach) + 1, 0, side).astype(np.intp)
    return first, np.where((squared >= 0) & positive[:, None], np.maximum(end, first), first)


def _fill(first: np.ndarray, end: np.ndarray, size: int, finer: int) -> np.ndarray:
    """Runs of sub-pixels (n, finer * size) to images (n, size, size) uint8."""
    side = finer * size
    # (side + 1, size): columns of each pixel to the left of a sub-pixel
    before = np.clip(np.arange(side + 1)[:, None] - finer * np.arange(size), 0, finer)
    before = before.astype(np.uint8)
    covered = before[end] - before[first]  # (n, side, size) sub-pixels of a row
    if finer > 1:  # at most 64 sub-pixels per pixel, since size is 8 or more
        covered = covered.reshape(len(first), size, finer, size).sum(axis=2, dtype=np.uint8)
    levels = np.rint(255.0 * np.arange(finer**2 + 1) / finer**2).astype(np.uint8)
    return levels[covered] if finer > 1 else covered * np.uint8(255)
