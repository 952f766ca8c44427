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
    from intervae.data.query_images import read_pictures

    images, notes = read_pictures(files, model.spec.image_shape)
    print_notes(notes, err)
    return images
