"""Sprites of the video worlds, a coin and a stone, drawn at sub-pixel positions, exact coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK_PIXELS = 4096 * 20**2

# In texels of one pixel each. Symmetric, so that the centre of mass is the position.
DISC = np.array(
    [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0]],
    dtype=np.float32,
)
CROSS = np.array(
    [[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
)
RHOMBUS = np.array(
    [[0, 0, 1, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0], [0, 0, 1, 0, 0]],
    dtype=np.float32,
)
CORE = np.pad(np.array([[1, 1, 1], [1, 2, 1], [1, 1, 1]]), 1)
TEXELS = len(DISC)


@dataclass(frozen=True)
class Sprite:
    """A sprite of 5 x 5 texels.

    Arguments:
        solid: (5, 5) of 0 and 1, the texels that it covers.
        tones: (5, 5) rows of the palettes.
        colour, grey: palettes (3, 3) and (3, 1).
    """

    solid: np.ndarray
    tones: np.ndarray
    colour: np.ndarray
    grey: np.ndarray


def _palette(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


COIN = Sprite(  # rim, cross and middle
    DISC,
    CROSS,
    _palette((255, 214, 70), (170, 96, 30), (90, 30, 20)),
    _palette((250,), (140,), (60,)),
)
STONE = Sprite(
    RHOMBUS,
    CORE,
    _palette((40, 90, 200), (20, 20, 60), (200, 230, 255)),
    _palette((240,), (200,), (40,)),
)
SPRITES = (COIN, STONE)


def draw_sprite(
    sprite: Sprite, width: int, positions: np.ndarray, backgrounds: np.ndarray, size: int
) -> np.ndarray:
    """Clips (n, k, C, size, size) uint8 of a sprite at (n, 2 k) positions.

    Arguments:
        sprite: the sprite.
        width: width of the area in which the sprite moves, in the units of `positions`.
        positions: x and y of the centre in each of k frames.
        backgrounds: (n, k, C, size, size) uint8, or k = 1 for all frames; C = 1 draws in grey, 3
            in colour.
        size: width of the images.
    """
    n, frames, channels = len(positions), positions.shape[1] // 2, backgrounds.shape[2]
    clips = np.empty((n, frames, channels, size, size), np.uint8)
    palette = sprite.colour if channels == 3 else sprite.grey
    colours = palette[sprite.tones] * sprite.solid[:, :, None]  # (5, 5, C)
    step = max(1, CHUNK_PIXELS // (frames * size**2))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        # (n, k, size, 5)
        across, down = (_coverage(positions[rows, axis::2], width, size) for axis in (0, 1))
        across = across.swapaxes(2, 3)
        bare = 1.0 - down @ sprite.solid @ across  # (n, k, size, size)
        for channel in range(channels):
            painted = down @ colours[:, :, channel] @ across
            clips[rows, :, channel] = np.rint(bare * backgrounds[rows, :, channel] + painted)
    return clips


def _coverage(centre: np.ndarray, width: int, size: int) -> np.ndarray:
    """Coverage of each pixel along an axis by each texel: centres (n, k) to (n, k, size, 5)."""
    unit = size / width  # pixels per unit of the positions
    left = (centre[:, :, None, None] + 0.5 + np.arange(TEXELS) - TEXELS / 2) * unit
    pixel = np.arange(size)[:, None]
    overlap = np.minimum(left + unit, pixel + 1) - np.maximum(left, pixel)
    return np.clip(overlap, 0.0, None).astype(np.float32)
