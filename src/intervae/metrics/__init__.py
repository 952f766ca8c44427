"""Metrics on plain arrays, graphs and queries, each usable alone; most return a `Measurement`. docs/metrics.md says what each one means."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# name -> where it lives; imported when first used, so that one metric does not wait for the libraries of all others
_EXPORTS = {
    "Measurement": "base",
    "r2": "alignment",
    "mic": "information",
    "tic": "information",
    "mic_matrix": "information",
    "tic_matrix": "information",
    "mine_matrix": "information",
    "permutation_null": "information",
    "mig": "disentanglement",
    "modularity": "disentanglement",
    "irs": "disentanglement",
    "mutual_information_matrix": "disentanglement",
    "irs_matrix": "disentanglement",
    "sap": "predictors",
    "sap_matrix": "predictors",
    "explicitness": "predictors",
    "dci": "importance",
    "importance_matrix": "importance",
    "beta_vae_score": "sampled",
    "beta_vae_score_from_simulator": "sampled",
    "factor_vae_score": "sampled",
    "factor_vae_score_from_simulator": "sampled",
    "mcc": "matching",
    "match": "matching",
    "graph_metrics": "graphs",
    "edge_curves": "graphs",
    "best_frame_permutation": "permutation",
    "best_permutation": "permutation",
    "counterfactual_errors": "counterfactual",
    "latent_movement": "counterfactual",
    "random_interventions": "counterfactual",
    "pixel_mae": "pictures",
    "psnr": "pictures",
    "ssim": "pictures",
    "Reader": "reader",
    "fit_reader": "reader",
    "simulator_reader": "reader",
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
    "concept_information": "concepts",
    "diversity": "collapse",
    "heat_map_energy": "heat_maps",
    "heat_map_iou": "heat_maps",
    "mode_shares": "collapse",
}

__all__ = [*_EXPORTS]

if TYPE_CHECKING:
    from intervae.metrics.actions import action_accuracy as action_accuracy
    from intervae.metrics.actions import confusion_matrix as confusion_matrix
    from intervae.metrics.actions import factor_accuracy as factor_accuracy
    from intervae.metrics.alignment import r2 as r2
    from intervae.metrics.axioms import composition as composition
    from intervae.metrics.axioms import effectiveness as effectiveness
    from intervae.metrics.axioms import minimality as minimality
    from intervae.metrics.axioms import reversibility as reversibility
    from intervae.metrics.base import Measurement as Measurement
    from intervae.metrics.collapse import diversity as diversity
    from intervae.metrics.collapse import mode_shares as mode_shares
    from intervae.metrics.concepts import concept_information as concept_information
    from intervae.metrics.counterfactual import counterfactual_errors as counterfactual_errors
    from intervae.metrics.counterfactual import latent_movement as latent_movement
    from intervae.metrics.counterfactual import random_interventions as random_interventions
    from intervae.metrics.disentanglement import irs as irs
    from intervae.metrics.disentanglement import irs_matrix as irs_matrix
    from intervae.metrics.disentanglement import mig as mig
    from intervae.metrics.disentanglement import modularity as modularity
    from intervae.metrics.disentanglement import mutual_information_matrix as mutual_information_matrix
    from intervae.metrics.graphs import edge_curves as edge_curves
    from intervae.metrics.graphs import graph_metrics as graph_metrics
    from intervae.metrics.heat_maps import heat_map_energy as heat_map_energy
    from intervae.metrics.heat_maps import heat_map_iou as heat_map_iou
    from intervae.metrics.importance import dci as dci
    from intervae.metrics.importance import importance_matrix as importance_matrix
    from intervae.metrics.information import mic as mic
    from intervae.metrics.information import mic_matrix as mic_matrix
    from intervae.metrics.information import mine_matrix as mine_matrix
    from intervae.metrics.information import permutation_null as permutation_null
    from intervae.metrics.information import tic as tic
    from intervae.metrics.information import tic_matrix as tic_matrix
    from intervae.metrics.likelihood import active_units as active_units
    from intervae.metrics.likelihood import elbo as elbo
    from intervae.metrics.likelihood import likelihood_bounds as likelihood_bounds
    from intervae.metrics.likelihood import log_likelihood as log_likelihood
    from intervae.metrics.matching import match as match
    from intervae.metrics.matching import mcc as mcc
    from intervae.metrics.permutation import best_frame_permutation as best_frame_permutation
    from intervae.metrics.permutation import best_permutation as best_permutation
    from intervae.metrics.pictures import pixel_mae as pixel_mae
    from intervae.metrics.pictures import psnr as psnr
    from intervae.metrics.pictures import ssim as ssim
    from intervae.metrics.predictors import explicitness as explicitness
    from intervae.metrics.predictors import sap as sap
    from intervae.metrics.predictors import sap_matrix as sap_matrix
    from intervae.metrics.reader import Reader as Reader
    from intervae.metrics.reader import fit_reader as fit_reader
    from intervae.metrics.reader import simulator_reader as simulator_reader
    from intervae.metrics.sampled import beta_vae_score as beta_vae_score
    from intervae.metrics.sampled import beta_vae_score_from_simulator as beta_vae_score_from_simulator
    from intervae.metrics.sampled import factor_vae_score as factor_vae_score
    from intervae.metrics.sampled import factor_vae_score_from_simulator as factor_vae_score_from_simulator


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"intervae.metrics.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'intervae.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
