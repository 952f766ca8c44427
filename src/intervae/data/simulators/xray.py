"""Drawings that stand in for chest X-rays (CMCL, Mao et al. 2022, sec. 4.3): lungs with an opacity that a column causes, or that causes it.

The true place of the opacity is known for every picture, which is what a heat map is scored with. Nothing here is a medical image.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.simulators.base import Simulator
from intervae.errors import QueryError, UsageError, unknown

SIDE, SAMPLES = 64, 2000
AT_ONCE = 256  # pictures drawn together
DIRECTIONS = ("causal", "anti-causal")
PRESENT = 0.5  # an opacity from here on counts as there
SPREAD = 0.15  # of the opacity about 0 (well) or 1 (ill), where the column causes it
ROOT_MEAN, ROOT_SPREAD, LINK = 0.5, 0.5, 8.0  # of the opacity where it is the cause, and how steeply it decides the column
DENSEST = 1.5  # a larger opacity looks like this one
LATENTS = ("opacity", "brightness")
COLUMNS = (Variable("disease", "binary", categories=("no", "yes")), Variable("dose"))
# What only the picture sees, each uniform in -1 to 1: the sizes and places of the lungs, the ribs, and where in each lung the opacity is.
ANATOMY = ("lung_width", "lung_height", "body_x", "body_y", "asymmetry", "rib_phase", "rib_contrast", "left_place", "right_place", "blob_size")
# In units of half a picture, x to the right and y downwards from the middle.
LUNG_X, LUNG_Y, LUNG_WIDTH, LUNG_HEIGHT = 0.42, -0.02, 0.30, 0.66
BODY_WIDTH, BODY_HEIGHT = 0.98, 1.25
EDGE = 0.05  # how softly an outline ends
BLOB = 0.28  # radius of an opacity
VEILED = 0.2  # a pixel belongs to the mask where an opacity veils more than this part of it
RIM = 0.62  # how far out in its lung an opacity lies: 0 the middle, 1 the outline


class XRay(Simulator):
    """Latents `opacity` (0 none, 1 full) and `brightness`; columns `disease` (binary) and `dose` (continuous, causes the brightness).

    Noises: one of each node (that of `disease` is uniform in 0 to 1), then `ANATOMY`.

    Arguments:
        direction: "causal": disease (a fair coin) causes the opacity, 0 or 1 plus N(0, 0.15^2). "anti-causal": the opacity, N(0.5, 0.5^2), causes
            the disease, with probability sigmoid(8 (opacity - 0.5)).
    """

    name: ClassVar[str] = "xray-like"

    def __init__(self, *, direction: str = "causal") -> None:
        if direction not in DIRECTIONS:
            raise unknown("direction", direction, DIRECTIONS)
        self.direction = direction
        self.latent_names, self.structured_names = LATENTS, tuple(v.name for v in COLUMNS)
        self.variables = (*(Variable(name) for name in LATENTS), *COLUMNS)  # type: ignore[misc]
        edge = ("disease", "opacity") if direction == "causal" else ("opacity", "disease")
        self.graph = CausalGraph.from_edges([v.name for v in self.variables], [edge, ("dose", "brightness")])  # type: ignore[misc]
        self.exogenous_names = (*self.graph.names, *ANATOMY)  # type: ignore[misc]

    # ---- mechanisms -------------------------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 14): N(0, 1) for the opacity, the brightness and the dose, U(0, 1) for the disease, U(-1, 1) for the anatomy."""
        opacity, brightness, dose = rng.normal(size=(3, n))
        return np.concatenate([np.stack([opacity, brightness, rng.random(n), dose], 1), rng.uniform(-1, 1, (n, len(ANATOMY)))], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError("xray-like has no published grid, it is drawn at random; use sample_exogenous(n, rng).")

    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        noise = exogenous[name]
        if name == "opacity":
            return values["disease"] + SPREAD * noise if self.direction == "causal" else ROOT_MEAN + ROOT_SPREAD * noise
        if name == "disease":
            chance = 0.5 if self.direction == "causal" else expit(LINK * (values["opacity"] - ROOT_MEAN))
            return (noise < chance).astype(np.float64)
        return 2.0 * np.tanh(values["dose"]) + 0.3 * noise if name == "brightness" else noise

    # ---- pictures ---------------------------------------------------------------------------------------------------
    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE) -> np.ndarray:
        """(N, 4) nodes to (N, 1, size, size) uint8; without `exogenous` everybody has the average anatomy."""
        table = self._values(values, size)
        pictures = np.empty((len(table), 1, size, size), np.uint8)
        for rows, anatomy in self._anatomies(exogenous, len(table)):
            grey, where, _ = _draw(anatomy, size)
            dense = np.clip(table[rows, 0], 0.0, DENSEST)[:, None, None]
            grey = grey + dense * where * 0.9 * (0.80 - grey)  # veils the lung towards the grey of the body
            light = 1.0 + 0.09 * np.clip(table[rows, 1], -4, 4)[:, None, None]
            pictures[rows, 0] = np.rint(255 * np.clip(grey * light, 0.0, 1.0))
        return pictures

    def masks(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE) -> np.ndarray:
        """(N, 1, size, size) bool: the pixels that the opacity veils, none where it is below 0.5."""
        table = self._values(values, size)
        return self.places(exogenous, len(table), size=size) & (table[:, 0] >= PRESENT)[:, None, None, None]

    def places(self, exogenous: np.ndarray | None, n: int, *, size: int = SIDE) -> np.ndarray:
        """(n, 1, size, size) bool: the pixels that an opacity veils or would veil, by more than a fifth."""
        out = np.empty((n, 1, size, size), bool)
        for rows, anatomy in self._anatomies(exogenous, n):
            out[rows, 0] = _draw(anatomy, size)[1] > VEILED
        return out

    def lungs(self, exogenous: np.ndarray | None, n: int, *, size: int = SIDE) -> np.ndarray:
        """(n, 1, size, size) bool: the pixels of the lungs."""
        out = np.empty((n, 1, size, size), bool)
        for rows, anatomy in self._anatomies(exogenous, n):
            out[rows, 0] = _draw(anatomy, size)[2] > 0.5
        return out

    def counterfactual(self, exogenous: np.ndarray, do: Do, *, size: int = SIDE) -> tuple[np.ndarray, np.ndarray]:
        """What the same noises would have shown under `do`: images (N, 1, size, size) uint8 and all nodes (N, 4)."""
        return super().counterfactual(exogenous, do, size=size)

    def _anatomies(self, exogenous: np.ndarray | None, n: int) -> list[tuple[slice, dict[str, np.ndarray]]]:
        """The anatomy of AT_ONCE pictures at a time, each trait (b, 1, 1)."""
        table = np.zeros((n, len(ANATOMY))) if exogenous is None else self._table(exogenous, self.exogenous_names, "noises")[:, len(self.graph) :]
        blocks = [slice(start, start + AT_ONCE) for start in range(0, n, AT_ONCE)]
        return [(rows, {name: table[rows, i, None, None].astype(np.float32) for i, name in enumerate(ANATOMY)}) for rows in blocks]

    # ---- data -------------------------------------------------------------------------------------------------------
    def dataset(
        self,
        *,
        size: int = SIDE,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        direction: str | None = None,
    ) -> Dataset:
        """`samples` pictures, 2,000 without it. The fields `latents` (N, 2), `mask` (N, size, size) bool and `exogenous` are for evaluation only."""
        samples = SAMPLES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        drawn = self if direction is None else XRay(direction=direction)
        exogenous = drawn.sample_exogenous(samples, np.random.default_rng([seed, 7]))
        values = drawn.simulate(exogenous)
        fields: dict[str, Any] = {
            "exogenous": exogenous,
            "latents": values[:, :2].astype(np.float32),
            "mask": drawn.masks(values, exogenous, size=size)[:, 0],
        }
        return build_dataset(
            self.name,
            drawn.render(values, exogenous, size=size),
            values[:, 2:],
            COLUMNS,
            validation=validation,
            test=test,
            seed=seed,
            fields=fields,
            graph=drawn.graph,
            simulator=drawn,
            source={
                "name": self.name,
                "options": {"direction": drawn.direction, "size": size, "samples": samples, "validation": validation, "test": test, "seed": seed},
            },
        )


def _draw(anatomy: dict[str, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The chest without an opacity, how much of each pixel an opacity would veil, and how much of it is lung: (b, size, size) each, in 0 to 1."""
    line = ((np.arange(size) + 0.5) / size * 2 - 1).astype(np.float32)
    x = line[None, None, :] - 0.06 * anatomy["body_x"]
    y = line[None, :, None] - 0.06 * anatomy["body_y"]
    soft = max(EDGE, 1.0 / size)
    body = _inside((x / BODY_WIDTH) ** 2 + ((y - 0.35) / BODY_HEIGHT) ** 2, soft)
    lungs = veil = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.float32)
    for side, place in ((-1.0, "left_place"), (1.0, "right_place")):
        middle = side * LUNG_X
        wide = LUNG_WIDTH * (1 + 0.12 * anatomy["lung_width"] + 0.06 * side * anatomy["asymmetry"])
        high = LUNG_HEIGHT * (1 + 0.10 * anatomy["lung_height"])
        across, down = (x - middle) / wide, (y - LUNG_Y) / high
        lung = _inside(across**2 * (1 - 0.25 * down) ** 2 + down**2, soft)  # wider below, as lungs are
        turn = np.pi / 2 * 0.75 * anatomy[place]  # 0 straight out to the side, up to 67 degrees above and below it
        blob_x = middle + side * RIM * wide * np.cos(turn)
        blob_y = LUNG_Y + RIM * high * np.sin(turn)
        radius = BLOB * (1 + 0.2 * anatomy["blob_size"])
        square = ((x - blob_x) / radius) ** 2 + ((y - blob_y) / (1.25 * radius)) ** 2
        blob = np.exp(-square * np.sqrt(square))  # flatter in the middle than a Gaussian
        lungs, veil = np.maximum(lungs, lung), np.maximum(veil, blob * lung)
    ribs = np.clip(np.cos(2 * np.pi * (3.2 * (y - 0.45 * np.abs(x) ** 1.5) + 0.5 * anatomy["rib_phase"])), 0, None) ** 2
    heart = _inside(((x - 0.10) / 0.27) ** 2 + ((y - 0.36) / 0.30) ** 2, 2 * soft)
    spine = np.exp(-((x / 0.09) ** 2))
    flesh = 0.52 + 0.16 * spine
    inside = 0.16 + 0.05 * y + (0.10 + 0.04 * anatomy["rib_contrast"]) * ribs
    grey = flesh * (1 - lungs) + inside * lungs
    grey = grey + 0.75 * heart * (0.62 - grey) * (1 - 0.4 * lungs)
    grey = 0.03 + body * (grey - 0.03)
    return grey, veil * (1 - 0.6 * heart), lungs


def _inside(distance: np.ndarray, soft: float) -> np.ndarray:
    """1 inside the outline where `distance` is 1, 0 outside, softly."""
    return expit((1 - np.sqrt(distance)) / soft * 2)
