"""CausalVAE-unsup, the baseline of CausalVAE's Table 1 (Yang et al. 2021, sec. 6.1): its causal layer, without labels.

Shapes: B images, n latents called z0, z1, ..., k dims each. Reduction everywhere: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from intervae.causal.acyclicity import polynomial
from intervae.causal.gaussian import kl_pushed_forward, kl_standard_normal, log_normal, reparametrise
from intervae.causal.linear import to_endogenous, to_exogenous
from intervae.data.base import Batch
from intervae.models.concepts import CausalLayer, CausalLayerSettings
from intervae.models.phases import Terms


@dataclass(frozen=True)
class CausalVAEUnsupSettings(CausalLayerSettings):
    """Settings of CausalVAE-unsup: those of CausalVAE that need no labels, with the same defaults, and what the paper leaves open."""

    latents: int = 4  # number of latent variables [n]; the paper's data sets have four concepts
    prior_weight: float = 1.0  # of KL(q(z) || N(0, I)), which stands in for p(z | u); 0 removes it without a substitute
    mask_layer: bool = False  # whether the mask layer and its fit l_m stay; the paper removes them, do() then follows the linear layer
    patience: int | None = (
        None  # epochs without a better validation loss; none, as the loss of unlabelled latents stands still for long before it falls
    )


class CausalVAEUnsup(CausalLayer):
    """CausalVAE "except that the Mask Layer and the supervision conditional prior p(z|u) are removed" (sec. 6.1).

    That sentence is all the paper says, and it leaves open:

    - what takes the place of p(z | u). Here N(0, I): eps and z are both charged for, as in Eq. 10 (at A = 0 that is twice a VAE's KL), and the
      charge for z keeps A small. `prior_weight=0` takes it out; then the decoder can undo any (I - A^T)^-1 and A drifts freely.
    - how A is learned. l_u has no labels and l_m no mask layer, so A moves by the ELBO and H(A) (Eq. 13) alone, from A = 0 as in "joint"
      CausalVAE. `mask_layer=true` keeps Eq. 2 and l_m, for those who read "removed" as said of the supervision only.
    - how many latents: we take CausalVAE's, four of `dims` each.

    Under every reading nothing ties A to causes: it is no more identified than the rotation of a VAE's latents, and its graph is often
    empty. Latents are in units of their own (the mean over the k dims), and so is do().

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `CausalVAEUnsupSettings`.
    """

    name = "causal-vae-unsup"
    title = "CausalVAE-unsup (baseline of Yang et al. 2021): the causal layer among unlabelled latents"
    Settings = CausalVAEUnsupSettings
    settings: CausalVAEUnsupSettings

    def build(self) -> None:
        self.encoder = self.make_encoder(2 * self.settings.latents * self.settings.dims)
        self.decoder = self.make_decoder()
        self.mechanisms = self.make_mechanisms() if self.settings.mask_layer else None
        self.make_adjacency()
        self.make_noise_bank()

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14 without labels: -log p(x | z) + KL(q(eps) || N(0, I)) + KL(q(z) || N(0, I)) + alpha H(A), and our absolute pixel error."""
        settings, images, weights = self.settings, batch["images"], self.weights
        mean, log_variance = self.posterior(images)
        z = to_endogenous(reparametrise(mean, log_variance, generator), weights)  # Eq. 1
        reconstruction, pixels = self.pixel_terms(self.decoder(z.flatten(1)), images)
        noise = kl_standard_normal(mean, log_variance).mean()
        prior = kl_pushed_forward(mean, log_variance, weights, 0.0, 0.0).mean()
        acyclicity = polynomial(weights)
        total = (
            reconstruction
            + settings.sharpness * pixels
            + settings.noise_weight * noise
            + settings.prior_weight * prior
            + settings.acyclicity_weight * acyclicity
        )
        terms = {"reconstruction": reconstruction, "absolute_error": pixels, "kl_noise": noise, "kl_prior": prior, "acyclicity": acyclicity}
        if settings.mask_layer:
            terms["mechanism_fit"] = self.mechanism_fit(z)
            total = total + settings.mechanism_weight * terms["mechanism_fit"]
        return {"loss": total, **terms}

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> torch.Tensor:
        """Likelihood p(x) where eps ~ N(0, I) and z = (I - A^T)^-1 eps: log p(x | z) + log p(eps) - log q(eps | x), (samples, B).

        N(0, I) on z instead would be another model, one in which A plays no part; the loss charges for both, and so bounds neither. The
        absolute pixel error of the loss is no part of it. Labels are not used.
        """
        x = self.as_images(images)

        def log_prior(z: torch.Tensor) -> torch.Tensor:
            return log_normal(to_exogenous(z, self.weights), 0.0, 0.0).sum((2, 3)) + z.shape[-1] * self.log_det()

        return self.log_ratio(x, self.posterior(x), log_prior, samples, generator)
