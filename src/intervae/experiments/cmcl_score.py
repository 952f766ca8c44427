"""What the tables of CMCL measure (Mao et al. 2022, sec. 4.1): latents matched to the true ones by MIC, then graphs over [z, u] compared.

Codes are latents of a model, (N, m), as many as the world has; `order` holds the code that stands for each true latent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from intervae.data.base import Dataset
from intervae.discovery.knowledge import Knowledge
from intervae.experiments.base import Numbers
from intervae.metrics.graphs import graph_metrics
from intervae.metrics.information import mic_matrix
from intervae.models.cmcl_directions import decide_edges

NOISY = 0.1  # share of a latent's variance that is noise, from which on the edge that makes it is noisy
JITTER = 1e-3  # standard deviations of noise in what a learner sees, so that a dead or a doubled latent is no column to refuse


class Codes(NamedTuple):
    """The latents of a model, read off the pictures alone."""

    train: np.ndarray  # (N, m)
    test: np.ndarray  # (M, m)


class Edge(NamedTuple):
    """A true edge between a latent and a column."""

    latent: int
    column: int
    causal: bool  # u -> z; else z -> u


def true_edges(data: Dataset) -> list[Edge]:
    """The edges of the world, by the column."""
    assert data.graph is not None
    m, adjacency = len(data.graph) - len(data.names), data.graph.adjacency
    found = [Edge(int(j), int(i) - m, False) for j, i in np.argwhere(adjacency) if j < m]
    found += [Edge(int(i), int(j) - m, True) for j, i in np.argwhere(adjacency) if j >= m]
    return sorted(found, key=lambda edge: edge.column)


def noisy(data: Dataset, edge: Edge) -> bool:
    """Whether the column leaves much of the latent that it causes open; every node has noise of variance 1."""
    return edge.causal and 1 / data.simulator.variances[data.graph.names[edge.latent]] >= NOISY  # type: ignore[union-attr]


# ---- latents --------------------------------------------------------------------------------------------------------
def matched(codes: Codes, data: Dataset) -> tuple[list[int], list[int]]:
    """For each true latent its code, by MIC over the training rows: one to one with the largest sum, and (the paper's) the most correlated one."""
    scores = mic_matrix(codes.train, data.train.fields["latents"].numpy(), threads=1)  # (codes, latents)
    rows, columns = linear_sum_assignment(scores, maximize=True)
    return [int(rows[columns == j][0]) for j in range(scores.shape[1])], [int(i) for i in scores.argmax(0)]


def latent_numbers(codes: Codes, data: Dataset, orders: tuple[list[int], list[int]], seed: int = 0) -> Numbers:
    """MIC of true latents with their codes on the test rows: linked ones and all, one to one, repeats allowed (`orders`), and unmatched.

    Unmatched is code i for the latent that is linked with column i, which is the pairing that CMCL starts from. By chance: codes of other rows.
    """
    true, table = data.test.fields["latents"].numpy(), data.test.labels.numpy()
    one_to_one, most = orders
    scores, edges = mic_matrix(codes.test, true, threads=1), true_edges(data)  # (codes, latents)
    linked, latents = [edge.latent for edge in edges], np.arange(true.shape[1])
    others = codes.test[np.random.default_rng(seed).permutation(len(true))]
    chance = [float(mic_matrix(others[:, [i]], true[:, [j]], threads=1)[0, 0]) for j, i in enumerate(one_to_one)]
    each, repeated = scores[one_to_one, latents], scores[most, latents]
    unmatched = [scores[edge.column, edge.latent] for edge in edges if edge.column < len(scores)]
    numbers = {
        "mic_linked": each[linked].mean(),
        "mic_all": each.mean(),
        "mic_linked_repeats": repeated[linked].mean(),
        "mic_all_repeats": repeated.mean(),
        "mic_linked_unmatched": np.mean(unmatched),
        "mic_by_chance": np.mean(chance),
        "test_rows": len(true),
    }
    return {name: float(value) for name, value in numbers.items()} | _copying(codes.test, true, table, one_to_one, each, data)


def _copying(codes: np.ndarray, true: np.ndarray, table: np.ndarray, order: Sequence[int], own: np.ndarray, data: Dataset) -> Numbers:
    """Whether codes follow their column rather than their latent: MIC with both over the linked ones, and the edges where the column has more.

    Kinds of edges: anti-causal (z -> u); noisy causal ones; and clear causal ones, where the column tells nearly all of the latent.
    """
    edges = true_edges(data)
    columns = [float(mic_matrix(codes[:, [order[e.latent]]], table[:, [e.column]], threads=1)[0, 0]) for e in edges]
    honest = [float(mic_matrix(true[:, [e.latent]], table[:, [e.column]], threads=1)[0, 0]) for e in edges]
    kinds = ["anti-causal" if not e.causal else "noisy" if noisy(data, e) else "clear" for e in edges]
    copied = [column >= own[e.latent] for e, column in zip(edges, columns, strict=True)]
    numbers = {"mic_column": float(np.mean(columns)), "mic_true_column": float(np.mean(honest))}
    for kind in ("anti-causal", "noisy", "clear"):
        chosen = [k == kind for k in kinds]
        numbers[f"edges_of_kind|{kind}"] = float(sum(chosen))
        numbers[f"copied_edges|{kind}"] = float(sum(c for c, of_kind in zip(copied, chosen, strict=True) if of_kind))
    numbers["copied"] = sum(numbers[f"copied_edges|{kind}"] for kind in ("anti-causal", "noisy"))
    return numbers


# ---- graphs ---------------------------------------------------------------------------------------------------------
def reordered(matrix: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """(m + d, m + d) over codes and columns to the same over true latents and columns."""
    index = [*order, *range(len(order), len(matrix))]
    return matrix[np.ix_(index, index)]


def one_each(estimated: np.ndarray, weights: np.ndarray, latents: int) -> np.ndarray:
    """Of the edges between latents and columns the one-to-one ones whose absolute weights have the largest sum; no others."""
    strength = np.where(estimated != 0, np.maximum(np.abs(weights), 1e-9), 0.0)
    between = np.maximum(strength[:latents, latents:], strength[latents:, :latents].T)  # (m, d)
    kept = np.zeros(estimated.shape, dtype=bool)
    for j, i in zip(*linear_sum_assignment(between, maximize=True), strict=True):
        kept[j, latents + i] = kept[latents + i, j] = True
    return np.where(kept, estimated, 0)


def graph_numbers(estimated: np.ndarray, weights: np.ndarray, data: Dataset) -> Numbers:
    """An estimated graph over [z, u], matched, of 0, 1 and -1 (undirected), and its weights, against the true one.

    An undirected edge counts as right in SHD, TPR, FPR and FDR where there is an edge, as NOTEARS counts it, but no direction is right then.
    """
    assert data.graph is not None
    score, true = graph_metrics(data.graph.adjacency, estimated), data.graph.adjacency
    single = graph_metrics(true, one_each(estimated, weights, len(true) - len(data.names)))
    causes, effects = np.nonzero(true)
    found = (estimated[causes, effects] != 0) | (estimated[effects, causes] != 0)
    right = (estimated[causes, effects] == 1) & (estimated[effects, causes] == 0)
    return {
        "shd": float(score.shd),
        "tpr": score.tpr,
        "fpr": score.fpr,
        "fdr": score.fdr,
        "shd_one_each": float(single.shd),
        "tpr_one_each": single.tpr,
        "edges_found": float(score.parameters["found_edges"]),
        "skeleton_found": float(found.mean()),
        "direction_right": float(right.mean()),
        "direction_right_of_found": float(right.sum() / max(found.sum(), 1)),
    }


def learner_table(codes: Codes, data: Dataset, seed: int) -> np.ndarray:
    """(N, m + d) what a graph learner sees: standardised codes of the training rows, then the columns."""
    z = codes.train.astype(np.float64)
    z = (z - z.mean(0)) / np.maximum(z.std(0), 1e-6)
    return np.hstack([z + JITTER * np.random.default_rng(seed).normal(size=z.shape), data.train.labels.numpy()])


def decided(table: np.ndarray, latents: int, *, threshold: float, one_each: bool) -> np.ndarray:
    """(m + d, m + d) weights of the edges that CMCL's last step would find in such a table."""
    found = decide_edges(table[:, :latents], table[:, latents:], threshold=threshold, one_each=one_each)
    weights = np.zeros((table.shape[1], table.shape[1]))
    weights[latents:, :latents], weights[:latents, latents:] = found.causes, found.effects
    return weights


def bipartite(latents: Sequence[str], columns: Sequence[str]) -> Knowledge:
    """What CMCL knows of the graph: no edge among latents, none among columns."""
    return Knowledge(forbidden=tuple((a, b) for group in (latents, columns) for a in group for b in group if a != b))
