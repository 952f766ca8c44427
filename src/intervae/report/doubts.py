"""Where CMCL's assumptions look violated: columns that depend on each other, nodes with several edges, directions that nothing tells, copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from intervae.data.base import Dataset, Variable
from intervae.discovery.base import random_rows
from intervae.discovery.design import one_hot
from intervae.discovery.kernels import Centred, dependence_p, gaussian_kernel
from intervae.report.findings import Findings, LinkFound, rank_correlation

TESTED_ROWS = 500  # on which columns are tested for dependence; the time grows with their square
SIGNIFICANT = 0.01  # p of a dependence between columns, all pairs together (Holm)
SURE = 0.7  # share of resamples, below which a link or its direction is doubted
THIN = 0.1  # share by which one direction must exceed the other in the model's own weights
THIN_NATS = 3.0  # by which the rows must speak for one direction, where that was measured: odds of 20 to 1
TIGHT = 0.02  # share of the variance left unexplained, below which rows made in one direction spoke for the other (docs/cmcl.md)
CHANCES = 2.0  # standard deviations of the margin of shuffled rows that it must exceed as well
FEW_ROWS, FEW_PER_NODE = 300, 15  # training images, in all and for each latent and column
FEW_OF_CATEGORY = 10  # training images of a category


@dataclass(frozen=True)
class Dependence:
    """Two columns: how much they have to do with each other.

    Arguments:
        first, second: names.
        measure: "rank correlation", "correlation ratio" or "Cramér's V".
        size: of the measure, between -1 and 1.
        p: of independence by HSIC, corrected for the number of pairs (Holm).
    """

    first: str
    second: str
    measure: str
    size: float
    p: float


@dataclass(frozen=True)
class Doubt:
    """One sentence or two on what looks violated, with a name for its kind and the nodes it is about."""

    kind: str
    about: tuple[str, ...]
    text: str


CHECKS = {
    "dependent columns": "columns of the table are independent of each other",
    "several edges": "every latent and every column has at most one link",
    "no direction": "links are with columns of numbers, whose direction data can tell",
    "direction open": f"the direction of every link is the same in {SURE:.0%} of the resampled tables, and clear in the model's own weights",
    "straight": "links between numbers are curved, not straight",
    "weak link": f"every link is there in {SURE:.0%} of the resampled tables",
    "not on new images": "links explain something on images that were not trained on",
    "copied": "links are still there when latents are read off the pictures alone",
    "few latents": "there are as many latents as columns, or more",
    "few rows": "there are enough images, and enough of every category",
    "no links": "there are links at all",
}


def doubts(found: Findings, data: Dataset, dependences: Sequence[Dependence]) -> list[Doubt]:
    """Everything that speaks against taking the graph at its word, the most basic first."""
    said = [_dependent(d) for d in dependences if d.p < SIGNIFICANT]
    said += _several_edges(found)
    for link in found.links:
        said += _of_link(link, found)
    if len(found.latents) < len(found.columns):
        text = (
            f"There are {len(found.columns)} columns but only {len(found.latents)} latents, and with at most one link each some columns must be "
            "without; train with more latents."
        )
        said.append(Doubt("few latents", (), text))
    said += _few_rows(found, data)
    if not found.links:
        text = (
            f"No column has a link with a strength of {found.threshold:g} or more. More epochs, more images, or a likelihood that sees fine grey "
            "values (likelihood=gaussian with a small scale) may help; or there is nothing to find."
        )
        said.append(Doubt("no links", (), text))
    return said


# ---- columns --------------------------------------------------------------------------------------------------------
def column_dependences(data: Dataset, *, seed: int = 0) -> list[Dependence]:
    """Every pair of columns of the training split, the most dependent first: HSIC with kernels for every kind of column, p corrected by Holm."""
    labels = data.train.labels.double().cpu().numpy()
    tested = random_rows(labels, TESTED_ROWS, seed)
    kernels = [_kernel(column, variable) for column, variable in zip(tested.T, data.variables, strict=True)]
    pairs = [(i, j) for i, j in combinations(range(len(kernels)), 2) if kernels[i] is not None and kernels[j] is not None]
    raw = np.array([dependence_p(kernels[i], kernels[j]) for i, j in pairs])  # type: ignore[arg-type]
    found = []
    for (i, j), p in zip(pairs, holm(raw), strict=True):
        measure, size = association(labels[:, i], labels[:, j], data.variables[i].kind, data.variables[j].kind)
        found.append(Dependence(data.names[i], data.names[j], measure, size, float(p)))
    return sorted(found, key=lambda d: (d.p, -abs(d.size)))


def _kernel(column: np.ndarray, variable: Variable) -> Centred | None:
    """None for a column that came out constant, or with too few rows for the test."""
    if column.std() == 0 or len(column) < 6:
        return None
    points = one_hot(variable.name, column) if variable.kind == "categorical" else (column - column.mean()) / column.std()
    return Centred.of(gaussian_kernel(points))


def holm(p: np.ndarray) -> np.ndarray:
    """p-values (k,) corrected for their number by Holm's step-down."""
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


def association(a: np.ndarray, b: np.ndarray, kind_a: str, kind_b: str) -> tuple[str, float]:
    """How much two columns have to do with each other, in the measure that suits their kinds."""
    if "categorical" not in (kind_a, kind_b):
        return "rank correlation", rank_correlation(a, b)
    if kind_a == kind_b or "binary" in (kind_a, kind_b):
        return "Cramér's V", cramers_v(a, b)
    groups, values = (a, b) if kind_a == "categorical" else (b, a)
    between = sum((groups == g).mean() * (values[groups == g].mean() - values.mean()) ** 2 for g in np.unique(groups))
    return "correlation ratio", float(np.sqrt(between / max(values.var(), 1e-12)))


def cramers_v(a: np.ndarray, b: np.ndarray) -> float:
    """sqrt(chi^2 / (N (k - 1))), k the smaller number of categories."""
    x, y = one_hot("", a), one_hot("", b)
    counts = x.T @ y
    expected = np.outer(counts.sum(1), counts.sum(0)) / len(a)
    smaller = min(counts.shape) - 1
    return float(np.sqrt(((counts - expected) ** 2 / expected).sum() / (len(a) * smaller))) if smaller else 0.0


def _dependent(d: Dependence) -> Doubt:
    p = "below 0.0001" if d.p < 1e-4 else f"{d.p:.2g}"
    text = (
        f"{d.first} and {d.second} depend on each other ({d.measure} {d.size:.2f}, p {p}), but columns are assumed to be independent. A link of one "
        "may stand for the other; train again with one of the two to see."
    )
    return Doubt("dependent columns", (d.first, d.second), text)


# ---- links ----------------------------------------------------------------------------------------------------------
def _several_edges(found: Findings) -> list[Doubt]:
    said = []
    for node in found.graph.names:
        others = [link.effect if link.cause == node else link.cause for link in found.of(node)]
        if len(others) > 1:
            text = (
                f"{node} has {len(others)} links ({', '.join(others)}), but at most one is assumed. Several latents may share one thing in the "
                "picture, or several columns may stand for it."
            )
            said.append(Doubt("several edges", (node, *others), text))
    return said


def _of_link(link: LinkFound, found: Findings) -> list[Doubt]:
    pair, said = (link.cause, link.effect), []
    name = f"{link.cause} → {link.effect}"
    weak = link.present is not None and link.present < SURE
    if weak:
        said.append(Doubt("weak link", pair, f"{name}: in only {link.present:.0%} of the resampled tables are the two linked at all."))
    if not link.directed:
        column = link.effect if link.cause in found.latents else link.cause
        text = (
            f"{column} has categories, and a latent is known only up to a transformation that the model chose: whichever of the two is the cause, "
            "the same rows could come out. The arrow is the model's choice and no evidence."
        )
        said.append(Doubt("no direction", pair, f"{name}: {text}"))
    elif not weak:
        said += _of_direction(link)
    if link.held_out <= 0:
        text = f"on the {found.rows[2]} test images the model predicts {link.effect} no better than its mean or its shares do."
        said.append(Doubt("not on new images", pair, f"{name}: {text}"))
    if link.alone < found.threshold <= link.shown:
        latent = link.cause if link.cause in found.latents else link.effect
        text = (
            f"the link vanishes (strength {link.alone:.2f} instead of {link.shown:.2f}) when {latent} is read off the picture without its own row of "
            f"the table, so {latent} copies the table and the link says nothing about the picture. Train with label_dropout=0.5 or more."
        )
        said.append(Doubt("copied", pair, f"{name}: {text}"))
    return said


def _of_direction(link: LinkFound) -> list[Doubt]:
    """The first of what speaks against the direction of a link that has one."""
    kind, text = "direction open", ""
    if link.straight:
        kind = "straight"
        text = (
            "the relation is a straight line, as far as can be seen, and a straight line has no direction: the arrow may as well point the other way."
        )
    elif link.margin is not None and 1 - link.strength**2 < TIGHT:
        text = (
            f"the two follow each other so closely (only {1 - link.strength**2:.1%} of the variance is left unexplained) that either direction fits. "
            f"Below {TIGHT:.0%}, rows made in one direction have spoken for the other by more than 200 nats, so that {link.margin:.0f} nats for this "
            "one are no evidence."
        )
    elif link.direction is not None and link.direction < SURE:
        point = f"only {link.direction:.0%} of the resampled tables in which the two are linked point this way"
        text = f"the direction is not settled, {point}." if link.direction >= 0.5 else f"the table points the other way: {point}."
    elif link.margin is not None and link.margin < max(THIN_NATS, CHANCES * (link.chance or 0.0)):
        beside = "" if link.chance is None else f"; with its rows shuffled the column gives {link.chance:.1f} to one direction or the other"
        text = f"the rows speak for this direction by {link.margin:.1f} nats only{beside}."
    elif link.backwards > (1 - THIN) * link.strength:
        text = f"the model gives the other direction nearly the same weight ({link.backwards:.2f} against {link.strength:.2f})."
    return [Doubt(kind, (link.cause, link.effect), f"{link.cause} → {link.effect}: {text}")] if text else []


def _few_rows(found: Findings, data: Dataset) -> list[Doubt]:
    said = []
    train, needed = found.rows[0], max(FEW_ROWS, FEW_PER_NODE * len(found.graph))
    if train < needed:
        text = f"There are {train} training images for {len(found.graph)} latents and columns; directions need hundreds, here at least {needed}."
        if found.confidence is None:
            text += f" With {found.resampled_rows} rows no confidence could be told."
        said.append(Doubt("few rows", (), text))
    for i, variable in enumerate(data.variables):
        if variable.kind == "continuous":
            continue
        codes, counts = np.unique(data.train.labels[:, i].cpu().numpy(), return_counts=True)
        rare = [f"{variable.show(code)} ({count})" for code, count in zip(codes, counts, strict=True) if count < FEW_OF_CATEGORY]
        if rare:
            more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
            text = f"{variable.name}: fewer than {FEW_OF_CATEGORY} training images have the value {', '.join(rare[:5])}{more}; merge rare values."
            said.append(Doubt("few rows", (variable.name,), text))
    return said
