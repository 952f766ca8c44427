"""intervae: causal variables of images and video, interventions and counterfactuals."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> module; imported when first used, so that `intervae --help` does not import torch
_EXPORTS = {
    "load_data": "intervae.data",
    "pack": "intervae.data",
    "datasets": "intervae.data",
    "Dataset": "intervae.data",
    "Variable": "intervae.data",
    "build_dataset": "intervae.data",
    "register_dataset": "intervae.data.registry",
    "CausalGraph": "intervae.causal",
    "create": "intervae.models",
    "load": "intervae.models",
    "register_model": "intervae.models",
    "MODELS": "intervae.models",
    "heat_map": "intervae.models.heat_maps",
    "discover": "intervae.discovery",
    "evaluate": "intervae.evaluation",
    "register_metric": "intervae.evaluation",
    "fit": "intervae.training",
    "fit_seeds": "intervae.training",
    "reproduce": "intervae.experiments",
    "tune": "intervae.tuning",
    "IntervaeError": "intervae.errors",
}
_MODULES = (
    "causal",
    "data",
    "discovery",
    "evaluation",
    "experiments",
    "figures",
    "metrics",
    "models",
    "nets",
    "testing",
    "training",
    "tuning",
)

__all__ = ["__version__", *_EXPORTS]

if TYPE_CHECKING:
    from intervae.causal import CausalGraph as CausalGraph
    from intervae.data import Dataset as Dataset
    from intervae.data import Variable as Variable
    from intervae.data import build_dataset as build_dataset
    from intervae.data import datasets as datasets
    from intervae.data import load_data as load_data
    from intervae.data import pack as pack
    from intervae.data.registry import register_dataset as register_dataset
    from intervae.discovery import discover as discover
    from intervae.errors import IntervaeError as IntervaeError
    from intervae.evaluation import evaluate as evaluate
    from intervae.evaluation import register_metric as register_metric
    from intervae.experiments import reproduce as reproduce
    from intervae.models import MODELS as MODELS
    from intervae.models import create as create
    from intervae.models import load as load
    from intervae.models import register_model as register_model
    from intervae.models.heat_maps import heat_map as heat_map
    from intervae.training import fit as fit
    from intervae.training import fit_seeds as fit_seeds
    from intervae.tuning import tune as tune


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"intervae.{name}")
    raise AttributeError(f"module 'intervae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
