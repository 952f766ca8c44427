"""Two sprites joined by a spring: short clips in which two objects act on each other (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from intervae.data.dataset import Dataset
from intervae.data.simulators.sprite_clips import BACKGROUNDS, SpriteClips
from intervae.errors import UsageError

SIDE, STIFFNESS = 24, 0.3
REST = 0.4  # horizontal distance at rest, as a fraction of the room between the walls


class Spring(SpriteClips):
    """Variables `x1`, `y1`, `u1`, `v1`, `x2`, ...: positions (x, y) and (u, v) of two sprites.

    x3 = 2 x2 - x1 + k (u2 - x2 - r) and u3 = 2 u2 - u1 - k (u2 - x2 - r), with the stiffness k and
    the distance r at rest (`self.rest`, in pixels); the same for y and v with r = 0. The first two
    positions are uniform and independent, in ranges that keep both sprites inside for `inside`
    frames. The law is linear: in the coordinates x + u and x - u (the normal modes) each follows
    from itself alone, with 2 and -1, and with 2 - 2 k and -1.

    Arguments:
        frames, inside, size, backgrounds, channels: see `SpriteClips`.
        stiffness: k, between 0 and 2 [1 / frame^2].
    """

    name: ClassVar[str] = "spring"
    coordinates: ClassVar[tuple[str, ...]] = ("x", "y", "u", "v")

    def __init__(
        self,
        *,
        frames: int = 3,
        stiffness: float = STIFFNESS,
        inside: int | None = None,
        size: int = SIDE,
        backgrounds: int = BACKGROUNDS,
        channels: int = 1,
    ) -> None:
        super().__init__(
            frames=frames, inside=inside, size=size, backgrounds=backgrounds, channels=channels
        )
        if isinstance(stiffness, bool) or not 0 < stiffness < 2:
            raise UsageError(f"stiffness={stiffness!r} must be between 0 and 2.")
        self.stiffness = float(stiffness)
        middle, room = sum(self.walls) / 2, self.walls[1] - self.walls[0]
        self.rest = REST * room
        gain = self._largest_gain(inside or frames)
        across, down = (room - self.rest) / 2 / gain, room / 2 / gain
        left, right = middle - self.rest / 2, middle + self.rest / 2
        self.ranges = {
            "x": (left - across, left + across),
            "y": (middle - down, middle + down),
            "u": (right - across, right + across),
            "v": (middle - down, middle + down),
        }
        self.set_graph(lags=2)

    def coefficients(self) -> np.ndarray:
        swap = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(2))
        pull = self.stiffness * (swap - np.eye(4))
        return np.stack([-np.eye(4), 2 * np.eye(4) + pull])

    def normal_modes(self) -> np.ndarray:
        """(4, 4): rows are x + u, y + v, x - u and y - v, each divided by sqrt(2)."""
        return np.kron(np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2)) / np.sqrt(2)

    def laws_of_modes(self) -> np.ndarray:
        """`coefficients` in the coordinates of `normal_modes`, (2, 4, 4): all diagonal."""
        modes = self.normal_modes()
        laws: np.ndarray = (modes @ self.coefficients() @ modes.T).round(12)
        return laws

    def next_state(self, past: Sequence[np.ndarray]) -> np.ndarray:
        two_before, one_before = self.coefficients()
        pull = self.stiffness * self.rest * np.array([-1.0, 0.0, 1.0, 0.0])
        return past[-1] @ one_before + past[-2] @ two_before + pull

    def _largest_gain(self, count: int) -> float:
        """Largest sum of |coefficients| of a position in frames 1 to `count` on the first two."""
        two_before, one_before = self.coefficients()
        first, second = np.eye(8)[:, :4], np.eye(8)[:, 4:]  # (8, 4) each
        gain = 1.0
        for _ in range(count - 2):
            first, second = second, second @ one_before + first @ two_before
            gain = max(gain, np.abs(second).sum(0).max())
        return gain

    def dataset(
        self,
        *,
        size: int | None = None,
        samples: int | None = None,
        validation: float = 0.1,
        test: float = 0.2,
        seed: int = 0,
        frames: int | None = None,
        stiffness: float | None = None,
        inside: int | None = None,
        backgrounds: int | None = None,
        channels: int | None = None,
    ) -> Dataset:
        """`samples` clips (None: 10,000) with the field `background` (N, C, H, W) uint8.

        `seed` draws the clips and the splits. `size` and the last five options are those of
        `Spring`; None keeps the value of this simulator.
        """
        options = {
            "frames": frames,
            "stiffness": stiffness,
            "inside": inside,
            "size": size,
            "backgrounds": backgrounds,
            "channels": channels,
        }
        return self.with_options(**options).draw_clips(samples, validation, test, seed, [*options])
