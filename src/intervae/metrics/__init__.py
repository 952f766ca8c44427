"""Metrics on arrays, graphs and queries; most return a `Measurement`. See docs/metrics.md.

evaluation/registry.py lists the metrics that `intervae evaluate` reports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# name -> module; imported on first use, so that a metric loads only the libraries it needs
_EXPORTS = {
    "Measurement": "base",
    "r2": "r_squared",
    "mic": "maximal_information",
    "tic": "maximal_information",
    "mic_matrix": "maximal_information",
    "tic_matrix": "maximal_information",
    "mine_matrix": "maximal_information",
    "permutation_null": "maximal_information",
    "mig": "disentanglement",
    "modularity": "disentanglement",
    "irs": "disentanglement",
    "mutual_information_matrix": "disentanglement",
    "irs_matrix": "disentanglement",
    "sap": "sap_explicitness",
    "sap_matrix": "sap_explicitness",
    "explicitness": "sap_explicitness",
    "dci": "dci_importance",
    "importance_matrix": "dci_importance",
    "beta_vae_score": "beta_factor_vae_scores",
    "beta_vae_score_from_simulator": "beta_factor_vae_scores",
    "factor_vae_score": "beta_factor_vae_scores",
    "factor_vae_score_from_simulator": "beta_factor_vae_scores",
    "mcc": "matching",
    "match": "matching",
    "graph_metrics": "graphs",
    "edge_curves": "graphs",
    "best_frame_permutation": "graph_permutation",
    "best_permutation": "graph_permutation",
    "counterfactual_errors": "counterfactual",
    "latent_movement": "counterfactual",
    "random_interventions": "interventions",
    "outside_mask_errors": "outside_mask",
    "object_layers": "layers_and_objects",
    "pixel_mae": "image_similarity",
    "psnr": "image_similarity",
    "ssim": "image_similarity",
    "ImageRegressor": "image_regressor",
    "fit_image_regressor": "image_regressor",
    "simulator_regressor": "image_regressor",
    "Morphometry": "digit_morphometry",
    "MorphometryRegressor": "digit_morphometry",
    "morphometry": "digit_morphometry",
    "VariableNetworks": "variable_networks",
    "fit_variable_networks": "variable_networks",
    "CellReader": "counterfactual_cells",
    "true_counterfactuals": "counterfactual_cells",
    "AttributeClassifier": "attribute_classifier",
    "fit_attribute_classifier": "attribute_classifier",
    "counterfactual_attributes": "attribute_scores",
    "composition": "axioms",
    "reversibility": "axioms",
    "effectiveness": "axioms",
    "minimality": "axioms",
    "likelihood_bounds": "likelihood",
    "elbo": "likelihood",
    "log_likelihood": "likelihood",
    "active_units": "likelihood",
    "action_accuracy": "actions",
    "factor_accuracy": "actions",
    "confusion_matrix": "actions",
    "concept_information": "concept_mic_tic",
    "diversity": "sample_diversity",
    "heat_map_energy": "heat_map_overlap",
    "heat_map_iou": "heat_map_overlap",
    "mode_shares": "sample_diversity",
}

__all__ = [*_EXPORTS]

if TYPE_CHECKING:
    from intervae.metrics.actions import action_accuracy as action_accuracy
    from intervae.metrics.actions import confusion_matrix as confusion_matrix
    from intervae.metrics.actions import factor_accuracy as factor_accuracy
    from intervae.metrics.attribute_classifier import AttributeClassifier as AttributeClassifier
    from intervae.metrics.attribute_classifier import (
        fit_attribute_classifier as fit_attribute_classifier,
    )
    from intervae.metrics.attribute_scores import (
        counterfactual_attributes as counterfactual_attributes,
    )
    from intervae.metrics.axioms import composition as composition
    from intervae.metrics.axioms import effectiveness as effectiveness
    from intervae.metrics.axioms import minimality as minimality
    from intervae.metrics.axioms import reversibility as reversibility
    from intervae.metrics.base import Measurement as Measurement
    from intervae.metrics.beta_factor_vae_scores import beta_vae_score as beta_vae_score
    from intervae.metrics.beta_factor_vae_scores import (
        beta_vae_score_from_simulator as beta_vae_score_from_simulator,
    )
    from intervae.metrics.beta_factor_vae_scores import factor_vae_score as factor_vae_score
    from intervae.metrics.beta_factor_vae_scores import (
        factor_vae_score_from_simulator as factor_vae_score_from_simulator,
    )
    from intervae.metrics.concept_mic_tic import concept_information as concept_information
    from intervae.metrics.counterfactual import counterfactual_errors as counterfactual_errors
    from intervae.metrics.counterfactual import latent_movement as latent_movement
    from intervae.metrics.counterfactual_cells import CellReader as CellReader
    from intervae.metrics.counterfactual_cells import true_counterfactuals as true_counterfactuals
    from intervae.metrics.dci_importance import dci as dci
    from intervae.metrics.dci_importance import importance_matrix as importance_matrix
    from intervae.metrics.digit_morphometry import Morphometry as Morphometry
    from intervae.metrics.digit_morphometry import MorphometryRegressor as MorphometryRegressor
    from intervae.metrics.digit_morphometry import morphometry as morphometry
    from intervae.metrics.disentanglement import irs as irs
    from intervae.metrics.disentanglement import irs_matrix as irs_matrix
    from intervae.metrics.disentanglement import mig as mig
    from intervae.metrics.disentanglement import modularity as modularity
    from intervae.metrics.disentanglement import (
        mutual_information_matrix as mutual_information_matrix,
    )
    from intervae.metrics.graph_permutation import best_frame_permutation as best_frame_permutation
    from intervae.metrics.graph_permutation import best_permutation as best_permutation
    from intervae.metrics.graphs import edge_curves as edge_curves
    from intervae.metrics.graphs import graph_metrics as graph_metrics
    from intervae.metrics.heat_map_overlap import heat_map_energy as heat_map_energy
    from intervae.metrics.heat_map_overlap import heat_map_iou as heat_map_iou
    from intervae.metrics.image_regressor import ImageRegressor as ImageRegressor
    from intervae.metrics.image_regressor import fit_image_regressor as fit_image_regressor
    from intervae.metrics.image_regressor import simulator_regressor as simulator_regressor
    from intervae.metrics.image_similarity import pixel_mae as pixel_mae
    from intervae.metrics.image_similarity import psnr as psnr
    from intervae.metrics.image_similarity import ssim as ssim
    from intervae.metrics.interventions import random_interventions as random_interventions
    from intervae.metrics.layers_and_objects import object_layers as object_layers
    from intervae.metrics.likelihood import active_units as active_units
    from intervae.metrics.likelihood import elbo as elbo
    from intervae.metrics.likelihood import likelihood_bounds as likelihood_bounds
    from intervae.metrics.likelihood import log_likelihood as log_likelihood
    from intervae.metrics.matching import match as match
    from intervae.metrics.matching import mcc as mcc
    from intervae.metrics.maximal_information import mic as mic
    from intervae.metrics.maximal_information import mic_matrix as mic_matrix
    from intervae.metrics.maximal_information import mine_matrix as mine_matrix
    from intervae.metrics.maximal_information import permutation_null as permutation_null
    from intervae.metrics.maximal_information import tic as tic
    from intervae.metrics.maximal_information import tic_matrix as tic_matrix
    from intervae.metrics.outside_mask import outside_mask_errors as outside_mask_errors
    from intervae.metrics.r_squared import r2 as r2
    from intervae.metrics.sample_diversity import diversity as diversity
    from intervae.metrics.sample_diversity import mode_shares as mode_shares
    from intervae.metrics.sap_explicitness import explicitness as explicitness
    from intervae.metrics.sap_explicitness import sap as sap
    from intervae.metrics.sap_explicitness import sap_matrix as sap_matrix
    from intervae.metrics.variable_networks import VariableNetworks as VariableNetworks
    from intervae.metrics.variable_networks import fit_variable_networks as fit_variable_networks


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"intervae.metrics.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'intervae.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
