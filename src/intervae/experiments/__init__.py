"""Experiments of the papers: their tables and figures, run again and compared."""

from __future__ import annotations

from typing import Any

from intervae.experiments.as_printed import AS_PRINTED
from intervae.experiments.base import Experiment, Job, MetricKey, Numbers, find_experiment
from intervae.experiments.betavae import BETA_VAE_METRIC
from intervae.experiments.betavae_protocol import BETA_VAE_PROTOCOL
from intervae.experiments.betavae_sweep import BETA_VAE_SWEEP
from intervae.experiments.causal_prior_images import CAUSAL_PRIOR_BOWL, CAUSAL_PRIOR_LEARNED
from intervae.experiments.causal_prior_motion import CAUSAL_PRIOR_MOTION
from intervae.experiments.causal_prior_parabola import CAUSAL_PRIOR_PARABOLA
from intervae.experiments.causal_prior_sprites import CAUSAL_PRIOR_SPRITES
from intervae.experiments.causal_prior_worlds import WORLDS
from intervae.experiments.causalvae import DEMO, FLOW, GARDEN, GRAPH, PENDULUM
from intervae.experiments.causalvae_celeba import CELEBA_GRAPH
from intervae.experiments.causalvae_table1 import TABLE1
from intervae.experiments.cmcl import CMCL_FIG2, CMCL_FIG3, CMCL_TABLE1, CMCL_TABLE2
from intervae.experiments.cmcl_contrast import CMCL_CONTRAST
from intervae.experiments.cmcl_mnist import CMCL_MNIST
from intervae.experiments.cmcl_readers import CMCL_FOLDED, COVID_READERS
from intervae.experiments.cmcl_xray import CMCL_XRAY
from intervae.experiments.counterfactual_celeba import COUNTERFACTUAL_CELEBA
from intervae.experiments.counterfactual_morphomnist import COUNTERFACTUAL_MORPHOMNIST
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.experiments.ctvae_factors import CTVAE_FIG4
from intervae.experiments.ctvae_masks import CTVAE_MASKS
from intervae.experiments.jobs import Discover, Train
from intervae.experiments.ladder import LVAE_MNIST, LVAE_NORB, LVAE_OMNIGLOT
from intervae.experiments.run import run_experiment
from intervae.experiments.sachs import SACHS
from intervae.experiments.samples_under_do import SAMPLES_UNDER_DO
from intervae.experiments.write import results_page, write_table

EXPERIMENTS: tuple[Experiment, ...] = (
    DEMO,
    PENDULUM,
    FLOW,
    GARDEN,
    GRAPH,
    CELEBA_GRAPH,
    TABLE1,
    BETA_VAE_METRIC,
    BETA_VAE_PROTOCOL,
    BETA_VAE_SWEEP,
    LVAE_MNIST,
    LVAE_OMNIGLOT,
    LVAE_NORB,
    CTVAE_TABLE1,
    CTVAE_FIG4,
    CTVAE_MASKS,
    CAUSAL_PRIOR_PARABOLA,
    CAUSAL_PRIOR_BOWL,
    CAUSAL_PRIOR_LEARNED,
    CAUSAL_PRIOR_MOTION,
    *WORLDS,
    CAUSAL_PRIOR_SPRITES,
    SACHS,
    CMCL_FIG2,
    CMCL_FIG3,
    CMCL_TABLE1,
    CMCL_TABLE2,
    CMCL_CONTRAST,
    CMCL_FOLDED,
    CMCL_MNIST,
    CMCL_XRAY,
    COVID_READERS,
    COUNTERFACTUAL_CELEBA,
    COUNTERFACTUAL_MORPHOMNIST,
    SAMPLES_UNDER_DO,
    *AS_PRINTED,
)


def reproduce(name: str, **options: Any) -> dict[str, Any]:
    """Run a registered experiment by its name; see `run_experiment` for the options."""
    return run_experiment(find_experiment(name, EXPERIMENTS), **options)


__all__ = [
    "EXPERIMENTS",
    "Discover",
    "Experiment",
    "Job",
    "MetricKey",
    "Numbers",
    "Train",
    "find_experiment",
    "reproduce",
    "results_page",
    "run_experiment",
    "write_table",
]
