"""Scores of CMCL's tables (Mao et al. 2022, sec. 4.1): MIC of the latents, and graph metrics.

Latents of a model are matched to the true ones by MIC, then graphs over [z, u] are compared. An
`order` has, for each true latent, the index of the model's latent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from intervae.data import Dataset
from intervae.discovery.edge_directions import decide_edges
from intervae.discovery.knowledge import Knowledge
from intervae.experiments.base import MetricKey, Numbers
from intervae.metrics.graphs import graph_metrics
from intervae.metrics.maximal_information import mic_matrix

NOISY = 0.1  # fraction of noise in a latent's variance from which its edge is called noisy
JITTER = 1e-3  # std of the noise added for learners, which refuse constant and equal columns


class EncodedSplits(NamedTuple):
    """Latents of a model, inferred from the images alone."""

    train: np.ndarray  # (N, m)
    test: np.ndarray  # (M, m)


class TrueEdge(NamedTuple):
    """True edge between a latent and a column."""

    latent: int
    column: int
    causal: bool  # u -> z; else z -> u


def true_edges(data: Dataset) -> list[TrueEdge]:
    """Return the true edges, sorted by column."""
    assert data.graph is not None
    m, adjacency = len(data.graph) - len(data.names), data.graph.adjacency
    edges = [TrueEdge(int(j), int(i) - m, False) for j, i in np.argwhere(adjacency) if j < m]
    edges += [TrueEdge(int(i), int(j) - m, True) for j, i in np.argwhere(adjacency) if j >= m]
    return sorted(edges, key=lambda edge: edge.column)


def is_noisy(data: Dataset, edge: TrueEdge) -> bool:
    """Whether noise, of variance 1, is a large fraction of a caused latent."""
    assert data.graph is not None
    variance = data.simulator.variances[data.graph.names[edge.latent]]  # type: ignore[union-attr]
    return edge.causal and 1 / variance >= NOISY


# ---- latents -------------------------------------------------------------------------------------
def match_latents(encoded: EncodedSplits, data: Dataset) -> tuple[list[int], list[int]]:
    """Match the model's latents to the true ones by MIC on training rows.

    Returns:
        One-to-one order of largest sum, and the most correlated latent for each (the paper's).
    """
    true = data.train.fields["latents"].numpy()
    scores = mic_matrix(encoded.train, true, threads=1)  # (latents, true latents)
    rows, columns = scipy.optimize.linear_sum_assignment(scores, maximize=True)
    one_to_one = [int(rows[columns == j][0]) for j in range(scores.shape[1])]
    return one_to_one, [int(i) for i in scores.argmax(0)]


def latent_numbers(
    encoded: EncodedSplits,
    data: Dataset,
    orders: tuple[list[int], list[int]],
    seed: int = 0,
) -> Numbers:
    """MIC of true latents with their matches on test rows.

    Linked ones and all; one-to-one, with repeats, and unmatched: latent i for the true latent
    linked to column i, the pairing that CMCL starts from. By chance: latents of other rows.
    """
    true, table = data.test.fields["latents"].numpy(), data.test.labels.numpy()
    one_to_one, with_repeats = orders
    scores, edges = mic_matrix(encoded.test, true, threads=1), true_edges(data)
    linked, latents = [edge.latent for edge in edges], np.arange(true.shape[1])
    shuffled = encoded.test[np.random.default_rng(seed).permutation(len(true))]
    chance = [_mic(shuffled[:, i], true[:, j]) for j, i in enumerate(one_to_one)]
    matched, repeated = scores[one_to_one, latents], scores[with_repeats, latents]
    unmatched = [scores[edge.column, edge.latent] for edge in edges if edge.column < len(scores)]
    numbers = {
        "mic_linked": matched[linked].mean(),
        "mic_all": matched.mean(),
        "mic_linked_repeats": repeated[linked].mean(),
        "mic_all_repeats": repeated.mean(),
        "mic_linked_unmatched": np.mean(unmatched),
        "mic_by_chance": np.mean(chance),
        "test_rows": len(true),
    }
    return {
        **{name: float(value) for name, value in numbers.items()},
        **_copy_numbers(encoded.test[:, one_to_one], true, table, matched, data),
    }


def _mic(a: np.ndarray, b: np.ndarray) -> float:
    return float(mic_matrix(a[:, None], b[:, None], threads=1)[0, 0])


def _copy_numbers(
    latents: np.ndarray,
    true: np.ndarray,
    table: np.ndarray,
    matched: np.ndarray,
    data: Dataset,
) -> Numbers:
    """Whether latents follow their column rather than the true latent, by MIC with both.

    Edges are anti-causal (z -> u), noisy causal, or clear causal, where the column determines
    nearly all of the latent.

    Arguments:
        latents: (N, m) of the model, in the order of the true ones.
        matched: (m,) their MIC with the true ones.
    """
    edges = true_edges(data)
    columns = [_mic(latents[:, e.latent], table[:, e.column]) for e in edges]
    true_columns = [_mic(true[:, e.latent], table[:, e.column]) for e in edges]
    numbers: Numbers = {
        "mic_column": float(np.mean(columns)),
        "mic_true_column": float(np.mean(true_columns)),
    }
    counts, copies = Counter[str](), Counter[str]()
    for edge, column in zip(edges, columns, strict=True):
        kind = "anti-causal"
        if edge.causal:
            kind = "noisy" if is_noisy(data, edge) else "clear"
        counts[kind] += 1
        copies[kind] += int(column >= matched[edge.latent])
    for kind in ("anti-causal", "noisy", "clear"):
        numbers[MetricKey("edges_of_kind", kind)] = float(counts[kind])
        numbers[MetricKey("copied_edges", kind)] = float(copies[kind])
    numbers["copied"] = float(copies["anti-causal"] + copies["noisy"])
    return numbers


# ---- graphs --------------------------------------------------------------------------------------
def reorder(matrix: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Reorder a matrix (m + d, m + d) over latents and columns to that over true latents."""
    index = [*order, *range(len(order), len(matrix))]
    return matrix[np.ix_(index, index)]


def match_edges(estimated: np.ndarray, weights: np.ndarray, latents: int) -> np.ndarray:
    """Reduce a graph to the one-to-one edges of largest absolute weight."""
    strength = np.where(estimated != 0, np.maximum(np.abs(weights), 1e-9), 0.0)
    between = np.maximum(strength[:latents, latents:], strength[latents:, :latents].T)  # (m, d)
    matched = np.zeros(estimated.shape, dtype=bool)
    for j, i in zip(*scipy.optimize.linear_sum_assignment(between, maximize=True), strict=True):
        matched[j, latents + i] = matched[latents + i, j] = True
    return np.where(matched, estimated, 0)


def graph_numbers(estimated: np.ndarray, weights: np.ndarray, data: Dataset) -> Numbers:
    """Compare a matched graph over [z, u], of 0, 1 and -1 (undirected), with the true one.

    An undirected edge counts as correct in SHD, TPR, FPR and FDR, as in NOTEARS, but not as a
    correct direction.
    """
    assert data.graph is not None
    true = data.graph.adjacency
    score = graph_metrics(true, estimated)
    one_to_one = graph_metrics(true, match_edges(estimated, weights, len(true) - len(data.names)))
    causes, effects = np.nonzero(true)
    joined = (estimated[causes, effects] != 0) | (estimated[effects, causes] != 0)
    right = (estimated[causes, effects] == 1) & (estimated[effects, causes] == 0)
    return {
        "shd": float(score.shd),
        "tpr": score.tpr,
        "fpr": score.fpr,
        "fdr": score.fdr,
        "shd_one_each": float(one_to_one.shd),
        "tpr_one_each": one_to_one.tpr,
        "edges_found": float(score.parameters["found_edges"]),
        "skeleton_found": float(joined.mean()),
        "direction_right": float(right.mean()),
        "direction_right_of_found": float(right.sum() / max(joined.sum(), 1)),
    }


# ---- graph learners ------------------------------------------------------------------------------
def learner_table(encoded: EncodedSplits, data: Dataset, seed: int) -> np.ndarray:
    """Table (N, m + d) for graph learners: standardised latents of training rows, then columns."""
    z = encoded.train.astype(np.float64)
    z = (z - z.mean(0)) / np.maximum(z.std(0), 1e-6)
    z = z + JITTER * np.random.default_rng(seed).normal(size=z.shape)
    return np.hstack([z, data.train.labels.numpy()])


def decide_weights(
    table: np.ndarray, latents: int, *, threshold: float, one_edge_per_node: bool
) -> np.ndarray:
    """(m + d, m + d) weights of the edges that CMCL's final decision finds in such a table."""
    z, u = table[:, :latents], table[:, latents:]
    decision = decide_edges(z, u, threshold=threshold, one_edge_per_node=one_edge_per_node)
    weights = np.zeros((table.shape[1], table.shape[1]))
    weights[latents:, :latents] = decision.causes
    weights[:latents, latents:] = decision.effects
    return weights


def bipartite(latents: Sequence[str], columns: Sequence[str]) -> Knowledge:
    """Forbid edges among latents and among columns, as CMCL does."""
    return Knowledge(
        forbidden=tuple(
            (a, b) for group in (latents, columns) for a in group for b in group if a != b
        )
    )
