"""Raw pixels as a representation, a baseline for metrics: every pixel value is a latent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.data import Batch, Dataset
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.linear import CHUNK, unit_gaussian_nll
from intervae.models.phases import Phase, Terms


@dataclass(frozen=True)
class RawPixelsSettings:
    """Raw pixels have no settings."""


class RawPixels(Model):
    """The identity: latents p0, p1, ... are the P pixel values by channel, row and column.

    `sample` draws every pixel independently from a normal distribution with the mean and standard
    deviation of the training images.
    """

    name = "raw-pixels"
    title = "raw pixels: the image as its own representation, a baseline for metrics"
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
        """Store mean and standard deviation of every pixel over the training split."""
        sums = torch.zeros(2, *self.mean.shape, dtype=torch.float64, device=data.train.device)
        for rows in torch.arange(len(data.train), device=data.train.device).split(CHUNK):
            pixels = data.train.batch(rows)["images"].flatten(1)
            sums += torch.stack(
                [pixels.sum(0, dtype=torch.float64), pixels.square().sum(0, dtype=torch.float64)]
            )
        mean, square = sums / len(data.train)
        self.mean.copy_(mean)
        self.std.copy_((square - mean.square()).clamp(min=0).sqrt())

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return -log p(x | z) of a unit Gaussian without error; it is never minimised."""
        reconstruction = unit_gaussian_nll(batch["images"], batch["images"]).mean()
        return {"loss": reconstruction, "reconstruction": reconstruction}

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"p{i}" for i in range(len(self.mean)))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to their pixel values (B, C H W, 1)."""
        return self.as_images(images).flatten(1)[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Pixel values (B, C H W, 1) to images (B, C, H, W), clipped to [0, 1]."""
        return in_batches(
            lambda chunk: chunk.flatten(1).clamp(0, 1).unflatten(1, self.spec.image_shape),
            self.as_latents(latents),
        )

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W) of independent pixels; `do` must be empty."""
        self.check_no_do(do)
        noise = torch.randn(n, len(self.mean), generator=self.sampling_generator(n, seed))
        return self.decode((self.mean + self.std * noise.to(self.device))[..., None])
