"""The one call to every graph learner."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from intervae.discovery.base import Discovery, read_table
from intervae.discovery.bridges import causal_learn_ges, causal_learn_pc
from intervae.discovery.dagma import dagma, dagma_mlp
from intervae.discovery.ges import ges, ges_generalised
from intervae.discovery.independence import independence
from intervae.discovery.lagrangian import lagrangian
from intervae.discovery.notears import notears, notears_mlp
from intervae.errors import UsageError, unknown

METHODS: dict[str, Callable[..., Discovery]] = {
    "independence": independence,
    "lagrangian": lagrangian,
    "notears": notears,
    "notears-mlp": notears_mlp,
    "dagma": dagma,
    "dagma-mlp": dagma_mlp,
    "ges": ges,
    "ges-generalised": ges_generalised,
    "causal-learn-pc": causal_learn_pc,
    "causal-learn-ges": causal_learn_ges,
}
"""Name -> learner(columns (N, n) float64, names, kinds, *, seed, and its own settings)."""


def discover(
    table: Any,
    method: str = "independence",
    *,
    names: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Discovery:
    """Find the causal graph of the columns of a table, with no order known.

    Arguments:
        table: (N, n) array, tensor or DataFrame, one row per sample.
        method: a name in `METHODS`.
        names: one per column; a DataFrame brings its own.
        kinds: "continuous", "binary" or "categorical" per column; told from the values when not given.
        seed: which rows are drawn, and any other chance the method uses; same seed, same answer.
        settings: the method's own, such as samples=500 or resolution=0.02, and knowledge= of required and forbidden edges and tiers; a misspelt
            one is refused.
    """
    if method not in METHODS:
        raise unknown("discovery method", method, METHODS)
    learner = METHODS[method]
    known = [name for name, parameter in inspect.signature(learner).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY and name != "seed"]
    for name in settings:
        if name == "knowledge" and name not in known:
            raise UsageError(f"method {method!r} takes no prior knowledge; use 'ges', or any other method but this one.")
        if name not in known:
            raise unknown(f"setting of {method!r}", name, known)
    columns, checked, variable_kinds = read_table(table, names, kinds)
    return learner(columns, checked, variable_kinds, seed=seed, **settings)
