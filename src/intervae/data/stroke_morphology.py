"""Thickness, slant and intensity of digits: the morphometry of Morpho-MNIST (Castro et al. 2019).

A picture is enlarged by a cubic spline and a Gaussian, and binarised at half of its range. Its
thickness is twice the mean distance to the background on the medial axis, in pixels of the picture.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy

from intervae.compilation import compiled

SCALE = 16  # enlargement of the published data
TAPS = 13  # pixels that an enlarged pixel depends on, per axis
REACH = 5  # pixels that a reduced pixel depends on, per axis
MARGIN = 2  # pixels around the strokes that are enlarged with them
FAINT = 0.25  # fraction of the range below which no pixel belongs to a stroke
FAR = 1 << 14  # distance without a background pixel, enlarged pixels
STRIDE = 1_000_003  # a prime: pixels of equal distance are visited in a mixed order


# ---- resampling weights --------------------------------------------------------------------------
@functools.cache
def enlarging_weights(scale: int = SCALE) -> np.ndarray:
    """Return (TAPS, scale): weight of the pixel at tap - TAPS // 2 on each enlarged pixel."""
    impulse = np.zeros(2 * TAPS + 1)
    impulse[TAPS] = 1.0
    response = scipy.ndimage.zoom(impulse, scale, order=3, mode="mirror", grid_mode=True)
    response = scipy.ndimage.gaussian_filter1d(response, scale / 3).reshape(-1, scale)
    first = TAPS - TAPS // 2
    weights = response[first : first + TAPS][::-1]
    return np.ascontiguousarray(weights / weights.sum(0), dtype=np.float32)


@functools.cache
def reducing_weights(scale: int = SCALE) -> np.ndarray:
    """Return (REACH * scale,): weights of enlarged pixels on the pixel in their middle."""
    distance = (np.arange(REACH * scale) - (REACH * scale - 1) / 2) / (scale / 3)
    weights = np.exp(-np.square(distance) / 2)
    return (weights / weights.sum()).astype(np.float32)


@functools.cache
def medial_axis_table() -> np.ndarray:
    """Return (512,) 0 or 1: whether the middle of 3 x 3 pixels, row by row as bits, stays.

    It stays if its removal changes the number of connected regions, or with one neighbour or none.
    """
    patterns = (np.arange(512)[:, None] >> np.arange(9) & 1).astype(bool).reshape(-1, 3, 3)
    table = np.zeros(512, np.uint8)
    for index, pattern in enumerate(patterns):
        if pattern[1, 1]:
            without = pattern.copy()
            without[1, 1] = False
            regions, left = (scipy.ndimage.label(p, np.ones((3, 3)))[1] for p in (pattern, without))
            table[index] = regions != left or pattern.sum() < 3
    return table


# ---- shapes --------------------------------------------------------------------------------------
@compiled
def stroke_box(image):
    """Return first and last row and column of the strokes, with a margin, in pixels."""
    height, width = image.shape
    low, high = image.min(), image.max()
    threshold = low + FAINT * (high - low)
    top, bottom, left, right = height, 0, width, 0
    for y in range(height):
        for x in range(width):
            if image[y, x] >= threshold:
                top, bottom = min(top, y), max(bottom, y + 1)
                left, right = min(left, x), max(right, x + 1)
    return top - MARGIN, bottom + MARGIN, left - MARGIN, right + MARGIN


@compiled
def enlarge(image, weights, top, bottom, left, right):
    """Return the box of an image (H, W) enlarged; its darkest value lies around it."""
    height, width = image.shape
    taps, scale = weights.shape
    half = taps // 2
    low = image.min()
    rows, columns = bottom - top, right - left
    out = np.empty((rows * scale, columns * scale), np.float32)
    line = np.empty(columns + taps, np.float32)  # one enlarged row at the columns of the image
    first, last = max(0, half - left), min(columns + taps, width + half - left)
    for r in range(rows * scale):
        line[:] = 0
        for k in range(taps):
            y = top + r // scale + k - half
            if 0 <= y < height:
                weight = weights[k, r % scale]
                for x in range(first, last):
                    line[x] += weight * (image[y, left + x - half] - low)
        target = out[r]
        target[:] = low
        for block in range(columns):
            cell = target[block * scale : (block + 1) * scale]
            for k in range(taps):
                value, phase = line[block + k], weights[k]
                for q in range(scale):
                    cell[q] += value * phase[q]
    return out


@compiled
def shift_rows(enlarged, slope, middle):
    """Shear in place: row r moves right by slope (r - middle), linearly interpolated."""
    rows, columns = enlarged.shape
    line = np.empty(columns, np.float32)
    for r in range(rows):
        line[:] = enlarged[r]
        shift = slope * (r - middle)
        whole = int(np.floor(shift))
        part = np.float32(shift - whole)
        for c in range(columns):
            a = min(max(c - whole, 0), columns - 1)
            b = min(max(c - whole - 1, 0), columns - 1)
            enlarged[r, c] = (1 - part) * line[a] + part * line[b]


@compiled
def binarise(image, weights, slope, middle):
    """Return the enlarged shape uint8 of an image, and the first row and column of its box.

    The image is sheared by `slope` around the row `middle`.
    """
    scale = weights.shape[1]
    top, bottom, left, right = stroke_box(image)
    if slope != 0:
        aside = int(np.ceil(abs(slope) * max(abs(top - middle), abs(bottom - middle)))) + 1
        left, right = left - aside, right + aside
    grey = enlarge(image, weights, top, bottom, left, right)
    if slope != 0:
        shift_rows(grey, slope, (middle + 0.5 - top) * scale - 0.5)
    low = image.min()
    threshold = low + (min(grey.max(), image.max()) - low) / 2
    shape = np.zeros(grey.shape, np.uint8)
    for r in range(1, grey.shape[0] - 1):
        for c in range(1, grey.shape[1] - 1):
            shape[r, c] = grey[r, c] >= threshold
    return shape, top, left


@compiled
def lower_to(best, values, step):
    """best = min(best, values + step), in place."""
    for c in range(len(best)):
        value = values[c] + step
        if value < best[c]:
            best[c] = value


@compiled
def squared_distances(shape, kind, cap):
    """Return squared distances int32, at most cap^2, from pixels of a kind to the nearest other.

    The kind is 1 for distances of the shape to the background, 0 for the reverse.
    """
    rows, columns = shape.shape
    one, cap = np.int32(1), np.int32(cap)
    vertical = np.empty((rows, columns), np.int32)
    for c in range(columns):
        vertical[0, c] = cap if shape[0, c] == kind else 0
    for r in range(1, rows):
        above, here, flags = vertical[r - 1], vertical[r], shape[r]
        for c in range(columns):
            here[c] = min(above[c] + one, cap) if flags[c] == kind else np.int32(0)
    for r in range(rows - 2, -1, -1):
        lower_to(vertical[r], vertical[r + 1], one)
    out = np.empty((rows, columns), np.int32)
    squares = np.empty(columns, np.int32)
    for r in range(rows):
        here, best = vertical[r], out[r]
        run = cap
        for c in range(columns):
            squares[c] = here[c] * here[c]
            run = min(run + one, cap) if here[c] > 0 else np.int32(0)
            best[c] = run
        run, farthest, first, last = cap, np.int32(0), columns, 0
        for c in range(columns - 1, -1, -1):
            run = min(run + one, cap) if here[c] > 0 else np.int32(0)
            value = min(min(run, best[c]), here[c])
            if value > 0:
                first, last = c, max(last, c + 1)
            farthest = max(farthest, value)
            best[c] = value * value
        for k in range(1, farthest + 1):  # no farther column can be nearer
            step, start, end = np.int32(k * k), max(first, k), min(last, columns - k)
            if first < end:
                lower_to(best[first:end], squares[first + k : end + k], step)
            if start < last:
                lower_to(best[start:last], squares[start - k : last - k], step)
    return out


@compiled
def mean_axis_distance(shape, squared, table):
    """Return the mean distance to the background on the medial axis of a shape; 0 without one.

    Pixels are removed in the order of their distance, corners last, unless the table keeps them.
    """
    rows, columns = shape.shape
    n, farthest = 0, np.int32(0)
    for r in range(1, rows - 1):
        for c in range(1, columns - 1):
            if shape[r, c]:
                n += 1
                farthest = max(farthest, squared[r, c])
    if n == 0:
        return 0.0
    keys, places = np.empty(n, np.int32), np.empty(n, np.int32)
    ends = np.zeros((farthest + 1) * 9 + 1, np.int32)
    i = 0
    for r in range(1, rows - 1):
        for c in range(1, columns - 1):
            if shape[r, c]:
                neighbours = 0
                for y in range(r - 1, r + 2):
                    for x in range(c - 1, c + 2):
                        neighbours += shape[y, x]
                keys[i], places[i] = squared[r, c] * 9 + 9 - neighbours, r * columns + c
                ends[keys[i] + 1] += 1
                i += 1
    for i in range(1, len(ends)):
        ends[i] += ends[i - 1]
    order = np.empty(n, np.int32)
    i = 0
    for _ in range(n):
        order[ends[keys[i]]] = places[i]
        ends[keys[i]] += 1
        i = (i + STRIDE) % n
    left, distances = shape.copy().ravel(), squared.ravel()
    total, count = 0.0, 0
    for p in order:
        above, below = p - columns, p + columns
        index = left[above - 1] + 2 * left[above] + 4 * left[above + 1] + 8 * left[p - 1] + 16
        index += 32 * left[p + 1] + 64 * left[below - 1] + 128 * left[below] + 256 * left[below + 1]
        if table[index]:
            total += np.sqrt(distances[p])
            count += 1
        else:
            left[p] = 0
    return total / count


# ---- measurements --------------------------------------------------------------------------------
@compiled
def thickness_of(image, weights, table):
    """Return the mean thickness of the strokes of an image (H, W) in pixels; nan if constant."""
    if image.max() <= image.min():
        return np.nan
    shape, _, _ = binarise(image, weights, 0.0, 0.0)
    squared = squared_distances(shape, 1, FAR)
    return 2 * mean_axis_distance(shape, squared, table) / weights.shape[1]


@compiled
def shear_of(image):
    """Return the slope dx / dy of an image (H, W) and its middle row; nan for an empty image."""
    height, width = image.shape
    mass, sum_x, sum_y, sum_xy, sum_yy = 0.0, 0.0, 0.0, 0.0, 0.0
    for y in range(height):
        for x in range(width):
            value = np.float64(image[y, x])
            mass += value
            sum_x += value * x
            sum_y += value * y
            sum_xy += value * x * y
            sum_yy += value * y * y
    if mass <= 0:
        return np.nan, np.nan
    middle = sum_y / mass
    variance = sum_yy / mass - middle * middle
    if variance <= 1e-9:
        return np.nan, middle
    return (sum_xy / mass - sum_x / mass * middle) / variance, middle


@compiled
def intensity_of(image):
    """Return the median of the pixels at least half as bright as the brightest; nan if empty."""
    high = image.max()
    if high <= 0:
        return np.nan
    bright = np.sort(image.ravel()[image.ravel() >= high / 2])
    n = len(bright)
    return (np.float64(bright[(n - 1) // 2]) + np.float64(bright[n // 2])) / 2


@compiled
def measure_images(images, weights, table, out):
    """Write thickness, shear and intensity of images (N, H, W) float32 to out (N, 3)."""
    for i in range(len(images)):
        out[i, 0] = thickness_of(images[i], weights, table)
        out[i, 1] = shear_of(images[i])[0]
        out[i, 2] = intensity_of(images[i])
