"""Metrics on plain arrays, graphs and queries, each usable alone; most return a `Measurement`. docs/metrics.md says what each one means."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# name -> where it lives; imported when first used, so that one metric does not wait for the libraries of all others
_EXPORTS = {
    "Measurement": "base",
    "r2": "alignment",
    "counterfactual_pixel_mae": "counterfactual",
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
    "best_permutation": "permutation",
}

__all__ = [*_EXPORTS]

if TYPE_CHECKING:
    from intervae.metrics.alignment import r2 as r2
    from intervae.metrics.base import Measurement as Measurement
    from intervae.metrics.counterfactual import counterfactual_pixel_mae as counterfactual_pixel_mae
    from intervae.metrics.disentanglement import irs as irs
    from intervae.metrics.disentanglement import irs_matrix as irs_matrix
    from intervae.metrics.disentanglement import mig as mig
    from intervae.metrics.disentanglement import modularity as modularity
    from intervae.metrics.disentanglement import mutual_information_matrix as mutual_information_matrix
    from intervae.metrics.graphs import edge_curves as edge_curves
    from intervae.metrics.graphs import graph_metrics as graph_metrics
    from intervae.metrics.importance import dci as dci
    from intervae.metrics.importance import importance_matrix as importance_matrix
    from intervae.metrics.information import mic as mic
    from intervae.metrics.information import mic_matrix as mic_matrix
    from intervae.metrics.information import mine_matrix as mine_matrix
    from intervae.metrics.information import permutation_null as permutation_null
    from intervae.metrics.information import tic as tic
    from intervae.metrics.information import tic_matrix as tic_matrix
    from intervae.metrics.matching import match as match
    from intervae.metrics.matching import mcc as mcc
    from intervae.metrics.permutation import best_permutation as best_permutation
    from intervae.metrics.predictors import explicitness as explicitness
    from intervae.metrics.predictors import sap as sap
    from intervae.metrics.predictors import sap_matrix as sap_matrix
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
