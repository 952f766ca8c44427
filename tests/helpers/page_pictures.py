"""Names for tests of the page, PNGs of its answers as arrays, and files to upload."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

TOKEN = "a-token-for-tests"
HOSTILE = "<img src=x onerror=alert(1)>"  # a variable's name


def decode_png(text: str) -> np.ndarray:
    """Return a PNG in base64 as (C, H, W) uint8."""
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
    return (pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)).copy()


def image_file(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    """Return (H, W) or (H, W, 3) uint8 as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def as_base64(file: bytes) -> str:
    return base64.b64encode(file).decode("ascii")
