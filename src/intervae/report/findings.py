"""What a trained CMCL found between images and a table, with the confidence of every link: the numbers behind the page.

Confidence: rows of latents and columns are drawn again with replacement, and on each such table links and directions are decided anew by what
decided in the model: between the latents that pictures show and all columns `cmcl_directions.decide_edges`; with direction=networks, and among
latents or columns, `discovery.additive`, which has the likelihood of the model's networks in closed form. The encoder is not trained again, so
confidence is about what these latents tell, not about which latents another training would find.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import normaltest, rankdata
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Split, Variable
from intervae.discovery import bootstrap
from intervae.discovery.additive import OPEN, Regressions, additive, explained, plausible
from intervae.discovery.base import FEWEST_ROWS, Discovery
from intervae.discovery.knowledge import Knowledge
from intervae.errors import DataError
from intervae.models.base import ask
from intervae.models.cmcl_directions import associations, decide_edges, margin_by_chance, normal_scores
from intervae.models.cmcl_queries import LABEL_BANK, CrossModalQueries

MOST_ROWS = 1000  # latents and columns that are resampled; more take longer and change little
RESAMPLES, FEWEST_RESAMPLES = 100, 25  # give a confidence to about 0.05 and 0.1
DECISIONS = 250  # directions between numbers that are decided anew in all, each in a tenth of a second; with many columns there are fewer resamples
GAUSSIAN_P = 0.01  # of a column's skewness and kurtosis, above which it may be Gaussian
BENT = 0.02  # share of the variance that a curve must explain beyond a straight line, or it is one


@dataclass(frozen=True)
class LinkFound:
    """An edge of the model's graph.

    Arguments:
        cause, effect: a latent and a column, in one order or the other.
        strength: the edge's weight, see `CrossModalQueries.graph`.
        backwards: what the model gives the opposite direction.
        margin: nats by which the training rows speak for this direction; None where the networks alone decided.
        present: share of the resampled tables in which the two are linked at all; None where there were too few rows.
        direction: share of those in which the link points this way; None where it was never there, or not `directed`.
        held_out: share of the effect that the model explains on the test split: of its variance, or of its log-likelihood.
        accuracy: of a binary or categorical effect, on the test split.
        straight: whether a line does as well as a curve and the column looks Gaussian, so that there is no direction to tell; None where one of
            the two is no number.
        alone: strength of the link when the latent is read off the picture without, or with somebody else's, row of the table.
        shown: the same when the encoder is shown the picture's own row.
        trend: Spearman's correlation of cause and effect; None for a categorical one.
        directed: whether rows can tell a direction at all: not between a latent, which is known up to a monotone map, and a binary or categorical
            column, whatever the two look like.
        chance: standard deviation of the margin where a latent has nothing to do with the column; None where there is no margin.
    """

    cause: str
    effect: str
    strength: float
    backwards: float
    margin: float | None
    present: float | None
    direction: float | None
    held_out: float
    accuracy: float | None
    straight: bool | None
    alone: float
    shown: float
    trend: float | None
    directed: bool = True
    chance: float | None = None


@dataclass(frozen=True)
class Findings:
    """Everything the page tells but its pictures.

    Arguments:
        graph: the model's, over latents and then columns.
        columns: the variables of the table.
        links: the edges, the strongest first.
        confidence: (p, p) share of resampled tables with the edge; None where there were too few rows.
        resamples, unused, seconds: how many tables were drawn, how many could not be used, and how long that took.
        rows: (training, validation, test) images.
        resampled_rows: rows that were drawn from.
        label_influence: (m,) how much of each latent is copied from the table when the encoder sees it: 0 to 1.
        threshold: below which the model has no edge.
        by_likelihood: whether links between latents and columns were decided by the likelihood of both directions, not by the networks.
    """

    graph: CausalGraph
    columns: tuple[Variable, ...]
    links: tuple[LinkFound, ...]
    confidence: np.ndarray | None
    resamples: int
    unused: int
    seconds: float
    rows: tuple[int, int, int]
    resampled_rows: int
    label_influence: np.ndarray
    threshold: float
    by_likelihood: bool = True

    @property
    def latents(self) -> tuple[str, ...]:
        return self.graph.names[: len(self.graph.names) - len(self.columns)]

    def of(self, node: str) -> list[LinkFound]:
        """The links of a node."""
        return [link for link in self.links if node in (link.cause, link.effect)]


@dataclass(frozen=True)
class Table:
    """Latents and columns of some rows, in the order of the graph."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: np.ndarray  # (N, p), latents as the model's graph sees them: without the table wherever the encoder can do without
    alone: np.ndarray  # (N, p), latents that owe nothing to their own row of the table
    shown: np.ndarray  # (N, p), latents of an encoder that sees it
    latents: int  # how many of the p

    def column(self, name: str) -> np.ndarray:
        return self.values[:, self.names.index(name)]

    def kind(self, name: str) -> str:
        return self.kinds[self.names.index(name)]

    def is_latent(self, name: str) -> bool:
        return self.names.index(name) < self.latents


def gather(model: CrossModalQueries, data: Dataset, *, seed: int = 0) -> Table:
    """At most MOST_ROWS rows of all splits, their pictures encoded in each of the three ways."""
    chosen = _drawn(data, MOST_ROWS, seed)
    labels = torch.cat([part.labels.cpu() for part in chosen])

    def beside(latents: list[Tensor]) -> np.ndarray:
        return torch.cat([torch.cat(latents).cpu(), labels], dim=1).double().numpy()

    shown = beside([model.encode(part.images, part.labels)[..., 0] for part in chosen])
    if model.needs_labels:
        values, alone = shown, beside([_without_own_row(model, part, seed) for part in chosen])
    else:
        values = alone = beside([ask(model, "encode", part)[..., 0] for part in chosen])
    kinds = ("continuous",) * len(model.latent_names) + tuple(v.kind for v in data.variables)
    return Table(model.node_names, kinds, values, alone, shown, len(model.latent_names))


def _drawn(data: Dataset, most: int, seed: int) -> list[Split]:
    """Rows of every split in its share, `most` in all."""
    splits = (data.train, data.validation, data.test)
    total = sum(map(len, splits))
    if total <= most:
        return list(splits)
    rng = np.random.default_rng([seed, 11])
    return [part[torch.as_tensor(np.sort(rng.permutation(len(part))[: max(1, most * len(part) // total)]))] for part in splits]


def _without_own_row(model: CrossModalQueries, part: Split, seed: int) -> Tensor:
    """Latents (N, m) of pictures that were shown with the rows of other pictures."""
    order = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed)).to(part.labels.device)
    return model.encode(part.images, part.labels[order])[..., 0].cpu()


def find(model: CrossModalQueries, data: Dataset, *, resamples: int | None = None, seed: int = 0) -> Findings:
    """Measure links, their confidence and what they explain on the test split; without `resamples` as many as take about 20 seconds."""
    table = gather(model, data, seed=seed)
    if resamples is None:
        numbers = sum(v.kind == "continuous" for v in data.variables)
        resamples = int(np.clip(DECISIONS // max(numbers, 1), FEWEST_RESAMPLES, RESAMPLES))
    started = time.perf_counter()
    confidence, unused = _confidence(model, table, model.visible(data.train), resamples, seed)
    seconds = time.perf_counter() - started
    latents = ask(model, "encode", data.test)[..., 0]
    values = {name: latents[:, i] for i, name in enumerate(model.latent_names)}
    values |= {name: data.test.labels[:, i].cpu() for i, name in enumerate(data.names)}
    edges = sorted(model.graph.edges, key=lambda edge: -edge[2])
    part = data.test[torch.arange(min(len(data.test), MOST_ROWS))]
    return Findings(
        graph=model.graph,
        columns=data.variables,
        links=tuple(_link(model, edge, table, confidence, values, data.train) for edge in edges),
        confidence=confidence,
        resamples=resamples if confidence is not None else 0,
        unused=unused,
        seconds=seconds,
        rows=(len(data.train), len(data.validation), len(data.test)),
        resampled_rows=len(table.values),
        label_influence=_copied(model, part),
        threshold=model.settings.edge_threshold,
        by_likelihood=model.settings.direction == "likelihood",
    )


def _copied(model: CrossModalQueries, part: Split) -> np.ndarray:
    """(m,) label_influence; 0 for a latent that does not change at all."""
    return np.nan_to_num(model.label_influence(part.images, part.labels).cpu().double().numpy()).clip(0, 1)


def _confidence(model: CrossModalQueries, table: Table, visible: np.ndarray, resamples: int, seed: int) -> tuple[np.ndarray | None, int]:
    """(p, p) share of resampled tables with each edge, and how many tables could not be used; None with too few rows to tell.

    Edges are those of `visible` latents (m,), and of any that has one in the model's graph.
    """
    varies = np.flatnonzero(table.values.std(axis=0) > 1e-9)
    if len(table.values) < FEWEST_ROWS or len(varies) < 2:
        return None, 0
    names, kinds = ([part[i] for i in varies] for part in (table.names, table.kinds))
    allowed = model.networks.allowed.cpu().numpy()[np.ix_(varies, varies)] > 0
    m, edges = len(model.latent_names), model.graph.adjacency
    visible = (visible | (edges.sum(0) + edges.sum(1) > 0)[:m])[varies[varies < m]]
    values = table.values[:, varies]
    try:
        learner, known = relearn(model, values, names, kinds, allowed, visible)
        found = bootstrap(values, learner, resamples=resamples, names=names, kinds=kinds, seed=seed, knowledge=known)
    except DataError:  # no resample of so few rows keeps every category, say
        return None, resamples
    confidence = np.zeros((len(table.names), len(table.names)))
    confidence[np.ix_(varies, varies)] = found.confidence
    return confidence, found.failed


def relearn(
    model: CrossModalQueries, values: np.ndarray, names: Sequence[str], kinds: Sequence[str], allowed: np.ndarray, visible: np.ndarray
) -> tuple[Callable[..., Discovery], Knowledge]:
    """What decides on links of resampled tables as the model does, and the pairs left to networks: those with some strength on the whole table."""
    settings = model.settings
    latents = [k for k, name in enumerate(names) if name in model.latent_names]
    columns = [k for k in range(len(names)) if k not in latents] if settings.direction == "likelihood" else []
    numbers = {i: k for i, k in enumerate(columns) if kinds[k] == "continuous"}
    by_chance = {i: margin_by_chance(values[:, k])[0] for i, k in numbers.items()}
    settled = np.zeros_like(allowed)
    settled[np.ix_(latents, columns)] = settled[np.ix_(columns, latents)] = True
    known = plausible(values, names, kinds, allowed & ~settled, 0.5 * settings.edge_threshold)
    how: dict[str, Any] = {"threshold": settings.edge_threshold, "one_each": settings.one_each, "kinds": [kinds[k] for k in columns]}

    def learn(rows: np.ndarray, names: Sequence[str], kinds: Sequence[str], *, seed: int, knowledge: Knowledge) -> Discovery:
        found = additive(rows, names, kinds, seed=seed, knowledge=knowledge, threshold=settings.edge_threshold)
        if not columns:
            return found
        decided = decide_edges(rows[:, latents], rows[:, columns], shown=visible, by_chance=by_chance, **how)
        weights = np.array(found.graph.weights)
        weights[np.ix_(columns, latents)] = decided.causes
        weights[np.ix_(latents, columns)] = decided.effects
        graph = CausalGraph(tuple(names), weights).to_acyclic()
        thin = np.argwhere((np.abs(decided.margins) < OPEN) & (decided.causes + decided.effects.T > 0))
        pairs = [(names[columns[i]], names[latents[j]]) for i, j in thin if i in numbers]
        edges = {edge[:2] for edge in graph.edges}
        thin_edges = [edge for a, b in pairs for edge in ((a, b), (b, a)) if edge in edges]
        return found.replace(graph=graph, ambiguous=[*(edge for edge in found.ambiguous if edge in edges), *thin_edges])

    return learn, known


def _link(
    model: CrossModalQueries,
    edge: tuple[str, str, float],
    table: Table,
    confidence: np.ndarray | None,
    test: dict[str, Tensor],
    train: Split,
) -> LinkFound:
    cause, effect, strength = edge
    j, i = table.names.index(cause), table.names.index(effect)
    present, direction = None, None
    directed = model.tells_direction(cause, effect)
    if confidence is not None:
        present = float(min(confidence[j, i] + confidence[i, j], 1.0))
        direction = float(confidence[j, i]) / present if present and directed else None
    held_out, accuracy = explained_by_model(model, cause, effect, test)
    pair = [table.column(name) for name in (cause, effect)]
    continuous = table.kind(cause) == table.kind(effect) == "continuous"
    return LinkFound(
        cause=cause,
        effect=effect,
        strength=strength,
        backwards=float(model.influence[i, j]),
        margin=_margin(model, cause, effect),
        chance=_chance(model, cause, effect, train),
        directed=directed,
        present=present,
        direction=direction,
        held_out=held_out,
        accuracy=accuracy,
        straight=_is_straight_gaussian(table, cause, effect, model.latent_names) if continuous else None,
        alone=_strength(table, table.alone, cause, effect),
        shown=_strength(table, table.shown, cause, effect),
        trend=None if "categorical" in (table.kind(cause), table.kind(effect)) else rank_correlation(*pair),
    )


def _strength(table: Table, values: np.ndarray, cause: str, effect: str) -> float:
    """Of a link between two columns of `values` (N, p), by themselves: across, as the model decides; among latents or columns, as `additive` does."""
    pair, kinds = values[:, [table.names.index(cause), table.names.index(effect)]], [table.kind(cause), table.kind(effect)]
    if not (pair.std(axis=0) > 1e-9).all():
        return 0.0
    if table.is_latent(cause) == table.is_latent(effect):
        return Regressions(pair, [cause, effect], kinds).fit([0], 1).strengths[0]
    latent, column = (0, 1) if table.is_latent(cause) else (1, 0)
    return float(np.sqrt(associations(pair[:, [latent]], pair[:, [column]], [kinds[column] != "continuous"])[0][0, 0]))


def _margin(model: CrossModalQueries, cause: str, effect: str) -> float | None:
    """Nats for cause -> effect in the model's own decision."""
    latents, columns = model.latent_names, model.spec.names
    if model.settings.direction != "likelihood" or (cause in latents) == (effect in latents):
        return None
    column, latent = (cause, effect) if cause in columns else (effect, cause)
    if model.spec.variable(column).kind != "continuous":
        return None
    nats = float(model.margins[columns.index(column), latents.index(latent)])
    return nats if cause == column else -nats


def _chance(model: CrossModalQueries, cause: str, effect: str, train: Split) -> float | None:
    """How much the margin of this column with unrelated latents scatters, over as many training rows as the model decided on."""
    if _margin(model, cause, effect) is None:
        return None
    column = model.spec.names.index(cause if cause in model.spec.names else effect)
    return margin_by_chance(train.labels[:LABEL_BANK, column].double().cpu().numpy())[1]


def _is_straight_gaussian(table: Table, cause: str, effect: str, latents: Sequence[str]) -> bool:
    """Whether the two are a line apart, a latent on the scale on which it is Gaussian (its own is arbitrary), and the column Gaussian itself."""
    pair = [normal_scores(table.column(name)) if name in latents else table.column(name) for name in (cause, effect)]
    columns = [table.column(name) for name in (cause, effect) if name not in latents]
    return is_straight(*pair) and all(len(c) >= FEWEST_ROWS and float(normaltest(c).pvalue) > GAUSSIAN_P for c in columns)


def is_straight(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a line tells as much of each from the other as a curve does; then neither direction is better."""
    return all(explained(x, y) - explained(x, y, straight=True) < BENT for x, y in ((a, b), (b, a)))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's; 0 where one of the two is constant."""
    ranks = [rankdata(values) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1]) if all(r.std() > 0 for r in ranks) else 0.0


def explained_by_model(model: CrossModalQueries, cause: str, effect: str, values: dict[str, Tensor]) -> tuple[float, float | None]:
    """What the model's own f explains of an effect: 1 - squared error / variance and None, or the share of the log-likelihood and the accuracy."""
    causes: Sequence[str] = model.graph.parents(effect)
    made = model.mechanism(effect, {name: values[name] for name in causes or [cause]}).cpu().double()
    truth = values[effect].double()
    variable = model.spec.variable(effect) if effect in model.spec.names else None
    if variable is None or variable.kind == "continuous":
        return float(1 - (truth - made).square().mean() / truth.var(correction=0).clamp(min=1e-12)), None
    chances = torch.stack([1 - made, made], dim=1) if variable.kind == "binary" else made
    code = truth.long()
    shares = torch.bincount(code, minlength=chances.shape[1]).double() / len(code)
    without = -(shares[shares > 0] * shares[shares > 0].log()).sum()
    loss = -chances.gather(1, code[:, None]).clamp(min=1e-9).log().mean()
    return float(1 - loss / without.clamp(min=1e-9)), float((chances.argmax(1) == code).double().mean())
