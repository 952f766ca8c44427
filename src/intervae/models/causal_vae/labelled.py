"""Labelled concepts: the encoder with labels (Eq. 5) and the conditional prior p(z | u) (Eq. 7).

Base class of CausalVAE and ConditionVAE. Equations are those of Yang et al., CVPR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.causal.variable_types import VariableType, encode_values
from intervae.data import Dataset, Spec
from intervae.errors import QueryError
from intervae.models.batches import in_batches
from intervae.models.causal_vae.painting import PaintedConcepts
from intervae.models.causal_vae.settings import LabelSettings
from intervae.models.checks import need_labels
from intervae.models.phases import Phase
from intervae.models.training_classes import all_classes, check_classes, mark_classes
from intervae.nets.rest_map import split_gaussian


class LabelledConcepts(PaintedConcepts):
    """One concept per label u_i with the prior p(z_i | u_i) = N(u_i, prior_std^2), Eq. 7.

    Labels are normalised. do() takes values in the units of the labels. A categorical label of K
    classes is K of the concept's dims, +1 for its class and -1 for the others; k is then at least
    the largest K, and the concept's dims beyond K are 0.
    """

    search_space: ClassVar[Mapping[str, str]] = {
        "learning_rate": "log:2e-4:2e-2",
        "batch_size": "32|64|128",
        "hidden": "128|256|512",
    }
    settings: LabelSettings
    class_seen: Tensor
    likelihood_description = (
        "Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | x, u)"
    )

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        need_labels(self.name, spec, categories=True)
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, n = self.settings, len(self.spec.variables)
        self.types = [VariableType.of(variable) for variable in self.spec.variables]
        outputs = 2 * n * self.dims
        self.encoder = self.make_encoder(settings.hidden if settings.encode_labels else outputs)
        self.label_features = sum(kind.width for kind in self.types)
        self.label_head = (
            nn.Sequential(nn.SiLU(), nn.Linear(settings.hidden + self.label_features + 1, outputs))
            if settings.encode_labels
            else None
        )
        self.build_pictures()
        if self.has_categories:
            self.register_buffer("class_seen", all_classes(self.types))

    # ---- categories ----------------------------------------------------------------------------
    @property
    def has_categories(self) -> bool:
        return any(v.kind == "categorical" for v in self.spec.variables)

    @property
    def dims(self) -> int:
        """Dims per concept, k: `settings.dims`, or more for a category with more classes."""
        widths = [VariableType.of(v).width for v in self.spec.variables]
        return max(self.settings.dims, *widths)

    def prior_mean(self, u: Tensor) -> Tensor:
        """Return the mean of p(z | u), Eq. 7: (B, n, 1), or (B, n, k) if there are categories.

        Arguments:
            u: (B, n) normalised labels.
        """
        if not self.has_categories:
            return u[..., None]
        means = [self._concept(i, u[:, i]) for i in range(u.shape[1])]
        return torch.stack(means, dim=1)

    def _concept(self, index: int, value: Tensor) -> Tensor:
        """Return the concept (B, k) of a normalised label (B,)."""
        kind = self.types[index]
        if kind.width == 1:
            return value[:, None].expand(-1, self.dims)
        signs = 2 * kind.encode(value) - 1
        return nn.functional.pad(signs, (0, self.dims - kind.width))

    def to_units(self, index: int, latent: Tensor) -> Tensor:
        kind = self.types[index]
        if kind.width == 1:
            return super().to_units(index, latent)
        return latent[:, : kind.width].argmax(1).to(latent.dtype)

    def from_units(self, index: int, value: Tensor, latent: Tensor) -> Tensor:
        kind = self.types[index]
        if kind.width == 1:
            return super().from_units(index, value, latent)
        check_classes(self.spec.variables[index], kind, self.class_seen[index], value, "do()")
        return self._concept(index, value)

    def phases(self) -> list[Phase]:
        main, *rest = super().phases()
        if self.has_categories:
            main = replace(main, prepare=self.prepare_training)
        return [main, *rest]

    def prepare_training(self, data: Dataset, seed: int) -> None:
        """Prepare the pictures, and store which classes of each variable occur in training."""
        labels = self.spec.normalise(data.train.labels.to(self.device))
        mark_classes(self.class_seen, labels, self.types)
        if self.scheduled:
            self.prepare_pictures(data, seed)

    # ---- encoder and prior ---------------------------------------------------------------------
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
            shape = (images.shape[0], self.label_features + 1)
            zeros = torch.zeros(shape, device=images.device)
            mask = zeros[:, :1] if label_mask is None else label_mask
            u = zeros[:, 1:]
            if labels is not None:
                u = encode_values(self.spec.normalise(labels), self.types)
            features = self.label_head(torch.cat([features, u * mask, mask], dim=1))
        return self.as_gaussian(features)

    def sample_label_mask(self, images: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """(B, 1): 1 for images whose labels the encoder gets in this step, 0 for `label_dropout`.

        None without `encode_labels`.
        """
        if not self.settings.encode_labels:
            return None
        draws = torch.rand(len(images), 1, device=images.device, generator=generator)
        return (draws < 1 - self.settings.label_dropout).float()

    @property
    def needs_labels(self) -> bool:
        return self.settings.encode_labels and self.settings.label_dropout == 0

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to posterior means of the concepts z (B, n, k).

        Labels are used only with `encode_labels`.
        """
        if labels is None and self.needs_labels:
            raise QueryError(
                f"this {self.name} was made with label_dropout=0, so its encoder needs the labels: "
                "pass labels=, or make it with label_dropout=0.5."
            )
        if labels is None or self.label_head is None:
            return super().encode(images)
        x = self.as_images(images)

        def means(chunk: Tensor, u: Tensor) -> Tensor:
            return self.posterior(chunk, u, torch.ones(chunk.shape[0], 1, device=chunk.device))[0]

        return self.endogenous(in_batches(means, x, self.as_labels(labels, x.shape[0])))

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
        centre = self.prior_mean(self.spec.normalise(u))
        log_variance = 2 * math.log(self.settings.prior_std)
        return self.log_ratio(
            x,
            self.posterior(x, u, torch.ones(len(x), 1, device=x.device)),
            lambda z: log_normal(z, centre, log_variance).sum((2, 3)),
            samples,
            generator,
            split_gaussian(self.rest_encoder(x)) if self.settings.rest else None,
        )
