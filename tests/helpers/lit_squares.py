"""Pictures of a square whose side causes its brightness; its place has no label."""

from __future__ import annotations

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable, build_dataset

PIXELS = 16
GROUNDS = ("black", "grey", "striped")
GRAPH = CausalGraph.from_edges(("side", "light", "ground"), [("side", "light")])
SLOPE = 12.0  # of the brightness by the side, 0..255 per pixel


def draw_squares(side: np.ndarray, light: np.ndarray, ground: np.ndarray, place: np.ndarray):
    """Return images (N, 1, 16, 16) uint8 of squares with their left upper corners at `place`."""
    pixels = np.arange(PIXELS)
    start = np.floor(place)
    # share of each pixel that the square covers, (N, 2, 16)
    cover = np.clip(start[:, :, None] + side[:, None, None] - pixels, 0, 1)
    cover = np.where(pixels >= start[:, :, None], cover, 0)
    square = cover[:, 0, :, None] * cover[:, 1, None, :]
    stripes = np.where(pixels % 2, 40, 0)[None, None, :]
    level = np.select([ground == 0, ground == 1], [0, 40], 0)[:, None, None]
    back = np.where(ground[:, None, None] == 2, stripes, level)
    images = back * (1 - square) + light[:, None, None] * square
    return images.round().clip(0, 255).astype(np.uint8)[:, None]


def lit_squares(samples: int = 1200, seed: int = 0) -> Dataset:
    """Return squares with side and light (continuous) and ground (categorical); place is noise.

    light = 90 + SLOPE * side + noise of standard deviation 15. `place` (N, 2) is a field of the
    splits.
    """
    rng = np.random.default_rng(seed)
    side = rng.uniform(4, 8, samples)
    light = 90 + SLOPE * side + rng.normal(0, 15, samples)
    ground = rng.integers(0, len(GROUNDS), samples)
    place = 3 * rng.integers(0, 3, (samples, 2))
    return build_dataset(
        "lit-squares",
        draw_squares(side, light, ground, place),
        np.stack([side, light, ground], axis=1),
        [Variable("side"), Variable("light"), Variable("ground", "categorical", "", GROUNDS)],
        fields={"place": place.astype(np.float32)},
        graph=GRAPH,
        source={"name": "lit-squares"},
    )
