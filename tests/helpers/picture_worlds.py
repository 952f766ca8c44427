"""Worlds drawn with numpy whose painters are known, for the search of image groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from intervae.causal.graph import CausalGraph

SIDE = 48
GREY = 90
ROWS, COLUMNS = np.mgrid[0:SIDE, 0:SIDE]


@dataclass(frozen=True)
class PictureWorld:
    """Pictures (N, 3, 48, 48), normalised labels, and the sets of variables that draw them."""

    images: torch.Tensor
    labels: torch.Tensor
    names: tuple[str, ...]
    objects: set[str]
    kinds: tuple[str, ...] | None = None
    graph: CausalGraph | None = None


def make_world(name: str, n: int = 1500, seed: int = 0, noise: float = 0.0) -> PictureWorld:
    """Draw one of WORLDS; `noise` is the standard deviation of a pixel, of 255."""
    rng = np.random.default_rng(seed)
    images = np.full((n, 3, SIDE, SIDE), GREY, dtype=float)
    labels, options = WORLDS[name](images, rng)
    table = np.stack(list(labels.values()), 1)
    kinds = options.get("kinds", ("continuous",) * len(labels))
    scale = [1.0 if k == "categorical" else s for k, s in zip(kinds, table.std(0), strict=True)]
    edges = options.get("edges")
    return PictureWorld(
        torch.from_numpy((images + rng.normal(0, noise, images.shape)).clip(0, 255)).byte(),
        torch.from_numpy(table / scale).float(),
        tuple(labels),
        options["objects"],
        kinds,
        None if edges is None else CausalGraph.from_edges(tuple(labels), edges),
    )


def draw_disc(images, x, y, radius, colour) -> None:
    """Draw a disc at (x, y), numbers or (N,)."""
    x, y = (np.broadcast_to(place, len(images))[:, None, None] for place in (x, y))
    inside = (COLUMNS - x) ** 2 + (ROWS - y) ** 2 <= radius**2
    for channel, level in enumerate(colour):
        images[:, channel][inside] = level


def draw_box(images, left, width, top, height, colour) -> None:
    """Draw a box that starts at column `left`, (N,)."""
    across = (left[:, None, None] <= COLUMNS) & (left[:, None, None] + width > COLUMNS)
    inside = across & (top <= ROWS) & (top + height > ROWS)
    for channel, level in enumerate(colour):
        images[:, channel][inside] = level


def uniform(rng, n, names):
    return {name: rng.uniform(-1, 1, n) for name in names}


def four_squares(images, rng):
    """Independent squares, each in a quarter of the picture."""
    labels = uniform(rng, len(images), "abcd")
    places = [(10, 5), (34, 5), (10, 30), (34, 30)]
    for value, (x, y), level in zip(labels.values(), places, (255, 200, 20, 0), strict=True):
        draw_box(images, x - 3 + 8 * value, 6, y, 8, (level, 255 - level, 128))
    return labels, {"objects": {"a", "b", "c", "d"}}


def occluding_discs(images, rng):
    """A white disc that passes before a yellow one."""
    labels = uniform(rng, len(images), "ab")
    draw_disc(images, 24 + 16 * labels["a"], 22, 6, (250, 200, 0))
    draw_disc(images, 24 + 16 * labels["b"], 26, 7, (240, 240, 240))
    return labels, {"objects": {"a", "b"}}


def disc_before_bar(images, rng):
    """A disc at (x, y) before a bar at `a`; nothing shows `hidden`."""
    labels = uniform(rng, len(images), ("a", "x", "y", "hidden"))
    draw_box(images, 21 + 18 * labels["a"], 6, 0, SIDE, (30, 160, 30))
    draw_disc(images, 24 + 15 * labels["x"], 24 + 15 * labels["y"], 6, (250, 60, 60))
    return labels, {"objects": {"a", "x+y"}}


def effects_with_proxies(images, rng):
    """A disc at (p, q), which follow from u and v: any two of the four determine it."""
    labels = uniform(rng, len(images), "uv")
    labels["p"] = (labels["u"] + labels["v"]) / 2
    labels["q"] = (labels["u"] - labels["v"]) / 2
    draw_box(images, 21 + 18 * labels["u"], 5, 0, 5, (250, 250, 0))
    draw_box(images, 21 + 18 * labels["v"], 5, 43, 5, (0, 250, 250))
    draw_disc(images, 24 + 16 * labels["p"], 24 + 13 * labels["q"], 4, (250, 60, 60))
    edges = [(cause, effect) for cause in "uv" for effect in "pq"]
    return labels, {"objects": {"u", "v", "p+q"}, "edges": edges}


def switch_and_code(images, rng):
    """A patch that `on` switches, a square whose place is a code without order, and a disc."""
    n = len(images)
    labels = {"on": rng.integers(0, 2, n), "code": rng.integers(0, 4, n), **uniform(rng, n, "xy")}
    images[labels["on"] == 1, :, 2:10, 2:46] = 200
    draw_box(images, np.array([30, 2, 38, 14])[labels["code"]], 7, 40, 7, (250, 0, 250))
    draw_disc(images, 24 + 16 * labels["x"], 25 + 7 * labels["y"], 5, (20, 20, 200))
    kinds = ("binary", "categorical", "continuous", "continuous")
    return labels, {"objects": {"on", "code", "x+y"}, "kinds": kinds}


def two_discs(images, rng):
    """A disc at (c, d) that passes before one at (a, b)."""
    labels = uniform(rng, len(images), "abcd")
    draw_disc(images, 24 + 16 * labels["a"], 24 + 16 * labels["b"], 5, (250, 60, 60))
    draw_disc(images, 24 + 16 * labels["c"], 24 + 16 * labels["d"], 6, (60, 60, 250))
    return labels, {"objects": {"a+b", "c+d"}}


def unlabelled_disc(images, rng):
    """A disc that no label names, behind a disc of size `r` and one at (x, y)."""
    rest = uniform(rng, len(images), "xy")
    labels = uniform(rng, len(images), "rxy")
    draw_disc(images, 24 + 18 * rest["x"], 24 + 18 * rest["y"], 5, (200, 120, 0))
    draw_disc(images, 12, 12, (7 + 4 * labels["r"])[:, None, None], (250, 60, 60))
    draw_disc(images, 32 + 9 * labels["x"], 32 + 9 * labels["y"], 5, (60, 60, 250))
    return labels, {"objects": {"r", "x+y"}}


def chain(images, rng):
    """Two bars of a cause and its effect; a further effect is not shown."""
    n = len(images)
    labels = {"a": rng.uniform(-1, 1, n)}
    labels["b"] = labels["a"] + 0.3 * rng.normal(size=n)
    labels["hidden"] = labels["b"] + 0.3 * rng.normal(size=n)
    draw_box(images, 21 + 16 * labels["a"], 6, 5, 7, (250, 250, 250))
    draw_box(images, 21 + 14 * labels["b"], 6, 30, 7, (250, 0, 0))
    return labels, {"objects": {"a", "b"}, "edges": [("a", "b"), ("b", "hidden")]}


WORLDS = {
    world.__name__: world
    for world in (
        four_squares,
        occluding_discs,
        disc_before_bar,
        effects_with_proxies,
        switch_and_code,
        two_discs,
        unlabelled_disc,
        chain,
    )
}
