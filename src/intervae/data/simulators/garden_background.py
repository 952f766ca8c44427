"""The fixed background of `garden`: sky, hills, a brick wall, a lawn and a pond.

Everything is a closed form of the position, so the background is the same in every picture and can
be drawn at any size.
"""

from __future__ import annotations

import functools

import numpy as np

from intervae.data.simulators.raster import FRAME

WALL_TOP, LAWN_TOP = 45.0, 76.0  # rows, in frame units
POND_X, POND_Y, POND_RX, POND_RY = 30.0, 87.0, 22.0, 5.0
PEG_X, PEG_Y = 48.0, 79.0  # to which the balloon is tied
BRICK_WIDTH, BRICK_HEIGHT, MORTAR = 9.0, 4.4, 0.7
FINEST = 384  # samples per side of the picture, at least

Layer = np.ndarray  # (S, S) or (3, S, S)


@functools.cache
def garden_background(size: int) -> np.ndarray:
    """(3, size, size) float32 levels from 0 to 255; shared, so read-only."""
    subpixels = max(4, -(-FINEST // size))  # per side of a pixel
    places = (np.arange(subpixels * size) + 0.5) * (FRAME / (subpixels * size))
    x, y = np.meshgrid(places, places)
    picture = _sky(x, y)
    hills = 40.0 - 4.0 * np.sin(x / 15.0 + 0.6) - 2.0 * np.sin(x / 6.5)
    for colour, inside in (
        (_hills(x, y), y > hills),
        (_bricks(x, y), y > WALL_TOP),
        (_coping(x, y), (y > WALL_TOP) & (y < WALL_TOP + 2.6)),
        (_lawn(x, y), y > LAWN_TOP),
        (_colour((96, 92, 90)) * _grain(x, y), _in_pond(x, y, 2.4)),
        (_water(x, y), _in_pond(x, y, 0.0)),
        (_colour((84, 60, 40)), (np.abs(x - PEG_X) < 1.0) & (np.abs(y - PEG_Y - 1.0) < 1.6)),
    ):
        picture = np.where(inside, colour, picture)
    pixels = picture.reshape(3, size, subpixels, size, subpixels).mean(axis=(2, 4))
    pixels = pixels.clip(0.0, 255.0).astype(np.float32)
    pixels.flags.writeable = False
    return pixels


def _sky(x: Layer, y: Layer) -> Layer:
    """Blue, paler at the horizon, with streaks of haze."""
    haze = 0.05 * np.sin(y / 2.3 + 1.5 * np.sin(x / 17.0)) * np.sin(x / 11.0 + y / 5.0)
    return _mix((72, 130, 196), (178, 208, 228), y / WALL_TOP + haze)


def _hills(x: Layer, y: Layer) -> Layer:
    return _mix((92, 126, 116), (126, 156, 140), (y - 32.0) / 14.0 + 0.1 * np.sin(x + 0.7 * y))


def _bricks(x: Layer, y: Layer) -> Layer:
    """Bricks of varied tone with light mortar, every other row shifted by half a brick."""
    row = np.floor((y - WALL_TOP) / BRICK_HEIGHT)
    along = x + (row % 2) * BRICK_WIDTH / 2
    column = np.floor(along / BRICK_WIDTH)
    tone = 0.5 + 0.5 * np.sin(12.9898 * column + 78.233 * row)  # of each brick
    brick = _mix((112, 56, 44), (158, 88, 64), tone) * _grain(x, y)
    mortar = (along % BRICK_WIDTH < MORTAR) | ((y - WALL_TOP) % BRICK_HEIGHT < MORTAR)
    return np.where(mortar, _colour((148, 132, 118)), brick)


def _coping(x: Layer, y: Layer) -> Layer:
    joint = x % (2 * BRICK_WIDTH) < MORTAR
    return np.where(joint, _colour((110, 104, 98)), _colour((156, 148, 138)) * _grain(x, y))


def _lawn(x: Layer, y: Layer) -> Layer:
    blades = np.sin(2.9 * x + 1.1 * np.sin(1.7 * y)) * np.sin(1.3 * y + 0.9 * x)
    return _mix((58, 104, 40), (98, 148, 62), 0.4 + (y - LAWN_TOP) / 50.0 + 0.35 * blades)


def _water(x: Layer, y: Layer) -> Layer:
    ripples = np.sin(2.4 * np.hypot(x - POND_X, 4.0 * (y - POND_Y)) / 4.0)
    return _mix((30, 66, 92), (62, 110, 136), 0.5 + 0.4 * ripples)


def _in_pond(x: Layer, y: Layer, rim: float) -> Layer:
    across, down = (x - POND_X) / (POND_RX + rim), (y - POND_Y) / (POND_RY + 0.6 * rim)
    return across**2 + down**2 < 1.0


def _grain(x: Layer, y: Layer) -> Layer:
    """Factor around 1: irregular spots of about a frame unit."""
    return 1.0 + 0.05 * np.sin(3.1 * x + 2.0 * np.sin(2.3 * y)) + 0.05 * np.sin(2.7 * y - 1.9 * x)


def _mix(first: tuple[int, int, int], second: tuple[int, int, int], weight: Layer) -> Layer:
    start, end = _colour(first), _colour(second)
    return start + (end - start) * np.clip(weight, 0.0, 1.0)


def _colour(colour: tuple[int, int, int]) -> Layer:
    return np.array(colour, dtype=np.float64)[:, None, None]
