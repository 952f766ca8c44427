"""The sprite of `motion`: a coin with a cross, drawn at sub-pixel positions with exact coverage."""

from __future__ import annotations

import numpy as np

CHUNK_PIXELS = 4096 * 20**2

# In texels of one pixel each. Symmetric, so that the centre of mass is the position.
SOLID = np.array(
    [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0]],
    dtype=np.float32,
)
CROSS = np.array(
    [[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
)
# rim, cross and middle, in colour and in grey
GOLD = np.array([[255, 214, 70], [170, 96, 30], [90, 30, 20]], dtype=np.float32)
SILVER = np.array([[250], [140], [60]], dtype=np.float32)
TEXELS = len(SOLID)


def draw_sprite(
    width: int, positions: np.ndarray, backgrounds: np.ndarray, size: int
) -> np.ndarray:
    """Clips (n, k, C, size, size) uint8 of a sprite at (n, 2 k) positions.

    Arguments:
        width: width of the area in which the sprite moves, in the units of `positions`.
        positions: x and y of the centre in each of k frames.
        backgrounds: (n, C, size, size) uint8; C = 1 draws in grey, 3 in colour.
        size: width of the images.
    """
    n, frames, channels = len(positions), positions.shape[1] // 2, backgrounds.shape[1]
    clips = np.empty((n, frames, channels, size, size), np.uint8)
    colours = (GOLD if channels == 3 else SILVER)[CROSS] * SOLID[:, :, None]  # (5, 5, C)
    step = max(1, CHUNK_PIXELS // (frames * size**2))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        # (n, k, size, 5)
        across, down = (_coverage(positions[rows, axis::2], width, size) for axis in (0, 1))
        across = across.swapaxes(2, 3)
        bare = 1.0 - down @ SOLID @ across  # (n, k, size, size)
        for channel in range(channels):
            sprite = down @ colours[:, :, channel] @ across
            clips[rows, :, channel] = np.rint(bare * backgrounds[rows, None, channel] + sprite)
    return clips


def _coverage(centre: np.ndarray, width: int, size: int) -> np.ndarray:
    """Coverage of each pixel along an axis by each texel: centres (n, k) to (n, k, size, 5)."""
    unit = size / width  # pixels per unit of the positions
    left = (centre[:, :, None, None] + 0.5 + np.arange(TEXELS) - TEXELS / 2) * unit
    pixel = np.arange(size)[:, None]
    overlap = np.minimum(left + unit, pixel + 1) - np.maximum(left, pixel)
    return np.clip(overlap, 0.0, None).astype(np.float32)
