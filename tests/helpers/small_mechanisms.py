"""Small picture mechanisms with weights that are drawn anew, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intervae.nets.picture_mechanism import PictureMechanism
from intervae.nets.pictures import build_picture_mechanism

SHAPES = [(1, 8, 8), (3, 8, 8), (1, 28, 28), (3, 33, 33), (3, 64, 64), (2, 9, 20)]
PARENTS = 3


def make(picture: Any, shape: tuple[int, int, int], **options: Any) -> PictureMechanism:
    """Return a small mechanism; its weights are drawn anew, so that no part of it is zero."""
    small: dict[str, Any] = {
        "latents": 4,
        "channels": (8, 8),
        "hidden": 16,
        "widths": (8, 12, 16),
        "layers": (1, 2),
        "encoder_blocks": (1,),
    }
    torch.manual_seed(0)
    mechanism = build_picture_mechanism(picture, shape, PARENTS, **{**small, **options})
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in mechanism.parameters():
            weights += 0.1 * torch.randn(weights.shape, generator=generator)
    return mechanism.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def batch(shape: tuple[int, int, int], size: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (size, *shape), generator=generator) / 255
    return images, torch.randn(size, PARENTS, generator=generator)


def loss_terms(
    mechanism: Any,
    images: Tensor,
    parents: Tensor,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Return error and KL of a mechanism, each (B,)."""
    loss = mechanism.loss(images, parents, generator)
    return loss.error, loss.layer_kl.sum(0)
