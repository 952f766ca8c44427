"""ConditionVAE (Yang et al. 2021, sec. 6.1): CausalVAE without its causal layer.

The baseline of Table 1 with labels in the prior, after Sohn et al. (2015).
Shapes: B images, n concepts, k dims per concept.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from intervae.causal.gaussian import kl_diagonal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.data import Batch
from intervae.models.causal_vae.labelled import LabelledConcepts
from intervae.models.causal_vae.presets import CONDITION_VAE
from intervae.models.causal_vae.settings import LabelSettings
from intervae.models.phases import Terms


@dataclass(frozen=True)
class ConditionVAESettings(LabelSettings):
    """Settings of ConditionVAE: those of CausalVAE without the graph, with the same defaults."""


class ConditionVAE(LabelledConcepts):
    """CausalVAE with z = eps and without A: the same networks, labels, prior and pixel terms.

    Its graph has no edges: do() sets a concept and leaves all other latents bit for bit unchanged.

    Arguments:
        spec: `data.spec`; its variables are continuous, binary or categorical.
        settings: see `ConditionVAESettings`.
    """

    name = "condition-vae"
    title = (
        "ConditionVAE (baseline of Yang et al. 2021): labelled concepts without causes among them"
    )
    Settings = ConditionVAESettings
    presets = CONDITION_VAE
    settings: ConditionVAESettings

    def build(self) -> None:
        super().build()
        self.make_noise_bank()

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z) + KL(q(z | x) || p(z | u)) with the prior of Eq. 7.

        Plus the absolute pixel error, which the paper does not have.
        """
        settings, images = self.settings, batch["images"]
        u = self.spec.normalise(batch["labels"])  # (B, n)
        mean, log_variance = self.posterior(
            images, batch["labels"], self.sample_label_mask(images, generator)
        )
        z = reparametrise(mean, log_variance, generator)
        pixels, pixel_terms = self.pixel_terms(z, batch, generator)
        prior = kl_diagonal(
            mean, log_variance, self.prior_mean(u), 2 * math.log(settings.prior_std)
        ).mean()
        total = pixels + settings.prior_weight * prior
        return {"loss": total, **pixel_terms, "kl_prior": prior}

    # ---- queries -------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """The graph without edges."""
        return CausalGraph.empty(self.latent_names)

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """Zeros (B, k): no concept has a cause."""
        return torch.zeros_like(latents[:, index])

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Latents (n, variables, k) of random training images, all variables of one image."""
        bank = self.noise_bank.cpu()
        return bank[torch.randint(len(bank), (n,), generator=generator)]
