"""PaintedSplit: images that are weighted sums of three colours, painted on the device per batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from intervae.data.dataset import CHUNK, Batch, Split

SATURATION = 0.85


class PaintedSplit(Split):
    """A split whose images are painted on access.

    Arguments:
        views: (V, 4, H, W) floats: light of floor, wall and object in each pixel, and white.
        fields: include `view` (N,), an index into `views`, and `colours` (N, 3, 3) of floor, wall
            and object; neither is in a batch.
    """

    def __init__(self, views: Tensor, **fields: Tensor) -> None:
        self.views = views
        super().__init__(**fields)

    def with_fields(self, fields: dict[str, Tensor]) -> PaintedSplit:
        return PaintedSplit(self.views.to(fields["view"].device), **fields)

    @property
    def images(self) -> Tensor:
        """(N, 3, H, W) uint8, painted at each call: take rows first, `split[:100].images`."""
        return paint_images(self.views, self.fields["view"], self.fields["colours"])

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), 3, *self.views.shape[-2:])

    def batch(self, rows: Tensor) -> Batch:
        batch = {name: tensor.index_select(0, rows) for name, tensor in self.fields.items()}
        pixels = _paint(self.views, batch.pop("view"), batch.pop("colours"))
        return {"images": pixels.div_(255), **batch}


def paint_images(views: Tensor, index: Tensor, colours: Tensor) -> Tensor:
    """Return (N, 3, H, W) uint8 for an index (N,) into views and colours (N, 3, 3)."""
    images = torch.empty((len(index), 3, *views.shape[-2:]), dtype=torch.uint8, device=views.device)
    for start in range(0, len(index), CHUNK):
        rows = slice(start, start + CHUNK)
        images[rows] = _paint(views, index[rows], colours[rows]).to(torch.uint8)
    return images


def _paint(views: Tensor, index: Tensor, colours: Tensor) -> Tensor:
    """Return (B, 3, H, W) floats, integers from 0 to 255."""
    layers = views.index_select(0, index)  # (B, 4, H, W)
    image = layers[:, 3:].expand(-1, 3, -1, -1)
    for i in range(3):
        image = torch.addcmul(image, layers[:, i : i + 1], colours[:, i, :, None, None])
    return image.mul(255).clamp_(0, 255).round_()


def hues_to_colours(hues: np.ndarray) -> np.ndarray:
    """Return (N, k, 3) float32 of one saturation and brightness for hues (N, k).

    Hue 0 is red, 1/3 green, 2/3 blue.
    """
    around = (6.0 * (hues[..., None] % 1.0) + np.array([0.0, 4.0, 2.0])) % 6.0
    return (1.0 - SATURATION * (1.0 - np.clip(np.abs(around - 3.0) - 1.0, 0.0, 1.0))).astype(
        np.float32
    )
