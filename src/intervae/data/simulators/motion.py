"""A moving sprite (causal-prior VAE, ICLR 2023 submission, sec. 5.2): short clips.

The first two positions determine all later ones. The ranges and x3 = 2 x2 - x1 are the paper's; the
sprite, the backgrounds, gravity, walls and longer clips are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import numpy as np

from intervae.data.dataset import Dataset
from intervae.data.simulators.sprite_clips import BACKGROUNDS, SpriteClips
from intervae.errors import unknown

LAWS = ("linear", "gravity", "bounce")
SIDE = 20
FALL = 0.25  # fall by gravity during a clip, as a fraction of the room between the walls
SPREAD = 2 / 3  # range of the start of a bouncing sprite, as a fraction of that room


class Motion(SpriteClips):
    """Variables `x1`, `y1`, `x2`, `y2`, `x3`, ...: position of the sprite in each frame, in pixels.

    The first two positions are uniform and independent, in ranges that keep the sprite inside for
    `inside` frames: 7 to 12 for the paper's 3 frames of 20 pixels, narrower for more.

    Arguments:
        frames, inside, size, backgrounds, channels: see `SpriteClips`.
        law: "linear" (constant velocity), "gravity" (acceleration `self.gravity` in pixels per
            frame^2, downwards) or "bounce" (constant speed between walls). A frame follows from the
            two before it; with "bounce" from all before it, since after a bounce two positions do
            not determine the speed.
    """

    name: ClassVar[str] = "motion"
    coordinates: ClassVar[tuple[str, ...]] = ("x", "y")

    def __init__(
        self,
        *,
        frames: int = 3,
        law: str = "linear",
        inside: int | None = None,
        size: int = SIDE,
        backgrounds: int = BACKGROUNDS,
        channels: int = 1,
    ) -> None:
        super().__init__(
            frames=frames, inside=inside, size=size, backgrounds=backgrounds, channels=channels
        )
        if law not in LAWS:
            raise unknown("law of motion", law, LAWS)
        self.law = law
        count, room = inside or frames, (self.walls[1] - self.walls[0]) / 2
        fall = 2 * room * FALL if law == "gravity" else 0.0
        self.gravity = 2 * fall / ((count - 1) * (count - 2))
        self.ranges = {
            axis: self._start_range(room, drop, count) for axis, drop in (("x", 0.0), ("y", fall))
        }
        self.set_graph(lags=frames if law == "bounce" else 2)

    def _start_range(self, room: float, fall: float, count: int) -> tuple[float, float]:
        """Range of the first two positions along an axis.

        Position T is at most 2 T - 3 times as far from the middle.
        """
        middle = sum(self.walls) / 2 - fall / 2
        reach = SPREAD * room if self.law == "bounce" else (room - fall / 2) / (2 * count - 3)
        return middle - reach, middle + reach

    def coefficients(self) -> np.ndarray:
        return np.stack([-np.eye(2), 2 * np.eye(2)])

    def next_state(self, past: Sequence[np.ndarray]) -> np.ndarray:
        if self.law != "bounce":
            return 2 * past[-1] - past[-2] + np.array([0.0, self.gravity])
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
        inside: int | None = None,
        backgrounds: int | None = None,
        channels: int | None = None,
    ) -> Dataset:
        """`samples` clips (None: 10,000) with the field `background` (N, C, H, W) uint8.

        `seed` draws the clips and the splits. `size` and the last five options are those of
        `Motion`; None keeps the value of this simulator.
        """
        options = {
            "frames": frames,
            "law": law,
            "inside": inside,
            "size": size,
            "backgrounds": backgrounds,
            "channels": channels,
        }
        return self.with_options(**options).draw_clips(samples, validation, test, seed, [*options])
