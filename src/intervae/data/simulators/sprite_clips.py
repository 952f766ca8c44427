"""Clips of moving sprites over backgrounds: what the video worlds have in common.

`motion` and `spring` add their laws. Positions of the first two frames determine all later ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.simulators.backgrounds import draw_backgrounds
from intervae.data.simulators.base import LARGEST_VALUE, SMALLEST, Simulator
from intervae.data.simulators.sprite import SPRITES, TEXELS, draw_sprite
from intervae.data.variables import Variable
from intervae.errors import DataError, QueryError, UsageError

CLIPS, BACKGROUNDS = 10_000, 30


class SpriteClips(Simulator):
    """Positions of sprites in each frame, in pixels; the centre of the top left pixel is (0, 0).

    Noises: the positions in the first two frames, and the number of the `background`, which affects
    only the images. A subclass has the `coordinates` of a frame, two for each sprite, sets `ranges`
    and `graph`, and has `next_state`.

    Arguments:
        frames: frames per clip, 3 or more.
        inside: first frames in which all sprites are completely inside; None is all of them. Later
            ones may leave the image.
        size: width of the area in pixels; a sprite is 5 wide.
        backgrounds: number of backgrounds.
        channels: 1 for grey, 3 for colour.
    """

    coordinates: ClassVar[tuple[str, ...]]
    ranges: dict[str, tuple[float, float]]  # of each coordinate in the first two frames

    def __init__(
        self, *, frames: int, inside: int | None, size: int, backgrounds: int, channels: int
    ) -> None:
        for option, value, minimum in (
            ("frames", frames, 3),
            ("inside", 3 if inside is None else inside, 3),
            ("size", size, SMALLEST),
            ("backgrounds", backgrounds, 1),
        ):
            check_whole(option, value, minimum)
        if inside is not None and inside > frames:
            raise UsageError(f"inside={inside} is more than the {frames} frames of a clip.")
        if channels not in (1, 3):
            raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
        self.frames, self.inside, self.size = frames, inside, size
        self.backgrounds, self.channels = backgrounds, channels
        # range of positions at which a sprite is completely inside
        self.walls = (TEXELS / 2 - 0.5, size - 0.5 - TEXELS / 2)
        names = self.names_of(frames)
        variables = tuple(Variable(name, unit="pixels") for name in names)
        exogenous_names = (*names[: 2 * len(self.coordinates)], "background")
        self.variables = variables  # type: ignore[misc]
        self.exogenous_names = exogenous_names  # type: ignore[misc]
        self._background_images: dict[int, np.ndarray] = {}

    @classmethod
    def names_of(cls, frames: int) -> tuple[str, ...]:
        """Names of the variables of so many frames, in the order of time."""
        return tuple(f"{name}{t}" for t in range(1, frames + 1) for name in cls.coordinates)

    # ---- mechanisms ----------------------------------------------------------------------------
    @abstractmethod
    def next_state(self, past: Sequence[np.ndarray]) -> np.ndarray:
        """Positions (N, c) in the next frame, given those of two frames or more."""

    @abstractmethod
    def coefficients(self) -> np.ndarray:
        """(2, c, c): [0] from the coordinates two frames before, [1] from those one frame before.

        Row = cause, column = effect. Of a law that is not linear, those where it is.
        """

    def set_graph(self, lags: int) -> None:
        """Set `graph`: the edges of `coefficients`, back to `lags` frames."""
        two_before, one_before = self.coefficients()
        c = self.coordinates
        edges = [
            (f"{c[j]}{s}", f"{c[i]}{t}")
            for t in range(3, self.frames + 1)
            for i in range(len(c))
            for s in range(max(1, t - lags), t)
            for j in range(len(c))
            if (one_before if s == t - 1 else two_before)[j, i]
        ]
        self.graph = CausalGraph.from_edges(self.names_of(self.frames), edges)  # type: ignore[misc]

    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 2 c + 1): the first two positions, uniform in `ranges`, and the background number."""
        low, high = zip(*(self.ranges[name] for name in 2 * self.coordinates), strict=True)
        positions = rng.uniform(low, high, size=(n, len(low)))
        return np.concatenate([positions, rng.integers(0, self.backgrounds, size=(n, 1))], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError(
            f"{self.name} has no published grid; use sample_exogenous(n, rng) for random clips."
        )

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        coordinate, frame = name[0], int(name[1:])
        if frame < 3:
            return exogenous[name]
        past = [
            np.stack([values[f"{each}{t}"] for each in self.coordinates], axis=1)
            for t in range(1, frame)
        ]
        return self.next_state(past)[:, self.coordinates.index(coordinate)]

    # ---- images --------------------------------------------------------------------------------
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int | None = None
    ) -> np.ndarray:
        """(N, c T) positions to clips (N, T, C, size, size) uint8.

        The background is that of `exogenous`, or black.
        """
        size = self.size if size is None else size
        return self._draw(self._values(values, size), exogenous, size)

    def _draw(self, table: np.ndarray, exogenous: np.ndarray | None, size: int) -> np.ndarray:
        """Positions (N, c k) of k frames to clips, later sprites in front of earlier ones."""
        positions = table.reshape(len(table), -1, len(self.coordinates))
        clips = self._backgrounds(exogenous, len(table), size)[:, None]
        for number in range(len(self.coordinates) // 2):
            own = positions[..., 2 * number : 2 * number + 2].reshape(len(table), -1)
            clips = draw_sprite(SPRITES[number], self.size, own, clips, size)
        return clips

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Clips (N, T, C, size, size) uint8 and positions (N, c T) under `do`, same noises."""
        return super().counterfactual(exogenous, do, size=self.size if size is None else size)

    def extrapolate(
        self,
        values: np.ndarray,
        exogenous: np.ndarray | None,
        steps: int,
        *,
        size: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Next frames (N, steps, C, size, size) uint8 of clips, and positions (N, c steps) in them.

        Arguments:
            values: (N, c k) positions of two frames or more, ordered as the labels.
            exogenous: (N, 2 c + 1), for the background; None is black.
            steps: number of frames.
            size: width of the images.
        """
        check_whole("steps", steps, 1)
        shape, c = np.shape(values), len(self.coordinates)
        if len(shape) != 2 or shape[1] < 2 * c or shape[1] % c:
            raise DataError(
                f"{self.name}: positions must be (N, {c} k), {', '.join(self.coordinates)} of k "
                f"frames, two or more, not shape {shape}."
            )
        count = shape[1] // c
        table = self._table(values, self.names_of(count), "positions")
        past = list(table.reshape(len(table), count, c).swapaxes(0, 1))
        for _ in range(steps):
            past.append(self.next_state(past))
        future = np.concatenate(past[count:], axis=1)
        clipped = np.clip(future, -LARGEST_VALUE, LARGEST_VALUE)
        return self._draw(clipped, exogenous, self.size if size is None else size), future

    def background(self, exogenous: np.ndarray, *, size: int | None = None) -> np.ndarray:
        """Background images (N, C, size, size) uint8 of each clip, without sprites."""
        return self._backgrounds(exogenous, len(exogenous), self.size if size is None else size)

    def _backgrounds(self, exogenous: Any, n: int, size: int) -> np.ndarray:
        if exogenous is None:
            return np.zeros((n, self.channels, size, size), np.uint8)
        noises = self._table(exogenous, self.exogenous_names, "noises")
        if len(noises) != n:
            raise DataError(
                f"{self.name}: {len(noises)} rows of noises do not match {n} clips; give as many."
            )
        number = noises[:, -1].astype(np.intp)
        if (
            (number != noises[:, -1]).any()
            or (number < 0).any()
            or (number >= self.backgrounds).any()
        ):
            raise DataError(
                f"{self.name}: 'background' must be a whole number from 0 to "
                f"{self.backgrounds - 1}; check the last column of the noises."
            )
        if size not in self._background_images:
            self._background_images[size] = draw_backgrounds(
                self.backgrounds, size, self.channels, self.size
            )
        return self._background_images[size][number]

    # ---- data ----------------------------------------------------------------------------------
    def with_options(self, **requested: Any) -> SpriteClips:
        """The simulator with these arguments; None keeps the value of this one."""
        names = [*requested]
        changes = {
            name: getattr(self, name) if requested[name] is None else requested[name]
            for name in names
        }
        return type(self)(**changes)

    def draw_clips(
        self, samples: int | None, validation: float, test: float, seed: int, names: Sequence[str]
    ) -> Dataset:
        """`samples` clips (None: 10,000) with the field `background` (N, C, H, W) uint8.

        `names` are the arguments of the simulator that `Dataset.source` records.
        """
        samples = CLIPS if samples is None else samples
        check_whole("samples", samples, 8)
        exogenous = self.sample_exogenous(samples, np.random.default_rng(seed))
        values = self.simulate(exogenous)
        splits = {"validation": validation, "test": test, "seed": seed}
        own = {name: getattr(self, name) for name in names}
        return build_dataset(
            self.name,
            self.render(values, exogenous),
            values,
            self.variables,
            fields={"exogenous": exogenous, "background": self.background(exogenous)},
            graph=self.graph,
            simulator=self,
            source={"name": self.name, "options": {**own, "samples": samples, **splits}},
            validation=validation,
            test=test,
            seed=seed,
        )


def check_whole(name: str, value: Any, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UsageError(f"{name}={value!r} must be a whole number, {minimum} or more.")
