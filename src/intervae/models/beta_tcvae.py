"""beta-TCVAE (Chen et al. 2018): a VAE with an extra weight on the total correlation.

The KL to the prior is split into mutual information, total correlation and dimension-wise KL
(Eq. 2), and the total correlation is weighted by beta (Eq. 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from intervae.data import Batch, Dataset
from intervae.models import printed_vaes
from intervae.models.phases import Phase, Terms
from intervae.models.vae import VAE, VAESettings
from intervae.nets.latents import Sampling, decompose_kl, mixture_log_weights
from intervae.settings import check_minimum, setting


@dataclass(frozen=True)
class BetaTCVAESettings(VAESettings):
    """Settings of beta-TCVAE; the paper's symbols in brackets."""

    beta: float = setting(6.0, "weight of the total correlation [beta]")
    information_weight: float = setting(
        1.0, "weight of the mutual information between images and latents [alpha]"
    )
    dimension_weight: float = setting(1.0, "weight of the dimension-wise KL [gamma]")
    sampling: Sampling = setting(
        "weighted", "minibatch estimator of q(z): weighted or stratified sampling", advanced=True
    )
    warm_up_steps: int = setting(0, "steps over which beta rises from 0", advanced=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minimum(self, beta=0, information_weight=0, dimension_weight=0, warm_up_steps=0)


class BetaTCVAE(VAE):
    """beta-TCVAE: -log p(x | z) + alpha I(x; z) + beta TC(z) + gamma sum_d KL(q(z_d) || p(z_d)).

    The sums run over all n k dims. q(z) is estimated from the batch and the number of training
    samples, which is a buffer.
    """

    name = "beta-tcvae"
    title = "beta-TCVAE (Chen et al. 2018): a weight on the total correlation of the latents"
    Settings = BetaTCVAESettings
    presets = printed_vaes.BETA_TCVAE
    settings: BetaTCVAESettings
    training_samples: Tensor

    def build(self) -> None:
        super().build()
        # N; 1 until training counts the samples, then a batch is taken for the whole data
        self.register_buffer("training_samples", torch.ones(()))

    def regularisation(
        self,
        mean: Tensor,
        log_variance: Tensor,
        z: Tensor,
        batch: Batch,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Terms]:
        settings = self.settings
        log_weights = mixture_log_weights(len(z), self.training_samples, settings.sampling)
        decomposition = decompose_kl(
            z.flatten(1).float(),
            mean.flatten(1).float(),
            log_variance.flatten(1).float(),
            log_weights,
        )
        terms = {name: value.mean() for name, value in decomposition._asdict().items()}
        correlation = settings.beta * terms["total_correlation"]
        if settings.warm_up_steps:
            correlation = correlation * (batch["step"] / settings.warm_up_steps).clamp(max=1.0)
        total = (
            settings.information_weight * terms["mutual_information"]
            + correlation
            + settings.dimension_weight * terms["dimension_kl"]
        )
        return total, terms

    def phases(self) -> list[Phase]:
        return [Phase("count", prepare=self.count_samples), *super().phases()]

    def count_samples(self, data: Dataset, seed: int) -> None:
        """Store N, the size of the training split."""
        self.training_samples.fill_(len(data.train))
