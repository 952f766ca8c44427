"""Findings of a trained CMCL: links between latents and columns, with confidence and test fit."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Split, Variable
from intervae.discovery.additive import AdditiveRegressions, adjusted_r_squared
from intervae.discovery.base import MIN_ROWS
from intervae.discovery.edge_directions import associations, chance_margin
from intervae.discovery.spline_likelihood import normal_scores
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.report.confidence import edge_confidence
from intervae.report.encoded_table import MAX_ROWS, EncodedTable, encode_table

RESAMPLES, MIN_RESAMPLES = 100, 25  # standard error of a confidence: about 0.05 and 0.1
DECISIONS = 250  # directions decided in all resamples together, about 0.1 s each
GAUSSIAN_P = 0.01  # p-value of normality above which a column may be Gaussian
CURVATURE = 0.02  # R^2 that a curve must gain over a line to count as curved


@dataclass(frozen=True)
class LinkFinding:
    """One edge of the model's graph.

    Arguments:
        cause, effect: a latent and a column, in either order.
        strength: weight of the edge, see `CMCL.graph`.
        reverse_strength: weight of the opposite edge in the model.
        margin: nats for this direction on training rows; None where the networks decided.
        link_confidence: fraction of resamples with a link in either direction; None with too
            few rows.
        direction_confidence: fraction of those with this direction; None without any, or where
            the direction is not identifiable.
        test_explained: fraction of the effect explained on the test split, of its variance or
            of its log-likelihood.
        test_accuracy: accuracy on the test split for a binary or categorical effect.
        linear_gaussian: whether a line fits as well as a curve and the column looks Gaussian,
            so that the direction is not identifiable; None unless both are numbers.
        strength_without_labels: strength when the encoder does not see the row's own labels.
        strength_with_labels: strength when it does.
        trend: Spearman correlation of cause and effect; None for a categorical one.
        direction_identifiable: see `CMCL.direction_identifiable`.
        chance_std: standard deviation of the margin with unrelated latents; None without margin.
    """

    cause: str
    effect: str
    strength: float
    reverse_strength: float
    margin: float | None
    link_confidence: float | None
    direction_confidence: float | None
    test_explained: float
    test_accuracy: float | None
    linear_gaussian: bool | None
    strength_without_labels: float
    strength_with_labels: float
    trend: float | None
    direction_identifiable: bool = True
    chance_std: float | None = None

    @property
    def nodes(self) -> tuple[str, str]:
        return self.cause, self.effect


@dataclass(frozen=True)
class Findings:
    """All numbers of the report.

    Arguments:
        graph: the model's graph over latents and then columns.
        columns: the variables of the table.
        links: the edges, strongest first.
        confidence: (p, p) fraction of resamples with the edge; None with too few rows.
        resamples, failed_resamples, seconds: number of resampled tables, of those that could
            not be used, and the time they took.
        rows: number of training, validation and test images.
        resampled_rows: rows that the resamples are drawn from.
        label_influence: (m,) fraction of each latent copied from the labels.
        threshold: smallest strength of an edge.
        by_likelihood: whether directions were decided by likelihood and not by the networks.
    """

    graph: CausalGraph
    columns: tuple[Variable, ...]
    links: tuple[LinkFinding, ...]
    confidence: np.ndarray | None
    resamples: int
    failed_resamples: int
    seconds: float
    rows: tuple[int, int, int]
    resampled_rows: int
    label_influence: np.ndarray
    threshold: float
    by_likelihood: bool = True

    @property
    def latents(self) -> tuple[str, ...]:
        return self.graph.names[: len(self.graph.names) - len(self.columns)]

    def links_of(self, node: str) -> list[LinkFinding]:
        return [link for link in self.links if node in link.nodes]

    def changes_images(self, column: str) -> bool:
        """Whether do() on a column changes the images."""
        return any(node in self.latents for node in self.graph.descendants(column))


def collect_findings(
    model: Model, data: Dataset, *, resamples: int | None = None, seed: int = 0
) -> Findings:
    """Measure links, their confidence and their fit on the test split.

    `resamples` is by default as many as take about 20 seconds, from 25 to 100.
    """
    table = encode_table(model, data, seed=seed)
    if resamples is None:
        numeric = sum(v.kind == "continuous" for v in data.variables)
        resamples = int(np.clip(DECISIONS // max(numeric, 1), MIN_RESAMPLES, RESAMPLES))
    started = time.perf_counter()
    visible = model.visible_latents(data.train)
    confidence, failed = edge_confidence(model, table, visible, resamples, seed)
    seconds = time.perf_counter() - started
    latents = query_split(model, "encode", data.test)[..., 0]
    test_values = {name: latents[:, i] for i, name in enumerate(model.latent_names)}
    test_values |= {name: data.test.labels[:, i].cpu() for i, name in enumerate(data.names)}
    edges = sorted(model.graph.edges, key=lambda edge: -edge[2])
    return Findings(
        graph=model.graph,
        columns=data.variables,
        links=tuple(
            _measure_link(model, edge, table, confidence, test_values, data.train) for edge in edges
        ),
        confidence=confidence,
        resamples=resamples if confidence is not None else 0,
        failed_resamples=failed,
        seconds=seconds,
        rows=(len(data.train), len(data.validation), len(data.test)),
        resampled_rows=len(table.values),
        label_influence=_label_influence(model, data.test),
        threshold=model.edge_rule.threshold,
        by_likelihood=model.edge_rule.by_likelihood,
    )


def _label_influence(model: Model, split: Split) -> np.ndarray:
    """(m,) fraction of each latent copied from the labels; 0 for a constant latent."""
    rows = split[torch.arange(min(len(split), MAX_ROWS))]
    influence = model.label_influence(rows.images, rows.labels)
    return np.nan_to_num(influence.cpu().double().numpy()).clip(0, 1)


def _measure_link(
    model: Model,
    edge: tuple[str, str, float],
    table: EncodedTable,
    confidence: np.ndarray | None,
    test_values: dict[str, Tensor],
    train: Split,
) -> LinkFinding:
    cause, effect, strength = edge
    j, i = table.names.index(cause), table.names.index(effect)
    kinds = (table.kind(cause), table.kind(effect))
    identifiable = model.direction_identifiable(cause, effect)
    link_confidence, direction_confidence = None, None
    if confidence is not None:
        link_confidence = float(min(confidence[j, i] + confidence[i, j], 1.0))
        if link_confidence and identifiable:
            direction_confidence = float(confidence[j, i]) / link_confidence
    test_explained, test_accuracy = explained_by_model(model, cause, effect, test_values)
    linear_gaussian = None
    if kinds == ("continuous", "continuous"):
        linear_gaussian = _is_linear_gaussian(table, cause, effect)
    trend = None
    if "categorical" not in kinds:
        trend = rank_correlation(table.column(cause), table.column(effect))
    return LinkFinding(
        cause=cause,
        effect=effect,
        strength=strength,
        reverse_strength=float(model.edge_strengths[i, j]),
        margin=model.direction_margin(cause, effect),
        link_confidence=link_confidence,
        direction_confidence=direction_confidence,
        test_explained=test_explained,
        test_accuracy=test_accuracy,
        linear_gaussian=linear_gaussian,
        strength_without_labels=_strength(table, table.without_labels, cause, effect),
        strength_with_labels=_strength(table, table.with_labels, cause, effect),
        trend=trend,
        direction_identifiable=identifiable,
        chance_std=_chance_std(model, cause, effect, train),
    )


def _strength(table: EncodedTable, values: np.ndarray, cause: str, effect: str) -> float:
    """Strength of a link between two columns of `values` (N, p), measured as in the model."""
    pair = values[:, [table.names.index(cause), table.names.index(effect)]]
    kinds = [table.kind(cause), table.kind(effect)]
    if not (pair.std(axis=0) > 1e-9).all():
        return 0.0
    if table.is_latent(cause) == table.is_latent(effect):
        return AdditiveRegressions(pair, [cause, effect], kinds).fit([0], 1).strengths[0]
    latent, column = (0, 1) if table.is_latent(cause) else (1, 0)
    is_categorical = [kinds[column] != "continuous"]
    r_squared, _ = associations(pair[:, [latent]], pair[:, [column]], is_categorical)
    return float(np.sqrt(r_squared[0, 0]))


def _chance_std(model: Model, cause: str, effect: str, train: Split) -> float | None:
    """Standard deviation of the column's margin with unrelated latents on training rows."""
    if model.direction_margin(cause, effect) is None:
        return None
    column = model.spec.names.index(cause if cause in model.spec.names else effect)
    return chance_margin(train.labels[: model.edge_rule.rows, column].double().cpu().numpy())[1]


def _is_linear_gaussian(table: EncodedTable, cause: str, effect: str) -> bool:
    """Whether the relation is linear and the column Gaussian; latents enter as normal scores."""
    values, columns = [], []
    for name in (cause, effect):
        column = table.column(name)
        values.append(normal_scores(column) if table.is_latent(name) else column)
        if not table.is_latent(name):
            columns.append(column)
    return is_linear(*values) and all(
        len(c) >= MIN_ROWS and float(scipy.stats.normaltest(c).pvalue) > GAUSSIAN_P for c in columns
    )


def is_linear(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether, in both directions, a curve explains hardly more than a line."""
    return all(
        adjusted_r_squared(x, y) - adjusted_r_squared(x, y, linear=True) < CURVATURE
        for x, y in ((a, b), (b, a))
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman correlation; 0 where one of the two is constant."""
    ranks = [scipy.stats.rankdata(values) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1]) if all(r.std() > 0 for r in ranks) else 0.0


def explained_by_model(
    model: Model, cause: str, effect: str, values: dict[str, Tensor]
) -> tuple[float, float | None]:
    """Fraction of an effect that the model's mechanism explains, and its accuracy.

    Of a number: 1 - squared error / variance, and None. Of categories: fraction of the
    log-likelihood beyond constant probabilities, and the accuracy.
    """
    causes = model.graph.parents(effect) or [cause]
    predicted = model.effect_curve(effect, {name: values[name] for name in causes}).cpu().double()
    truth = values[effect].double()
    variable = model.spec.variable(effect) if effect in model.spec.names else None
    if variable is None or variable.kind == "continuous":
        error = (truth - predicted).square().mean()
        return float(1 - error / truth.var(correction=0).clamp(min=1e-12)), None
    probabilities = predicted
    if variable.kind == "binary":
        probabilities = torch.stack([1 - predicted, predicted], dim=1)
    codes = truth.long()
    frequencies = torch.bincount(codes, minlength=probabilities.shape[1]).double() / len(codes)
    frequencies = frequencies[frequencies > 0]
    entropy = -(frequencies * frequencies.log()).sum()
    loss = -probabilities.gather(1, codes[:, None]).clamp(min=1e-9).log().mean()
    accuracy = (probabilities.argmax(1) == codes).double().mean()
    return float(1 - loss / entropy.clamp(min=1e-9)), float(accuracy)
