"""Pictures as PNG files in base64, and uploaded files as pixels of a model's size.

An uploaded file is decoded in memory; its bytes, its pixels and its format are limited, and nothing
but its pixels is used.
"""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from typing import Any

import numpy as np
from matplotlib import colormaps
from PIL import Image
from torch import Tensor

from intervae.data.image_files import to_pixels
from intervae.data.query_images import picture_notes
from intervae.errors import DataError
from intervae.figures.style import DIVERGING
from intervae.serve.schemas import MAX_FILE

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
MAX_PIXELS = 24_000_000  # decoded, about 70 MB as colour
HEAT = np.rint(colormaps["inferno"](np.arange(256))[:, :3] * 255).astype(np.uint8)
SIGNED = np.rint(DIVERGING(np.linspace(0, 1, 256))[:, :3] * 255).astype(np.uint8)
REFUSED = "the picture was refused: "


# ---- pixels to PNG -----------------------------------------------------------------------------
def as_bytes(images: Any) -> np.ndarray:
    """Return images (..., C, H, W), uint8 or floats in [0, 1], as uint8 arrays."""
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if array.dtype == np.uint8:
        return array
    return np.rint(np.clip(np.nan_to_num(array), 0, 1) * 255).astype(np.uint8)


def as_floats(images: Any) -> np.ndarray:
    """Return images (..., C, H, W), uint8 or floats in [0, 1], as floats."""
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    return array.astype(np.float64) / 255 if array.dtype == np.uint8 else array.astype(np.float64)


def to_png(image: Any) -> str:
    """Return one image (C, H, W), uint8 or in [0, 1], as a PNG in base64."""
    pixels = as_bytes(image)
    if len(pixels) not in (1, 3):
        pixels = pixels[:1]
    return _encode(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def to_pngs(images: Any) -> list[str]:
    """Return images (N, C, H, W) as PNGs in base64."""
    return [to_png(image) for image in as_bytes(images)]


def signed_png(after: Any, before: Any) -> tuple[str, float]:
    """Return the change of one image (C, H, W) as a PNG and its largest value.

    Blue is darker, red brighter, white equal, as in the figures (`signed_change`).
    """
    change = np.nan_to_num(as_floats(after) - as_floats(before)).mean(0)
    largest = float(np.abs(change).max())
    codes = np.rint(127.5 + 127.5 * change / max(largest, 1e-9)).astype(np.uint8)
    return _encode(SIGNED[codes]), largest


def heat_png(values: np.ndarray, largest: float | None = None) -> str:
    """Return values (H, W) from 0 to `largest`, black to yellow, as a PNG."""
    largest = float(values.max()) if largest is None else largest
    codes = np.rint(255 * np.clip(values / max(largest, 1e-9), 0, 1)).astype(np.uint8)
    return _encode(HEAT[codes])


def _encode(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG", compress_level=1)
    return base64.b64encode(file.getvalue()).decode("ascii")


# ---- uploads to pixels -------------------------------------------------------------------------
def decode_upload(text: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, list[str]]:
    """Return a file in base64 as (C, H, W) uint8 of `shape`, and notes on its conversion."""
    channels, height, width = shape
    with _open(decode_base64(text)) as image:
        try:
            original, _ = to_pixels(image)
            pixels, _ = to_pixels(image, (height, width), channels)
        except Exception as error:  # Pillow raises many kinds for a damaged file
            raise DataError(f"{REFUSED}it is damaged ({_reason(error)}).") from None
    notes = [note.text for note in picture_notes("the picture", original, "", shape)]
    return pixels, notes


def decode_base64(text: str) -> bytes:
    """Return the bytes of a file in base64; an error if they are too many."""
    try:
        file = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{REFUSED}it is not base64.") from None
    if len(file) > MAX_FILE:
        raise DataError(f"{REFUSED}it has {len(file)} bytes; at most {MAX_FILE} are read.")
    return file


def _open(file: bytes) -> Image.Image:
    """Open an image without decoding it; only its header is read before the checks."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # checked below
            image = Image.open(io.BytesIO(file), formats=FORMATS)
    except Image.DecompressionBombError:
        raise DataError(f"{REFUSED}it has more than {MAX_PIXELS} pixels.") from None
    except Exception as error:  # as above
        known = ", ".join(FORMATS)
        raise DataError(
            f"{REFUSED}it is not a file of the formats {known} ({_reason(error)})."
        ) from None
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise DataError(
            f"{REFUSED}it has {width} x {height} pixels; at most {MAX_PIXELS} are decoded."
        )
    return image


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "not recognised"
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
