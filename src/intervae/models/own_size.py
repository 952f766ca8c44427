"""Counterfactual pictures at the size of the originals, which may differ from the model's.

A model paints at its own size. Of a picture of another size, what do() left alone keeps its own
pixels, and what it changed is painted; docs/own-data.md has the measurements behind this choice.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

UNCHANGED, CHANGED = (
    0.05,
    0.2,
)  # change of a pixel in [0, 1] up to / from which it is kept / painted


def paint_own_size(original: np.ndarray, reconstruction: Tensor, answer: Tensor) -> np.ndarray:
    """Return a counterfactual (C, h, w) uint8 at the size of its original.

    original + (1 - m) (answer - reconstruction) + m (answer - original), enlarged, where m grows
    from 0 to 1 with the change |answer - reconstruction| of a pixel. A picture of the model's own
    size is the answer itself.

    Arguments:
        original: (C, h, w) uint8.
        reconstruction: (C, H, W) in [0, 1], the model's answer to an empty do().
        answer: (C, H, W) in [0, 1].
    """
    if original.shape == tuple(answer.shape):
        return to_uint8(answer)
    reconstruction, answer = reconstruction.cpu(), answer.cpu()
    size = original.shape[1:]
    change = answer - reconstruction
    strength = change.abs().amax(0, keepdim=True)
    mask = _enlarge(((strength - UNCHANGED) / (CHANGED - UNCHANGED)).clamp(0, 1), size, "bilinear")
    own = torch.from_numpy(np.ascontiguousarray(original)).float() / 255
    shifted = (own + _enlarge(change, size, "bicubic")).clamp(0, 1)
    painted = _enlarge(answer, size, "bicubic").clamp(0, 1)
    return to_uint8(torch.lerp(shifted, painted, mask))


def to_uint8(picture: Tensor) -> np.ndarray:
    """Return pixels in [0, 1] as uint8, rounded."""
    return picture.detach().cpu().clamp(0, 1).mul(255).round().to(torch.uint8).numpy()


def _enlarge(picture: Tensor, size: tuple[int, ...], mode: str) -> Tensor:
    """Resize (C, H, W) to (C, *size); smaller sizes are averaged, so there is no aliasing."""
    return functional.interpolate(
        picture[None], size=tuple(size), mode=mode, align_corners=False, antialias=True
    )[0]
