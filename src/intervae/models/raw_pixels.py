"""Raw pixels as a representation: every pixel value is a latent of its own, a floor for the metrics of disentanglement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.data.base import Batch, Dataset
from intervae.models.base import Model, in_batches
from intervae.models.linear import CHUNK, gaussian_misfit
from intervae.models.phases import Phase, Terms


@dataclass(frozen=True)
class RawPixelsSettings:
    """Raw pixels have none."""


class RawPixels(Model):
    """The picture is its own code: latents p0, p1, ... are the P pixel values, channel by channel and row by row.

    It reconstructs everything and explains nothing: what it scores on a metric costs no learning. `sample` draws every pixel for itself from
    a normal with the training pixels' mean and standard deviation.
    """

    name = "raw-pixels"
    title = "raw pixels: the picture as its own representation, a floor for metrics"
    learns = False
    Settings: ClassVar[type] = RawPixelsSettings
    settings: RawPixelsSettings

    def build(self) -> None:
        pixels = math.prod(self.spec.image_shape)
        self.mean = nn.Parameter(torch.full((pixels,), 0.5), requires_grad=False)
        self.std = nn.Parameter(torch.full((pixels,), 0.25), requires_grad=False)

    def phases(self) -> list[Phase]:
        return [Phase("fit", prepare=self.measure_pixels)]

    @torch.no_grad()
    def measure_pixels(self, data: Dataset, seed: int) -> None:
        """Mean and standard deviation of every pixel over the training split."""
        sums = torch.zeros(2, *self.mean.shape, dtype=torch.float64, device=data.train.device)
        for rows in torch.arange(len(data.train), device=data.train.device).split(CHUNK):
            pixels = data.train.batch(rows)["images"].flatten(1)
            sums += torch.stack([pixels.sum(0, dtype=torch.float64), pixels.square().sum(0, dtype=torch.float64)])
        mean, square = sums / len(data.train)
        self.mean.copy_(mean)
        self.std.copy_((square - mean.square()).clamp(min=0).sqrt())

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z) under a Gaussian likelihood of unit variance: that of no error at all; nothing is trained by it."""
        misfit = gaussian_misfit(batch["images"], batch["images"]).mean()
        return {"loss": misfit, "reconstruction": misfit}

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"p{i}" for i in range(len(self.mean)))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to their pixel values (B, C H W, 1)."""
        return self.as_images(images).flatten(1)[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return in_batches(lambda part: part.flatten(1).clamp(0, 1).unflatten(1, self.spec.image_shape), self.as_latents(latents))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W) of independent pixels; it knows no causes, so `do` must be empty."""
        self.refuse_do(do)
        noise = torch.randn(n, len(self.mean), generator=self.sampling_generator(n, seed)).to(self.device)
        return self.decode((self.mean + self.std * noise)[..., None])
