"""Image files as input of queries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from intervae.cli.output import err, print_notes
from intervae.notes import Note

if TYPE_CHECKING:
    import numpy as np

    from intervae.models.base import Model


def read_input_images(model: Model, *files: Path) -> np.ndarray:
    """Return image files (N, C, H, W) uint8 in the shape of the model; print conversion notes."""
    from intervae.data.image_files import read_images

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


def conversion_notes(name: str, original: np.ndarray, shape: tuple[int, ...]) -> list[Note]:
    """Return notes on changes of proportions and colour from `original` (C, H, W) to `shape`.

    A change of size alone gets no note.
    """
    channels, height, width = shape
    own_height, own_width = original.shape[1:]
    notes = []
    if (
        abs(own_height * width / own_width - height) >= 1
        and abs(own_width * height / own_height - width) >= 1
    ):
        text = (
            f"{name} is {own_width} x {own_height} (width x height) and is stretched to "
            f"{width} x {height}; crop it to the proportions of the run's images."
        )
        notes.append(Note("stretched", name, text))
    if len(original) < channels:
        text = f"{name} is grey, but the run's images are in colour; it is read as colour."
        notes.append(Note("grey", name, text))
    if len(original) > channels and (original != original[:1]).any():
        text = f"{name} is in colour, but the run's images are grey; it is read as grey."
        notes.append(Note("colour", name, text))
    return notes
