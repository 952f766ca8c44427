"""Pictures of the page in a browser, as arrays to compare with a model's."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image


def source(page: Any, selector: str) -> str:
    """Return the address of the first picture of a selector."""
    return str(page.locator(selector).first.get_attribute("src"))


def pixels(address: str) -> np.ndarray:
    """Return the pixels (H, W, 3) of a data: address."""
    data = base64.b64decode(address.partition("base64,")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def as_pixels(image: Any) -> np.ndarray:
    """Return a picture (C, H, W) in [0, 1] as the page's PNG shows it, (H, W, 3) uint8."""
    array = np.rint(image.permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    return array if array.shape[2] == 3 else np.repeat(array, 3, axis=2)


def wait(page: Any, condition: str, arg: Any = None) -> None:
    """Wait for a condition, JavaScript in which `arg` is the argument."""
    page.wait_for_function(f"arg => {condition}", arg=arg)
