"""Public discovery methods for `benchmarks/discovery.py`, imported if installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import torch

from intervae.discovery.causal_learn import cpdag_from_marks

Learner = Callable[[np.ndarray], np.ndarray]  # (N, n) -> CPDAG (n, n) of 0, 1 and -1


def peers(kind: str) -> Iterator[tuple[str, Learner]]:
    """Yield the installed public methods for this kind of table, with their example settings."""
    has = {
        name: importlib.util.find_spec(name) is not None
        for name in ("dagma", "castle", "causallearn")
    }
    if kind == "linear" and has["dagma"]:
        yield "dagma", _peer_dagma
    if kind == "linear" and has["castle"]:
        yield "gcastle notears", _peer_notears
    if kind == "mlp" and has["castle"]:
        yield "gcastle notears-mlp", _peer_notears_mlp
    if kind == "mlp" and has["dagma"]:
        yield "dagma-mlp", _peer_dagma_mlp
    if kind == "ges" and has["causallearn"]:
        yield "causal-learn ges", _peer_ges


def _peer_dagma(table: np.ndarray) -> np.ndarray:
    from dagma.linear import DagmaLinear

    return (DagmaLinear(loss_type="l2").fit(table, lambda1=0.03, w_threshold=0.3) != 0).astype(int)


def _peer_dagma_mlp(table: np.ndarray) -> np.ndarray:
    """The shorter schedule of graphs/peers_results.json; the library's has 230,000 steps."""
    from dagma.nonlinear import DagmaMLP, DagmaNonlinear

    torch.manual_seed(0)
    model = DagmaNonlinear(
        DagmaMLP(dims=[table.shape[1], 10, 1], bias=True, dtype=torch.double), dtype=torch.double
    )
    short = (
        {"warm_iter": 7000, "max_iter": 8000}
        if table.shape[1] > 10
        else {"warm_iter": 50_000, "max_iter": 80_000}
    )
    return (model.fit(table, lambda1=0.02, lambda2=0.005, w_threshold=0.3, **short) != 0).astype(
        int
    )


def _peer_notears(table: np.ndarray) -> np.ndarray:
    from castle.algorithms import Notears

    model = Notears(lambda1=0.1, w_threshold=0.3)
    model.learn(table)
    return np.asarray(model.causal_matrix).astype(int)


def _peer_notears_mlp(table: np.ndarray) -> np.ndarray:
    from castle.algorithms import NotearsNonlinear

    torch.manual_seed(0)
    model = NotearsNonlinear(
        hidden_layers=(10, 1), lambda1=0.01, lambda2=0.01, w_threshold=0.3, device_type="cpu"
    )
    model.learn(table)
    return np.asarray(model.causal_matrix).astype(int)


def _peer_ges(table: np.ndarray) -> np.ndarray:
    from causallearn.search.ScoreBased.GES import ges

    pattern = cpdag_from_marks(ges(table, "local_score_BIC")["G"].graph)
    return np.where(pattern & pattern.T, -1, pattern.astype(int))
