"""Runs and tables of the papers."""

from __future__ import annotations

from typing import Any

from intervae.experiments.base import Discover, Experiment, Job, Train, find, write_table
from intervae.experiments.base import reproduce as run_experiment
from intervae.experiments.betavae import BETA_VAE_METRIC
from intervae.experiments.causal_prior_motion import CAUSAL_PRIOR_MOTION
from intervae.experiments.causal_prior_parabola import CAUSAL_PRIOR_PARABOLA
from intervae.experiments.causal_prior_sprites import CAUSAL_PRIOR_SPRITES
from intervae.experiments.causalvae import DEMO, FLOW, GRAPH, PENDULUM
from intervae.experiments.cmcl import CMCL_FIG2, CMCL_FIG3, CMCL_TABLE1, CMCL_TABLE2
from intervae.experiments.cmcl_mnist import CMCL_MNIST
from intervae.experiments.cmcl_xray import CMCL_XRAY
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.experiments.ladder import LVAE_MNIST, LVAE_NORB, LVAE_OMNIGLOT
from intervae.experiments.sachs import SACHS
from intervae.experiments.table1 import TABLE1

EXPERIMENTS: tuple[Experiment, ...] = (
    DEMO,
    PENDULUM,
    FLOW,
    GRAPH,
    TABLE1,
    BETA_VAE_METRIC,
    LVAE_MNIST,
    LVAE_OMNIGLOT,
    LVAE_NORB,
    CTVAE_TABLE1,
    CAUSAL_PRIOR_PARABOLA,
    CAUSAL_PRIOR_MOTION,
    CAUSAL_PRIOR_SPRITES,
    SACHS,
    CMCL_FIG2,
    CMCL_FIG3,
    CMCL_TABLE1,
    CMCL_TABLE2,
    CMCL_MNIST,
    CMCL_XRAY,
)


def reproduce(name: str, **options: Any) -> dict[str, Any]:
    """Run a registered experiment by name; see `run_experiment` for the options."""
    return run_experiment(find(name, EXPERIMENTS), **options)


__all__ = ["EXPERIMENTS", "Discover", "Experiment", "Job", "Train", "find", "reproduce", "run_experiment", "write_table"]
