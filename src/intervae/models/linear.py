"""PCA and ICA as models: linear baselines, fitted without gradient steps.

Shapes: B images of P pixel values, n codes called z0, z1, ... of one dim, with variance 1 on the
images that the model was fitted on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.data import Batch, Dataset
from intervae.errors import DataError, UsageError
from intervae.models.base import Model
from intervae.models.batches import in_batches, repeat_rows
from intervae.models.decompositions import PrincipalComponents, fast_ica, principal_components
from intervae.models.phases import Phase, Terms
from intervae.settings import setting

CHUNK = 2048  # images in memory as floats at once
BANK = 4096  # training codes that ICA stores to sample from
SMALLEST_VARIANCE = 1e-6  # relative to the first component; less is rounding error


def unit_gaussian_nll(outputs: Tensor, images: Tensor) -> Tensor:
    """Return -log N(images; outputs, 1) summed over pixels, (B,)."""
    return 0.5 * ((outputs - images).square() + math.log(2 * math.pi)).flatten(1).sum(1)


@dataclass(frozen=True)
class LinearSettings:
    """Settings of PCA, and of ICA."""

    latents: int = setting(10, "number of components [n]")
    fitted_on: int = setting(50_000, "maximum number of training images to fit on, at random")

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
    title = "PCA: whitened principal components of the pixels, a linear baseline"
    Settings: ClassVar[type] = LinearSettings
    settings: LinearSettings
    mean: Tensor

    def build(self) -> None:
        n, pixels = self.settings.latents, math.prod(self.spec.image_shape)
        if n > pixels:
            raise UsageError(
                f"latents={n} are more than the {pixels} pixel values of an image; "
                f"set latents={pixels} or less."
            )
        # random orthonormal directions (n, P) until `fit`
        start = torch.linalg.qr(torch.randn(pixels, n))[0].T
        # z = (x - mean) @ encoding.T, x = mean + z @ decoding
        self.encoding = nn.Parameter(start.clone(), requires_grad=False)
        self.decoding = nn.Parameter(start.clone(), requires_grad=False)
        self.register_buffer("mean", torch.full((pixels,), 0.5))
        self.fit_states: list[dict[str, Any]] = []

    # ---- fitting ---------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        return [Phase("fit", prepare=self.find_components)]

    def check(self, data: Dataset) -> None:
        samples = min(len(data.train), self.settings.fitted_on)
        if samples < self.settings.latents:
            raise DataError(
                f"{samples} training images are too few for {self.settings.latents} components; "
                f"set latents={samples} or less."
            )

    @torch.no_grad()
    def find_components(self, data: Dataset, seed: int) -> None:
        """Fit the components on at most `fitted_on` random training images."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(data.train), generator=generator)[: self.settings.fitted_on]
        rows = rows.to(data.train.device)

        def samples() -> Iterator[Tensor]:
            return (data.train.batch(chunk)["images"].flatten(1) for chunk in rows.split(CHUNK))

        principal = principal_components(samples, self.settings.latents, seed)
        varying = int((principal.variances > SMALLEST_VARIANCE * principal.variances[0]).sum())
        if varying < self.settings.latents:
            raise DataError(
                f"the training images vary in {varying} directions only, fewer than "
                f"latents={self.settings.latents}; set latents lower."
            )
        scales = principal.variances.sqrt()[:, None]
        self.mean.copy_(principal.mean)
        self.encoding.copy_(principal.components / scales)
        self.decoding.copy_(principal.components * scales)
        explained = float(principal.variances.sum()) / principal.total
        self.fit_states = [{"explained_variance": explained}]
        codes = torch.cat([self.project(chunk) for chunk in samples()])
        self.refine(principal, codes, seed)

    def refine(self, principal: PrincipalComponents, codes: Tensor, seed: int) -> None:
        """Refine the components, given the whitened codes (M, n); overridden by ICA."""

    def logged_states(self) -> list[dict[str, Any]]:
        states, self.fit_states = self.fit_states, []
        return states

    # ---- model -----------------------------------------------------------------------------
    def project(self, pixels: Tensor) -> Tensor:
        """Pixels (B, P) to codes (B, n)."""
        return (pixels - self.mean) @ self.encoding.T

    def unproject(self, codes: Tensor) -> Tensor:
        """Codes (B, n) to images (B, C, H, W) in [0, 1]."""
        return (self.mean + codes @ self.decoding).clamp(0, 1).unflatten(1, self.spec.image_shape)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return -log p(x | z) of a unit Gaussian; it is never minimised by gradient steps."""
        outputs = self.unproject(self.project(batch["images"].flatten(1)))
        reconstruction = unit_gaussian_nll(outputs, batch["images"]).mean()
        return {"loss": reconstruction, "reconstruction": reconstruction}

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to whitened codes (B, n, 1)."""
        codes = in_batches(lambda chunk: self.project(chunk.flatten(1)), self.as_images(images))
        return codes[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Codes (B, n, 1) to images (B, C, H, W)."""
        return in_batches(lambda chunk: self.unproject(chunk.flatten(1)), self.as_latents(latents))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W) of codes from `draw_codes`; `do` must be empty."""
        self.check_no_do(do)
        return self.decode(self.draw_codes(n, self.sampling_generator(n, seed))[..., None])

    def draw_codes(self, n: int, generator: torch.Generator) -> Tensor:
        """Return standard normal codes (n, latents)."""
        return torch.randn(n, self.settings.latents, generator=generator)


@dataclass(frozen=True)
class ICASettings(LinearSettings):
    """Settings of ICA."""

    tolerance: float = setting(1e-4, "change of the components at which FastICA stops")
    iterations: int = setting(500, "maximum number of FastICA iterations")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tolerance", "iterations"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


class ICA(PCA):
    """FastICA on the whitened principal components.

    Components are sorted by explained variance; each has a positive skew.
    """

    name = "ica"
    title = "ICA: FastICA on whitened principal components, a linear baseline"
    Settings = ICASettings
    settings: ICASettings
    bank: Tensor

    def build(self) -> None:
        super().build()
        # training codes that sample() draws from
        self.register_buffer("bank", torch.randn(BANK, self.settings.latents))

    def refine(self, principal: PrincipalComponents, codes: Tensor, seed: int) -> None:
        """Rotate the components by FastICA, and store codes in the bank."""
        settings = self.settings
        result = fast_ica(
            codes, seed=seed, tolerance=settings.tolerance, iterations=settings.iterations
        )
        converged = result.change <= settings.tolerance
        if not converged:
            logging.getLogger(__name__).warning(
                "FastICA did not converge in %d iterations: the last change was %.2g, more than "
                "tolerance=%g; raise iterations.",
                result.iterations,
                result.change,
                settings.tolerance,
            )
        rotation = result.rotation.to(codes)
        rotation = rotation[(rotation.square() @ principal.variances).argsort(descending=True)]
        skew = (codes @ rotation.T).pow(3).mean(0)
        rotation = rotation * torch.where(skew < 0, -1.0, 1.0)[:, None]
        self.encoding.copy_(rotation @ self.encoding)
        self.decoding.copy_(rotation @ self.decoding)
        self.bank.copy_(repeat_rows(codes @ rotation.T, BANK))
        self.fit_states[0] |= {
            "iterations": result.iterations,
            "change": result.change,
            "converged": converged,
        }

    def draw_codes(self, n: int, generator: torch.Generator) -> Tensor:
        """Return codes (n, latents), each drawn independently from the training codes."""
        rows = torch.randint(BANK, (n, self.settings.latents), generator=generator)
        return self.bank.cpu().gather(0, rows)
