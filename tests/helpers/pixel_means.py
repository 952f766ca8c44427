"""PixelMeans: a model without labels, graph or counterfactuals, for tests of the evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intervae.models.base import Model


@dataclass(frozen=True)
class NoSettings:
    """Settings of a model that has none."""


class PixelMeans(Model):
    """Three latents with names of their own, weighted means of the pixels; decodes to black."""

    name, title, Settings, takes_clips = "pixel-means", "means of pixels", NoSettings, True

    def build(self) -> None:
        self.unused = nn.Parameter(torch.zeros(1))

    def phases(self) -> list[Any]:
        return []

    def loss(self, batch: Any, generator: Any = None) -> Any:
        return {"loss": self.unused.sum()}

    @property
    def latent_names(self) -> tuple[str, ...]:
        return ("down", "level", "across")

    def encode(self, images: Any, labels: Any = None) -> Tensor:
        x = self.as_images(images).mean(-3)  # (..., H, W)
        ramp = torch.linspace(-1, 1, x.shape[-1])
        logits = torch.logit(x.clamp(0.01, 0.99))
        down = (logits * ramp[:, None]).mean((-2, -1))
        across = (logits * ramp).mean((-2, -1))
        return torch.stack([down, logits.mean((-2, -1)), across], dim=-1)[..., None]

    def decode(self, latents: Tensor) -> Tensor:
        return torch.zeros(len(latents), *self.spec.image_shape)

    def reconstruct(self, images: Any) -> Tensor:
        return (self.as_images(images) - 0.25).abs()

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        return torch.zeros(n, *self.spec.image_shape)
