"""Set thickness, intensity and slant of a digit, as the data of DeepSCM (Pawlowski et al. 2020).

The digit is enlarged 16 times and binarised; its shape grows or shrinks by a distance (dilation or
erosion by a disc) and is reduced again. The authors take half of the missing thickness as distance,
which misses the thickness of the picture by 0.1 pixels. Here the distance is searched until the
finished picture has the thickness, and the factor of the grey values until it has the intensity.
"""

from __future__ import annotations

import numpy as np

from intervae.compilation import compiled
from intervae.data.stroke_morphology import (
    FAR,
    MARGIN,
    REACH,
    binarise,
    enlarging_weights,
    intensity_of,
    mean_axis_distance,
    medial_axis_table,
    reducing_weights,
    shear_of,
    squared_distances,
    thickness_of,
)
from intervae.data.threads import map_rows

THINNEST, THICKEST = 0.0, 60.0  # pixels; a thicker digit fills the picture
WHITE = 255.0
STEEPEST = 4.0  # slope dx / dy of a slant of 76 degrees
TOLERANCE, TRIES = 0.01, 8  # pixels of thickness
WITHIN = 4.0  # enlarged pixels between the searched and the authors' distance
SLOPE_TOLERANCE, SLOPE_TRIES = 0.003, 4
INTENSITY_TOLERANCE, INTENSITY_TRIES = 0.25, 12


@compiled
def _signed_distances(shape, top, left, height, width, scale, radius):
    """Return distances to the edge of a shape, negative inside, in its box and `radius` around it.

    Also returns the first row and column of that box, in pixels of the picture.
    """
    around = int(np.ceil(max(radius, 0.0) / scale)) + 1
    rows, columns = shape.shape[0] // scale, shape.shape[1] // scale
    first, end = max(top - around, -MARGIN), min(top + rows + around, height + MARGIN)
    start, stop = max(left - around, -MARGIN), min(left + columns + around, width + MARGIN)
    canvas = np.zeros(((end - first) * scale, (stop - start) * scale), np.uint8)
    for r in range(canvas.shape[0]):
        source = r + (first - top) * scale
        if 0 <= source < shape.shape[0]:
            for c in range(canvas.shape[1]):
                column = c + (start - left) * scale
                if 0 <= column < shape.shape[1]:
                    canvas[r, c] = shape[source, column]
    inside = squared_distances(canvas, 1, FAR)
    outside = squared_distances(canvas, 0, int(max(radius, 0.0)) + 2)
    signed = np.empty(canvas.shape, np.float32)
    for r in range(canvas.shape[0]):
        for c in range(canvas.shape[1]):
            if canvas[r, c]:
                signed[r, c] = 0.5 - np.sqrt(inside[r, c])
            else:
                signed[r, c] = np.sqrt(outside[r, c]) - 0.5
    return signed, first, start


@compiled
def _reduce(signed, top, left, radius, weights, out):
    """Write the shape grown by `radius` to out (H, W): covered fractions, smoothed and reduced."""
    rows, columns = signed.shape
    height, width = out.shape
    scale = len(weights) // REACH
    zero, one, edge = np.float32(0), np.float32(1), np.float32(radius + 0.5)
    lines = np.zeros((height, columns), np.float32)
    for r in range(rows):
        distances, nearest = signed[r], top + r // scale
        for y in range(max(0, nearest - REACH // 2), min(height, nearest + REACH // 2 + 1)):
            weight, line = weights[r - (y - REACH // 2 - top) * scale], lines[y]
            for c in range(columns):
                line[c] += weight * min(max(edge - distances[c], zero), one)
    for y in range(height):
        for x in range(width):
            begin = (x - REACH // 2 - left) * scale
            value = zero
            for k in range(max(0, -begin), min(len(weights), columns - begin)):
                value += weights[k] * lines[y, begin + k]
            out[y, x] = min(value, one)


@compiled
def _scale(grey, factor, out):
    """Write grey (H, W) times a factor to out, in whole numbers up to 255."""
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = np.rint(min(grey[y, x] * factor, WHITE))


@compiled
def _set_intensity(grey, intensity, out):
    """Write grey (H, W) times the factor that gives it this intensity to out."""
    out[:] = 0
    if grey.max() <= 0 or intensity <= 0:
        return
    factor = intensity / intensity_of(grey)
    low, high, best, chosen = 0.0, np.inf, np.inf, factor
    for _ in range(INTENSITY_TRIES):
        _scale(grey, factor, out)
        measured = intensity_of(out) if out.max() > 0 else 0.0
        error = measured - intensity
        if abs(error) < best:
            best, chosen = abs(error), factor
        if best <= INTENSITY_TOLERANCE:
            break
        if error > 0:
            high = factor
        else:
            low = factor
        factor *= intensity / max(measured, 0.5)
        if not low < factor < high:
            factor = (low + high) / 2 if high < np.inf else 2 * low
    _scale(grey, chosen, out)


@compiled
def _morph(image, thickness, intensity, slope, middle, enlarging, reducing, table, out):
    """Write the image (H, W) with this thickness and intensity, sheared by `slope`, to out."""
    height, width = image.shape
    scale = enlarging.shape[1]
    shape, top, left = binarise(image, enlarging, slope, middle)
    own = 2 * mean_axis_distance(shape, squared_distances(shape, 1, FAR), table) / scale
    radius = (thickness - own) * scale / 2  # as the authors
    low, high, best = radius - WITHIN, radius + WITHIN, np.inf
    signed, top, left = _signed_distances(shape, top, left, height, width, scale, high)
    grey, picture = np.empty((height, width), np.float32), np.empty((height, width), np.float32)
    for _ in range(TRIES):
        _reduce(signed, top, left, radius, reducing, grey)
        _set_intensity(grey, intensity, picture)
        measured = thickness_of(picture, enlarging, table)
        error = measured - thickness if measured > 0 else -thickness
        if abs(error) < best:
            best = abs(error)
            out[:] = picture
        if best <= TOLERANCE:
            return
        if error > 0:
            high = radius
        else:
            low = radius
        radius -= error * scale / 2
        if not low < radius < high:
            radius = (low + high) / 2


@compiled
def _render(images, attributes, enlarging, reducing, table, out):
    """Write images (N, H, W) float32 with attributes (N, 3) to out (N, H, W) uint8."""
    picture = np.empty(images.shape[1:], np.float32)
    for i in range(len(images)):
        thickness, intensity, target = attributes[i]
        own, middle = shear_of(images[i])
        picture[:] = 0
        if not np.isnan(own):
            slope = 0.0 if np.isnan(target) else target - own
            for _ in range(SLOPE_TRIES):
                _morph(
                    images[i],
                    thickness,
                    intensity,
                    slope,
                    middle,
                    enlarging,
                    reducing,
                    table,
                    picture,
                )
                error = target - shear_of(picture)[0]
                if not abs(error) > SLOPE_TOLERANCE:  # nan: no target, or nothing left
                    break
                slope += error
        out[i] = picture.astype(np.uint8)


@compiled
def _shears(images, out):
    for i in range(len(images)):
        out[i] = shear_of(images[i])[0]


def measure_shears(images: np.ndarray) -> np.ndarray:
    """Return the slopes dx / dy (N,) of digits (N, H, W) uint8; nan for an empty one."""
    out = np.empty(len(images))
    _shears(images, out)
    return out


def morph_digits(
    images: np.ndarray,
    thickness: np.ndarray,
    intensity: np.ndarray,
    slant: np.ndarray | None = None,
    *,
    description: str = "Drawing digits",
) -> np.ndarray:
    """Return digits (N, H, W) uint8 with these attributes (N,), in as many threads as torch uses.

    Arguments:
        images: (N, H, W) uint8.
        thickness: mean thickness of the strokes in pixels.
        intensity: of the strokes, 0 to 255.
        slant: degrees to the right; None leaves that of the digit.
    """
    slopes = np.full(len(images), np.nan) if slant is None else -np.tan(np.radians(slant))
    attributes = np.stack(
        [
            np.clip(thickness, THINNEST, THICKEST),
            np.clip(intensity, 0.0, WHITE),
            np.clip(slopes, -STEEPEST, STEEPEST),
        ],
        axis=1,
    )
    out = np.empty(images.shape, np.uint8)
    tables = enlarging_weights(), reducing_weights(), medial_axis_table()

    def render(rows: slice) -> None:
        pictures = np.ascontiguousarray(images[rows], dtype=np.float32)
        _render(pictures, attributes[rows], *tables, out[rows])

    map_rows(render, len(images), description)
    return out
