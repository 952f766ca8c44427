"""Ways to look at a picture that change nothing of what an action does: in a mirror, and shifted by some pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class View(NamedTuple):
    """A picture moved by some pixels, with copies of the outermost row or column where something is missing, then mirrored or not."""

    mirrored: bool = False
    down: int = 0
    right: int = 0

    def see(self, images: Tensor) -> Tensor:
        """Images (..., H, W) as they are seen."""
        moved = _moved(images, self.down, self.right)
        return moved.flip(-1) if self.mirrored else moved

    def undo(self, seen: Tensor) -> Tensor:
        """Back again, but for what was lost at an edge."""
        return _moved(seen.flip(-1) if self.mirrored else seen, -self.down, -self.right)


AS_IT_IS = View()


def all_views(*, mirror: bool, shift: int) -> list[View]:
    """The picture as it is, moved up, down, left and right by `shift` pixels (0 for not at all), and the mirror images of these."""
    by = ((0, 0), (shift, 0), (-shift, 0), (0, shift), (0, -shift)) if shift else ((0, 0),)
    return [View(mirrored, down, right) for mirrored in ((False, True) if mirror else (False,)) for down, right in by]


def mean_over(views: Sequence[View], images: Tensor, answer: Callable[[View, Tensor], Tensor]) -> Tensor:
    """The mean of the pictures (..., H, W) that `answer` gives for each view of the images, brought back."""
    total = views[0].undo(answer(views[0], views[0].see(images)))
    for view in views[1:]:
        total = total + view.undo(answer(view, view.see(images)))
    return total / len(views)


def _moved(images: Tensor, down: int, right: int) -> Tensor:
    for dim, by in ((-2, down), (-1, right)):
        if by:
            size = images.shape[dim]
            images = images.index_select(dim, (torch.arange(size, device=images.device) - by).clamp(0, size - 1))
    return images
