"""Augmentations under which an action keeps its meaning: mirrored and shifted images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Augmentation(NamedTuple):
    """A shift by some pixels, with the border row or column repeated, then an optional mirror."""

    mirrored: bool = False
    down: int = 0
    right: int = 0

    def apply(self, images: Tensor) -> Tensor:
        """Return the augmented images (..., H, W)."""
        shifted = _shift(images, self.down, self.right)
        return shifted.flip(-1) if self.mirrored else shifted

    def undo(self, images: Tensor) -> Tensor:
        """Return the original images (..., H, W), except for pixels shifted out of the frame."""
        return _shift(images.flip(-1) if self.mirrored else images, -self.down, -self.right)


IDENTITY = Augmentation()


def all_augmentations(*, mirror: bool, shift: int) -> list[Augmentation]:
    """Return the identity, the four shifts by `shift` pixels (none for 0), and their mirrors."""
    offsets = ((0, 0), (shift, 0), (-shift, 0), (0, shift), (0, -shift)) if shift else ((0, 0),)
    return [
        Augmentation(mirrored, down, right)
        for mirrored in ((False, True) if mirror else (False,))
        for down, right in offsets
    ]


def mean_over_augmentations(
    augmentations: Sequence[Augmentation],
    images: Tensor,
    predict: Callable[[Augmentation, Tensor], Tensor],
) -> Tensor:
    """Return the mean of the images (..., H, W) predicted for each augmentation, each undone."""
    predicted = [each.undo(predict(each, each.apply(images))) for each in augmentations]
    return sum(predicted[1:], predicted[0]) / len(predicted)


def _shift(images: Tensor, down: int, right: int) -> Tensor:
    for dim, offset in ((-2, down), (-1, right)):
        if offset:
            size = images.shape[dim]
            source = torch.arange(size, device=images.device) - offset
            images = images.index_select(dim, source.clamp(0, size - 1))
    return images


def in_mirror(action: str, factors: tuple[str, ...]) -> str:
    """Return the action as seen in a mirror, which swaps the two actions of `factors`."""
    factor, sign = action[:-2], action[-2:]
    return factor + {"+1": "-1", "-1": "+1"}[sign] if factor in factors else action
