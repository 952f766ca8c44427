"""Simulator of images like chest X-rays (CMCL, Mao et al. 2022, sec. 4.3).

The lungs have an opacity that a column causes, or that causes the column. The true region of the
opacity is known, so that heat maps can be scored. The images are drawings, not medical images.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.simulators.base import Simulator
from intervae.data.variables import Variable
from intervae.errors import QueryError, UsageError, unknown

SIDE, SAMPLES = 64, 2000
CHUNK = 256  # images rendered together
DIRECTIONS = ("causal", "anti-causal")
PRESENT = 0.5  # smallest opacity with a mask
CAUSED_STD = 0.15  # of an opacity that the disease causes, around 0 or 1
ROOT_MEAN, ROOT_STD = 0.5, 0.5  # of an opacity that causes the disease
LOGIT_SLOPE = 8.0  # of the disease on the opacity
LARGEST_OPACITY = 1.5  # rendered
LATENTS = ("opacity", "brightness")
COLUMNS = (Variable("disease", "binary", categories=("no", "yes")), Variable("dose"))
# noises of the image alone, each uniform in -1 to 1: lungs, ribs, positions of the opacity
ANATOMY = (
    "lung_width",
    "lung_height",
    "body_x",
    "body_y",
    "asymmetry",
    "rib_phase",
    "rib_contrast",
    "left_place",
    "right_place",
    "blob_size",
)
# in units of half an image side, x to the right and y downwards from the centre
LUNG_X, LUNG_Y, LUNG_WIDTH, LUNG_HEIGHT = 0.42, -0.02, 0.30, 0.66
BODY_WIDTH, BODY_HEIGHT = 0.98, 1.25
EDGE = 0.05  # width of a soft outline
OPACITY_RADIUS = 0.28
MASK_THRESHOLD = 0.2  # smallest coverage of a pixel of the mask
RIM = 0.62  # distance of an opacity from the centre of its lung; 1 is the outline


class XRay(Simulator):
    """Latents `opacity` (0 none, 1 full) and `brightness`; columns `disease` and `dose`.

    `disease` is binary, `dose` is continuous and causes the brightness.
    Noises: one per node (that of `disease` is uniform in 0 to 1), then `ANATOMY`.

    Arguments:
        direction: "causal": the disease, a fair coin, causes the opacity, 0 or 1 plus
            N(0, 0.15^2). "anti-causal": the opacity, N(0.5, 0.5^2), causes the disease with
            probability sigmoid(8 (opacity - 0.5)).
    """

    name: ClassVar[str] = "xray-like"

    def __init__(self, *, direction: str = "causal") -> None:
        if direction not in DIRECTIONS:
            raise unknown("direction", direction, DIRECTIONS)
        self.direction = direction
        self.latent_names, self.structured_names = LATENTS, tuple(v.name for v in COLUMNS)
        self.variables = (*(Variable(name) for name in LATENTS), *COLUMNS)  # type: ignore[misc]
        edge = ("disease", "opacity") if direction == "causal" else ("opacity", "disease")
        self.graph = CausalGraph.from_edges(  # type: ignore[misc]
            [v.name for v in self.variables], [edge, ("dose", "brightness")]
        )
        self.exogenous_names = (*self.graph.names, *ANATOMY)  # type: ignore[misc]

    # ---- mechanisms ------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 14): N(0, 1) for opacity, brightness and dose, U(0, 1) for disease, then U(-1, 1)."""
        opacity, brightness, dose = rng.normal(size=(3, n))
        nodes = np.stack([opacity, brightness, rng.random(n), dose], 1)
        return np.concatenate([nodes, rng.uniform(-1, 1, (n, len(ANATOMY)))], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError(
            "xray-like has no published grid, it is drawn at random; use sample_exogenous(n, rng)."
        )

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        noise, causal = exogenous[name], self.direction == "causal"
        if name == "opacity" and causal:
            return values["disease"] + CAUSED_STD * noise
        if name == "opacity":
            return ROOT_MEAN + ROOT_STD * noise
        if name == "disease":
            logit = 0.0 if causal else LOGIT_SLOPE * (values["opacity"] - ROOT_MEAN)
            return (noise < expit(logit)).astype(np.float64)
        return 2.0 * np.tanh(values["dose"]) + 0.3 * noise if name == "brightness" else noise

    # ---- images ----------------------------------------------------------------------------------
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE
    ) -> np.ndarray:
        """Render nodes (N, 4) as images (N, 1, size, size) uint8; default: average anatomy."""
        nodes = self._values(values, size)
        images = np.empty((len(nodes), 1, size, size), np.uint8)
        for rows, anatomy in self._anatomies(exogenous, len(nodes)):
            grey, coverage, _ = _draw_chest(anatomy, size)
            opacity = np.clip(nodes[rows, 0], 0.0, LARGEST_OPACITY)[:, None, None]
            grey = grey + opacity * coverage * 0.9 * (0.80 - grey)  # towards the grey of the body
            light = 1.0 + 0.09 * np.clip(nodes[rows, 1], -4, 4)[:, None, None]
            images[rows, 0] = np.rint(255 * np.clip(grey * light, 0.0, 1.0))
        return images

    def masks(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE
    ) -> np.ndarray:
        """(N, 1, size, size) bool: pixels of the opacity; none where it is below 0.5."""
        nodes = self._values(values, size)
        is_present = (nodes[:, 0] >= PRESENT)[:, None, None, None]
        return self.opacity_regions(exogenous, len(nodes), size=size) & is_present

    def opacity_regions(
        self, exogenous: np.ndarray | None, n: int, *, size: int = SIDE
    ) -> np.ndarray:
        """(n, 1, size, size) bool: pixels that an opacity covers, or would cover if present."""
        out = np.empty((n, 1, size, size), bool)
        for rows, anatomy in self._anatomies(exogenous, n):
            out[rows, 0] = _draw_chest(anatomy, size)[1] > MASK_THRESHOLD
        return out

    def lungs(self, exogenous: np.ndarray | None, n: int, *, size: int = SIDE) -> np.ndarray:
        """(n, 1, size, size) bool: pixels of the lungs."""
        out = np.empty((n, 1, size, size), bool)
        for rows, anatomy in self._anatomies(exogenous, n):
            out[rows, 0] = _draw_chest(anatomy, size)[2] > 0.5
        return out

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int = SIDE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images (N, 1, size, size) uint8 and nodes (N, 4) of the same noises under `do`."""
        return super().counterfactual(exogenous, do, size=size)

    def _anatomies(
        self, exogenous: np.ndarray | None, n: int
    ) -> list[tuple[slice, dict[str, np.ndarray]]]:
        """Anatomy of CHUNK images at a time: rows, and each trait (b, 1, 1)."""
        traits = np.zeros((n, len(ANATOMY)))
        if exogenous is not None:
            table = self._table(exogenous, self.exogenous_names, "noises")
            traits = table[:, len(self.graph) :]
        chunks = []
        for start in range(0, n, CHUNK):
            rows = slice(start, start + CHUNK)
            columns = traits[rows, :, None, None].astype(np.float32)
            chunks.append((rows, {name: columns[:, i] for i, name in enumerate(ANATOMY)}))
        return chunks

    # ---- data ------------------------------------------------------------------------------------
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
        """Sample `samples` images, 2,000 by default.

        The fields `latents` (N, 2), `mask` (N, size, size) bool and `exogenous` are for evaluation
        only.
        """
        samples = SAMPLES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        simulator = self if direction is None else XRay(direction=direction)
        exogenous = simulator.sample_exogenous(samples, np.random.default_rng([seed, 7]))
        values = simulator.simulate(exogenous)
        fields: dict[str, Any] = {
            "exogenous": exogenous,
            "latents": values[:, :2].astype(np.float32),
            "mask": simulator.masks(values, exogenous, size=size)[:, 0],
        }
        return build_dataset(
            self.name,
            simulator.render(values, exogenous, size=size),
            values[:, 2:],
            COLUMNS,
            validation=validation,
            test=test,
            seed=seed,
            fields=fields,
            graph=simulator.graph,
            simulator=simulator,
            source={
                "name": self.name,
                "options": {
                    "direction": simulator.direction,
                    "size": size,
                    "samples": samples,
                    "validation": validation,
                    "test": test,
                    "seed": seed,
                },
            },
        )


def _draw_chest(
    anatomy: dict[str, np.ndarray], size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(b, size, size) each, in 0 to 1: chest without opacity, coverage by an opacity, and lung."""
    line = ((np.arange(size) + 0.5) / size * 2 - 1).astype(np.float32)
    x = line[None, None, :] - 0.06 * anatomy["body_x"]
    y = line[None, :, None] - 0.06 * anatomy["body_y"]
    soft = max(EDGE, 1.0 / size)
    body = _inside((x / BODY_WIDTH) ** 2 + ((y - 0.35) / BODY_HEIGHT) ** 2, soft)
    lungs = coverage = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.float32)
    for side, place in ((-1.0, "left_place"), (1.0, "right_place")):
        middle = side * LUNG_X
        wide = LUNG_WIDTH * (1 + 0.12 * anatomy["lung_width"] + 0.06 * side * anatomy["asymmetry"])
        high = LUNG_HEIGHT * (1 + 0.10 * anatomy["lung_height"])
        across, down = (x - middle) / wide, (y - LUNG_Y) / high
        lung = _inside(across**2 * (1 - 0.25 * down) ** 2 + down**2, soft)  # wider below
        turn = np.pi / 2 * 0.75 * anatomy[place]  # 0 to the side, up to 67 degrees up or down
        blob_x = middle + side * RIM * wide * np.cos(turn)
        blob_y = LUNG_Y + RIM * high * np.sin(turn)
        radius = OPACITY_RADIUS * (1 + 0.2 * anatomy["blob_size"])
        square = ((x - blob_x) / radius) ** 2 + ((y - blob_y) / (1.25 * radius)) ** 2
        blob = np.exp(-square * np.sqrt(square))  # flatter in the middle than a Gaussian
        lungs = np.maximum(lungs, lung)
        coverage = np.maximum(coverage, blob * lung)
    phase = 3.2 * (y - 0.45 * np.abs(x) ** 1.5) + 0.5 * anatomy["rib_phase"]
    ribs = np.clip(np.cos(2 * np.pi * phase), 0, None) ** 2
    heart = _inside(((x - 0.10) / 0.27) ** 2 + ((y - 0.36) / 0.30) ** 2, 2 * soft)
    spine = np.exp(-((x / 0.09) ** 2))
    flesh = 0.52 + 0.16 * spine
    inside = 0.16 + 0.05 * y + (0.10 + 0.04 * anatomy["rib_contrast"]) * ribs
    grey = flesh * (1 - lungs) + inside * lungs
    grey = grey + 0.75 * heart * (0.62 - grey) * (1 - 0.4 * lungs)
    grey = 0.03 + body * (grey - 0.03)
    return grey, coverage * (1 - 0.6 * heart), lungs


def _inside(distance: np.ndarray, soft: float) -> np.ndarray:
    """Soft indicator: 1 inside the outline at `distance` 1, 0 outside."""
    return expit((1 - np.sqrt(distance)) / soft * 2)
