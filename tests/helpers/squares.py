"""Images of a square on 16 x 16 pixels, and small CT-VAE models for them."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from intervae.data import Dataset, Variable, build_dataset
from intervae.data.build_transitions import with_transitions
from intervae.models.ct_vae.model import CTVAE

SQUARES = {
    "patch": 4,
    "filters": 48,
    "features": 32,
    "codes": 64,
    "blocks": 1,
    "epochs": 60,
    "batch_size": 16,
    "learning_rate": 3e-3,
}
TRANSITIONS = {
    "width": 48,
    "transition_epochs": 20,
    "transition_batch": 48,
    "transition_rate": 8e-3,
}
COLOURS = np.array([[255, 50, 50], [255, 200, 30], [50, 230, 50], [50, 150, 255]], np.uint8)


def squares(columns: int = 7, rows: int = 7, colours: int = 4, sides: int = 2) -> Dataset:
    """Return images of a square of each position (in steps of 2 pixels), colour and side."""
    table = np.array(
        list(itertools.product(range(columns), range(rows), range(colours), range(sides))), float
    )
    images = np.full((len(table), 3, 16, 16), 30, np.uint8)
    for image, (x, y, colour, side) in zip(images, table.astype(int), strict=True):
        image[:, 2 * y : 2 * y + 3 + 2 * side, 2 * x : 2 * x + 3 + 2 * side] = COLOURS[
            colour, :, None, None
        ]
    variables = [Variable(name) for name in ("x", "y", "colour", "side")]
    return with_transitions(
        build_dataset(
            "squares",
            images,
            table,
            variables,
            validation=0.15,
            test=0.15,
            source={"name": "squares"},
        )
    )


def tiny(data: Dataset, **changes: Any) -> CTVAE:
    """Return an untrained model that trains in a fraction of a second."""
    small = {
        "patch": 4,
        "filters": 8,
        "features": 8,
        "codes": 8,
        "blocks": 1,
        "width": 16,
        "heads": 2,
        "edge_width": 4,
    }
    return CTVAE(
        data.spec,
        **{
            **small,
            "epochs": 1,
            "batch_size": 16,
            "transition_epochs": 1,
            "transition_batch": 16,
            **changes,
        },
    )


@functools.cache
def trained_squares() -> CTVAE:
    """Return a model trained on `squares()`, shared by all tests that do not change it."""
    data = squares()
    model = CTVAE(data.spec, **SQUARES, **TRANSITIONS)
    model.fit(data, seed=0)
    return model
