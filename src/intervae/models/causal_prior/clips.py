"""Clips as input of the temporal causal-prior VAE: checks, background images, random windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intervae.errors import QueryError
from intervae.models.inputs import as_tensor

if TYPE_CHECKING:
    from intervae.models.causal_prior.temporal import TemporalCausalPriorVAE


def as_clips(model: TemporalCausalPriorVAE, frames: Any) -> Tensor:
    """Clips of any length, (B, T, C, H, W) or one (T, C, H, W), checked; (B, T, C, H, W) floats."""
    clips = _pixels(model, frames, "frames")
    clips = clips[None] if clips.ndim == 4 else clips
    if clips.ndim != 5 or tuple(clips.shape[2:]) != model.spec.image_shape or not len(clips):
        shape = ", ".join(map(str, model.spec.image_shape))
        raise QueryError(f"clips must be (B, T, {shape}), not {tuple(clips.shape)}.")
    return clips


def background_images(model: TemporalCausalPriorVAE, clips: Tensor, background: Any) -> Tensor:
    """Background images (B, C, H, W) of clips: `background`, checked, or the pixelwise median."""
    if background is None or model.settings.background == "median":
        if torch.compiler.is_compiling():  # ONNX has no median
            return clips.sort(dim=1).values[:, (clips.shape[1] - 1) // 2]
        return clips.median(dim=1).values
    images = _pixels(model, background, "backgrounds")
    images = images[None] if images.ndim == 3 else images
    if images.shape != clips[:, 0].shape:
        raise QueryError(
            f"the backgrounds must be {tuple(clips[:, 0].shape)}, one for each clip, "
            f"not {tuple(images.shape)}."
        )
    return images


def random_window(clips: Tensor, window: int, generator: torch.Generator | None) -> Tensor:
    """`window` successive frames of each clip (B, T, C, H, W), from a random start."""
    frames = clips.shape[1]
    if frames == window:
        return clips
    start = torch.randint(
        frames - window + 1, (len(clips), 1), device=clips.device, generator=generator
    )
    at = start + torch.arange(window, device=clips.device)  # (B, window)
    return torch.gather(clips, 1, at[:, :, None, None, None].expand(-1, -1, *clips.shape[2:]))


def _pixels(model: TemporalCausalPriorVAE, values: Any, what: str) -> Tensor:
    """Pixels as floats in [0, 1] on the device of the model."""
    tensor = as_tensor(values, what)
    if tensor.dtype == torch.uint8:
        return tensor.to(model.device).float() / 255
    tensor = tensor.to(model.device, torch.float32)
    if not (torch.isfinite(tensor) & (tensor >= 0) & (tensor <= 1)).all():
        raise QueryError(
            f"the {what} hold pixels that are NaN or outside [0, 1]; "
            "clean them, divide by 255, or pass uint8."
        )
    return tensor
