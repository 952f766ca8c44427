"""PCA and ICA as models: the floor under every learned representation, fitted in closed form or by FastICA, without a gradient step.

Shapes: B images of P pixel values, n codes called z0, z1, ... of one dim, each of variance 1 on the images it was fitted on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.data.base import Batch, Dataset
from intervae.errors import DataError, UsageError
from intervae.models._decompositions import Principal, fast_ica, principal_components
from intervae.models.base import Model, in_batches, repeat_rows
from intervae.models.phases import Phase, Terms

CHUNK = 2048  # images in memory as floats at once
BANK = 4096  # training codes that ICA keeps to draw from
FLAT = 1e-6  # a direction with less than this share of the first one's variance is rounding


def gaussian_misfit(pictures: Tensor, images: Tensor) -> Tensor:
    """-log N(images; pictures, 1) summed over pixels, (B,): least squares, told as a likelihood."""
    return 0.5 * ((pictures - images).square() + math.log(2 * math.pi)).flatten(1).sum(1)


@dataclass(frozen=True)
class LinearSettings:
    """Settings of PCA, and of ICA."""

    latents: int = 10  # number of components [n]
    fitted_on: int = 50_000  # training images at most that it is fitted on, drawn with the seed

    def __post_init__(self) -> None:
        for name in ("latents", "fitted_on"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


class PCA(Model):
    """Whitened principal components: z = (x - mean) components / standard deviations.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `LinearSettings`.
    """

    name = "pca"
    title = "PCA: whitened principal components of the pixels, a floor for learned representations"
    learns = False
    Settings: ClassVar[type] = LinearSettings
    settings: LinearSettings
    mean: Tensor

    def build(self) -> None:
        """Random orthonormal directions until `fit` finds those of the data."""
        n, pixels = self.settings.latents, math.prod(self.spec.image_shape)
        if n > pixels:
            raise UsageError(f"latents={n} are more than the {pixels} pixel values of an image; set latents={pixels} or less.")
        start = torch.linalg.qr(torch.randn(pixels, n))[0].T  # (n, P)
        self.encoding = nn.Parameter(start.clone(), requires_grad=False)  # z = (x - mean) @ encoding.T
        self.decoding = nn.Parameter(start.clone(), requires_grad=False)  # x = mean + z @ decoding
        self.register_buffer("mean", torch.full((pixels,), 0.5))
        self.told: list[dict[str, Any]] = []

    # ---- fitting ----------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        return [Phase("fit", prepare=self.find_components)]

    def check(self, data: Dataset) -> None:
        samples = min(len(data.train), self.settings.fitted_on)
        if samples < self.settings.latents:
            raise DataError(f"{samples} training images give no {self.settings.latents} components; set latents={samples} or less.")

    @torch.no_grad()
    def find_components(self, data: Dataset, seed: int) -> None:
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[: self.settings.fitted_on].to(data.train.device)

        def samples() -> Iterator[Tensor]:
            return (data.train.batch(part)["images"].flatten(1) for part in rows.split(CHUNK))

        found = principal_components(samples, self.settings.latents, seed)
        varying = int((found.variances > FLAT * found.variances[0]).sum())
        if varying < self.settings.latents:
            raise DataError(f"the training images vary in {varying} directions only, fewer than latents={self.settings.latents}; set latents lower.")
        scales = found.variances.sqrt()[:, None]
        self.mean.copy_(found.mean)
        self.encoding.copy_(found.components / scales)
        self.decoding.copy_(found.components * scales)
        self.told = [{"explained_variance": float(found.variances.sum()) / found.total}]
        self.refine(found, torch.cat([self.codes(part) for part in samples()]), seed)

    def refine(self, found: Principal, codes: Tensor, seed: int) -> None:
        """What a subclass makes of the principal components and the whitened codes (M, n) of the images."""

    def states_prepared(self) -> list[dict[str, Any]]:
        told, self.told = self.told, []
        return told

    # ---- the model --------------------------------------------------------------------------------------------------
    def codes(self, pixels: Tensor) -> Tensor:
        """(B, P) to (B, n)."""
        return (pixels - self.mean) @ self.encoding.T

    def pictures(self, codes: Tensor) -> Tensor:
        """(B, n) to (B, C, H, W) in [0, 1]."""
        return (self.mean + codes @ self.decoding).clamp(0, 1).unflatten(1, self.spec.image_shape)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z) under a Gaussian likelihood of unit variance; nothing is trained by it."""
        misfit = gaussian_misfit(self.pictures(self.codes(batch["images"].flatten(1))), batch["images"]).mean()
        return {"loss": misfit, "reconstruction": misfit}

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to whitened codes (B, n, 1)."""
        return in_batches(lambda part: self.codes(part.flatten(1)), self.as_images(images))[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return in_batches(lambda part: self.pictures(part.flatten(1)), self.as_latents(latents))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W); it knows no causes, so `do` must be empty."""
        self.refuse_do(do)
        return self.decode(self.draw_codes(n, self.sampling_generator(n, seed))[..., None])

    def draw_codes(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, latents): standard normal, which is what the codes of PCA are taken to be."""
        return torch.randn(n, self.settings.latents, generator=generator)


@dataclass(frozen=True)
class ICASettings(LinearSettings):
    """Settings of ICA."""

    tolerance: float = 1e-4  # how far a component may still turn when FastICA stops
    iterations: int = 500  # of FastICA at most

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tolerance", "iterations"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


class ICA(PCA):
    """FastICA on the whitened principal components: codes that are independent as far as a rotation can make them.

    The components are in the order of the variance that they explain, and each is skewed to the right.
    """

    name = "ica"
    title = "ICA: FastICA on whitened principal components, a floor for learned representations"
    Settings = ICASettings
    settings: ICASettings
    bank: Tensor

    def build(self) -> None:
        super().build()
        self.register_buffer("bank", torch.randn(BANK, self.settings.latents))  # training codes that sample() draws from

    def refine(self, found: Principal, codes: Tensor, seed: int) -> None:
        settings = self.settings
        result = fast_ica(codes, seed=seed, tolerance=settings.tolerance, iterations=settings.iterations)
        converged = result.change <= settings.tolerance
        if not converged:
            logging.getLogger(__name__).warning(
                "FastICA had not converged after %d iterations: a component still turned by %.2g, more than tolerance=%g; raise iterations.",
                result.iterations,
                result.change,
                settings.tolerance,
            )
        rotation = result.rotation.to(codes)
        rotation = rotation[(rotation.square() @ found.variances).argsort(descending=True)]
        rotation = rotation * torch.where((codes @ rotation.T).pow(3).mean(0) < 0, -1.0, 1.0)[:, None]
        self.encoding.copy_(rotation @ self.encoding)
        self.decoding.copy_(rotation @ self.decoding)
        self.bank.copy_(repeat_rows(codes @ rotation.T, BANK))
        self.told[0] |= {"iterations": result.iterations, "change": result.change, "converged": converged}

    def draw_codes(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, latents): each code drawn for itself from those of the training images."""
        rows = torch.randint(BANK, (n, self.settings.latents), generator=generator)
        return self.bank.cpu().gather(0, rows)
