"""DAGMA, linear and with a network per variable (Bello et al. 2022): as NOTEARS, inside the domain of -log det(I - W∘W) and down a central path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intervae.discovery.base import Discovery
from intervae.discovery.continuous import central_path
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.notears import learn_linear, learn_networks


def dagma(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    standardise: bool = True,
    noise: str = "equal",
    l1: float = 0.03,
    threshold: float = 0.3,
    steps: int = 700,
    rate: float = 5e-3,
    rounds: int = 5,
    device: str = "cpu",
) -> Discovery:
    """The linear learner of `notears`, by the central path: mu (loss + l1 |W|) - log det(I - W∘W) for mu = 1, 0.1, ..., one round each.

    Arguments:
        columns: (N, n).
        knowledge, standardise, noise, threshold, device: as in `notears`.
        l1: the price of a weight.
        steps: of Adam in each of the `rounds`, at this `rate`.
    """
    more = {"knowledge": knowledge, "standardise": standardise, "noise": noise, "threshold": threshold, "device": device}
    return learn_linear("dagma", central_path, columns, names, kinds, l1=l1, solve={"steps": steps, "rate": rate, "rounds": rounds}, **more)


def dagma_mlp(
    columns: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    seed: int = 0,
    knowledge: Knowledge | Mapping[str, Any] | None = None,
    standardise: bool = True,
    noise: str = "equal",
    hidden: int = 10,
    l1: float = 0.02,
    l2: float = 0.005,
    threshold: float = 0.5,
    steps: int = 1000,
    rate: float = 1e-2,
    rounds: int = 4,
    device: str = "cpu",
) -> Discovery:
    """The learner of `notears_mlp`, for columns of any kind, by the central path of `dagma`.

    Arguments:
        columns: (N, n).
        knowledge, standardise, noise, threshold, device: as in `notears`.
        hidden, l1, l2: as in `notears_mlp`.
        steps, rate, rounds: as in `dagma`.
    """
    more = {"knowledge": knowledge, "standardise": standardise, "noise": noise, "threshold": threshold, "device": device}
    solve = {"steps": steps, "rate": rate, "rounds": rounds}
    return learn_networks("dagma-mlp", central_path, columns, names, kinds, hidden=hidden, l1=l1, l2=l2, seed=seed, solve=solve, **more)
