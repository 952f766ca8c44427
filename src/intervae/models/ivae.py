"""iVAE (Khemakhem et al. 2020): a VAE with a label-dependent prior and identifiable latents.

p(z | u) = N(0, exp(prior_net(u))), q(z | x, u), p(x | z); the loss is the -ELBO of log p(x | u).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import kl_diagonal, reparametrise
from intervae.data import Batch, Dataset, Spec, Variable
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import printed_vaes
from intervae.models.batches import in_batches, repeat_rows
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.images import Activation, MLPDecoder, MLPEncoder, build_encoder, dense_layers
from intervae.nets.latents import draw_with_log_ratio
from intervae.settings import setting

LABEL_BANK = 2048  # training labels stored in the model, from which sample() draws


@dataclass(frozen=True)
class IVAESettings(VAESettings):
    """Settings of iVAE."""

    widths: tuple[int, ...] = setting(
        (), "hidden layers of an MLP encoder and decoder that replace `network`; paper: 50 to 200"
    )
    prior_widths: tuple[int, ...] = setting((50, 50), "hidden layers of the prior network")
    activation: Literal["xtanh", "leaky-relu"] = setting(
        "leaky-relu",
        "activation of these layers: tanh(x) + 0.1 x, or leaky ReLU of slope 0.1",
        advanced=True,
    )
    label_dropout: float = setting(
        0.5, "fraction of samples encoded without labels; paper: 0, then encode needs labels"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("widths", "prior_widths"):
            if min(getattr(self, name), default=1) < 1:
                widths = ",".join(map(str, getattr(self, name)))
                raise UsageError(f"{name}={widths} leaves a network without units; use 1 or more.")
        if not 0 <= self.label_dropout <= 1:
            raise UsageError(f"label_dropout={self.label_dropout} must be between 0 and 1.")


class IVAE(VAE):
    """iVAE over images with labels.

    Arguments:
        spec: `data.spec`; its variables are u: continuous ones standardised, binary ones -1 or 1,
            categorical ones one-hot.
        settings: see `IVAESettings`.

    The encoder takes u where the image becomes a vector: beside the pixels of an MLP, or after the
    convolutions.
    """

    name = "ivae"
    title = (
        "iVAE (Khemakhem et al. 2020): a prior that depends on the labels, for identifiable latents"
    )
    Settings = IVAESettings
    presets = printed_vaes.IVAE
    settings: IVAESettings
    likelihood_description = (
        "Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | x, u)"
    )
    label_bank: Tensor

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError(
                "ivae learns from labels, but this data has none; "
                "give a labels.csv or another model."
            )
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        super().build()
        settings, size = self.settings, self.settings.latents * self.settings.dims
        inputs = sum(map(input_width, self.spec.variables))
        activation: Activation = (
            _XTanh if settings.activation == "xtanh" else partial(nn.LeakyReLU, 0.1)
        )
        if settings.widths:
            encoder: nn.Module = MLPEncoder(
                self.spec.image_shape, 2 * size, settings.widths, activation
            )
            self.decoder = MLPDecoder(size, self.spec.image_shape, settings.widths, activation)
        else:
            encoder = build_encoder(
                settings.network,
                self.spec.image_shape,
                2 * size,
                settings.channels,
                settings.hidden,
            )
        self.encoder = LabelledEncoder(encoder, inputs + 1)
        self.prior_net = nn.Sequential(
            *dense_layers([inputs, *settings.prior_widths, size], activation)
        )
        self.register_buffer("label_bank", torch.zeros(LABEL_BANK, inputs))

    # ---- model -----------------------------------------------------------------------------
    def encode_labels(self, labels: Tensor) -> Tensor:
        """Labels (B, n) in their own units to network inputs u (B, inputs)."""
        columns = [
            encode_variable(variable, labels[:, i])
            for i, variable in enumerate(self.spec.variables)
        ]
        return torch.cat(columns, dim=1)

    def prior(self, u: Tensor) -> Tensor:
        """Return the log-variance of p(z | u), (B, n, k); its mean is 0."""
        shape = (self.settings.latents, self.settings.dims)
        return self.prior_net(u).unflatten(1, shape).clamp(-12, 8)

    def posterior(
        self, images: Tensor, u: Tensor | None = None, visible: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x, u), each (B, n, k).

        Arguments:
            u: (B, inputs); without it, q(z | x).
            visible: (B, 1), 1 for rows whose u the encoder gets, 0 for the others.
        """
        if u is None or visible is None:
            u, visible = (
                torch.zeros(images.shape[0], size, device=images.device)
                for size in (self.label_bank.shape[-1], 1)
            )
        return self.as_gaussian(self.encoder(images, torch.cat([u * visible, visible], dim=1)))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the -ELBO of log p(x | u).

        A posterior without u bounds the same likelihood, less tightly.
        """
        images, u = batch["images"], self.encode_labels(batch["labels"])
        drawn = torch.rand(len(images), 1, device=images.device, generator=generator)
        visible = (drawn >= self.settings.label_dropout).float()
        mean, log_variance = self.posterior(images, u, visible)
        z = reparametrise(mean, log_variance, generator)
        reconstruction = self.reconstruction_loss(z, images).mean()
        kl = kl_diagonal(mean, log_variance, 0.0, self.prior(u)).mean()
        return {"loss": reconstruction + kl, "reconstruction": reconstruction, "kl": kl}

    def phases(self) -> list[Phase]:
        return [*super().phases(), Phase("labels", prepare=self.store_labels)]

    @torch.no_grad()
    def store_labels(self, data: Dataset, seed: int) -> None:
        """Store training labels in the label bank, from which sample() draws."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(data.train), generator=generator)[:LABEL_BANK]
        u = self.encode_labels(data.train.labels[rows.to(data.train.device)])
        self.label_bank.copy_(repeat_rows(u, LABEL_BANK))

    # ---- queries ---------------------------------------------------------------------------
    @property
    def needs_labels(self) -> bool:
        return self.settings.label_dropout == 0

    def labelled_posterior(self, images: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return q(z | x, u), or q(z | x) if the encoder never got labels (label_dropout=1)."""
        visible = float(self.settings.label_dropout < 1)
        return self.posterior(
            images, u, torch.full((images.shape[0], 1), visible, device=images.device)
        )

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the latents' posterior means (B, n, k).

        Labels (B, n) are optional unless the model was built with label_dropout=0.
        """
        x = self.as_images(images)
        if labels is not None:
            u = self.encode_labels(self.as_labels(labels, x.shape[0]))
            return in_batches(lambda *chunk: self.labelled_posterior(*chunk)[0], x, u)
        if self.needs_labels:
            raise QueryError(
                "this ivae has label_dropout=0, so its encoder needs labels; "
                "pass labels=, or train it with label_dropout=0.5."
            )
        return in_batches(lambda chunk: self.posterior(chunk)[0], x)

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W) of latents from p(z | u), u from the training labels.

        `do` must be empty.
        """
        self.check_no_do(do)
        generator = self.sampling_generator(n, seed)
        rows = torch.randint(LABEL_BANK, (n,), generator=generator).to(self.device)
        shape = (n, self.settings.latents, self.settings.dims)
        noise = torch.randn(shape, generator=generator).to(self.device)
        return self.decode(torch.exp(0.5 * self.prior(self.label_bank[rows])) * noise)

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return log p(x | z) + log p(z | u) - log q(z | x, u), (samples, B), for z from q."""
        if labels is None:
            raise QueryError(
                f"the prior p(z | u) of {self.name} depends on the labels; "
                "give log_weights the labels of the images."
            )
        x = self.as_images(images)
        u = self.encode_labels(self.as_labels(labels, len(x)))
        posterior = self.labelled_posterior(x, u)
        z, log_ratio = draw_with_log_ratio(*posterior, self.prior(u), samples, generator)
        return self.importance_log_weights(x, z, log_ratio)


class LabelledEncoder(nn.Module):
    """Image encoder whose dense layers also take a vector (B, extra)."""

    def __init__(self, encoder: nn.Module, extra: int) -> None:
        super().__init__()
        self.convolutions = getattr(encoder, "convolutions", None)
        layers: Any = encoder.layers if self.convolutions is None else encoder.dense
        _, first, *rest = layers  # flatten, first linear layer, others
        self.dense = nn.Sequential(nn.Linear(first.in_features + extra, first.out_features), *rest)

    def forward(self, images: Tensor, extra: Tensor) -> Tensor:
        features = images if self.convolutions is None else self.convolutions(images * 2 - 1)
        return self.dense(torch.cat([features.flatten(1), extra], dim=1))


class _XTanh(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return torch.tanh(values) + 0.1 * values


def input_width(variable: Variable) -> int:
    """Return the number of network inputs of a variable: 1, or one per category."""
    if variable.kind != "categorical":
        return 1
    return max(len(variable.categories), round(variable.high) + 1)


def encode_variable(variable: Variable, values: Tensor) -> Tensor:
    """Values (B,) in their own units to network inputs (B, inputs).

    A category that the training data lacks becomes all zeros.
    """
    if variable.kind != "categorical":
        return variable.normalise(values)[:, None]
    codes = torch.arange(input_width(variable), device=values.device)
    return (values[:, None] == codes).to(values.dtype)
