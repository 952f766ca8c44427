"""Concepts between an encoder and a decoder: the base class of CausalVAE and its reductions.

Equations are those of Yang et al., CVPR 2021.
Shapes: B images, n concepts, k dims per concept.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.data import Batch, Dataset
from intervae.errors import UsageError
from intervae.models.batches import in_batches, repeat_rows
from intervae.models.causal import CausalModel
from intervae.models.causal_vae.settings import ConceptSettings
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.images import PerConceptDecoder, build_decoder, build_encoder
from intervae.nets.latents import draw_samples
from intervae.nets.likelihood import absolute_error, negative_log_likelihood

NOISE_BANK = 2048  # abducted noises of the training split, from which sample() draws


class ConceptModel(CausalModel):
    """n concepts of k dims each: encoder -> exogenous noises -> concepts -> decoder.

    A subclass defines what a `CausalModel` needs. Its `build` calls `make_encoder`, `make_decoder`
    and `make_noise_bank`. Without a causal layer the concepts are the exogenous noises.
    """

    settings: ConceptSettings
    encoder: nn.Module
    decoder: nn.Module
    noise_bank: Tensor

    @property
    def dims(self) -> int:
        """Dims per concept, k."""
        return self.settings.dims

    def make_encoder(self, outputs: int) -> nn.Module:
        settings = self.settings
        return build_encoder(
            settings.network, self.spec.image_shape, outputs, settings.channels, settings.hidden
        )

    def make_decoder(self) -> nn.Module:
        settings, n = self.settings, len(self.latent_names)
        make = partial(
            build_decoder,
            settings.network,
            image_shape=self.spec.image_shape,
            channels=settings.channels,
            hidden=settings.hidden,
        )
        if settings.decoder == "layers":
            raise UsageError(f"decoder=layers needs labelled variables, which {self.name} has not.")
        if settings.decoder == "joint":
            return make(n * self.dims)
        return PerConceptDecoder([make(self.dims) for _ in range(n)])

    def make_noise_bank(self) -> None:
        shape = (NOISE_BANK, len(self.latent_names), self.dims)
        self.register_buffer("noise_bank", torch.randn(shape))

    # ---- model ---------------------------------------------------------------------------------
    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(eps | x), Eq. 5: mean and log-variance, each (B, n, k)."""
        return self.as_gaussian(self.encoder(images))

    def as_gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Split features (B, 2 n k) into mean and log-variance, each (B, n, k)."""
        shape = (2, len(self.latent_names), self.dims)
        mean, log_variance = features.unflatten(1, shape).unbind(1)
        return mean, log_variance.clamp(-12, 4)

    def endogenous(self, exogenous: Tensor) -> Tensor:
        """Noises eps (..., n, k) to concepts z (..., n, k); the identity without a causal layer."""
        return exogenous

    def log_det(self) -> Tensor | float:
        """log |det| of the map z -> eps, for one of the k dims."""
        return 0.0

    def paint(self, z: Tensor) -> Tensor:
        """Concepts z (B, n, k) to the decoder's output, logits of pixels (B, C, H, W)."""
        return self.decoder(z.flatten(1))

    def pixel_terms(
        self, z: Tensor, batch: Batch, generator: torch.Generator | None
    ) -> tuple[Tensor, Terms]:
        """Pixel loss of concepts z (B, n, k), and its named terms, batch means."""
        return self.output_terms(self.paint(z), batch["images"])

    def output_terms(self, output: Tensor, images: Tensor) -> tuple[Tensor, Terms]:
        """Loss of logits of pixels (B, C, H, W), and its named terms, batch means.

        -log p(x | z) plus `absolute_error_weight` times the absolute pixel error, which the paper
        does not have.
        """
        settings = self.settings
        terms = {
            "reconstruction": negative_log_likelihood(
                output, images, settings.likelihood, settings.scale
            ).mean(),
            "absolute_error": absolute_error(torch.sigmoid(output), images).mean(),
        }
        return terms["reconstruction"] + settings.absolute_error_weight * terms[
            "absolute_error"
        ], terms

    # ---- training ------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """Joint training of all networks, then the noises for sampling."""
        settings = self.settings
        main = Phase(
            "joint",
            (Player(self.loss, learning_rate=settings.learning_rate),),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule=settings.schedule,
            patience=settings.patience,
            keep_best=True,
        )
        return [main, Phase("noise", prepare=self.collect_noise)]

    @torch.no_grad()
    def collect_noise(self, data: Dataset, seed: int) -> None:
        """Store abducted noises of training images, for `draw_noise`."""
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(data.train), generator=generator)[:NOISE_BANK]
        split = data.train[rows.to(data.train.device)]
        latents = self.encode(split.images, split.labels if self.needs_labels else None)
        expected = torch.stack([self.mechanism(i, latents) for i in range(latents.shape[1])], dim=1)
        self.noise_bank.copy_(repeat_rows(latents - expected, NOISE_BANK))

    # ---- queries -------------------------------------------------------------------------------
    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Noises (n, variables, k) of training images, drawn independently for each variable."""
        bank = self.noise_bank.cpu()
        rows = torch.randint(len(bank), (n, bank.shape[1]), generator=generator)
        return torch.stack([bank[rows[:, i], i] for i in range(bank.shape[1])], dim=1)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to posterior means of the concepts z (B, n, k)."""
        return self.endogenous(
            in_batches(lambda chunk: self.posterior(chunk)[0], self.as_images(images))
        )

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Concepts z (B, n, k) to images (B, C, H, W) in [0, 1]."""
        return in_batches(lambda chunk: torch.sigmoid(self.paint(chunk)), self.as_latents(latents))

    def log_ratio(
        self,
        x: Tensor,
        posterior: tuple[Tensor, Tensor],
        log_prior: Callable[[Tensor], Tensor],
        samples: int,
        generator: torch.Generator | None,
        rest: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """log p(x | z) + log_prior(z) - log q(z), (samples, B).

        z = endogenous(eps) for `samples` draws eps ~ q(eps) = `posterior`. q(z) is q(eps) pushed
        through the causal layer, q(eps) |det (I - A^T)|^k.

        Arguments:
            rest: mean and log-variance, each (B, ...), of what `paint` takes beside z; its prior
                is N(0, I).
        """
        mean, log_variance = posterior
        noise = draw_samples(tuple(mean.shape), samples, generator, x.device)  # (samples, B, n, k)
        z = self.endogenous(mean + torch.exp(0.5 * log_variance) * noise)
        log_posterior = (
            log_normal(noise, 0.0, 0.0).sum((2, 3))
            - 0.5 * log_variance.sum((1, 2))
            + z.shape[-1] * self.log_det()
        )

        latents = [z.flatten(0, 1)]
        if rest is not None:
            rest_noise = draw_samples(tuple(rest[0].shape), samples, generator, x.device)
            draws = rest[0] + torch.exp(0.5 * rest[1]) * rest_noise  # (samples, B, ...)
            log_ratio = log_normal(draws, 0.0, 0.0) - log_normal(draws, *rest)
            log_posterior = log_posterior - log_ratio.flatten(2).sum(2)
            latents.append(draws.flatten(0, 1))

        def log_likelihood(images: Tensor, *latents: Tensor) -> Tensor:
            return -negative_log_likelihood(
                self.paint(*latents), images, self.settings.likelihood, self.settings.scale
            )

        log_pixels = in_batches(log_likelihood, x.repeat(samples, 1, 1, 1), *latents)
        return log_pixels.unflatten(0, (samples, len(x))) + log_prior(z) - log_posterior
