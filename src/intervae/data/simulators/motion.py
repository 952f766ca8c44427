"""A moving sprite (causal-prior VAE, ICLR 2023 submission, sec. 5.2): short clips.

The first two positions determine all later ones. The ranges and x3 = 2 x2 - x1 are the paper's; the
sprite, the backgrounds, gravity, walls and longer clips are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.simulators.backgrounds import draw_backgrounds
from intervae.data.simulators.base import LARGEST_VALUE, SMALLEST, Simulator
from intervae.data.simulators.sprite import TEXELS, draw_sprite
from intervae.data.variables import Variable
from intervae.errors import DataError, QueryError, UsageError, unknown

LAWS = ("linear", "gravity", "bounce")
SIDE, CLIPS, BACKGROUNDS = 20, 10_000, 30
FALL = 0.25  # fall by gravity during a clip, as a fraction of the room between the walls
SPREAD = 2 / 3  # range of the start of a bouncing sprite, as a fraction of that room


class Motion(Simulator):
    """Variables `x1`, `y1`, `x2`, `y2`, `x3`, ...: position of the sprite in each frame, in pixels.

    The centre of the top left pixel is (0, 0). Noises: the first two positions, and the number of
    the `background`, which affects only the images. The first two positions are uniform and
    independent, in ranges that keep the sprite inside for the whole clip: 7 to 12 for the paper's 3
    frames of 20 pixels, narrower for longer clips.

    Arguments:
        frames: frames per clip, 3 or more.
        law: "linear" (constant velocity), "gravity" (acceleration `self.gravity` in pixels per
            frame^2, downwards) or "bounce" (constant speed between walls). A frame follows from the
            two before it; with "bounce" from all before it, since after a bounce two positions do
            not determine the speed.
        size: width of the walled area in pixels; the sprite is 5 wide.
        backgrounds: number of backgrounds.
        channels: 1 for grey, 3 for colour.
    """

    name: ClassVar[str] = "motion"

    def __init__(
        self,
        *,
        frames: int = 3,
        law: str = "linear",
        size: int = SIDE,
        backgrounds: int = BACKGROUNDS,
        channels: int = 1,
    ) -> None:
        for option, value, minimum in (
            ("frames", frames, 3),
            ("size", size, SMALLEST),
            ("backgrounds", backgrounds, 1),
        ):
            _check_whole(option, value, minimum)
        if law not in LAWS:
            raise unknown("law of motion", law, LAWS)
        if channels not in (1, 3):
            raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
        self.frames, self.law, self.size = frames, law, size
        self.backgrounds, self.channels = backgrounds, channels
        # range of positions at which the sprite is completely inside
        self.walls = (TEXELS / 2 - 0.5, size - 0.5 - TEXELS / 2)
        room = (self.walls[1] - self.walls[0]) / 2
        fall = 2 * room * FALL if law == "gravity" else 0.0
        self.gravity = 2 * fall / ((frames - 1) * (frames - 2))
        self.ranges = {
            axis: self._start_range(room, drop) for axis, drop in (("x", 0.0), ("y", fall))
        }
        names = _names(frames)
        lags = frames if law == "bounce" else 2
        edges = [
            (f"{axis}{s}", f"{axis}{t}")
            for t in range(3, frames + 1)
            for axis in "xy"
            for s in range(max(1, t - lags), t)
        ]
        variables = tuple(Variable(name, unit="pixels") for name in names)
        self.variables = variables  # type: ignore[misc]
        self.graph = CausalGraph.from_edges(names, edges)  # type: ignore[misc]
        self.exogenous_names = (*names[:4], "background")  # type: ignore[misc]
        self._background_images: dict[int, np.ndarray] = {}

    def _start_range(self, room: float, fall: float) -> tuple[float, float]:
        """Range of the first two positions along an axis.

        The last position is at most 2 T - 3 times as far from the middle.
        """
        middle = sum(self.walls) / 2 - fall / 2
        reach = SPREAD * room if self.law == "bounce" else (room - fall / 2) / (2 * self.frames - 3)
        return middle - reach, middle + reach

    # ---- mechanisms ----------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 5): the first two positions, uniform in `self.ranges`, and the background number."""
        low, high = zip(*(self.ranges[name[0]] for name in self.exogenous_names[:4]), strict=True)
        return np.concatenate(
            [rng.uniform(low, high, size=(n, 4)), rng.integers(0, self.backgrounds, size=(n, 1))],
            axis=1,
        )

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError(
            "motion has no published grid; use sample_exogenous(n, rng) for random clips."
        )

    def mechanism(
        self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]
    ) -> np.ndarray:
        axis, frame = name[0], int(name[1:])
        return (
            exogenous[name]
            if frame < 3
            else self._next_position(axis, [values[f"{axis}{t}"] for t in range(1, frame)])
        )

    def _next_position(self, axis: str, past: Sequence[np.ndarray]) -> np.ndarray:
        """Next position (N,) along an axis, given two or more."""
        if self.law != "bounce":
            return 2 * past[-1] - past[-2] + (self.gravity if axis == "y" else 0.0)
        velocity = past[1] - past[0]
        for before, now in pairwise(past[1:]):
            expected, direction = self._reflect(before + velocity)
            # the second term is nonzero only if do() moved the sprite
            velocity = direction * velocity + (now - expected)
        return self._reflect(past[-1] + velocity)[0]

    def _reflect(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Position reflected at the walls, and -1 after an odd number of reflections, else 1."""
        low, high = self.walls
        beyond = np.mod(position - low, 2 * (high - low))
        direction = np.where(beyond <= high - low, 1.0, -1.0)
        return low + np.where(direction > 0, beyond, 2 * (high - low) - beyond), direction

    # ---- images --------------------------------------------------------------------------------
    def render(
        self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int | None = None
    ) -> np.ndarray:
        """(N, 2 T) positions to clips (N, T, C, size, size) uint8.

        The background is that of `exogenous`, or black.
        """
        size = self.size if size is None else size
        table = self._values(values, size)
        return draw_sprite(self.size, table, self._backgrounds(exogenous, len(table), size), size)

    def counterfactual(
        self, exogenous: np.ndarray, do: Do, *, size: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Clips (N, T, C, size, size) uint8 and positions (N, 2 T) under `do`, same noises."""
        return super().counterfactual(exogenous, do, size=self.size if size is None else size)

    def extrapolate(
        self,
        values: np.ndarray,
        exogenous: np.ndarray | None,
        steps: int,
        *,
        size: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Next frames (N, steps, C, size, size) uint8 of clips, and positions (N, 2 steps) in them.

        Arguments:
            values: (N, 2 k) positions of two frames or more, ordered as the labels.
            exogenous: (N, 5), for the background; None is black.
            steps: number of frames.
            size: width of the images.
        """
        _check_whole("steps", steps, 1)
        size = self.size if size is None else size
        shape = np.shape(values)
        if len(shape) != 2 or shape[1] < 4 or shape[1] % 2:
            raise DataError(
                "motion: positions must be (N, 2 k), x and y of k frames, two or more, "
                f"not shape {shape}."
            )
        clip_frames = shape[1] // 2
        table = list(self._table(values, _names(clip_frames), "positions").T)
        for _ in range(steps):
            table += [self._next_position("x", table[0::2]), self._next_position("y", table[1::2])]
        future = np.stack(table[2 * clip_frames :], axis=1)
        return draw_sprite(
            self.size,
            np.clip(future, -LARGEST_VALUE, LARGEST_VALUE),
            self._backgrounds(exogenous, len(future), size),
            size,
        ), future

    def background(self, exogenous: np.ndarray, *, size: int | None = None) -> np.ndarray:
        """Background images (N, C, size, size) uint8 of each clip, without the sprite."""
        return self._backgrounds(exogenous, len(exogenous), self.size if size is None else size)

    def _backgrounds(self, exogenous: Any, n: int, size: int) -> np.ndarray:
        if exogenous is None:
            return np.zeros((n, self.channels, size, size), np.uint8)
        noises = self._table(exogenous, self.exogenous_names, "noises")
        if len(noises) != n:
            raise DataError(
                f"motion: {len(noises)} rows of noises do not match {n} clips; give as many."
            )
        number = noises[:, -1].astype(np.intp)
        if (
            (number != noises[:, -1]).any()
            or (number < 0).any()
            or (number >= self.backgrounds).any()
        ):
            raise DataError(
                f"motion: 'background' must be a whole number from 0 to {self.backgrounds - 1}; "
                "check the last column of the noises."
            )
        if size not in self._background_images:
            self._background_images[size] = draw_backgrounds(
                self.backgrounds, size, self.channels, self.size
            )
        return self._background_images[size][number]

    # ---- data ----------------------------------------------------------------------------------
    def dataset(
        self,
        *,
        size: int | None = None,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        frames: int | None = None,
        law: str | None = None,
        backgrounds: int | None = None,
        channels: int | None = None,
    ) -> Dataset:
        """`samples` clips (None: 10,000) with the field `background` (N, C, H, W) uint8.

        `seed` draws the clips and the splits. `size` and the last four options are those of
        `Motion`; None keeps the value of this simulator.
        """
        samples = CLIPS if samples is None else samples
        _check_whole("samples", samples, 8)
        requested = {
            "frames": frames,
            "law": law,
            "size": size,
            "backgrounds": backgrounds,
            "channels": channels,
        }
        options: dict[str, Any] = {
            name: getattr(self, name) if value is None else value
            for name, value in requested.items()
        }
        simulator = Motion(**options)
        exogenous = simulator.sample_exogenous(samples, np.random.default_rng(seed))
        values = simulator.simulate(exogenous)
        return build_dataset(
            self.name,
            simulator.render(values, exogenous),
            values,
            simulator.variables,
            validation=validation,
            test=test,
            seed=seed,
            fields={"exogenous": exogenous, "background": simulator.background(exogenous)},
            graph=simulator.graph,
            simulator=simulator,
            source={
                "name": self.name,
                "options": {
                    **options,
                    "samples": samples,
                    "validation": validation,
                    "test": test,
                    "seed": seed,
                },
            },
        )


def _names(frames: int) -> tuple[str, ...]:
    return tuple(f"{axis}{t}" for t in range(1, frames + 1) for axis in "xy")


def _check_whole(name: str, value: Any, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UsageError(f"{name}={value!r} must be a whole number, {minimum} or more.")
