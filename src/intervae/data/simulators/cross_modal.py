"""Causes between images and a table (CMCL, Mao et al. 2022, App. E.1): latents z make the picture, columns u cause them or are caused by them.

Every node v = f(parents) + N(0, 1), f a random network as in NOTEARS; each z is bent by a draw of a Gaussian process and shown as one cell of
a 5 x 5 matrix that is interpolated up to the picture. A model may see the picture and u; z and the graph over [z, u] are for evaluation.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit
from torch import Tensor

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError, QueryError, UsageError, unknown

CELLS = 5  # a side of the matrix
SIDE, SAMPLES = 32, 2000
UNITS, WEAKEST_WEIGHT, STRONGEST_WEIGHT = 100, 0.5, 2.0  # of a random mechanism, as NOTEARS draws them
FEATURES, LENGTH_SCALE = 256, 2.0  # of a draw of the Gaussian process, over the standardised latent
NOISE = 0.1  # standard deviation of what is added after the Gaussian process
REFERENCE = 10_000  # draws that fix a world's scales: the standardisation of z, black and white
REACH, STEPS = 8.0, 1601  # where the monotone transform is tabulated, in standard deviations; straight lines go on beyond
MOST_TRIES = 10_000  # mechanisms drawn before `weakest` is given up
WARPS = ("monotone", "free")
DIRECTIONS = ("random", "causal", "anti-causal")
PANELS = {  # the paper's Fig. 3, five latents and five columns each
    "a": (("z1", "u1"), ("z2", "u3"), ("z3", "u2")),
    "b": (("u1", "z1"), ("u2", "z2"), ("u3", "z3")),
    "c": (("z1", "u1"), ("z3", "u2"), ("z4", "u3"), ("z5", "u4"), ("z2", "u5")),
    "d": (("u1", "z1"), ("u2", "z3"), ("u3", "z2"), ("u4", "z5"), ("u5", "z4")),
}


@dataclass(frozen=True)
class Mechanism:
    """f(x) = sum_k outer_k sigmoid(inner_k x), a network of 100 sigmoid units with weights of size 0.5 to 2 and random signs."""

    inner: np.ndarray  # (100,)
    outer: np.ndarray  # (100,)

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Mechanism:
        weights = rng.uniform(WEAKEST_WEIGHT, STRONGEST_WEIGHT, (2, UNITS)) * rng.choice([-1.0, 1.0], (2, UNITS))
        return cls(*weights)

    def __call__(self, parent: np.ndarray) -> np.ndarray:
        return expit(np.asarray(parent)[..., None] * self.inner) @ self.outer


@dataclass(frozen=True)
class Warp:
    """What one latent looks like: a draw h of a Gaussian process over the standardised latent s, or s + integral of softplus(h) from 0 to s."""

    mean: float
    std: float
    frequencies: np.ndarray  # (256,) of the random Fourier features of an RBF kernel
    phases: np.ndarray  # (256,)
    monotone: bool

    @classmethod
    def draw(cls, rng: np.random.Generator, mean: float, std: float, *, monotone: bool) -> Warp:
        return cls(mean, std, rng.normal(0.0, 1.0 / LENGTH_SCALE, FEATURES), rng.uniform(0.0, 2 * np.pi, FEATURES), monotone)

    def process(self, s: np.ndarray) -> np.ndarray:
        """The draw h of the Gaussian process, variance 1."""
        return np.sqrt(2 / FEATURES) * np.cos(np.asarray(s)[..., None] * self.frequencies + self.phases).sum(-1)

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        s = (np.asarray(latent) - self.mean) / self.std
        grid, shown = self.table
        found = np.interp(s, grid, shown)
        far = np.abs(s) > REACH
        if not self.monotone:
            found[far] = self.process(s[far])
        elif far.any():
            found += np.where(far, (s - np.sign(s) * REACH) * self._slope(np.sign(s)), 0.0)
        return found

    def invert(self, shown: np.ndarray) -> np.ndarray:
        """The latent that is shown as this value; only a monotone transform has an inverse."""
        grid, risen = self.table
        beyond = shown - np.clip(shown, risen[0], risen[-1])
        return (np.interp(shown, risen, grid) + beyond / self._slope(np.sign(beyond))) * self.std + self.mean

    @functools.cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Standardised latents and what they are shown as; the integral is by trapezoids, 0 at 0."""
        grid = np.linspace(-REACH, REACH, STEPS)
        drawn = self.process(grid)
        if not self.monotone:
            return grid, drawn
        slope = np.logaddexp(0.0, drawn)
        area = np.concatenate([[0.0], np.cumsum((slope[1:] + slope[:-1]) / 2 * np.diff(grid))])
        return grid, grid + area - area[STEPS // 2]

    def _slope(self, side: np.ndarray) -> np.ndarray:
        """How steeply the monotone transform goes on beyond the table, below (-1) or above (1) it."""
        below, above = 1.0 + np.logaddexp(0.0, self.process(np.array([-REACH, REACH])))
        return np.where(side < 0, below, above)


class CrossModal(Simulator):
    """A world of latents `z1`, `z2`, ... and structured variables `u1`, `u2`, ..., in this order in the graph; every node has one edge at most.

    Noises: one of each node, then one that is added to what each latent is shown as (`z1_shown`, ...).

    Arguments:
        graph: "n/t" as the paper writes it: n structured variables and n edges, t nodes in all ("3/10" has 7 latents); or "a" to "d", the
            panels of its Fig. 3.
        edges: another number of edges than n; not with a panel.
        directions: "random", or all "causal" (u -> z) or all "anti-causal" (z -> u); not with a panel.
        gp: "monotone" shows a latent by a rising function, so that the picture tells z; "free" is the paper's Gaussian process, which folds it.
        noise: standard deviation of what is added after the transform.
        weakest: mechanisms are drawn anew until the standard deviation of f(parent) is at least this much; the noise has 1. The paper draws
            once (0), which leaves about one edge in four with less signal than noise.
        world: the seed of all of the above and of the places of the cells; the samples have a seed of their own.
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
        weakest: float = 0.0,
        world: int = 0,
    ) -> None:
        if gp not in WARPS:
            raise unknown("gp", gp, WARPS)
        for option, number in (("noise", noise), ("weakest", weakest)):
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e6:
                raise UsageError(f"{option}={number!r} must be a number, 0 or more.")
        if isinstance(world, bool) or not isinstance(world, int) or world < 0:
            raise UsageError(f"world={world!r} must be a whole number, 0 or more.")
        self.options: dict[str, Any] = {
            "graph": graph, "edges": edges, "directions": directions, "gp": gp, "noise": float(noise), "weakest": float(weakest), "world": world
        }  # fmt: skip
        self.gp, self.noise = gp, float(noise)
        streams = [np.random.default_rng([world, part]) for part in range(5)]  # so that gp= changes nothing but the pictures
        self.latent_names, self.structured_names, pairs = _nodes(graph, edges, directions, streams[0])
        names = (*self.latent_names, *self.structured_names)
        self.graph = CausalGraph.from_edges(names, pairs)  # type: ignore[misc]
        self.variables = tuple(Variable(name) for name in names)  # type: ignore[misc]
        self.exogenous_names = (*names, *(f"{name}_shown" for name in self.latent_names))  # type: ignore[misc]
        self.mechanisms = {effect: _draw_mechanism(streams[1], float(weakest)) for _, effect in pairs}
        values = self.simulate(self.sample_exogenous(REFERENCE, streams[2]))
        means, stds = values.mean(0), values.std(0)
        self.variances = dict(zip(names, (stds**2).tolist(), strict=True))  # of each node, in its own units
        places = streams[3].permutation(CELLS**2)
        self.cells = places[: len(self.latent_names)]  # where each latent is shown, counted row by row
        self.background = streams[3].normal(size=CELLS**2)
        self.warps = [Warp.draw(streams[4], means[j], stds[j], monotone=gp == "monotone") for j in range(len(self.latent_names))]
        matrix = self._matrix(values, streams[2].normal(0.0, self.noise, (REFERENCE, len(self.latent_names))))
        self.black, self.white = float(matrix.min()), float(matrix.max())

    # ---- mechanisms -------------------------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, e): N(0, 1) for each node, and N(0, `noise`^2) for what each latent is shown as."""
        spread = np.repeat([1.0, self.noise], [len(self.graph), len(self.latent_names)])
        return rng.normal(size=(n, len(spread))) * spread

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError("cross-modal has no published grid, its samples are drawn at random; use sample_exogenous(n, rng).")

    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        parents = self.graph.parents(name)
        return exogenous[name] + self.mechanisms[name](values[parents[0]]) if parents else exogenous[name]

    # ---- pictures ---------------------------------------------------------------------------------------------------
    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int = SIDE) -> np.ndarray:
        """(N, m + d) nodes to (N, 1, size, size) uint8; without `exogenous` nothing is added to what the latents are shown as."""
        table = self._values(values, size)
        added = 0.0 if exogenous is None else self._table(exogenous, self.exogenous_names, "noises")[:, len(self.graph) :]
        matrix = (self._matrix(table, added) - self.black) / (self.white - self.black)
        up = _interpolation(size)
        pictures = up @ np.clip(matrix, 0.0, 1.0).reshape(-1, CELLS, CELLS) @ up.T
        return np.rint(255 * pictures).astype(np.uint8)[:, None]

    def counterfactual(self, exogenous: np.ndarray, do: Do, *, size: int = SIDE) -> tuple[np.ndarray, np.ndarray]:
        """What the same noises would have shown under `do`: images (N, 1, size, size) uint8 and all nodes (N, m + d)."""
        return super().counterfactual(exogenous, do, size=size)

    def _matrix(self, values: np.ndarray, added: np.ndarray | float) -> np.ndarray:
        """(N, m + d) nodes to the (N, 25) cells, before they are scaled to black and white."""
        matrix = np.tile(self.background, (len(values), 1))
        matrix[:, self.cells] = np.stack([warp(values[:, j]) for j, warp in enumerate(self.warps)], axis=1) + added
        return matrix

    def read(self, images: np.ndarray | Tensor) -> np.ndarray:
        """Pictures (N, 1, H, H), uint8 or in [0, 1], back to the latents (N, m) that they show: least squares for the cells, then the inverse
        of the monotone transform. What a picture tells of z at best, and how a do() picture is judged."""
        if self.gp != "monotone":
            raise QueryError('a picture made with gp="free" does not tell its latents; read one that was made with gp="monotone".')
        pixels = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
        if pixels.ndim != 4 or pixels.shape[1] != 1 or pixels.shape[2] != pixels.shape[3] or pixels.shape[2] < CELLS:
            raise DataError(f"cross-modal: pictures must be (N, 1, H, H), not shape {pixels.shape}.")
        bright = pixels[:, 0] / 255.0 if pixels.dtype == np.uint8 else pixels[:, 0].astype(np.float64)
        down = np.linalg.pinv(_interpolation(pixels.shape[2]))
        cells = (down @ bright @ down.T).reshape(-1, CELLS**2)[:, self.cells] * (self.white - self.black) + self.black
        return np.stack([warp.invert(cells[:, j]) for j, warp in enumerate(self.warps)], axis=1)

    # ---- data -------------------------------------------------------------------------------------------------------
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
        weakest: float | None = None,
        world: int | None = None,
    ) -> Dataset:
        """`samples` pictures, 2,000 without it, whose labels are the u; the field `latents` (N, m) is the true z.

        Like `exogenous` that is for evaluation only. `seed` draws the samples and the splits, `world` the graph, the mechanisms and
        the picture. Options that are not given are this one's.
        """
        samples = SAMPLES if samples is None else samples
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 8:
            raise UsageError(f"samples={samples!r} must be a whole number, 8 or more.")
        asked = {"graph": graph, "edges": edges, "directions": directions, "gp": gp, "noise": noise, "weakest": weakest, "world": world}
        given = {option: value for option, value in asked.items() if value is not None}
        drawn = CrossModal(**{**self.options, **given}) if given else self
        exogenous = drawn.sample_exogenous(samples, np.random.default_rng([seed, 5]))
        values = drawn.simulate(exogenous)
        latents = len(drawn.latent_names)
        dataset = build_dataset(
            self.name,
            drawn.render(values, exogenous, size=size),
            values[:, latents:],
            drawn.variables[latents:],
            validation=validation,
            test=test,
            seed=seed,
            fields={"exogenous": exogenous, "latents": values[:, :latents].astype(np.float32)},
            graph=drawn.graph,
            simulator=drawn,
            source={
                "name": self.name,
                "options": {**drawn.options, "size": size, "samples": samples, "validation": validation, "test": test, "seed": seed},
            },
        )
        said = ", ".join(f"{name} {variance:.3g}" for name, variance in drawn.variances.items())
        return replace(dataset, notes=(f"variances of the nodes: {said}",))


def _nodes(
    graph: str, edges: int | None, directions: str, rng: np.random.Generator
) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[str, str]]]:
    """Names of the latents and of the structured variables, and the edges: one-to-one pairs at random, each with a direction."""
    if directions not in DIRECTIONS:
        raise unknown("directions", directions, DIRECTIONS)
    if graph in PANELS:
        if edges is not None or directions != "random":
            raise UsageError(f"graph={graph!r} is a panel with edges of its own; leave out edges= and directions=.")
        return _named("z", 5), _named("u", 5), list(PANELS[graph])
    numbers = re.fullmatch(r"\s*(\d{1,4})\s*/\s*(\d{1,4})\s*", str(graph))
    if numbers is None:
        raise UsageError(f'graph={graph!r} must be "edges/nodes", such as "5/10", or a panel of Fig. 3: {", ".join(PANELS)}.')
    structured, total = int(numbers[1]), int(numbers[2])
    latents = total - structured
    if structured < 1 or not 1 <= latents <= CELLS**2:
        raise UsageError(f"graph={graph!r} has {structured} structured variables and {latents} latents; 1 or more and 1 to {CELLS**2} are needed.")
    most = min(structured, latents)
    wanted = structured if edges is None else edges
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= most:
        raise UsageError(f"graph={graph!r} has room for 0 to {most} one-to-one edges, not edges={wanted!r}.")
    z, u = _named("z", latents), _named("u", structured)
    causal = rng.random(most) < 0.5 if directions == "random" else np.full(most, directions == "causal")
    chosen = list(zip(rng.permutation(latents)[:wanted], rng.permutation(structured)[:wanted], causal[:wanted], strict=True))
    return z, u, [(u[i], z[j]) if downward else (z[j], u[i]) for j, i, downward in chosen]


def _named(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{i}" for i in range(1, count + 1))


def _draw_mechanism(rng: np.random.Generator, weakest: float) -> Mechanism:
    """The first of the drawn mechanisms whose signal, over a root N(0, 1), has this standard deviation or more."""
    points, weights = np.polynomial.hermite_e.hermegauss(31)
    weights = weights / weights.sum()
    for _ in range(MOST_TRIES):
        drawn = Mechanism.draw(rng)
        signal = drawn(points)
        if weakest == 0 or np.sqrt(weights @ (signal - weights @ signal) ** 2) >= weakest:
            return drawn
    raise UsageError(f"weakest={weakest:g}: none of {MOST_TRIES} random mechanisms is that strong; ask for less.")


def _interpolation(size: int) -> np.ndarray:
    """(size, 5): bilinear weights along one axis, pixel and cell centres aligned as pictures are resized, the outer cells held at the rim."""
    place = np.clip((np.arange(size) + 0.5) * CELLS / size - 0.5, 0, CELLS - 1)
    return np.clip(1 - np.abs(place[:, None] - np.arange(CELLS)), 0.0, None)
