"""iVAE (Khemakhem et al. 2020): a VAE whose prior on the latents depends on the labels u, which makes the latents identifiable.

p(z | u) = N(0, exp(prior_net(u))), q(z | x, u), p(x | z); the loss is -ELBO of log p(x | u).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import kl_diagonal, reparametrise
from intervae.data.base import Batch, Dataset, Spec, Variable
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.base import in_batches, repeat_rows
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.images import Activation, MLPDecoder, MLPEncoder, build_encoder, dense_layers
from intervae.nets.latents import draw_with_log_ratio

LABEL_BANK = 2048  # labels kept from the training split, from which sample() draws


@dataclass(frozen=True)
class IVAESettings(VAESettings):
    """Settings of iVAE."""

    widths: tuple[int, ...] = ()  # hidden layers of an MLP as encoder and decoder, in the place of `network`; the paper has 50,50 to 200,200
    prior_widths: tuple[int, ...] = (50, 50)  # hidden layers of the network from labels to the prior's variance
    activation: Literal["xtanh", "leaky-relu"] = "leaky-relu"  # of those layers: tanh(x) + 0.1 x, or leaky ReLU of slope 0.1
    label_dropout: float = 0.5  # share of the samples whose labels the encoder does not see, so that queries work without; the paper has 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("widths", "prior_widths"):
            if min(getattr(self, name), default=1) < 1:
                raise UsageError(f"{name}={','.join(map(str, getattr(self, name)))} leaves a network without units; use 1 or more.")
        if not 0 <= self.label_dropout <= 1:
            raise UsageError(f"label_dropout={self.label_dropout} must be between 0 and 1.")


class IVAE(VAE):
    """iVAE over images with labels.

    Arguments:
        spec: `data.spec`; all of its variables are u: continuous ones standardised, binary ones -1 or 1, categorical ones one-hot.
        settings: see `IVAESettings`.

    The encoder takes u where the image becomes a vector: beside the pixels of an MLP, or behind the convolutions.
    """

    name = "ivae"
    title = "iVAE (Khemakhem et al. 2020): a prior that depends on the labels, for identifiable latents"
    Settings = IVAESettings
    settings: IVAESettings
    label_bank: Tensor

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError("ivae learns from labels, but this data has none; give a labels.csv or another model.")
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        super().build()
        settings, size, inputs = self.settings, self.settings.latents * self.settings.dims, sum(map(inputs_of, self.spec.variables))
        activation: Activation = _XTanh if settings.activation == "xtanh" else partial(nn.LeakyReLU, 0.1)
        if settings.widths:
            plain: nn.Module = MLPEncoder(self.spec.image_shape, 2 * size, settings.widths, activation)
            self.decoder = MLPDecoder(size, self.spec.image_shape, settings.widths, activation)
        else:
            plain = build_encoder(settings.network, self.spec.image_shape, 2 * size, settings.channels, settings.hidden)
        self.encoder = LabelledEncoder(plain, inputs + 1)
        self.prior_net = nn.Sequential(*dense_layers([inputs, *settings.prior_widths, size], activation))
        self.register_buffer("label_bank", torch.zeros(LABEL_BANK, inputs))

    # ---- the model --------------------------------------------------------------------------------------------------
    def inputs(self, labels: Tensor) -> Tensor:
        """Labels (B, n) in their own units to u (B, inputs), as the networks see them."""
        columns = [as_inputs(variable, labels[:, i]) for i, variable in enumerate(self.spec.variables)]
        return torch.cat(columns, dim=1)

    def prior(self, u: Tensor) -> Tensor:
        """Log-variance of p(z | u), (B, n, k); its mean is 0."""
        return self.prior_net(u).unflatten(1, (self.settings.latents, self.settings.dims)).clamp(-12, 8)

    def posterior(self, images: Tensor, u: Tensor | None = None, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q(z | x, u): mean and log-variance, each (B, n, k); of u only the rows where `seen` (B, 1) is 1, and without u it is q(z | x)."""
        if u is None or seen is None:
            u, seen = (torch.zeros(len(images), size, device=images.device) for size in (self.label_bank.shape[-1], 1))
        return self.as_gaussian(self.encoder(images, torch.cat([u * seen, seen], dim=1)))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-ELBO of log p(x | u); a q that does not see u bounds the same likelihood, only less tightly."""
        images, u = batch["images"], self.inputs(batch["labels"])
        seen = (torch.rand(len(images), 1, device=images.device, generator=generator) >= self.settings.label_dropout).float()
        mean, log_variance = self.posterior(images, u, seen)
        z = reparametrise(mean, log_variance, generator)
        reconstruction = self.misfit(z, images).mean()
        kl = kl_diagonal(mean, log_variance, 0.0, self.prior(u)).mean()
        return {"loss": reconstruction + kl, "reconstruction": reconstruction, "kl": kl}

    def phases(self) -> list[Phase]:
        return [*super().phases(), Phase("labels", prepare=self.collect_labels)]

    @torch.no_grad()
    def collect_labels(self, data: Dataset, seed: int) -> None:
        """Keep labels of the training split, from which sample() draws."""
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:LABEL_BANK].to(data.train.device)
        u = self.inputs(data.train.labels[rows])
        self.label_bank.copy_(repeat_rows(u, LABEL_BANK))

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def needs_labels(self) -> bool:
        return self.settings.label_dropout == 0

    def informed(self, images: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """q(z | x, u) with all labels shown; an encoder that was never shown any (label_dropout=1) goes without."""
        return self.posterior(images, u, torch.full((len(images), 1), float(self.settings.label_dropout < 1), device=images.device))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W), with their labels (B, n) or without, to the latents' posterior means (B, n, k)."""
        x = self.as_images(images)
        if labels is not None:
            return in_batches(lambda part, u: self.informed(part, u)[0], x, self.inputs(self.as_labels(labels, len(x))))
        if self.needs_labels:
            raise QueryError(
                "this ivae was made with label_dropout=0, so its encoder needs the labels: pass labels=, or make it with label_dropout=0.5."
            )
        return in_batches(lambda part: self.posterior(part)[0], x)

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W) for labels of the training split, from latents drawn from p(z | u); `do` must be empty."""
        self.refuse_do(do)
        generator = self.sampling_generator(n, seed)
        rows = torch.randint(LABEL_BANK, (n,), generator=generator).to(self.device)
        noise = torch.randn(n, self.settings.latents, self.settings.dims, generator=generator).to(self.device)
        return self.decode(torch.exp(0.5 * self.prior(self.label_bank[rows])) * noise)

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | x, u), (samples, B), for z drawn from q(z | x, u)."""
        if labels is None:
            raise QueryError(f"{self.name} has a prior p(z | u) that depends on the labels; give log_weights the labels of the images.")
        x = self.as_images(images)
        u = self.inputs(self.as_labels(labels, len(x)))
        return self.weigh(x, *draw_with_log_ratio(*self.informed(x, u), self.prior(u), samples, generator))


class LabelledEncoder(nn.Module):
    """An image encoder whose dense layers take further numbers (B, extra) beside the flattened image or feature maps."""

    def __init__(self, plain: nn.Module, extra: int) -> None:
        super().__init__()
        self.convolutions = getattr(plain, "convolutions", None)
        _, first, *rest = plain.layers if self.convolutions is None else plain.dense  # type: ignore[misc]  # flatten, the first linear layer, the others
        self.dense = nn.Sequential(nn.Linear(first.in_features + extra, first.out_features), *rest)

    def forward(self, images: Tensor, extra: Tensor) -> Tensor:
        features = images if self.convolutions is None else self.convolutions(images * 2 - 1)
        return self.dense(torch.cat([features.flatten(1), extra], dim=1))


class _XTanh(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return torch.tanh(values) + 0.1 * values


def inputs_of(variable: Variable) -> int:
    """How many numbers a variable is to a network."""
    return max(len(variable.categories), round(variable.high) + 1) if variable.kind == "categorical" else 1


def as_inputs(variable: Variable, values: Tensor) -> Tensor:
    """(B,) in own units to (B, inputs); a category that training did not have is all zeros."""
    if variable.kind != "categorical":
        return variable.normalise(values)[:, None]
    return (values[:, None] == torch.arange(inputs_of(variable), device=values.device)).to(values.dtype)
