"""NOTEARS, linear (Zheng et al. 2018) and with a network per variable (Zheng et al. 2020).

Least squares with an l1 penalty subject to tr exp(W∘W) = n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from intervae.discovery.continuous import ContinuousOptions, MLPOptions, continuous_method
from intervae.discovery.solvers import augmented_lagrangian


@dataclass(frozen=True, kw_only=True)
class NotearsOptions(ContinuousOptions):
    """Minimise 1/2 E ||x - W^T x||^2 + l1 |W| over DAGs; the weights of the graph are W.

    The columns are continuous, or binary as 0 / 1. The options are those of `ContinuousOptions` and
    `tolerance`: the augmented Lagrangian stops when h is at most this.
    """

    l1: float = 0.1
    threshold: float = 0.3
    steps: int = 1000
    rate: float = 3e-3
    rounds: int = 20
    tolerance: float = 1e-6

    def solver_options(self) -> dict[str, Any]:
        return {**super().solver_options(), "tolerance": self.tolerance}


@dataclass(frozen=True, kw_only=True)
class NotearsMLPOptions(MLPOptions):
    """NOTEARS with a network of sigmoid units per variable; columns of any kind.

    Binary variables are predicted by a logit, categorical ones by one logit per category, with
    cross-entropy. The weight of an edge is the norm of the weights from the inputs of the cause to
    the units of the effect. The options are those of `MLPOptions`, and `tolerance` of h.
    """

    l1: float = 0.01
    l2: float = 0.01
    steps: int = 800
    rounds: int = 8
    tolerance: float = 1e-6

    def solver_options(self) -> dict[str, Any]:
        return {**super().solver_options(), "tolerance": self.tolerance}


notears = continuous_method("notears", augmented_lagrangian, NotearsOptions)
notears_mlp = continuous_method("notears-mlp", augmented_lagrangian, NotearsMLPOptions)
