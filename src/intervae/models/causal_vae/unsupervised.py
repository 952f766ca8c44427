"""CausalVAE-unsup (Yang et al. 2021, sec. 6.1): CausalVAE without labels and without mask layer.

The unsupervised baseline of Table 1.
Shapes: B images, n latents called z0, z1, ..., k dims per latent.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from intervae.causal.acyclicity import polynomial
from intervae.causal.gaussian import (
    kl_pushed_forward,
    kl_standard_normal,
    log_normal,
    reparametrise,
)
from intervae.causal.linear import to_endogenous, to_exogenous
from intervae.data import Batch
from intervae.models.causal_vae.causal_layer import CausalLayer
from intervae.models.causal_vae.presets import CAUSAL_VAE_UNSUP
from intervae.models.causal_vae.settings import CausalLayerSettings
from intervae.models.phases import Terms
from intervae.settings import setting


@dataclass(frozen=True)
class CausalVAEUnsupSettings(CausalLayerSettings):
    """Settings of CausalVAE-unsup: those of CausalVAE without labels, with the same defaults."""

    latents: int = setting(4, "number of latent variables [n]")
    prior_weight: float = setting(
        1.0, "weight of KL(q(z) || N(0, I)), the replacement of p(z | u); 0 removes it"
    )
    mask_layer: bool = setting(
        False, "mask layer and its fit l_m; without it effects follow the linear layer"
    )
    patience: int | None = setting(
        None, "epochs without a lower validation loss before stopping; none disables", advanced=True
    )


class CausalVAEUnsup(CausalLayer):
    """CausalVAE "except that the Mask Layer and [...] p(z|u) are removed" (sec. 6.1).

    The prior of z is N(0, I) instead of p(z | u). A is learned from the ELBO and H(A) alone, from
    A = 0. Nothing identifies A as causal; its graph is often empty. Latents, and so the values of
    do(), are in units of their own: the mean over the k dims. docs/causal-vae.md lists the other
    readings of the paper's sentence.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `CausalVAEUnsupSettings`.
    """

    name = "causal-vae-unsup"
    anonymous_latents = True
    title = (
        "CausalVAE-unsup (baseline of Yang et al. 2021): the causal layer among unlabelled latents"
    )
    Settings = CausalVAEUnsupSettings
    presets = CAUSAL_VAE_UNSUP
    settings: CausalVAEUnsupSettings
    likelihood_description = "Likelihood p(x): log p(x | z) + log p(eps) - log q(eps | x)"

    def build(self) -> None:
        self.encoder = self.make_encoder(2 * self.settings.latents * self.dims)
        self.decoder = self.make_decoder()
        self.mechanisms = self.make_mechanisms() if self.settings.mask_layer else None
        self.make_adjacency()
        self.make_noise_bank()

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14 without labels.

        -log p(x | z) + KL(q(eps) || N(0, I)) + KL(q(z) || N(0, I)) + alpha H(A), plus the absolute
        pixel error, which the paper does not have.
        """
        settings, weights = self.settings, self.weights
        mean, log_variance = self.posterior(batch["images"])
        z = to_endogenous(reparametrise(mean, log_variance, generator), weights)  # Eq. 1
        pixels, pixel_terms = self.pixel_terms(z, batch, generator)
        noise = kl_standard_normal(mean, log_variance).mean()
        prior = kl_pushed_forward(mean, log_variance, weights, 0.0, 0.0).mean()
        acyclicity = polynomial(weights)
        total = (
            pixels
            + settings.noise_weight * noise
            + settings.prior_weight * prior
            + settings.acyclicity_weight * acyclicity
        )
        terms = {
            **pixel_terms,
            "kl_noise": noise,
            "kl_prior": prior,
            "acyclicity": acyclicity,
        }
        if settings.mask_layer:
            terms["mechanism_fit"] = self.mechanism_fit(z)
            total = total + settings.mechanism_weight * terms["mechanism_fit"]
        return {"loss": total, **terms}

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Importance weights of p(x): log p(x | z) + log p(eps) - log q(eps | x), (samples, B).

        The model is eps ~ N(0, I), z = (I - A^T)^-1 eps. Labels are not used.
        """
        x = self.as_images(images)

        def log_prior(z: Tensor) -> Tensor:
            log_density = log_normal(to_exogenous(z, self.weights), 0.0, 0.0).sum((2, 3))
            return log_density + z.shape[-1] * self.log_det()

        return self.log_ratio(x, self.posterior(x), log_prior, samples, generator)
