"""`discover`, the one function that calls every discovery method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from intervae.discovery.base import Discovery, read_table, require_continuous
from intervae.discovery.causal_learn import causal_learn_ges, causal_learn_pc
from intervae.discovery.dagma import dagma, dagma_mlp
from intervae.discovery.direction_confidence import assess_directions
from intervae.discovery.ges import ges, ges_generalised
from intervae.discovery.independence import independence
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.lagrangian import lagrangian
from intervae.discovery.notears import notears, notears_mlp
from intervae.errors import UsageError, unknown
from intervae.settings import check_seed

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
"""Name -> function(columns (N, n) float64, names, kinds, *, seed, and its own settings)."""

DESCRIPTIONS: Mapping[str, str] = {
    "independence": "noises independent of their predecessors, over all orders of the variables",
    "lagrangian": "CausalVAE's graph pre-training (Yang et al. 2021), for comparison",
    "notears": "NOTEARS, linear (Zheng et al. 2018)",
    "notears-mlp": "NOTEARS with a network per variable (Zheng et al. 2020)",
    "dagma": "DAGMA, linear (Bello et al. 2022)",
    "dagma-mlp": "DAGMA with a network per variable (Bello et al. 2022)",
    "ges": "greedy equivalence search with linear Gaussian BIC (Chickering 2002)",
    "ges-generalised": "greedy equivalence search with the generalised score (Huang et al. 2018)",
    "causal-learn-pc": "PC algorithm (Spirtes and Glymour 1991) of causal-learn",
    "causal-learn-ges": "greedy equivalence search with linear Gaussian BIC of causal-learn",
}
"""Method -> one line for lists."""

RENAMED: Mapping[str, Mapping[str, str]] = {
    "independence": {
        "evidence": "evidence_threshold",
        "fee": "edge_penalty",
        "worse": "error_tolerance",
    },
    "ges": {"price": "penalty"},
}
"""Method -> settings of earlier versions, old name -> new name."""


def method_settings(method: str) -> list[str]:
    """Return the names of the settings that a method of `METHODS` takes."""
    return [
        name
        for name, parameter in inspect.signature(METHODS[method]).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "seed"
    ]


def discover(
    table: Any,
    method: str = "independence",
    *,
    names: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    seed: int = 0,
    check_directions: bool | None = None,
    **settings: Any,
) -> Discovery:
    """Learn the causal graph of the columns of a table.

    Arguments:
        table: (N, n) array, tensor or DataFrame, one row per sample.
        method: a name in `METHODS`.
        names: one per column; by default those of the DataFrame.
        kinds: "continuous", "binary" or "categorical" per column; inferred by default.
        seed: of the rows that are drawn and of initial weights.
        check_directions: give `result.directions`, the calibrated confidence in the direction of
            each edge, and a note for each open one; continuous columns only. By default for
            "independence".
        settings: the method's own, such as samples=500, and knowledge= of required and forbidden
            edges and tiers.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise unknown("discovery method", method, METHODS)
    check_seed(seed)
    allowed = method_settings(method)
    for name in settings:
        if name == "knowledge" and name not in allowed:
            raise UsageError(
                f"method {method!r} takes no prior knowledge; use 'ges' or another method."
            )
        if name in RENAMED.get(method, {}):
            raise UsageError(
                f"setting {name!r} of {method!r} is now called {RENAMED[method][name]!r}."
            )
        if name not in allowed:
            raise unknown(f"setting of {method!r}", name, allowed)
    columns, names, variable_kinds = read_table(table, names, kinds)
    result = METHODS[method](columns, names, variable_kinds, seed=seed, **settings)
    if check_directions is None:
        check_directions = method == "independence"
    if not check_directions:
        return result
    require_continuous("check_directions", names, variable_kinds)
    known = Knowledge.parse(settings.get("knowledge")).decided_edges(names)
    directions = assess_directions(columns, result.graph, known=known, seed=seed)
    open_notes = tuple(direction.note() for direction in directions if direction.is_open)
    return replace(result, directions=directions, notes=(*result.notes, *open_notes))
