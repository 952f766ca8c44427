"""beta-TCVAE (Chen et al. 2018): the VAE's KL split into mutual information, total correlation (weighted by beta) and dimension-wise KL."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from intervae.data.base import Batch, Dataset
from intervae.errors import UsageError
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.latents import Sampling, mixture_log_weights, split_divergence


@dataclass(frozen=True)
class BetaTCVAESettings(VAESettings):
    """Settings of beta-TCVAE; the paper's symbol in brackets."""

    beta: float = 6.0  # weight of the total correlation
    information_weight: float = 1.0  # of the mutual information between images and latents [alpha]
    dimension_weight: float = 1.0  # of the KL of each dim's marginal [gamma]
    sampling: Sampling = "weighted"  # how q(z) is estimated from a batch, see `mixture_log_weights`
    warm_up_steps: int = 0  # steps over which beta rises from 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta", "information_weight", "dimension_weight", "warm_up_steps"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name}={getattr(self, name)} must be 0 or more.")


class BetaTCVAE(VAE):
    """-log p(x | z) + alpha I(x; z) + beta TC(z) + gamma sum_d KL(q(z_d) || p(z_d)), all n k dims taken as separate ones.

    q(z) is estimated from the batch and the number of training samples, which the model keeps as a buffer.
    """

    name = "beta-tcvae"
    title = "beta-TCVAE (Chen et al. 2018): a weight on the total correlation of the latents"
    Settings = BetaTCVAESettings
    settings: BetaTCVAESettings
    training_samples: Tensor

    def build(self) -> None:
        super().build()
        self.register_buffer("training_samples", torch.ones(()))  # N, a batch counts as whole data before the model has seen any

    def regularisation(self, mean: Tensor, log_variance: Tensor, z: Tensor, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Terms]:
        settings = self.settings
        log_weights = mixture_log_weights(len(z), self.training_samples, settings.sampling)
        parts = split_divergence(z.flatten(1).float(), mean.flatten(1).float(), log_variance.flatten(1).float(), log_weights)
        terms = {name: part.mean() for name, part in parts._asdict().items()}
        correlation = settings.beta * terms["total_correlation"]
        if settings.warm_up_steps:
            correlation = correlation * (batch["step"] / settings.warm_up_steps).clamp(max=1.0)
        added = settings.information_weight * terms["mutual_information"] + correlation + settings.dimension_weight * terms["dimension_kl"]
        return added, terms

    def phases(self) -> list[Phase]:
        return [Phase("count", prepare=self.count_samples), *super().phases()]

    def count_samples(self, data: Dataset, seed: int) -> None:
        """Keep N, the size of the training split."""
        self.training_samples.fill_(len(data.train))
