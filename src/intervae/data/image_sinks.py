"""Image sinks: where a loader puts the images it decodes, in memory here or in shards on disk."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from intervae.data.memory import check_memory


@runtime_checkable
class ImageSink(Protocol):
    """Takes images of one shape in their order, and returns them all at the end."""

    shape: tuple[int, ...] | None  # (C, H, W), from `open` on

    def open(self, total: int | None, shape: tuple[int, ...], name: str) -> None:
        """Prepare for `total` images (None if unknown); errors name the first one."""

    def append(self, pixels: np.ndarray) -> None:
        """Add an image (1, H, W) or (3, H, W); grey becomes colour where the other kind came."""

    def finish(self, factor: int = 1) -> np.ndarray | Tensor:
        """Return the images (N, C, H, W) uint8, multiplied by `factor`."""


class MemorySink:
    """Collects images in one array, allocated at once if their number is known."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None
        self.images = np.zeros((0, 0, 0, 0), np.uint8)
        self.more: list[np.ndarray] = []
        self.count = 0

    def open(self, total: int | None, shape: tuple[int, ...], name: str) -> None:
        self.shape = shape
        if total is not None:
            check_memory(
                total * int(np.prod(shape)),
                name,
                "pass a smaller size= (--size), or pack the data first (`intervae pack`)",
            )
            self.images = np.empty((total, *shape), np.uint8)

    def append(self, pixels: np.ndarray) -> None:
        if self.count >= len(self.images):
            self.more.append(pixels)
            return
        if len(pixels) > self.images.shape[1]:  # colour after grey
            self.images = np.repeat(self.images, 3, axis=1)
        self.images[self.count] = pixels
        self.count += 1

    def finish(self, factor: int = 1) -> np.ndarray:
        images = self.images[: self.count]
        if self.more:
            images = (
                np.concatenate([images, np.stack(self.more)])
                if len(images)
                else np.stack(self.more)
            )
        return images if factor == 1 else images * np.uint8(factor)
