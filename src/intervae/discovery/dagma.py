"""DAGMA, linear and with a network per variable (Bello et al. 2022).

The objectives of NOTEARS, minimised along a central path in the domain of -log det(I - W∘W).
"""

from __future__ import annotations

from dataclasses import dataclass

from intervae.discovery.continuous import ContinuousOptions, MLPOptions, continuous_method
from intervae.discovery.solvers import central_path


@dataclass(frozen=True, kw_only=True)
class DagmaOptions(ContinuousOptions):
    """Minimise mu (loss + l1 |W|) - log det(I - W∘W) for mu = 1, 0.1, ..., one round each.

    The loss is that of NOTEARS; the weights of the graph are W. The columns are continuous, or
    binary as 0 / 1. The options are those of `ContinuousOptions`.
    """

    l1: float = 0.03
    threshold: float = 0.3
    steps: int = 700
    rate: float = 5e-3
    rounds: int = 5


@dataclass(frozen=True, kw_only=True)
class DagmaMLPOptions(MLPOptions):
    """DAGMA with the networks of `NotearsMLPOptions`; columns of any kind.

    The options are those of `MLPOptions`.
    """

    l1: float = 0.02
    l2: float = 0.005
    steps: int = 1000
    rounds: int = 4


dagma = continuous_method("dagma", central_path, DagmaOptions)
dagma_mlp = continuous_method("dagma-mlp", central_path, DagmaMLPOptions)
