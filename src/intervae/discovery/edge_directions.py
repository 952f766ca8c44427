"""Direction between a latent and a column, by the likelihood of both directions.

A latent z is known only up to a monotone map, so the decision must not change under one. Both
directions fit a free monotone map S; noises are independent of the cause, f is smooth:

    column -> latent    u has a free density;    S(z) = f(u) + e, e Gaussian
    latent -> column    S(z) is N(0, 1);         u = f(S(z)) + n, n with a free density

`direction_margin` is the difference of the two log-likelihoods in nats. A column that is not
Gaussian has a margin even with unrelated latents; this `chance_margin` is subtracted. A binary
or categorical column has no identifiable direction: latent -> column fits any joint distribution
with the ranks of a latent. Its margin is 0 and the scale of the latent decides.
The method is ours (Mao et al. 2022 read directions off W); docs/cmcl.md has its measurements.
Shapes: N rows, m latents, d columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from intervae.discovery.additive import AdditiveRegressions
from intervae.discovery.spline_likelihood import (
    candidate_bases,
    density_log_likelihood,
    explained_variance,
    gaussian_log_likelihood,
    monotone_map_log_likelihood,
    normal_scores,
    residuals,
    standardise,
)

SHUFFLES = 6  # shuffled latents per column for its chance margin
MIN_ROWS = 20  # below which no edge is decided


class EdgeRule(NamedTuple):
    """How a model decides the edges among its latents and columns, its p nodes."""

    threshold: float  # minimum strength of an edge
    one_edge_per_node: bool
    by_likelihood: bool  # directions between latents and columns by `decide_edges`
    allowed: np.ndarray  # (p, p) of bools, edges that may exist
    rows: int  # most training rows used


class EdgeDecision(NamedTuple):
    """Edges between m latents and d columns."""

    causes: np.ndarray  # (d, m) strength sqrt(R^2) of column -> latent, 0 without an edge
    effects: np.ndarray  # (m, d) strength of latent -> column
    margins: np.ndarray  # (d, m) nats for column -> latent; 0 without an edge and for categories


def decide_edges(
    latents: np.ndarray,
    columns: np.ndarray,
    *,
    threshold: float,
    one_edge_per_node: bool,
    kinds: Sequence[str] | None = None,
    visible: np.ndarray | None = None,
    chance_margins: Mapping[int, float] | None = None,
) -> EdgeDecision:
    """Decide which latents (N, m) and columns (N, d) are linked, and which is the cause.

    Arguments:
        threshold: minimum sqrt(R^2) of an edge.
        one_edge_per_node: at most one edge per node: the one-to-one matching of largest likelihood.
        kinds: (d,) continuous, binary or categorical; all continuous by default.
        visible: (m,) latents that may have edges; all by default.
        chance_margins: column index -> chance margin where known; computed for the others.
    """
    categorical = [kind != "continuous" for kind in kinds or ["continuous"] * columns.shape[1]]
    visible_values = latents if visible is None else np.where(visible, latents, 0.0)
    r_squared, gain = associations(visible_values, columns, categorical)
    linked = (gain > 0) & (r_squared >= threshold**2)
    if one_edge_per_node:
        matched = np.zeros_like(linked)
        matched[
            scipy.optimize.linear_sum_assignment(np.where(linked, gain, 0.0), maximize=True)
        ] = True
        linked &= matched
    margins, is_cause = np.zeros_like(r_squared), np.zeros(r_squared.shape, dtype=bool)
    chance = dict(chance_margins or {})
    for i, j in zip(*map(np.ndarray.tolist, np.nonzero(linked)), strict=True):
        column, latent = columns[:, i], latents[:, j]
        if categorical[i]:
            is_cause[i, j] = categorical_margin(column, latent) > 0
            continue
        if i not in chance:
            chance[i] = chance_margin(column)[0]
        margins[i, j] = direction_margin(column, latent) - chance[i]
        is_cause[i, j] = margins[i, j] > 0
    strength = np.sqrt(r_squared)
    return EdgeDecision(
        strength * (linked & is_cause), (strength * (linked & ~is_cause)).T, margins
    )


def associations(
    latents: np.ndarray, columns: np.ndarray, is_categorical: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Strength of the relation of each latent (N, m) with each column (N, d).

    Latents enter as normal scores, on which monotone maps have no effect.

    Returns:
        (d, m) R^2 of the better explained of the two (of the latent where the column is
        categorical), and (d, m) the gain in nats less the BIC penalty, -inf for constants.
    """
    shape = columns.shape[1], latents.shape[1]
    r_squared, gain = np.zeros(shape), np.full(shape, -np.inf)
    varying_columns = [i for i in range(shape[0]) if np.ptp(columns[:, i]) > 0]
    varying_latents = [j for j in range(shape[1]) if np.ptp(latents[:, j]) > 0]
    if len(latents) < MIN_ROWS or not varying_columns or not varying_latents:
        return r_squared, gain
    scores = np.stack([normal_scores(latents[:, j]) for j in varying_latents], axis=1)
    for i in varying_columns:
        fit = explained_variance(scores, columns[:, i], is_categorical[i])
        r_squared[i, varying_latents], gain[i, varying_latents] = fit
    numeric = [i for i in varying_columns if not is_categorical[i]]
    for j, latent in zip(varying_latents, scores.T, strict=True):
        fit = explained_variance(columns[:, numeric], latent)
        r_squared[numeric, j] = np.maximum(r_squared[numeric, j], fit[0])
        gain[numeric, j] = np.maximum(gain[numeric, j], fit[1])
    return r_squared, gain


# ---- margins -------------------------------------------------------------------------------------
def direction_margin(column: np.ndarray, latent: np.ndarray) -> float:
    """Nats for column -> latent over rows (N,) and (N,); negative for latent -> column.

    Unchanged by units of the column and by any increasing or decreasing map of the latent.
    """
    u = standardise(column)
    return density_log_likelihood(u) + _relation_margin(u, normal_scores(latent))


def _relation_margin(u: np.ndarray, scores: np.ndarray) -> float:
    """Margin of a standardised column (N,) and normal scores (N,), without the density of u."""
    column_causes = max(
        monotone_map_log_likelihood(scores, basis) - penalty
        for basis, penalty in candidate_bases(u, scores)
    )
    latent_causes = max(
        density_log_likelihood(residuals(basis, u)) - penalty
        for basis, penalty in candidate_bases(scores, u)
    )
    return column_causes - gaussian_log_likelihood(scores) - latent_causes


def chance_margin(column: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of `direction_margin` of a column (N,) with unrelated latents.

    Only ranks of a latent count, so it is a property of the column alone. It is 0 for a Gaussian
    column and positive for a bounded or skewed one.
    """
    u, scores = standardise(column), normal_scores(np.arange(len(column)))
    rng = np.random.default_rng(0)
    margins = [_relation_margin(u, rng.permutation(scores)) for _ in range(SHUFFLES)]
    return density_log_likelihood(u) + float(np.mean(margins)), float(np.std(margins, ddof=1))


def categorical_margin(column: np.ndarray, latent: np.ndarray) -> float:
    """Nats for column -> latent, (N,) and (N,), on the scale of the latent as it is.

    The latent is Gaussian around a mean per category, or Gaussian with the logits of the
    categories as curves of it. The scale is arbitrary, so this is a tie-break, not evidence.
    """
    names, kinds = ("latent", "column"), ("continuous", "categorical")
    table = AdditiveRegressions(np.stack([latent, column], axis=1), names, kinds)
    return table.fit([1], 0).gain - table.fit([0], 1).gain
