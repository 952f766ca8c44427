"""Image files as input of queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from intervae.cli.output import err, print_notes

if TYPE_CHECKING:
    import numpy as np

    from intervae.models.base import Model


def read_input_images(model: Model, *files: Path) -> np.ndarray:
    """Return image files (N, C, H, W) uint8 in the shape of the model; print conversion notes."""
    from intervae.data.image_files import conversion_notes, read_images

    channels, height, width = model.spec.image_shape
    names, advice = [str(file) for file in files], "give another file"
    images, notes = read_images(
        files, names, size=(height, width), channels=channels, advice=advice
    )
    for file, name in zip(files, names, strict=True):
        original, _ = read_images([file], [name], size=None, channels=None, advice=advice)
        notes += conversion_notes(name, original[0], model.spec.image_shape)
    print_notes(notes, err)
    return images
