"""Checks of what callers pass to a model: images, clips, latents and labels."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from intervae.causal.dense import check_dense
from intervae.data import Spec
from intervae.data.query_images import pictures_of, read_pictures
from intervae.errors import DataError, DataWarning, QueryError
from intervae.models.checks import models_for_missing_labels, models_that


class InputChecks:
    """The input methods of every model; errors name the shape or value that was wrong."""

    name: ClassVar[str]
    accepts_missing_labels: ClassVar[bool]
    spec: Spec
    latent_names: Any

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device  # type: ignore[attr-defined]

    def as_images(self, images: Any, *, any_length: bool = False) -> Tensor:
        """Check images and return them on the device as floats in [0, 1].

        Arguments:
            images: (B, C, H, W), (C, H, W), (H, W, C) or, of grey images, (H, W); uint8 or floats
                in [0, 1]. A path, a Pillow image or a list of these is resized. A model of clips
                takes (B, T, C, H, W) or (T, C, H, W).
            any_length: whether clips may have any number of frames T >= 1.

        Returns:
            (B, C, H, W), of clips (B, T, C, H, W).
        """
        if torch.compiler.is_compiling():  # a traced program checks no values
            return as_tensor(images, "images")
        frames = self.spec.frames
        tensor = as_tensor(self._read_pictures(images) if frames is None else images, "images")
        original_shape = tuple(tensor.shape)
        expected = self.spec.image_shape if frames is None else (frames, *self.spec.image_shape)
        tensor = self._channels_first(tensor) if frames is None else tensor
        if tensor.ndim == len(expected):
            tensor = tensor[None]
        if any_length and frames is not None and tensor.ndim == 5 and tensor.shape[1] > 0:
            expected = (tensor.shape[1], *expected[1:])
        if tuple(tensor.shape[1:]) != expected:
            raise self._wrong_shape(original_shape)
        if not len(tensor):
            raise QueryError("no images were passed; pass at least one.")
        if tensor.dtype == torch.uint8:
            return tensor.to(self.device).float() / 255
        tensor = tensor.to(self.device, torch.float32)
        if not torch.isfinite(tensor).all():
            raise QueryError("the images hold NaN or infinite pixels; clean them first.")
        if tensor.min() < 0 or tensor.max() > 1:
            raise QueryError(
                "float images must lie in [0, 1], these range from "
                f"{tensor.min():.3g} to {tensor.max():.3g}; divide by 255, or pass uint8."
            )
        return tensor

    def _read_pictures(self, images: Any) -> Any:
        """Return paths and Pillow images as an array (B, C, H, W), anything else as it is."""
        pictures = pictures_of(images)
        if pictures is None:
            return images
        try:
            array, notes = read_pictures(pictures, self.spec.image_shape)
        except DataError as error:
            raise QueryError(str(error)) from None
        for note in notes:
            warnings.warn(note.text, DataWarning, stacklevel=4)
        return array

    def _channels_first(self, tensor: Tensor) -> Tensor:
        """Return a single image (H, W, C), or (H, W) of a model of grey images, as (C, H, W)."""
        channels, height, width = self.spec.image_shape
        shape = tuple(tensor.shape)
        if channels == 1 and shape == (height, width):
            return tensor[None]
        if shape == (height, width, channels) and shape != self.spec.image_shape:
            return tensor.movedim(-1, 0)
        return tensor

    def _wrong_shape(self, shape: tuple[int, ...]) -> QueryError:
        """Return the error for images of a shape that the model was not built for."""
        expected, frames = self.spec.image_shape, self.spec.frames
        if frames is None:
            start = (
                f"{self.name} was built for images of shape {expected} (channels, height, width), "
            )
            if len(shape) == 5:
                able = models_that(lambda cls: cls.takes_clips)
                return QueryError(
                    f"{start}but shape {shape} is that of clips; pass one frame of each, "
                    f"such as clips[:, 0], or use {able}."
                )
            return QueryError(f"{start}not {shape}; resize or transpose them.")
        start = (
            f"{self.name} was built for clips of shape {(frames, *expected)} "
            f"(frames, channels, height, width), not {shape}; "
        )
        if len(shape) in (4, 5) and shape[-3:] == expected:
            return QueryError(
                f"{start}encode takes {frames} frames, as in the training data; "
                "reconstruct, counterfactual and extrapolate take any number."
            )
        if shape == expected:
            return QueryError(f"{start}a clip has frames: pass several images.")
        return QueryError(f"{start}resize or transpose them.")

    def as_latents(self, latents: Any) -> Tensor:
        """Check latents (B, n, k) and return them on the device."""
        tensor = as_tensor(latents, "latents").to(self.device, torch.float32)
        if torch.compiler.is_compiling():
            return tensor
        n = len(self.latent_names)
        if tensor.ndim != 3 or tensor.shape[1] != n or not torch.isfinite(tensor).all():
            raise QueryError(
                f"latents must be finite and of shape (images, {n} variables, dims), "
                f"not {tuple(tensor.shape)}."
            )
        return tensor

    def as_labels(self, labels: Any, n: int) -> Tensor:
        """Check labels (n, variables) in their own units and return them on the device.

        A missing one is NaN, which only models with `accepts_missing_labels` take.
        """
        tensor = as_tensor(labels, "labels").to(self.device, torch.float32)
        if torch.compiler.is_compiling():
            return tensor
        tensor = tensor[None] if tensor.ndim == 1 else tensor
        expected = (n, len(self.spec.variables))
        if tuple(tensor.shape) != expected:
            raise QueryError(
                f"labels must be {expected}, one column for each of "
                f"{', '.join(self.spec.names)}, not {tuple(tensor.shape)}."
            )
        if tensor.isinf().any() or (tensor.isnan().any() and not self.accepts_missing_labels):
            advice = " or ".join(["clean them first", *models_for_missing_labels()])
            raise QueryError(f"the labels hold NaN or infinite values; {advice}.")
        return tensor


def as_tensor(value: Any, what: str) -> Tensor:
    """Return a tensor, an array or nested lists as a tensor; `what` names it in the error."""
    if isinstance(value, Tensor):
        return check_dense(value.detach(), what)
    try:
        array = np.ascontiguousarray(value)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):
        raise QueryError(
            f"the {what} are not an array of numbers (they are a {type(value).__name__}); "
            "pass a tensor or a numpy array."
        ) from None
