"""A sprite in motion (causal-prior VAE, ICLR 2023 submission, sec. 5.2): short clips in which two positions decide all that follow.

The ranges and x3 = 2 x2 - x1 are the paper's; the sprite and the backgrounds are of our own drawing, as are gravity, walls and longer clips.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.simulators.backgrounds import draw_backgrounds
from intervae.data.simulators.base import OUT_OF_SIGHT, SMALLEST, Simulator
from intervae.errors import DataError, QueryError, UsageError, unknown

LAWS = ("linear", "gravity", "bounce")
SIDE, CLIPS, BACKGROUNDS = 20, 10_000, 30
FALL = 0.25  # how much of its room a sprite falls by gravity during a clip
SPREAD = 2 / 3  # how much of the room between the walls a bouncing sprite starts in
FRAMES_AT_ONCE = 4096

# The sprite is a coin with a cross: symmetric, so that its centre of mass is its position. In texels of one pixel each.
SOLID = np.array([[0, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], dtype=np.float32)
CROSS = np.array([[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 2, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]])
GOLD = np.array([[255, 214, 70], [170, 96, 30], [90, 30, 20]], dtype=np.float32)  # rim, cross and middle, in colour
SILVER = np.array([[250], [140], [60]], dtype=np.float32)  # the same in grey
TEXELS = len(SOLID)


class Motion(Simulator):
    """Variables `x1`, `y1`, `x2`, `y2`, `x3`, ...: where the sprite is in each frame, in pixels, the middle of the top left one at (0, 0).

    Noises: the first two positions, and the `background`, a number that only the picture sees.

    Arguments:
        frames: of a clip, 3 or more.
        law: "linear" (constant velocity), "gravity" (y gains `self.gravity` pixels per frame and frame; y points down) or "bounce"
            (constant speed between walls that keep the sprite whole). A frame follows from the two before it; only after a bounce the
            two before do not tell the speed, so with "bounce" a frame depends on all before it.
        size: of the world in pixels; the sprite is 5 wide in all of them.
        backgrounds: how many there are.
        channels: 1 for grey, 3 for colour.

    The first two positions are uniform and independent, in ranges that keep the sprite inside for the whole clip: 7 to 12 for the
    paper's 3 frames of 20 pixels, and narrower for longer clips, which want a larger world.
    """

    name: ClassVar[str] = "motion"

    def __init__(self, *, frames: int = 3, law: str = "linear", size: int = SIDE, backgrounds: int = BACKGROUNDS, channels: int = 1) -> None:
        for option, value, least in (("frames", frames, 3), ("size", size, SMALLEST), ("backgrounds", backgrounds, 1)):
            _check_whole(option, value, least)
        if law not in LAWS:
            raise unknown("law of motion", law, LAWS)
        if channels not in (1, 3):
            raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
        self.frames, self.law, self.size, self.backgrounds, self.channels = frames, law, size, backgrounds, channels
        self.walls = (TEXELS / 2 - 0.5, size - 0.5 - TEXELS / 2)  # where a sprite that is wholly inside can be
        room = (self.walls[1] - self.walls[0]) / 2
        fall = 2 * room * FALL if law == "gravity" else 0.0
        self.gravity = 2 * fall / ((frames - 1) * (frames - 2))
        self.ranges = {axis: self._start(room, drop) for axis, drop in (("x", 0.0), ("y", fall))}
        names = _names(frames)
        lags = frames if law == "bounce" else 2
        edges = [(f"{axis}{s}", f"{axis}{t}") for t in range(3, frames + 1) for axis in "xy" for s in range(max(1, t - lags), t)]
        self.variables = tuple(Variable(name, unit="pixels") for name in names)  # type: ignore[misc]
        self.graph = CausalGraph.from_edges(names, edges)  # type: ignore[misc]
        self.exogenous_names = (*names[:4], "background")  # type: ignore[misc]
        self._art: dict[int, np.ndarray] = {}

    def _start(self, room: float, fall: float) -> tuple[float, float]:
        """The range of the first two positions along an axis: the last is then at most 2 T - 3 times as far from the middle."""
        middle = sum(self.walls) / 2 - fall / 2
        reach = SPREAD * room if self.law == "bounce" else (room - fall / 2) / (2 * self.frames - 3)
        return middle - reach, middle + reach

    # ---- mechanisms -------------------------------------------------------------------------------------------------
    def sample_exogenous(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, 5): the first two positions, uniform in `self.ranges`, and the number of a background."""
        low, high = zip(*(self.ranges[name[0]] for name in self.exogenous_names[:4]), strict=True)
        return np.concatenate([rng.uniform(low, high, size=(n, 4)), rng.integers(0, self.backgrounds, size=(n, 1))], axis=1)

    def published_grid(self) -> tuple[np.ndarray, np.ndarray]:
        raise QueryError("motion has no published grid, its clips are drawn at random; use sample_exogenous(n, rng).")

    def mechanism(self, name: str, values: dict[str, np.ndarray], exogenous: dict[str, np.ndarray]) -> np.ndarray:
        axis, frame = name[0], int(name[1:])
        return exogenous[name] if frame < 3 else self._follow(axis, [values[f"{axis}{t}"] for t in range(1, frame)])

    def _follow(self, axis: str, past: Sequence[np.ndarray]) -> np.ndarray:
        """The next position (N,) along an axis after two or more."""
        if self.law != "bounce":
            return 2 * past[-1] - past[-2] + (self.gravity if axis == "y" else 0.0)
        velocity = past[1] - past[0]
        for before, now in pairwise(past[1:]):
            expected, direction = self._reflect(before + velocity)
            velocity = direction * velocity + (now - expected)  # the second part is not 0 only where do() has moved the sprite
        return self._reflect(past[-1] + velocity)[0]

    def _reflect(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A place beyond the walls mirrored back between them, as often as it takes, and -1 where the direction has turned, else 1."""
        low, high = self.walls
        beyond = np.mod(place - low, 2 * (high - low))
        direction = np.where(beyond <= high - low, 1.0, -1.0)
        return low + np.where(direction > 0, beyond, 2 * (high - low) - beyond), direction

    # ---- pictures ---------------------------------------------------------------------------------------------------
    def render(self, values: np.ndarray, exogenous: np.ndarray | None = None, *, size: int | None = None) -> np.ndarray:
        """(N, 2 T) positions to clips (N, T, C, size, size) uint8; the background is that of `exogenous`, black without it."""
        size = self.size if size is None else size
        table = self._values(values, size)
        return self._draw(table, self._behind(exogenous, len(table), size), size)

    def counterfactual(self, exogenous: np.ndarray, do: Do, *, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """What the same noises would have shown under `do`: clips (N, T, C, size, size) uint8 and positions (N, 2 T)."""
        return super().counterfactual(exogenous, do, size=self.size if size is None else size)

    def extrapolate(self, values: np.ndarray, exogenous: np.ndarray | None, steps: int, *, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """How clips go on: their next frames (N, steps, C, size, size) uint8 and the positions in them (N, 2 steps), x before y.

        Arguments:
            values: (N, 2 k) positions of two frames or more, as labels have them; also ones that do() has changed.
            exogenous: (N, 5), for the background, which is black without it.
        """
        _check_whole("steps", steps, 1)
        size = self.size if size is None else size
        shape = np.shape(values)
        if len(shape) != 2 or shape[1] < 4 or shape[1] % 2:
            raise DataError(f"motion: positions must be (N, 2 k), x and y of k frames, two or more, not shape {shape}.")
        known = shape[1] // 2
        table = list(self._table(values, _names(known), "positions").T)
        for _ in range(steps):
            table += [self._follow("x", table[0::2]), self._follow("y", table[1::2])]
        future = np.stack(table[2 * known :], axis=1)
        return self._draw(np.clip(future, -OUT_OF_SIGHT, OUT_OF_SIGHT), self._behind(exogenous, len(future), size), size), future

    def background(self, exogenous: np.ndarray, *, size: int | None = None) -> np.ndarray:
        """The background (N, C, size, size) uint8 of each clip, without the sprite."""
        return self._behind(exogenous, len(exogenous), self.size if size is None else size)

    def _behind(self, exogenous: Any, n: int, size: int) -> np.ndarray:
        if exogenous is None:
            return np.zeros((n, self.channels, size, size), np.uint8)
        noises = self._table(exogenous, self.exogenous_names, "noises")
        if len(noises) != n:
            raise DataError(f"motion: {len(noises)} rows of noises were given for {n} clips; give as many.")
        number = noises[:, -1].astype(np.intp)
        if (number != noises[:, -1]).any() or (number < 0).any() or (number >= self.backgrounds).any():
            raise DataError(f"motion: 'background' must be a whole number from 0 to {self.backgrounds - 1}; check the last column of the noises.")
        if size not in self._art:
            self._art[size] = draw_backgrounds(self.backgrounds, size, self.channels, self.size)
        return self._art[size][number]

    def _draw(self, positions: np.ndarray, behind: np.ndarray, size: int) -> np.ndarray:
        """(n, 2 k) positions and (n, C, size, size) backgrounds to (n, k, C, size, size) uint8: what the sprite covers of each pixel is exact."""
        n, frames = len(positions), positions.shape[1] // 2
        clips = np.empty((n, frames, self.channels, size, size), np.uint8)
        inks = (GOLD if self.channels == 3 else SILVER)[CROSS] * SOLID[:, :, None]  # (5, 5, C)
        step = max(1, FRAMES_AT_ONCE * SIDE**2 // (frames * size**2))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            across, down = (self._shares(positions[rows, axis::2], size) for axis in (0, 1))  # (n, k, size, 5)
            across = across.swapaxes(2, 3)
            bare = 1.0 - down @ SOLID @ across  # (n, k, size, size)
            for channel in range(self.channels):
                painted = bare * behind[rows, None, channel] + down @ inks[:, :, channel] @ across
                clips[rows, :, channel] = np.rint(painted)
        return clips

    def _shares(self, middle: np.ndarray, size: int) -> np.ndarray:
        """How much of each pixel along an axis each texel of a sprite covers: (n, k) places of its middle to (n, k, size, 5)."""
        unit = size / self.size  # pixels per pixel of the world
        left = (middle[:, :, None, None] + 0.5 + np.arange(TEXELS) - TEXELS / 2) * unit
        pixel = np.arange(size)[:, None]
        return np.clip(np.minimum(left + unit, pixel + 1) - np.maximum(left, pixel), 0.0, None).astype(np.float32)

    # ---- data -------------------------------------------------------------------------------------------------------
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
        """`samples` clips, 10,000 without it, each with the field `background` (N, C, H, W) uint8.

        `seed` draws the clips and the splits. The last four options, and `size`, are those of `Motion`; without them this one's are used.
        """
        samples = CLIPS if samples is None else samples
        _check_whole("samples", samples, 8)
        asked = {"frames": frames, "law": law, "size": size, "backgrounds": backgrounds, "channels": channels}
        options: dict[str, Any] = {name: getattr(self, name) if value is None else value for name, value in asked.items()}
        world = Motion(**options)
        exogenous = world.sample_exogenous(samples, np.random.default_rng(seed))
        values = world.simulate(exogenous)
        return build_dataset(
            self.name,
            world.render(values, exogenous),
            values,
            world.variables,
            validation=validation,
            test=test,
            seed=seed,
            fields={"exogenous": exogenous, "background": world.background(exogenous)},
            graph=world.graph,
            simulator=world,
            source={"name": self.name, "options": {**options, "samples": samples, "validation": validation, "test": test, "seed": seed}},
        )


def _names(frames: int) -> tuple[str, ...]:
    return tuple(f"{axis}{t}" for t in range(1, frames + 1) for axis in "xy")


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name}={value!r} must be a whole number, {least} or more.")
