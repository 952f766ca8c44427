"""Labelled concepts: the encoder with labels (Eq. 5) and the conditional prior p(z | u) (Eq. 7).

Base class of CausalVAE and ConditionVAE. Equations are those of Yang et al., CVPR 2021.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.data import Batch, Dataset, Spec
from intervae.errors import QueryError
from intervae.models.batches import in_batches
from intervae.models.causal_vae.concepts import ConceptModel
from intervae.models.causal_vae.layers import (
    ImageLayer,
    choose_layers,
    draw_pixels,
    layer_loss,
    parse_layers,
)
from intervae.models.causal_vae.settings import LabelSettings
from intervae.models.checks import need_labels
from intervae.models.phases import Phase, Terms
from intervae.nets.layered_decoder import LayeredDecoder


class LabelledConcepts(ConceptModel):
    """One concept per label u_i with the prior p(z_i | u_i) = N(u_i, prior_std^2), Eq. 7.

    Labels are normalised. do() takes values in the units of the labels.
    """

    settings: LabelSettings
    layer_steps: Tensor
    likelihood_description = (
        "Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | x, u)"
    )

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        need_labels(self.name, spec)
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, n = self.settings, len(self.spec.variables)
        outputs = 2 * n * settings.dims
        self.encoder = self.make_encoder(settings.hidden if settings.encode_labels else outputs)
        self.label_head = (
            nn.Sequential(nn.SiLU(), nn.Linear(settings.hidden + n + 1, outputs))
            if settings.encode_labels
            else None
        )
        self.decoder = self.make_decoder()
        if isinstance(self.decoder, LayeredDecoder):
            self.register_buffer("layer_steps", torch.ones(()))

    def make_decoder(self) -> nn.Module:
        settings = self.settings
        if settings.decoder != "layers":
            return super().make_decoder()
        channels = [max(4, width // 2) for width in reversed(settings.channels)]
        decoder = LayeredDecoder(
            len(self.spec.variables),
            self.spec.image_shape,
            channels,
            settings.hidden // 2,
            group_hidden=settings.layer_hidden,
        )
        parse_layers(settings.layers, self.spec, decoder)  # wrong names are errors at once
        return decoder

    # ---- layers --------------------------------------------------------------------------------
    def paint(self, z: Tensor) -> Tensor:
        """Logits of pixels (B, C, H, W); layers see the mean of each concept's dims."""
        if isinstance(self.decoder, LayeredDecoder):
            return self.decoder(z.mean(-1))
        return super().paint(z)

    def pixel_terms(
        self, z: Tensor, batch: Batch, generator: torch.Generator | None
    ) -> tuple[Tensor, Terms]:
        if not isinstance(self.decoder, LayeredDecoder):
            return super().pixel_terms(z, batch, generator)
        pixels = None
        if self.settings.layer_pixels is not None and self.training:
            pixels = draw_pixels(self.decoder, self.settings.layer_pixels, generator)
        likelihood, extra = layer_loss(
            self.decoder,
            z.mean(-1),
            batch["images"],
            batch["step"] / self.layer_steps,
            pixels,
        )
        return likelihood + extra, {"reconstruction": likelihood, "layer_terms": extra}

    def phases(self) -> list[Phase]:
        main, *rest = super().phases()
        if isinstance(self.decoder, LayeredDecoder):
            main = replace(main, prepare=self.choose_layers)
        return [main, *rest]

    def choose_layers(self, data: Dataset, seed: int) -> None:
        """Find which variables paint what, and the number of steps of the training."""
        assert isinstance(self.decoder, LayeredDecoder)
        choose_layers(self.decoder, data, self.graph, self.settings.layers, seed)
        self.layer_steps.fill_(
            max(1, self.settings.epochs * (len(data.train) // self.settings.batch_size))
        )

    @property
    def layers(self) -> tuple[ImageLayer, ...]:
        """Which variables paint what, with decoder=layers; empty otherwise."""
        if not isinstance(self.decoder, LayeredDecoder):
            return ()
        names, members = self.spec.names, self.decoder.members.bool().tolist()
        return tuple(
            ImageLayer(
                tuple(name for name, member in zip(names, members[row], strict=True) if member),
                float(self.decoder.explained[row]),
            )
            for row in self.decoder.active
        )

    @property
    def latent_names(self) -> tuple[str, ...]:
        return self.spec.names

    def posterior(
        self, images: Tensor, labels: Tensor | None = None, label_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """q(eps | x, u), Eq. 5: mean and log-variance, each (B, n, k).

        Labels enter only with `encode_labels`, and only for images whose `label_mask` (B, 1) is 1.
        """
        features = self.encoder(images)
        if self.label_head is not None:
            zeros = torch.zeros(len(images), len(self.spec.variables) + 1, device=images.device)
            mask = zeros[:, :1] if label_mask is None else label_mask
            u = zeros[:, 1:] if labels is None else self.spec.normalise(labels)
            features = self.label_head(torch.cat([features, u * mask, mask], dim=1))
        return self.as_gaussian(features)

    def sample_label_mask(self, images: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """(B, 1): 1 for the random half of the images whose labels the encoder gets in this step.

        None without `encode_labels`.
        """
        if not self.settings.encode_labels:
            return None
        return (torch.rand(len(images), 1, device=images.device, generator=generator) < 0.5).float()

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to posterior means of the concepts z (B, n, k).

        Labels are used only with `encode_labels`.
        """
        if labels is None or self.label_head is None:
            return super().encode(images)
        x = self.as_images(images)

        def means(chunk: Tensor, u: Tensor) -> Tensor:
            return self.posterior(chunk, u, torch.ones(len(chunk), 1, device=chunk.device))[0]

        return self.endogenous(in_batches(means, x, self.as_labels(labels, len(x))))

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Importance weights of p(x | u), (samples, B).

        log p(x | z) + log p(z | u) - log q(z | x, u) for `samples` draws z ~ q(z | x, u).
        Their mean is Eq. 10 without KL(q(eps) || N(0, I)) and without the absolute pixel error.
        """
        if labels is None:
            raise QueryError(
                f"the prior p(z | u) of {self.name} depends on the labels; "
                "give log_weights the labels of the images."
            )
        x = self.as_images(images)
        u = self.as_labels(labels, len(x))
        centre = self.spec.normalise(u)[..., None]
        log_variance = 2 * math.log(self.settings.prior_std)
        return self.log_ratio(
            x,
            self.posterior(x, u, torch.ones(len(x), 1, device=x.device)),
            lambda z: log_normal(z, centre, log_variance).sum((2, 3)),
            samples,
            generator,
        )
