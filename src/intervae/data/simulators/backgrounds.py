"""Procedural backgrounds: gradients, stripes, checks, dots and bricks in two muted colours.

Background number i is the same for every seed of the data and can be drawn at any size. No
channel is brighter than BRIGHTEST.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BRIGHTEST = 150
DARK, LIGHT = (10, 65), (85, BRIGHTEST)  # range of each channel of the two colours
SUBPIXELS = 4  # per side of a pixel
LUMINANCE = np.array([0.299, 0.587, 0.114])  # of red, green and blue
SEED = 2023

# coordinates x (1, S) and y (S, 1) -> weight of the second colour (S, S)
Pattern = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def draw_backgrounds(count: int, size: int, channels: int, width: int) -> np.ndarray:
    """Draw (count, channels, size, size) uint8 backgrounds of `width` x `width` units.

    Patterns repeat every 3 to 10 units, whatever the size in pixels.
    """
    places = (np.arange(SUBPIXELS * size) + 0.5) * (width / (SUBPIXELS * size))
    images = np.empty((count, channels, size, size), np.uint8)
    for i in range(count):
        rng = np.random.default_rng([SEED, i])
        weight = PATTERNS[i % len(PATTERNS)](places[None, :], places[:, None], rng)
        weight = weight.reshape(size, SUBPIXELS, size, SUBPIXELS).mean(axis=(1, 3))
        colours = np.stack([rng.uniform(*DARK, 3), rng.uniform(*LIGHT, 3)])
        first, second = colours if channels == 3 else (colours @ LUMINANCE)[:, None]
        images[i] = np.rint(first[:, None, None] + (second - first)[:, None, None] * weight)
    return images


def _gradient(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    along = _random_axis(x, y, rng)
    return (along - along.min()) / np.ptp(along)


def _stripes(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    phase = _phase(_random_axis(x, y, rng), rng.uniform(4, 9), rng)
    return (phase < rng.uniform(0.3, 0.7)).astype(float)


def _checks(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    period = rng.uniform(5, 9)
    return ((_phase(x, period, rng) < 0.5) ^ (_phase(y, period, rng) < 0.5)).astype(float)


def _dots(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    period = rng.uniform(4, 8)
    distance = np.hypot(_phase(x, period, rng) - 0.5, _phase(y, period, rng) - 0.5)
    return (distance < rng.uniform(0.2, 0.4)).astype(float)


def _bricks(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, mortar = rng.uniform(3, 5), 0.8
    shifted = x + np.floor(y / height) * height  # every other row by half a brick
    across = (shifted + rng.uniform(0, 2 * height)) % (2 * height)
    return (((y % height) > mortar) & (across > mortar)).astype(float)


def _random_axis(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Coordinate along a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    return x * np.cos(angle) + y * np.sin(angle)


def _phase(place: np.ndarray, period: float, rng: np.random.Generator) -> np.ndarray:
    """Phase of a coordinate within its period, 0 to 1, from a random origin."""
    return (place / period + rng.uniform()) % 1.0


PATTERNS: tuple[Pattern, ...] = (_gradient, _stripes, _checks, _dots, _bricks)
