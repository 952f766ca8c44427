"""DC-IGN (Kulkarni et al. 2015): latents reserved for known factors, by batches in which one factor varies and all other latents are clamped.

Shapes: B images in groups of S, n latents of k dims: the first m reserved for the m labelled factors, the rest for what else varies.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import kl_standard_normal
from intervae.data.base import Batch, Dataset, Spec
from intervae.data.factors import FactorGroups, GroupedSplit, find_factors
from intervae.errors import DataError, UsageError
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.images import base_size, check_sizes, halvings
from intervae.settings import at_least

Clamp = Literal["first", "mean"]


@dataclass(frozen=True)
class DCIGNSettings(VAESettings):
    """Settings of DC-IGN. The authors train 200 latents in batches of one group of 20 with RMSprop; adam can be captured as a CUDA graph."""

    pooled: bool = True  # the authors' network: 5x5 convolutions, pooling, and 7x7 ones back; false is that of `network`
    channels: tuple[int, ...] = (96, 48, 24)
    batch_size: int = 320  # images, in groups of group_size
    group_size: int = 20  # images in which one factor varies [S]
    learning_rate: float = 5e-4
    clamp: Clamp = "first"  # what other latents become: those of a group's first image (the authors' code), or the group's mean
    invariance_strength: float = 0.01  # pull of the clamped latents towards their mean in the group
    intrinsic: tuple[str, ...] = ()  # variables without a reserved latent: they vary with all that is not labelled
    intrinsic_ratio: float = 1.0  # groups in which no factor varies, for each one of a factor
    bins: int = 10  # in which the values of a continuous variable count as equal; one with few values needs none

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_size < 2 or self.batch_size % self.group_size or self.batch_size < 1:
            raise UsageError(f"batch_size={self.batch_size} must be a multiple of group_size={self.group_size}, and that 2 or more.")
        at_least(self, invariance_strength=0, intrinsic_ratio=0, bins=1)


class DCIGN(VAE):
    """DC-IGN.

    Arguments:
        spec: `data.spec`, with labels: the known factors.
        settings: see `DCIGNSettings`.
    """

    name = "dc-ign"
    title = "DC-IGN (Kulkarni et al. 2015): a latent reserved for each labelled factor, by batches in which only that factor varies"
    Settings = DCIGNSettings
    settings: DCIGNSettings
    reserved: Tensor

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError(f"{self.name} needs labels: it makes batches in which one known factor varies.")
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        for name in settings.intrinsic:
            self.spec.variable(name)
        self.factors = tuple(name for name in self.spec.names if name not in settings.intrinsic)
        needed = len(self.factors) + bool(settings.intrinsic)
        if settings.latents < needed or not self.factors:
            what = f"{len(self.factors)} factors ({', '.join(self.factors) or 'none'})" + " and one for the rest" * bool(settings.intrinsic)
            raise UsageError(f"latents={settings.latents} with intrinsic={','.join(settings.intrinsic) or '()'} leaves no latent for each of {what}.")
        if settings.pooled:
            size = settings.latents * settings.dims
            check_sizes(size, settings.channels, 1)
            self.encoder: nn.Module = PoolingEncoder(shape, 2 * size, settings.channels)
            self.decoder: nn.Module = UpsamplingDecoder(size, shape, settings.channels[::-1])
        else:
            super().build()
        self.register_buffer("reserved", torch.ones(len(self.factors), dtype=torch.bool))  # which factors vary by themselves in the data

    # ---- the model --------------------------------------------------------------------------------------------------
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z) + KL(q(z | x) || N(0, I)); on a batch of groups, with the latents clamped that do not belong to what varies.

        A clamped latent is the same number in the whole group: one mean, one variance, and the noise of the group's first image. It gets no
        gradient from either term but invariance_strength * (z_i - mean of z in the group), which is that of half the squared distance to the
        mean.
        """
        mean, log_variance = self.posterior(batch["images"])
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        invariance: Tensor | None = None
        if "active" in batch:
            active = batch["active"][..., None]
            posterior = torch.cat([mean, log_variance], dim=-1)  # (B, n, 2 k)
            clamped, invariance = clamp_latents(posterior, active, self.settings.group_size, self.settings.clamp)
            mean, log_variance = clamped.chunk(2, dim=-1)
            noise, _ = clamp_latents(noise, active, self.settings.group_size, "first")
        z = mean + torch.exp(0.5 * log_variance) * noise
        reconstruction = self.misfit(z, batch["images"]).mean()
        kl = kl_standard_normal(mean, log_variance).mean()
        terms = {"loss": reconstruction + kl, "reconstruction": reconstruction, "kl": kl}
        if invariance is not None:
            terms |= {"loss": terms["loss"] + self.settings.invariance_strength * invariance, "invariance": invariance}
        return terms

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        groups = self.settings.batch_size // self.settings.group_size
        return [self.phase((self.player(self.loss),), batch_size=groups, prepare=self.group_images)]

    def find(self, data: Dataset) -> FactorGroups:
        intrinsic = [self.spec.names.index(name) for name in self.settings.intrinsic]
        return find_factors(data.train.labels, self.spec.variables, intrinsic=intrinsic, bins=self.settings.bins)

    def check(self, data: Dataset) -> None:
        if len(data.train) < self.settings.batch_size:
            raise DataError(
                f"the training split has {len(data.train)} images, fewer than one batch of {self.settings.batch_size}; set batch_size to a "
                f"multiple of group_size={self.settings.group_size} that is no larger."
            )
        if not self.find(data).factors:
            raise DataError(
                f"no training images of {data.name} agree in all of {', '.join(self.spec.names)} but one, so there are no batches for "
                f"{self.name}; use fewer bins or fewer variables."
            )

    def group_images(self, data: Dataset, seed: int) -> Dataset:
        """The training split as groups of images in which one factor, or what is not labelled, varies."""
        found, latents = self.find(data), torch.arange(self.settings.latents)
        columns = [self.spec.names.index(name) for name in self.factors]
        self.reserved.copy_(torch.tensor([column in found.factors for column in columns]))
        active = [latents == columns.index(column) for column in found.factors]
        kinds, weights = list(found.factors.values()), [1.0] * len(found.factors)
        others = ~torch.stack(active).any(0)
        if len(found.rest) and others.any() and self.settings.intrinsic_ratio:
            kinds, weights, active = [*kinds, found.rest], [*weights, self.settings.intrinsic_ratio], [*active, others]
        return replace(data, train=GroupedSplit(data.train, kinds, torch.stack(active), weights, self.settings.group_size))

    def state_to_log(self) -> dict[str, Any]:
        return {"reserved": [name for name, is_free in zip(self.factors, self.reserved.tolist(), strict=True) if is_free]}

    @property
    def latent_names(self) -> tuple[str, ...]:
        """A factor's name where a latent is reserved for it; a variable that never varies by itself has none, its latent is one of the rest."""
        names = [name if is_free else "" for name, is_free in zip(self.factors, self.reserved.tolist(), strict=True)]
        names += [""] * (self.settings.latents - len(names))
        return tuple(name or f"intrinsic{i}" for i, name in enumerate(names))


def clamp_latents(values: Tensor, active: Tensor, group_size: int, clamp: Clamp) -> tuple[Tensor, Tensor]:
    """Overwrite what does not belong to a group's variation, and tell how far it varied in the group all the same.

    Arguments:
        values: (B, n, k), group after group.
        active: (B, n, 1) booleans, equal within a group.

    Returns:
        (B, n, k) values without gradient where they are clamped, and half the squared distance of those to their group's mean, as a mean
        over the batch.
    """
    groups = values.unflatten(0, (-1, group_size))  # (b, S, n, k)
    centre = groups.mean(1, keepdim=True).detach()
    taken = groups[:, :1].detach() if clamp == "first" else centre
    clamped = torch.where(active, values, taken.expand_as(groups).flatten(0, 1))
    distance = (groups - centre).square().flatten(0, 1) * ~active
    return clamped, 0.5 * distance.flatten(1).sum(1).mean()


class PoolingEncoder(nn.Module):
    """5x5 convolutions, each halved by max-pooling, then a dense layer: images (B, C, H, W) in [0, 1] to features (B, outputs)."""

    def __init__(self, image_shape: tuple[int, int, int], outputs: int, channels: Sequence[int]) -> None:
        super().__init__()
        colours, height, width = image_shape
        channels = list(channels)[: halvings(height, width, len(channels))]
        layers: list[nn.Module] = []
        for before, after in zip([colours, *channels], channels, strict=False):
            layers += [nn.Conv2d(before, after, 5, padding=2), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]
        rows, columns = base_size(height, width, len(channels))
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * rows * columns, outputs))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class UpsamplingDecoder(nn.Module):
    """The mirror of PoolingEncoder, nearest up-sampling and 7x7 convolutions: vectors (B, inputs) to logits (B, C, H, W), cropped to the image."""

    def __init__(self, inputs: int, image_shape: tuple[int, int, int], channels: Sequence[int]) -> None:
        super().__init__()
        colours, self.height, self.width = image_shape
        channels = list(channels)[-halvings(self.height, self.width, len(channels)) :]
        rows, columns = base_size(self.height, self.width, len(channels))
        layers: list[nn.Module] = [nn.Linear(inputs, channels[0] * rows * columns), nn.ReLU(), nn.Unflatten(1, (channels[0], rows, columns))]
        for before, after in zip(channels, [*channels[1:], colours], strict=True):
            layers += [nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(before, after, 7, padding=3), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, latents: Tensor) -> Tensor:
        return self.layers(latents)[..., : self.height, : self.width]
