"""DC-IGN (Kulkarni et al. 2015): a VAE with one latent reserved for each labelled factor.

In every group of images one factor varies, and all latents but that of the factor are clamped.
Shapes: B images in groups of S, n latents of k dims: the first m are reserved for the m labelled
factors, the rest is intrinsic. Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import kl_standard_normal
from intervae.data import Batch, Dataset, Spec
from intervae.data.factor_groups import FactorGroups, GroupedSplit, find_factors
from intervae.errors import DataError, UsageError
from intervae.models import printed_vaes
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.images import base_size, check_sizes, halvings
from intervae.settings import check_minimum, setting

Clamp = Literal["first", "mean"]


@dataclass(frozen=True)
class DCIGNSettings(VAESettings):
    """Settings of DC-IGN.

    The authors train 200 latents in batches of one group of 20 with RMSprop. The default is Adam,
    which runs as a CUDA graph.
    """

    pooled: bool = setting(
        True, "the authors' network of 5x5 convolutions with pooling instead of `network`"
    )
    channels: tuple[int, ...] = setting(
        (96, 48, 24), "channels of the convolutions; each layer halves the image"
    )
    batch_size: int = setting(320, "images per step, a multiple of group_size")
    group_size: int = setting(20, "images per group [S]")
    learning_rate: float = setting(5e-4, "learning rate")
    clamp: Clamp = setting(
        "first", "value of clamped latents: the group's first image (code) or mean (paper)"
    )
    invariance_strength: float = setting(
        0.01, "strength of the pull of clamped latents towards their group mean"
    )
    intrinsic: tuple[str, ...] = setting((), "variables without a reserved latent")
    intrinsic_ratio: float = setting(
        1.0, "groups without a varying factor per group of a factor", advanced=True
    )
    bins: int = setting(
        10, "bins of a continuous variable within which values count as equal", advanced=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_size < 2 or self.batch_size % self.group_size or self.batch_size < 1:
            raise UsageError(
                f"batch_size={self.batch_size} must be a multiple of "
                f"group_size={self.group_size}, and group_size 2 or more."
            )
        check_minimum(self, invariance_strength=0, intrinsic_ratio=0, bins=1)


class DCIGN(VAE):
    """DC-IGN.

    Arguments:
        spec: `data.spec`; its variables are the labelled factors.
        settings: see `DCIGNSettings`.
    """

    name = "dc-ign"
    search_space: ClassVar[Mapping[str, str]] = {"learning_rate": "log:5e-5:5e-3"}
    title = (
        "DC-IGN (Kulkarni et al. 2015): a latent reserved for each labelled factor, by batches in "
        "which only that factor varies"
    )
    Settings = DCIGNSettings
    presets = printed_vaes.DC_IGN
    settings: DCIGNSettings
    reserved: Tensor

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError(
                f"{self.name} needs labels: it forms batches in which one labelled factor varies."
            )
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        for name in settings.intrinsic:
            self.spec.variable(name)  # raises for an unknown name
        self.factors = tuple(name for name in self.spec.names if name not in settings.intrinsic)
        self._check_latents()
        if settings.pooled:
            size = settings.latents * settings.dims
            check_sizes(size, settings.channels, 1)
            self.encoder: nn.Module = PoolingEncoder(shape, 2 * size, settings.channels)
            self.decoder: nn.Module = UpsamplingDecoder(size, shape, settings.channels[::-1])
        else:
            super().build()
        # (m,) which factors vary on their own in the data, set by training
        self.register_buffer("reserved", torch.ones(len(self.factors), dtype=torch.bool))

    def _check_latents(self) -> None:
        settings = self.settings
        needed = len(self.factors) + bool(settings.intrinsic)
        if settings.latents >= needed and self.factors:
            return
        factors = f"{len(self.factors)} factors ({', '.join(self.factors) or 'none'})"
        rest = " and one for the rest" if settings.intrinsic else ""
        raise UsageError(
            f"latents={settings.latents} with intrinsic={','.join(settings.intrinsic) or '()'} "
            f"leaves no latent for each of {factors}{rest}."
        )

    # ---- model -----------------------------------------------------------------------------
    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return -log p(x | z) + KL(q(z | x) || N(0, I)), with clamped latents in groups.

        A clamped latent has the same value in the whole group: one mean, one variance, and the
        noise of the first image. Its only gradient is invariance_strength * (z_i - group mean),
        that of half the squared distance to the mean.
        """
        mean, log_variance = self.posterior(batch["images"])
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        invariance: Tensor | None = None
        if "active" in batch:
            active = batch["active"][..., None]
            posterior = torch.cat([mean, log_variance], dim=-1)  # (B, n, 2 k)
            clamped, invariance = clamp_latents(
                posterior, active, self.settings.group_size, self.settings.clamp
            )
            mean, log_variance = clamped.chunk(2, dim=-1)
            noise, _ = clamp_latents(noise, active, self.settings.group_size, "first")
        z = mean + torch.exp(0.5 * log_variance) * noise
        reconstruction = self.reconstruction_loss(z, batch["images"]).mean()
        kl = kl_standard_normal(mean, log_variance).mean()
        terms = {"loss": reconstruction + kl, "reconstruction": reconstruction, "kl": kl}
        if invariance is not None:
            terms |= {
                "loss": terms["loss"] + self.settings.invariance_strength * invariance,
                "invariance": invariance,
            }
        return terms

    # ---- training --------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        groups = self.settings.batch_size // self.settings.group_size
        return [
            self.make_phase(
                (self.make_player(self.loss),),
                batch_size=groups,
                prepare=self.group_images,
                replaces_data=True,
            )
        ]

    def find_groups(self, data: Dataset) -> FactorGroups:
        """Return groups of training images in which one factor varies."""
        intrinsic = [self.spec.names.index(name) for name in self.settings.intrinsic]
        return find_factors(
            data.train.labels, self.spec.variables, intrinsic=intrinsic, bins=self.settings.bins
        )

    def check(self, data: Dataset) -> None:
        if len(data.train) < self.settings.batch_size:
            raise DataError(
                f"the training split has {len(data.train)} images, fewer than one batch of "
                f"{self.settings.batch_size}; set batch_size to a multiple of "
                f"group_size={self.settings.group_size} that is no larger."
            )
        if not self.find_groups(data).factors:
            raise DataError(
                f"no training images of {data.name} agree in all of {', '.join(self.spec.names)} "
                f"but one, so {self.name} has no batches; use fewer bins or fewer variables."
            )

    def group_images(self, data: Dataset, seed: int) -> Dataset:
        """Return data whose training split consists of groups of images.

        In a group one factor varies, or only what no label describes.
        """
        groups, latents = self.find_groups(data), torch.arange(self.settings.latents)
        columns = [self.spec.names.index(name) for name in self.factors]
        self.reserved.copy_(torch.tensor([column in groups.factors for column in columns]))
        active = [latents == columns.index(column) for column in groups.factors]
        kinds, weights = list(groups.factors.values()), [1.0] * len(groups.factors)
        intrinsic = ~torch.stack(active).any(0)
        if len(groups.rest) and intrinsic.any() and self.settings.intrinsic_ratio:
            kinds.append(groups.rest)
            weights.append(self.settings.intrinsic_ratio)
            active.append(intrinsic)
        train = GroupedSplit(
            data.train, kinds, torch.stack(active), weights, self.settings.group_size
        )
        return replace(data, train=train)

    def state_to_log(self) -> dict[str, Any]:
        factors = zip(self.factors, self.reserved.tolist(), strict=True)
        return {"reserved": [name for name, is_reserved in factors if is_reserved]}

    @property
    def latent_names(self) -> tuple[str, ...]:
        """The factor's name for a reserved latent, intrinsic0, intrinsic1, ... for the others."""
        factors = zip(self.factors, self.reserved.tolist(), strict=True)
        names = [name if is_reserved else "" for name, is_reserved in factors]
        names += [""] * (self.settings.latents - len(names))
        return tuple(name or f"intrinsic{i}" for i, name in enumerate(names))


def clamp_latents(
    values: Tensor, active: Tensor, group_size: int, clamp: Clamp
) -> tuple[Tensor, Tensor]:
    """Replace inactive latents by one value per group, and measure their variation.

    Arguments:
        values: (B, n, k), group after group.
        active: (B, n, 1) booleans, equal within a group.

    Returns:
        (B, n, k) values, without gradient where clamped, and half the squared distance of the
        clamped latents to their group mean, averaged over the batch.
    """
    groups = values.unflatten(0, (-1, group_size))  # (b, S, n, k)
    centre = groups.mean(1, keepdim=True).detach()
    fixed = groups[:, :1].detach() if clamp == "first" else centre
    clamped = torch.where(active, values, fixed.expand_as(groups).flatten(0, 1))
    distance = (groups - centre).square().flatten(0, 1) * ~active
    return clamped, 0.5 * distance.flatten(1).sum(1).mean()


class PoolingEncoder(nn.Module):
    """Images (B, C, H, W) in [0, 1] to features (B, outputs).

    5x5 convolutions with max-pooling, then a dense layer.
    """

    def __init__(
        self, image_shape: tuple[int, int, int], outputs: int, channels: Sequence[int]
    ) -> None:
        super().__init__()
        colours, height, width = image_shape
        channels = list(channels)[: halvings(height, width, len(channels))]
        layers: list[nn.Module] = []
        for before, after in zip([colours, *channels], channels, strict=False):
            layers += [
                nn.Conv2d(before, after, 5, padding=2),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.ReLU(),
            ]
        rows, columns = base_size(height, width, len(channels))
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(channels[-1] * rows * columns, outputs)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class UpsamplingDecoder(nn.Module):
    """Vectors (B, inputs) to logits (B, C, H, W), the mirror of PoolingEncoder.

    Nearest up-sampling and 7x7 convolutions; the output is cropped to the size of the image.
    """

    def __init__(
        self, inputs: int, image_shape: tuple[int, int, int], channels: Sequence[int]
    ) -> None:
        super().__init__()
        colours, self.height, self.width = image_shape
        channels = list(channels)[-halvings(self.height, self.width, len(channels)) :]
        rows, columns = base_size(self.height, self.width, len(channels))
        layers: list[nn.Module] = [
            nn.Linear(inputs, channels[0] * rows * columns),
            nn.ReLU(),
            nn.Unflatten(1, (channels[0], rows, columns)),
        ]
        for before, after in zip(channels, [*channels[1:], colours], strict=True):
            layers += [
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.Conv2d(before, after, 7, padding=3),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, latents: Tensor) -> Tensor:
        return self.layers(latents)[..., : self.height, : self.width]
