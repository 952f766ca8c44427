"""A VAE with random weights, a baseline for metrics of representations."""

from __future__ import annotations

from intervae.models.phases import Phase
from intervae.models.vae import VAE


class UntrainedVAE(VAE):
    """VAE that is never trained; `fit` only draws its weights from the seed.

    It takes the settings of `vae`; those of the training have no effect.
    """

    name = "untrained-vae"
    title = "untrained VAE: random weights, a baseline for metrics"

    def phases(self) -> list[Phase]:
        return []
