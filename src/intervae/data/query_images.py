"""Pictures of a query: image files and Pillow images, in the shape that a model was built for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from intervae.data.image_files import decode_images, to_pixels
from intervae.data.pixel_arrays import resize_image
from intervae.errors import DataError
from intervae.notes import Note

ADVICE = "give another file"
Shape = tuple[int, int, int]  # channels, height, width
Picture = str | os.PathLike | Image.Image


def pictures_of(value: Any) -> list[Picture] | None:
    """Return a path, a Pillow image or a list of them as a list; None for anything else."""
    if isinstance(value, Picture):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(v, Picture) for v in value):
        return list(value)
    return None


def read_pictures(pictures: Sequence[Picture], shape: Shape) -> tuple[np.ndarray, list[Note]]:
    """Return pictures (N, C, H, W) uint8 in `shape`, and notes on what had to be changed."""
    own = [read_picture(picture) for picture in pictures]
    notes = [
        note
        for picture, (pixels, conversion) in zip(pictures, own, strict=True)
        for note in picture_notes(name_of(picture), pixels, conversion, shape)
    ]
    return np.stack([to_shape(pixels, shape) for pixels, _ in own]), notes


def read_picture(picture: Picture) -> tuple[np.ndarray, str]:
    """Return a picture at its own size, (1 or 3, h, w) uint8, and its conversion ("" for none)."""
    if isinstance(picture, Image.Image):
        return to_pixels(picture)
    (decoded,) = decode_images([Path(picture)], advice=ADVICE)
    if isinstance(decoded, DataError):
        raise decoded
    return decoded


def name_of(picture: Picture) -> str:
    """Return how notes and errors name a picture."""
    return "the picture" if isinstance(picture, Image.Image) else os.fspath(picture)


def to_shape(pixels: np.ndarray, shape: Shape) -> np.ndarray:
    """Return pixels (C, h, w) in the channels, height and width of `shape`."""
    return resize_image(to_channels(pixels, shape[0]), (shape[1], shape[2]))


def to_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    """Return pixels (1 or 3, h, w) as grey or in colour."""
    if len(pixels) == channels:
        return pixels
    if len(pixels) == 1:
        return np.repeat(pixels, channels, axis=0)
    colour = Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    return np.asarray(colour.convert("L"))[None]


def picture_notes(name: str, pixels: np.ndarray, conversion: str, shape: Shape) -> list[Note]:
    """Return notes on a conversion and on other changes from pixels (C, h, w) to `shape`."""
    converted = [Note("converted-images", name, f"images: 1 {conversion}")]
    return [
        *(converted if conversion else []),
        *shape_notes(name, pixels.shape[1:], shape),
        *colour_notes(name, pixels, shape[0]),
    ]


def shape_notes(name: str, own: tuple[int, ...], shape: Shape) -> list[Note]:
    """Return a note if a picture of `own` (height, width) changes its proportions to `shape`.

    A change of size alone gets no note.
    """
    height, width, (own_height, own_width) = shape[1], shape[2], own
    if (
        abs(own_height * width / own_width - height) < 1
        or abs(own_width * height / own_height - width) < 1
    ):
        return []
    text = (
        f"{name} is {own_width} x {own_height} (width x height) and is stretched to "
        f"{width} x {height}; crop it to the proportions of the run's images."
    )
    return [Note("stretched", name, text)]


def colour_notes(name: str, pixels: np.ndarray, channels: int) -> list[Note]:
    """Return a note if a picture (C, h, w) gains or loses colour in `channels`."""
    if len(pixels) < channels:
        text = f"{name} is grey, but the run's images are in colour; it is read as colour."
        return [Note("grey", name, text)]
    if len(pixels) > channels and (pixels != pixels[:1]).any():
        text = f"{name} is in colour, but the run's images are grey; it is read as grey."
        return [Note("colour", name, text)]
    return []
