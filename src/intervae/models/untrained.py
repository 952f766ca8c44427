"""The VAE with its random weights: what an architecture alone, without any learning, scores on a metric."""

from __future__ import annotations

from intervae.models.phases import Phase
from intervae.models.vae import VAE


class UntrainedVAE(VAE):
    """A VAE that is never trained; `fit` draws its weights from the seed and leaves them.

    Its settings are those of `vae`, so that both can be given the same; those of the training do nothing.
    """

    name = "untrained-vae"
    title = "untrained VAE: random weights, a floor for metrics"
    learns = False

    def phases(self) -> list[Phase]:
        return []
