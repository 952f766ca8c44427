"""ConditionVAE, the baseline of CausalVAE's Table 1 (Yang et al. 2021, sec. 6.1, after Sohn et al. 2015): labels in the prior, no causal layer.

Shapes: B images, n concepts, k dims per concept. Reduction everywhere: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from intervae.causal.gaussian import kl_diagonal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.data.base import Batch
from intervae.models.concepts import LabelledConcepts, LabelSettings
from intervae.models.phases import Terms


@dataclass(frozen=True)
class ConditionVAESettings(LabelSettings):
    """Settings of ConditionVAE: those of CausalVAE that do not belong to its graph, with the same defaults."""


class ConditionVAE(LabelledConcepts):
    """CausalVAE without its causal layer: networks, latents, labels and pixel terms are the same, z = eps, and there is no A.

    The paper says of it only that it has no causal layer, that its prior is conditioned on the labels, and that it has as many latents. So
    p(z | u) is Eq. 7 and the encoder sees what CausalVAE's sees; the decoder sees z alone (in Sohn et al. it sees u as well, which would
    leave nothing of u for z to tell).

    Its graph has no edges: do() sets the concept and nothing follows, every other latent stays bit for bit. That is what a comparison with
    CausalVAE shows: both read the concepts, one knows their effects.

    Arguments:
        spec: `data.spec`; its variables must be continuous or binary.
        settings: see `ConditionVAESettings`.
    """

    name = "condition-vae"
    title = "ConditionVAE (baseline of Yang et al. 2021): labelled concepts without causes among them"
    Settings = ConditionVAESettings
    settings: ConditionVAESettings

    def build(self) -> None:
        super().build()
        self.make_noise_bank()

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z) + KL(q(z | x) || p(z | u)), p(z | u) as in Eq. 7, and our absolute pixel error."""
        settings, images = self.settings, batch["images"]
        u = self.spec.normalise(batch["labels"])  # (B, n)
        mean, log_variance = self.posterior(images, batch["labels"], self.draw_seen(images, generator))
        z = reparametrise(mean, log_variance, generator)
        reconstruction, pixels = self.pixel_terms(self.decoder(z.flatten(1)), images)
        prior = kl_diagonal(mean, log_variance, u[..., None], 2 * math.log(settings.prior_std)).mean()
        total = reconstruction + settings.sharpness * pixels + settings.prior_weight * prior
        return {"loss": total, "reconstruction": reconstruction, "absolute_error": pixels, "kl_prior": prior}

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """No edges, whatever the data."""
        return CausalGraph.empty(self.latent_names)

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """Zero: nothing is caused."""
        return torch.zeros_like(latents[:, index])

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Whole rows of the training split's latents: with no edges to make them hang together, concepts drawn one by one would leave the data."""
        bank = self.noise_bank.cpu()
        return bank[torch.randint(len(bank), (n,), generator=generator)]
