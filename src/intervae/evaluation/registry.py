"""METRICS: every metric that `evaluate` knows, by name.

To add a metric, write its formula in metrics/, a function `measure(context)` in measures.py, and an
entry here; from outside the package, call `register_metric`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from intervae.errors import UsageError
from intervae.evaluation import counterfactual_measures, measures, requirements
from intervae.evaluation.context import Context
from intervae.evaluation.requirements import always
from intervae.metrics.base import Measurement
from intervae.registry import Registry


@dataclass(frozen=True)
class Metric:
    """An entry of METRICS.

    Arguments:
        description: one line on what is measured.
        requirements: what the model and the data must provide, in words.
        applies: whether they provide it.
        measure: the function that measures.
        on_request: whether it is measured only when named, because it is slow or rarely needed.
        default: whether it is measured without being named; decides where `on_request` is False.
    """

    description: str
    requirements: str
    applies: Callable[[Context], bool]
    measure: Callable[[Context], list[Measurement]]
    on_request: bool = False
    default: Callable[[Context], bool] = always


_LABELS = (
    "labels that vary in a test split of at least four images, "
    "and a model whose latents are variables"
)
_COUNTERFACTUAL = "a model that answers counterfactual() about the labelled variables"

_BUILT_IN_METRICS = {
    "r2": Metric(
        "R^2 of each variable measured on the images, in its own units",
        "a model whose variables are the labels, and labels that vary in the test split",
        requirements.measures_labels,
        measures.r2,
    ),
    "reconstruction": Metric(
        "mean absolute pixel error of reconstructions",
        "nothing",
        requirements.always,
        measures.reconstruction,
    ),
    "mic": Metric(
        "MIC of each label with its variable, and of shuffled labels",
        _LABELS,
        requirements.has_labels,
        measures.mic,
    ),
    "tic": Metric(
        "normalised TIC of each label with its variable, and of shuffled labels",
        _LABELS,
        requirements.has_labels,
        measures.tic,
    ),
    "counterfactual": Metric(
        "counterfactual images against the simulator: pixels, PSNR, SSIM, each variable in its own "
        "units, movement of non-descendants",
        f"data with a simulator, and {_COUNTERFACTUAL}",
        requirements.has_true_counterfactuals,
        counterfactual_measures.counterfactual,
    ),
    "outside_mask": Metric(
        "pixels that do() must not change: their error, and the share that changed",
        f"data with a simulator that names its objects, and {_COUNTERFACTUAL}",
        requirements.has_object_masks,
        counterfactual_measures.outside_mask,
    ),
    "object_layers": Metric(
        "objects of the simulator for which a layer has exactly the variables that draw them",
        "data with a simulator that names its objects, and a model with decoder=layers",
        requirements.has_layers_and_objects,
        counterfactual_measures.object_layers,
    ),
    "shd": Metric(
        "the graph against the true one: SHD, TPR, FPR, FDR",
        "data with a known graph, and a model that has one over the same variables",
        requirements.has_comparable_graph,
        measures.graph,
    ),
    "likelihood": Metric(
        "ELBO and importance-weighted bound of the log-likelihood",
        "a model that answers log_weights()",
        requirements.has_likelihood,
        measures.likelihood,
    ),
    "actions": Metric(
        "accuracy of attributed actions and of the factors they change, and of the majority class",
        "data with transitions, and a model that answers attribute()",
        requirements.has_actions,
        measures.actions,
    ),
    "heat_map": Metric(
        "heat maps of the latent linked to a column: fraction inside the true mask, and IoU",
        "data with masks, some of them in the test split, and a model whose encoder has "
        "convolutions",
        requirements.has_masks,
        measures.heat_maps,
    ),
    "active_units": Metric(
        "number of latent dims that the encoder uses",
        "at least two test images",
        requirements.has_two_images,
        measures.active_units,
    ),
    "mig": Metric(
        "mutual information gap",
        _LABELS,
        requirements.has_labels,
        measures.mig,
    ),
    "dci": Metric(
        "disentanglement, completeness and informativeness",
        f"two {_LABELS}",
        requirements.has_two_labels,
        measures.dci,
    ),
    "sap": Metric(
        "separated attribute predictability",
        _LABELS,
        requirements.has_labels,
        measures.sap,
    ),
    "irs": Metric(
        "interventional robustness score",
        _LABELS,
        requirements.has_labels,
        measures.irs,
    ),
    "mcc": Metric(
        "mean correlation of each label with its variable",
        _LABELS,
        requirements.has_labels,
        measures.mcc,
    ),
    "modularity": Metric(
        "whether each variable carries information on one label only",
        f"two {_LABELS}",
        requirements.has_two_labels,
        measures.modularity,
        on_request=True,
    ),
    "explicitness": Metric(
        "linear predictability of the labels from the variables",
        _LABELS,
        requirements.has_labels,
        measures.explicitness,
        on_request=True,
    ),
    "beta_vae_score": Metric(
        "the beta-VAE metric",
        f"two {_LABELS}",
        requirements.has_two_labels,
        measures.beta_vae_score,
        on_request=True,
    ),
    "factor_vae_score": Metric(
        "the FactorVAE metric",
        f"two {_LABELS}",
        requirements.has_two_labels,
        measures.factor_vae_score,
        on_request=True,
    ),
    "edges": Metric(
        "AUROC and AUPRC of the edges, ranked by strength",
        "data with a known graph, and a model that has one over the same variables",
        requirements.has_comparable_graph,
        measures.edges,
        on_request=True,
    ),
    "shd_permuted": Metric(
        "the graph against the true one under the best permutation of the latents",
        "data with a known graph, and a model that has one with as many variables",
        requirements.has_graph_of_equal_size,
        measures.permuted_graph,
        on_request=True,
    ),
    "diversity": Metric(
        "mean distance between samples over that between test images: near 0 for a collapsed "
        "generator",
        "at least two test images",
        requirements.has_two_images,
        measures.diversity,
        on_request=True,
    ),
    "axioms": Metric(
        "counterfactuals without truth: composition, reversibility, effectiveness, minimality, "
        "beside doing nothing and the mean picture (by default where there is no simulator)",
        f"{_COUNTERFACTUAL}, and a graph",
        requirements.has_counterfactuals_and_graph,
        counterfactual_measures.axioms,
        default=requirements.has_no_simulator,
    ),
}


def check_metric(name: str, metric: Any) -> Metric:
    """Return `metric` if it is one."""
    if not isinstance(metric, Metric):
        raise UsageError(f"{metric!r} is not an intervae.evaluation.Metric.")
    return metric


METRICS: Registry[Metric] = Registry("metric", "intervae.metrics", _BUILT_IN_METRICS, check_metric)


def register_metric(name: str, metric: Metric) -> None:
    """Register a metric, so that `evaluate` and the command line know it.

    A package can instead declare an entry point of the group "intervae.metrics", whose name is
    that of the metric and whose object is a `Metric`.
    """
    METRICS.add(name, check_metric(name, metric))
