"""Procedural backgrounds of our own drawing: gradients, stripes, checks, dots and bricks in two muted colours, never brighter than BRIGHTEST.

Number i is always the same picture, whatever the seed of the data; it is a function of the place, so it can be drawn at any size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BRIGHTEST = 150
DARK, LIGHT = (10, 65), (85, BRIGHTEST)  # the range of each channel of a background's two colours
FINER = 4  # sub-pixels along each side of a pixel
GREY = np.array([0.299, 0.587, 0.114])  # how bright red, green and blue look
ART = 2023

Pattern = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]  # places x (1, S), y (S, 1) -> share of the second colour (S, S)


def draw_backgrounds(count: int, size: int, channels: int, world: int) -> np.ndarray:
    """(count, channels, size, size) uint8: the same `world` x `world` units whatever the size, a pattern repeating every 4 to 9 of them."""
    places = (np.arange(FINER * size) + 0.5) * (world / (FINER * size))
    pictures = np.empty((count, channels, size, size), np.uint8)
    for i in range(count):
        rng = np.random.default_rng([ART, i])
        share = PATTERNS[i % len(PATTERNS)](places[None, :], places[:, None], rng)
        share = share.reshape(size, FINER, size, FINER).mean(axis=(1, 3))
        colours = np.stack([rng.uniform(*DARK, 3), rng.uniform(*LIGHT, 3)])
        first, second = colours if channels == 3 else (colours @ GREY)[:, None]
        pictures[i] = np.rint(first[:, None, None] + (second - first)[:, None, None] * share)
    return pictures


def _gradient(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    along = _turned(x, y, rng)
    return (along - along.min()) / np.ptp(along)


def _stripes(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (_phase(_turned(x, y, rng), rng.uniform(4, 9), rng) < rng.uniform(0.3, 0.7)).astype(float)


def _checks(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    period = rng.uniform(5, 9)
    return ((_phase(x, period, rng) < 0.5) ^ (_phase(y, period, rng) < 0.5)).astype(float)


def _dots(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    period = rng.uniform(4, 8)
    return (np.hypot(_phase(x, period, rng) - 0.5, _phase(y, period, rng) - 0.5) < rng.uniform(0.2, 0.4)).astype(float)


def _bricks(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, mortar = rng.uniform(3, 5), 0.8
    shifted = x + np.floor(y / height) * height  # every other row by half a brick
    return (((y % height) > mortar) & ((shifted + rng.uniform(0, 2 * height)) % (2 * height) > mortar)).astype(float)


def _turned(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The place along a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    return x * np.cos(angle) + y * np.sin(angle)


def _phase(place: np.ndarray, period: float, rng: np.random.Generator) -> np.ndarray:
    """Which part of its period a place is in, 0 to 1, counted from a random start."""
    return (place / period + rng.uniform()) % 1.0


PATTERNS: tuple[Pattern, ...] = (_gradient, _stripes, _checks, _dots, _bricks)
