"""Pictures of labelled concepts: one decoder, painted layers, and a rest that no label names.

Base class of `LabelledConcepts`. Shapes: B images (C, H, W), n concepts, k dims per concept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intervae.causal.do import Do
from intervae.causal.gaussian import kl_standard_normal, reparametrise
from intervae.data import Batch, Dataset
from intervae.errors import QueryError, UsageError
from intervae.models.batches import in_batches
from intervae.models.causal_vae.concepts import ConceptModel
from intervae.models.causal_vae.layers import (
    ImageLayer,
    changed_image,
    choose_layers,
    layer_loss,
    parse_layers,
)
from intervae.models.causal_vae.settings import LabelSettings
from intervae.models.phases import Phase, Terms
from intervae.nets.layered_decoder import DARKEST, LayeredDecoder
from intervae.nets.rest_map import ConditionedDecoder, MapEncoder, map_shape, split_gaussian

REST_FALL = 0.7  # share of training in which the weight of the rest's divergence falls
LABELS_FALL = 0.5  # share of training in which layers turn from labels to the encoder's latents


class PaintedConcepts(ConceptModel):
    """Concepts with the decoders of `LabelSettings`; a subclass calls `build_pictures`."""

    settings: LabelSettings
    training_steps: Tensor

    def build_pictures(self) -> None:
        """Build the decoder and, with the setting `rest`, what encodes and decodes the rest."""
        settings = self.settings
        self.decoder = self.make_decoder()
        if self.scheduled:
            self.register_buffer("training_steps", torch.ones(()))
        if settings.rest:
            self.rest_encoder = MapEncoder(
                self.spec.image_shape, 2 * settings.rest, settings.rest_width
            )
            if isinstance(self.decoder, LayeredDecoder):
                self.rest_decoder = self.make_rest_decoder(0)

    def make_decoder(self) -> nn.Module:
        settings = self.settings
        if settings.rest and settings.decoder == "joint":
            return self.make_rest_decoder(len(self.spec.variables) * self.dims)
        if settings.rest and settings.decoder == "per-concept":
            raise UsageError(
                "rest needs decoder=joint or decoder=layers: with decoder=per-concept no network "
                "sees it."
            )
        if settings.decoder != "layers":
            return super().make_decoder()
        for variable in self.spec.variables:
            if variable.kind == "categorical":
                raise UsageError(
                    f"decoder=layers takes continuous and binary variables, but {variable.name!r} "
                    "is categorical; use decoder=joint, with rest= for what no label names."
                )
        decoder = LayeredDecoder(
            len(self.spec.variables), self.spec.image_shape, hidden=settings.layer_hidden
        )
        parse_layers(settings.layers, self.spec, decoder)  # wrong names are errors at once
        return decoder

    def make_rest_decoder(self, concepts: int) -> ConditionedDecoder:
        settings = self.settings
        return ConditionedDecoder(
            concepts, settings.rest, self.spec.image_shape, settings.rest_width
        )

    # ---- pictures ------------------------------------------------------------------------------
    def paint(self, z: Tensor, rest: Tensor | None = None) -> Tensor:
        """Logits of pixels (B, C, H, W); layers see the mean of each concept's dims.

        Arguments:
            rest: (B, c, h, w) what no label names, with the setting `rest`; its mean, 0, by
                default.
        """
        if not self.settings.rest:
            layered = isinstance(self.decoder, LayeredDecoder)
            return self.decoder(z.mean(-1)) if layered else super().paint(z)
        if rest is None:
            rest = z.new_zeros(z.shape[0], *self.rest_shape)
        if isinstance(self.decoder, LayeredDecoder):
            return self.decoder(z.mean(-1), self.rest_background(rest))
        return self.decoder(z.flatten(1), rest)

    @property
    def rest_shape(self) -> tuple[int, int, int]:
        """Shape (c, h, w) of the rest."""
        return map_shape(self.spec.image_shape, self.settings.rest)

    def rest_background(self, rest: Tensor, progress: Tensor | float = 1.0) -> Tensor:
        """Background (B, C, H W) that the rest paints behind the layers.

        It joins in the third quarter of training (`progress` from 0 to 1): layers paint first.
        """
        assert isinstance(self.decoder, LayeredDecoder)
        share = torch.as_tensor((progress - 0.5) / 0.25).clamp(0, 1)
        change = share * self.rest_decoder(None, rest).flatten(2)
        return torch.sigmoid(torch.logit(self.decoder.background.flatten(1), DARKEST) + change)

    def rest_weight(self, progress: Tensor) -> Tensor:
        """Weight of KL(q(rest) || N(0, I)), falling over the first REST_FALL of training.

        A large weight at first: what the concepts tell is drawn from them, as that costs nothing.
        Without it the decoder draws everything from the rest, and do() changes nothing.
        """
        first, last = self.settings.first_rest_weight, self.settings.rest_weight
        return first * (last / first) ** (progress / REST_FALL).clamp(0, 1)

    def pixel_terms(
        self, z: Tensor, batch: Batch, generator: torch.Generator | None
    ) -> tuple[Tensor, Terms]:
        settings, images, rest, terms = self.settings, batch["images"], None, {}
        if not self.scheduled:
            return super().pixel_terms(z, batch, generator)
        progress = batch["step"] / self.training_steps  # from 0 to 1
        if settings.rest:
            mean, log_variance = split_gaussian(self.rest_encoder(images))
            rest = reparametrise(mean, log_variance, generator)
            terms["kl_rest"] = kl_standard_normal(mean, log_variance).mean()
        if not isinstance(self.decoder, LayeredDecoder):
            loss, pixel_terms = self.output_terms(self.paint(z, rest), images)
        else:
            drawn = None
            if settings.layer_pixels is not None:
                drawn = self.decoder.draw_pixels(settings.layer_pixels, generator)
            background = None if rest is None else self.rest_background(rest, progress)
            values = self.layer_values(z, batch, progress, generator)
            likelihood, extra = layer_loss(
                self.decoder, values, images, progress, drawn, background
            )
            loss = likelihood + extra
            pixel_terms = {"reconstruction": likelihood, "layer_terms": extra}
        if rest is not None:
            loss = loss + self.rest_weight(progress) * terms["kl_rest"]
        return loss, {**pixel_terms, **terms}

    def layer_values(
        self, z: Tensor, batch: Batch, progress: Tensor, generator: torch.Generator | None
    ) -> Tensor:
        """Values (B, n) that the layers paint: the mean of each concept's dims.

        A share of the images, which falls from 1 to 0 over LABELS_FALL of the training, is painted
        from draws of p(z | u): the encoder's first latents tell nothing, and a layer that begins
        with them may settle on painting nothing.
        """
        values = z.mean(-1)
        share = 1 - progress / LABELS_FALL
        from_labels = torch.rand(len(z), 1, device=z.device, generator=generator) < share
        noise = torch.randn(values.shape, device=z.device, generator=generator)
        u = self.spec.normalise(batch["labels"])
        draws = u + self.settings.prior_std / self.dims**0.5 * noise
        return torch.where(from_labels, draws, values)

    # ---- counterfactuals -----------------------------------------------------------------------
    @property
    def pixel_temperature(self) -> float:
        """Share of an image's own pixel noise that `counterfactual` keeps by default."""
        share = self.settings.pixel_temperature
        if share is None:
            return float(isinstance(self.decoder, LayeredDecoder))
        return share

    @torch.no_grad()
    def counterfactual(
        self, images: Any, do: Do, labels: Any = None, *, pixel_temperature: float | None = None
    ) -> Tensor:
        """Return the images (B, C, H, W) under `do`, with the noises of each image unchanged.

        The noise of the pixels is what the decoder misses, u = x - g(z). The answer is
        g(z') + t keep u, clipped to [0, 1], where keep is 1 at pixels that no layer with changed
        variables paints before or after, and 1 everywhere with decoder=joint.

        Arguments:
            do: see `CausalModel.counterfactual`.
            pixel_temperature: t; by default the setting. With 1 an empty do() returns the images.
        """
        share = self.pixel_temperature if pixel_temperature is None else pixel_temperature
        if not share:
            return super().counterfactual(images, do, labels)
        self.check_trained()
        before, x, decoder = self.encode(images, labels), self.as_images(images), self.decoder
        after, picture = self.intervene(before, do), self.abduct_picture(images)
        if not isinstance(decoder, LayeredDecoder):
            noise = x - self.decode(before, **picture)
            return (self.decode(after, **picture) + share * noise).clamp(0, 1)

        def answer(x: Tensor, old: Tensor, new: Tensor, *rest: Tensor) -> Tensor:
            background = self.rest_background(*rest) if rest else None
            return changed_image(decoder, x, old.mean(-1), new.mean(-1), share, background)

        return in_batches(answer, x, before, after, *picture.values())

    @torch.no_grad()
    def abduct_picture(self, images: Any) -> dict[str, Tensor]:
        """Posterior mean (B, c, h, w) of what no label names; empty without the setting `rest`."""
        if not self.settings.rest:
            return {}
        x = self.as_images(images)
        return {"rest": in_batches(lambda chunk: split_gaussian(self.rest_encoder(chunk))[0], x)}

    def draw_picture(self, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        if not self.settings.rest:
            return {}
        return {"rest": torch.randn(n, *self.rest_shape, generator=generator).to(self.device)}

    @torch.no_grad()
    def decode(self, latents: Tensor, rest: Tensor | None = None) -> Tensor:
        """Concepts z (B, n, k) to images (B, C, H, W) in [0, 1].

        Arguments:
            rest: (B, c, h, w) of `abduct_picture`, 0 by default.
        """
        if rest is None:
            return super().decode(latents)
        z = self.as_latents(latents)
        return in_batches(lambda *chunk: torch.sigmoid(self.paint(*chunk)), z, rest)

    # ---- layers --------------------------------------------------------------------------------
    @torch.no_grad()
    def paint_layers(self, latents: Tensor, rest: Tensor | None = None) -> Tensor:
        """Return the background, then each of `layers` alone over grey, (B, 1 + L, C, H, W).

        A pixel has the layer's colour in proportion to its share of the picture, else grey, 0.5.

        Arguments:
            latents: (B, n, k) concepts of `encode`.
            rest: (B, c, h, w) of `abduct_picture`, with the setting `rest`.
        """
        decoder = self.decoder
        if not isinstance(decoder, LayeredDecoder):
            raise QueryError(f"this {self.name} has one decoder; layers need decoder=layers.")
        z = self.as_latents(latents)
        background = None if rest is None else self.rest_background(rest)
        logits = decoder.layer_logits(z.mean(-1))
        shares = decoder.shares(logits)[:, 1:, None]
        alone = 0.5 + shares * (torch.sigmoid(logits[:, :, :-1]) - 0.5)
        if background is None:
            background = decoder.background.flatten(1).expand(len(z), -1, -1)
        layers = torch.cat([background[:, None], alone], dim=1)
        return layers.unflatten(3, self.spec.image_shape[1:])

    def figures(self, data: Dataset) -> dict[str, Callable[[Path], None]]:
        """Return the figures of a causal model, and with decoder=layers each layer alone."""
        from intervae.models.causal_vae.layer_figures import draw_layers

        own = {"layers.png": partial(draw_layers, self, data)} if self.layers else {}
        return {**super().figures(data), **own}

    def phases(self) -> list[Phase]:
        main, *rest = super().phases()
        if self.scheduled:
            rates = (("decoder.", self.settings.layer_rate),)
            players = tuple(replace(player, prefix_rates=rates) for player in main.players)
            main = replace(main, prepare=self.prepare_pictures, players=players)
        return [main, *rest]

    @property
    def scheduled(self) -> bool:
        """Whether the loss depends on the progress of training."""
        return bool(self.settings.rest) or isinstance(self.decoder, LayeredDecoder)

    def prepare_pictures(self, data: Dataset, seed: int) -> None:
        """Store the number of steps of the training, and find which variables paint what."""
        steps = self.settings.epochs * (len(data.train) // self.settings.batch_size)
        self.training_steps.fill_(max(1, steps))
        if isinstance(self.decoder, LayeredDecoder):
            choose_layers(self.decoder, data, self.graph, self.settings.layers, seed)

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
