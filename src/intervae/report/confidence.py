"""Confidence of CMCL's links: the fraction of resampled tables in which an edge is found again.

Rows of latents and columns are resampled with replacement. On each table the edges are decided
again as the model decided them: between latents and columns by `discovery.edge_directions`; with
direction=networks, and among latents or among columns, by `discovery.additive`. The encoder is
not retrained: another training may find other latents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.discovery import bootstrap
from intervae.discovery.additive import AMBIGUOUS_NATS, discover_additive, forbid_weak_pairs
from intervae.discovery.base import MIN_ROWS, Discovery
from intervae.discovery.edge_directions import chance_margin, decide_edges
from intervae.discovery.knowledge import Knowledge
from intervae.errors import DataError
from intervae.models.base import Model
from intervae.report.encoded_table import EncodedTable


def edge_confidence(
    model: Model, table: EncodedTable, visible: np.ndarray, resamples: int, seed: int
) -> tuple[np.ndarray | None, int]:
    """(p, p) fraction of resampled tables with each edge, and the number of failed tables.

    None with too few rows. Latents that are neither `visible` (m,) nor linked in the model's
    graph get no edges.
    """
    varying = np.flatnonzero(table.values.std(axis=0) > 1e-9)
    if len(table.values) < MIN_ROWS or len(varying) < 2:
        return None, 0
    names, kinds = ([values[i] for i in varying] for values in (table.names, table.kinds))
    allowed = model.edge_rule.allowed[np.ix_(varying, varying)]
    m, edges = len(model.latent_names), model.graph.adjacency
    linked = (edges.sum(0) + edges.sum(1) > 0)[:m]
    candidates = (visible | linked)[varying[varying < m]]
    values = table.values[:, varying]
    try:
        learner, knowledge = resample_learner(model, values, names, kinds, allowed, candidates)
        result = bootstrap(
            values,
            learner,
            resamples=resamples,
            names=names,
            kinds=kinds,
            seed=seed,
            knowledge=knowledge,
        )
    except DataError:  # for example, no resample of few rows has every category
        return None, resamples
    confidence = np.zeros((len(table.names), len(table.names)))
    confidence[np.ix_(varying, varying)] = result.confidence
    return confidence, result.failed


def resample_learner(
    model: Model,
    values: np.ndarray,
    names: Sequence[str],
    kinds: Sequence[str],
    allowed: np.ndarray,
    visible: np.ndarray,
) -> tuple[Callable[..., Discovery], Knowledge]:
    """Return a learner that decides edges as the model does, and the pairs it need not try."""
    rule = model.edge_rule
    latents = [k for k, name in enumerate(names) if name in model.latent_names]
    columns: list[int] = []  # those whose edges are decided by the likelihood of both directions
    if rule.by_likelihood:
        columns = [k for k in range(len(names)) if k not in latents]
    numeric = {i: k for i, k in enumerate(columns) if kinds[k] == "continuous"}
    chance_margins = {i: chance_margin(values[:, k])[0] for i, k in numeric.items()}
    by_likelihood = np.zeros_like(allowed)
    by_likelihood[np.ix_(latents, columns)] = by_likelihood[np.ix_(columns, latents)] = True
    smallest = 0.5 * rule.threshold
    knowledge = forbid_weak_pairs(values, names, kinds, allowed & ~by_likelihood, smallest)
    column_kinds = [kinds[k] for k in columns]

    def learn(
        rows: np.ndarray,
        names: Sequence[str],
        kinds: Sequence[str],
        *,
        seed: int,
        knowledge: Knowledge,
    ) -> Discovery:
        threshold = rule.threshold
        result = discover_additive(
            rows, names, kinds, seed=seed, knowledge=knowledge, threshold=threshold
        )
        if not columns:
            return result
        decision = decide_edges(
            rows[:, latents],
            rows[:, columns],
            threshold=threshold,
            one_edge_per_node=rule.one_edge_per_node,
            kinds=column_kinds,
            visible=visible,
            chance_margins=chance_margins,
        )
        weights = np.array(result.graph.weights)
        weights[np.ix_(columns, latents)] = decision.causes
        weights[np.ix_(latents, columns)] = decision.effects
        graph = CausalGraph(tuple(names), weights).to_acyclic()
        edges = {edge[:2] for edge in graph.edges}
        linked = decision.causes + decision.effects.T > 0
        small_margins = np.argwhere((np.abs(decision.margins) < AMBIGUOUS_NATS) & linked)
        pairs = [(names[columns[i]], names[latents[j]]) for i, j in small_margins if i in numeric]
        ambiguous = [edge for edge in result.ambiguous if edge in edges]
        ambiguous += [edge for a, b in pairs for edge in ((a, b), (b, a)) if edge in edges]
        return replace(result, graph=graph, ambiguous=ambiguous)

    return learn, knowledge
