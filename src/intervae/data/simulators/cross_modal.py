"""Simulator of images and a table with causal links (CMCL, Mao et al. 2022, App. E.1).

Latents z make the image; columns u cause latents or are caused by them. Every node is
v = f(parent) + N(0, 1), f a random network as in NOTEARS. Each latent is transformed by a
Gaussian process and rendered as one cell of a 5 x 5 matrix, which is interpolated to the image.
Models see images and u; the latents and the graph over [z, u] are for evaluation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.simulators.base import Simulator
from intervae.data.simulators.cross_modal_graph import draw_edges
from intervae.data.simulators.random_functions import GaussianProcessTransform, SigmoidMechanism
from intervae.data.variables import Variable
from intervae.errors import DataError, QueryError, UsageError, unknown
from intervae.notes import Note

CELLS = 5  # per side of the matrix
SIDE, SAMPLES = 32, 2000
NOISE = 0.1  # standard deviation of the noise added after the transform
REFERENCE = 10_000  # samples that set the scale of the latents and of black and white
TRANSFORMS = ("monotone", "free")


class CrossModal(Simulator):
    """Latents `z1`, `z2`, ... and columns `u1`, `u2`, ... with at most one edge per node.

    Noises: one per node, then one per latent, added to its transformed value (`z1_shown`, ...).

    Arguments:
        graph: "n/t" as in the paper: n columns, n edges, t nodes in all ("3/10" has 7 latents);
            or "a" to "d", the panels of its Fig. 3.
        edges: number of edges, n by default; not with a panel.
        directions: "random", all "causal" (u -> z), all "anti-causal" (z -> u), or "half" of
            each; not with a panel.
        gp: "monotone", an increasing transform, so that the image determines z; "free", a sample
            of a Gaussian process as in the paper, which is not injective.
        noise: standard deviation of the noise after the transform.
        correlation: of columns that are no effects, from 0 to less than 1. The paper assumes 0.
        weakest: minimum standard deviation of f(parent); the noise has 1. With 0, as in the
            paper, about one edge in four has less signal than noise.
        world: seed of the simulator, that is of all of the above and of the cells; samples have a
            seed of their own.
    """

    name: ClassVar[str] = "cross-modal"

    def __init__(
        self,
        *,
        graph: str = "5/10",
        edges: int | None = None,
        directions: str = "random",
        gp: str = "monotone",
        noise: float = NOISE,
        correlation: float = 0.0,
        weakest: float = 0.0,
        world: int = 0,
    ) -> None:
        if gp not in TRANSFORMS:
            raise unknown("gp", gp, TRANSFORMS)
        for option, value in (("noise", noise), ("weakest", weakest), ("correlation", correlation)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < 1e6:
                raise UsageError(f"{option}={value!r} must be a number, 0 or more.")
        if correlation >= 1:
            raise UsageError(f"correlation={correlation!r} must be less than 1.")
        if isinstance(world, bool) or not isinstance(world, int) or world < 0:
            raise UsageError(f"world={world!r} must be a whole number, 0 or more.")
        self.options: dict[str, Any] = {
            "graph": graph,
            "edges": edges,
            "directions": directions,
            "gp": gp,
            "noise": float(noise),
            "correlation": float(correlation),
            "weakest": float(weakest),
            "world": world,
        }
        self.gp, self.noise, self.correlation = gp, float(noise), float(correlation)
        # separate streams, so that gp= changes the images only
        streams = [np.random.default_rng([world, stream]) for stream in range(5)]
        self.latent_names, self.structured_names, pairs = draw_edges(
            graph, edges, directions, streams[0]
        )
        names = (*self.latent_names, *self.structured_names)
        self.graph = CausalGraph.from_edges(names, pairs)  # type: ignore[misc]
        self.variables = tuple(Variable(name) for name in names)  # type: ignore[misc]
        self.exogenous_names = (  # type: ignore[misc]
            *names,
            *(f"{name}_shown" for name in self.latent_names),
        )
        self.mechanisms = {
            effect: SigmoidMechanism.draw_with_signal(streams[1], float(weakest))
            for _, effect in pairs
        }
        values = self.simulate(self.sample_exogenous(REFERENCE, streams[2]))
        means, stds = values.mean(0), values.std(0)
        self.variances = dict(zip(names, (stds**2).tolist(), strict=True))
        latents = len(self.latent_names)
        self.cells = streams[3].permutation(CELLS**2)[:latents]  # cell of each latent, row by row
        self.background = streams[3].normal(size=CELLS**2)
        self.transforms = [
            GaussianProcessTransform.draw(streams[4], means[j], stds[j], monotone=gp == "monotone")
            for j in range(latents)
        ]
        noises = streams[2].normal(0.0, self.noise, (REFERENCE, latents))
        matrix = self._matrix(values, noises)
        self.black, self.white = float(matrix.min()), float(matrix.max())

    # ---- mechanisms ------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, e): N(0, 1) for each node, N(0, `noise`^2) for each transformed latent."""
        std = np.repeat([1.0, self.noise], [len(self.graph), len(self.latent_names)])
        noises = rng.normal(size=(n, len(std))) * std
        if self.correlation:
            names = self.structured_names
            roots = [self.graph.names.index(u) for u in names if not self.graph.parents(u)]
            own, shared = np.sqrt([1 - self.correlation, self.correlation])
            noises[:, roots] = own * noises[:, roots] + shared * rng.normal(size=(n, 1))
        return noises

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError(
            "cross-modal has no published grid, its samples are drawn at random; "
            "use sample_exogenous(n, rng)."
        )

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        parents = self.graph.parents(name)
        if not parents:
            return exogenous[name]
        return exogenous[name] + self.mechanisms[name](values[parents[0]])

    # ---- images ----------------------------------------------------------------------------------
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE
    ) -> np.ndarray:
        """Render nodes (N, m + d) as images (N, 1, size, size) uint8.

        Without `exogenous` no noise is added to the transformed latents.
        """
        nodes = self._values(values, size)
        noises: np.ndarray | float = 0.0
        if exogenous is not None:
            table = self._table(exogenous, self.exogenous_names, "noises")
            noises = table[:, len(self.graph) :]
        matrix = (self._matrix(nodes, noises) - self.black) / (self.white - self.black)
        weights = _interpolation_weights(size)
        images = weights @ np.clip(matrix, 0.0, 1.0).reshape(-1, CELLS, CELLS) @ weights.T
        return np.rint(255 * images).astype(np.uint8)[:, None]

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int = SIDE
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images (N, 1, size, size) uint8 and nodes (N, m + d) of the same noises under `do`."""
        return super().counterfactual(exogenous, do, size=size)

    def _matrix(self, values: np.ndarray, noises: np.ndarray | float) -> np.ndarray:
        """Cells (N, 25) of nodes (N, m + d), before scaling to black and white."""
        matrix = np.tile(self.background, (len(values), 1))
        transformed = [transform(values[:, j]) for j, transform in enumerate(self.transforms)]
        matrix[:, self.cells] = np.stack(transformed, axis=1) + noises
        return matrix

    def read_latents(self, images: np.ndarray | Tensor) -> np.ndarray:
        """Latents (N, m) that images (N, 1, H, H), uint8 or in [0, 1], show.

        The inverse of the monotone transform of `read_cells`.
        """
        if self.gp != "monotone":
            raise QueryError(
                'an image made with gp="free" does not determine its latents; '
                'read one that was made with gp="monotone".'
            )
        cells = self.read_cells(images)
        latents = [t.invert(cells[:, j]) for j, t in enumerate(self.transforms)]
        return np.stack(latents, axis=1)

    def read_cells(self, images: np.ndarray | Tensor) -> np.ndarray:
        """Transformed latents with their noise (N, m) that images (N, 1, H, H) show.

        Least squares; cells beyond black and white were clipped.
        """
        pixels = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
        shape = pixels.shape
        if pixels.ndim != 4 or shape[1] != 1 or shape[2] != shape[3] or shape[2] < CELLS:
            raise DataError(f"cross-modal: images must be (N, 1, H, H), not shape {shape}.")
        grey = pixels[:, 0] / 255.0
        if pixels.dtype != np.uint8:
            grey = pixels[:, 0].astype(np.float64)
        inverse = np.linalg.pinv(_interpolation_weights(shape[2]))
        matrix = (inverse @ grey @ inverse.T).reshape(-1, CELLS**2)[:, self.cells]
        return matrix * (self.white - self.black) + self.black

    # ---- data ------------------------------------------------------------------------------------
    def dataset(
        self,
        *,
        size: int = SIDE,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        graph: str | None = None,
        edges: int | None = None,
        directions: str | None = None,
        gp: str | None = None,
        noise: float | None = None,
        correlation: float | None = None,
        weakest: float | None = None,
        world: int | None = None,
    ) -> Dataset:
        """Sample images with u as labels; fields `latents` (N, m) and `exogenous` for evaluation.

        Arguments:
            samples: number of images, 2,000 by default.
            seed: seed of the samples and splits.
            graph, edges, directions, gp, noise, correlation, weakest, world: as in the class; by
                default those of this simulator.
        """
        samples = SAMPLES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        options = {
            "graph": graph,
            "edges": edges,
            "directions": directions,
            "gp": gp,
            "noise": noise,
            "correlation": correlation,
            "weakest": weakest,
            "world": world,
        }
        changed = {option: value for option, value in options.items() if value is not None}
        simulator = CrossModal(**{**self.options, **changed}) if changed else self
        exogenous = simulator.sample_exogenous(samples, np.random.default_rng([seed, 5]))
        values = simulator.simulate(exogenous)
        latents = len(simulator.latent_names)
        source_options = {"size": size, "samples": samples, "validation": validation, "test": test}
        dataset = build_dataset(
            self.name,
            simulator.render(values, exogenous, size=size),
            values[:, latents:],
            simulator.variables[latents:],
            validation=validation,
            test=test,
            seed=seed,
            fields={"exogenous": exogenous, "latents": values[:, :latents].astype(np.float32)},
            graph=simulator.graph,
            simulator=simulator,
            source={
                "name": self.name,
                "options": {**simulator.options, **source_options, "seed": seed},
            },
        )
        text = ", ".join(f"{name} {value:.3g}" for name, value in simulator.variances.items())
        return replace(dataset, notes=(Note("variances", "", f"variances of the nodes: {text}"),))


def _interpolation_weights(size: int) -> np.ndarray:
    """(size, 5) bilinear weights along one axis; the outer cells extend to the border."""
    place = np.clip((np.arange(size) + 0.5) * CELLS / size - 0.5, 0, CELLS - 1)
    return np.clip(1 - np.abs(place[:, None] - np.arange(CELLS)), 0.0, None)
