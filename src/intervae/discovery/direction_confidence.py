"""Calibrated confidence in the direction of each edge of a graph; low ones are "open".

The evidence of `direction_evidence` becomes a probability by a logistic map, fitted on simulated
pairs of families in which the direction is clear, weak, not identifiable or absent (a hidden common
cause); `benchmarks/directions.py` fits it and measures its reliability on other families and on
real pairs. Conditional independences add evidence that needs no noise model: two causes that are
independent, but not given their effect; and an effect that a cause of its cause reaches only
through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, expit

from intervae.causal.graph import CausalGraph
from intervae.discovery.base import random_rows
from intervae.discovery.direction_evidence import MODELS, direction_evidence, evidence_features
from intervae.discovery.kernels import CentredKernel, decades, gaussian_kernel, hsic_p_value
from intervae.discovery.spline_likelihood import residuals, standardise
from intervae.discovery.threads import one_thread
from intervae.errors import DataWarning
from intervae.notes import Note

OPEN_BELOW = 0.8  # confidence below which a direction is open
ROWS = 800  # most rows used
REJECTED = 1.5  # decades of p (p = 0.03) above which independence is rejected
GROUP_ROWS = 40  # rows of similar values in a conditional test
DEPENDENT = 3.0  # decades above which two variables count as dependent
# of a direction that conditional independences decide; the benchmark measures it
STRUCTURE_CONFIDENCE = 0.95


class Calibration(NamedTuple):
    """Weights of `FEATURES`, and slope and intercept of the logistic map of |evidence|."""

    weights: tuple[float, ...]
    slope: float
    intercept: float
    largest: float

    def confidence(self, features: np.ndarray) -> float:
        """Probability of first -> second, from `evidence_features` (9,)."""
        evidence = float(np.dot(self.weights, features))
        preferred = float(expit(self.slope * abs(evidence) + self.intercept))
        preferred = min(max(preferred, 0.5), self.largest)
        return preferred if evidence > 0 else 1.0 - preferred


CALIBRATION = Calibration(
    weights=(0.457, 0.084, -0.144, -0.1, -0.168, 0.271, 0.308, 1.145, 0.347),
    slope=0.637,
    intercept=-0.341,
    largest=0.95,
)
"""As `python benchmarks/directions.py --fit` prints it."""


class OpenDirectionWarning(DataWarning):
    """A model is trained with an edge whose direction the data leaves open."""


@dataclass(frozen=True)
class EdgeDirection:
    """Confidence in the direction of one edge.

    Arguments:
        confidence: calibrated probability of cause -> effect, against effect -> cause.
        fits: noise models whose noise is independent of the cause, as cause -> effect.
        fits_reversed: the same as effect -> cause.
        structure: whether conditional independences decide the direction.
    """

    cause: str
    effect: str
    confidence: float
    fits: tuple[str, ...]
    fits_reversed: tuple[str, ...]
    structure: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the data does not determine the direction well enough."""
        return self.confidence < OPEN_BELOW

    @property
    def reason(self) -> str:
        """Why the direction is open, as part of a sentence."""
        if not self.fits and not self.fits_reversed:
            return "no noise model fits in either direction"
        if self.fits and self.fits_reversed:
            return "noise models fit in both directions"
        other = "this" if self.fits else "the other"
        return f"noise models fit only in {other} direction, but that is weak evidence"

    def note(self) -> Note:
        """Return the note of an open direction."""
        text = (
            f"the direction of {self.cause} -> {self.effect} is open "
            f"(confidence {self.confidence:.0%}: {self.reason}); if you know it, give the graph "
            "(graph=, --graph) or prior knowledge (knowledge=, --knowledge)"
        )
        return Note("open-direction", f"{self.cause} -> {self.effect}", text, self.reason)


@one_thread()
def assess_directions(
    columns: np.ndarray,
    graph: CausalGraph,
    *,
    known: Sequence[tuple[str, str]] = (),
    seed: int = 0,
) -> tuple[EdgeDirection, ...]:
    """Return the confidence in the direction of each edge of a graph.

    Arguments:
        columns: (N, n) continuous, in the order of `graph.names`; at most 800 rows are used.
        known: edges that are not assessed.
        seed: of the rows.
    """
    table = random_rows(columns, ROWS, seed)
    edges = [(a, b) for a, b, _ in graph.edges if (a, b) not in known]
    directions = {(a, b): _assess_pair(table, graph, a, b) for a, b in edges}
    structure = _Structure(table, graph)
    decided = {edge for edge in edges if structure.is_collider(*edge)} | {*known}
    while True:
        further = {e for e in edges if e not in decided and structure.is_chain(*e, decided)}
        if not further:
            break
        decided |= further
    return tuple(
        _with_structure(direction) if edge in decided else direction
        for edge, direction in directions.items()
    )


def _with_structure(direction: EdgeDirection) -> EdgeDirection:
    confidence = max(direction.confidence, STRUCTURE_CONFIDENCE)
    return EdgeDirection(
        direction.cause,
        direction.effect,
        confidence,
        direction.fits,
        direction.fits_reversed,
        structure=True,
    )


def _assess_pair(table: np.ndarray, graph: CausalGraph, cause: str, effect: str) -> EdgeDirection:
    """Compare both directions of an edge, given all other parents of the two variables."""
    others = sorted({*graph.parents(cause), *graph.parents(effect)} - {cause, effect})
    index = [graph.index(name) for name in others]
    evidence, likelihood = direction_evidence(
        table[:, graph.index(cause)], table[:, graph.index(effect)], table[:, index]
    )
    fits, fits_reversed = (
        tuple(model for model, value in zip(MODELS, row, strict=True) if value < REJECTED)
        for row in evidence
    )
    confidence = CALIBRATION.confidence(evidence_features(evidence, likelihood))
    return EdgeDirection(cause, effect, confidence, fits, fits_reversed)


# ---- conditional independences -------------------------------------------------------------------
class _Structure:
    """Directions that follow from (conditional) independences of variables without an edge."""

    def __init__(self, table: np.ndarray, graph: CausalGraph) -> None:
        self.graph = graph
        self.columns = {name: standardise(table[:, graph.index(name)]) for name in graph.names}
        self.kernels: dict[str, CentredKernel] = {}

    def is_collider(self, cause: str, effect: str) -> bool:
        """Whether another cause is independent of this one, but not given the effect.

        With effect -> cause the path through the effect would make the two dependent.
        """
        return any(
            self.marginal(cause, other) < REJECTED
            and self.conditional(cause, other, effect) > DEPENDENT
            for other in self.graph.parents(effect)
            if not self.adjacent(cause, other)
        )

    def is_chain(self, cause: str, effect: str, decided: set[tuple[str, str]]) -> bool:
        """Whether a certain cause of the cause reaches the effect, and only through the cause.

        With effect -> cause it would be independent of the effect, but not given the cause.
        """
        return any(
            self.marginal(first, effect) > DEPENDENT
            and self.conditional(first, effect, cause) < REJECTED
            for first in self.graph.parents(cause)
            if (first, cause) in decided and not self.adjacent(first, effect)
        )

    def adjacent(self, a: str, b: str) -> bool:
        return a == b or b in self.graph.parents(a) or a in self.graph.parents(b)

    def marginal(self, a: str, b: str) -> float:
        """Decades of evidence for a dependence, by HSIC."""
        for name in (a, b):
            if name not in self.kernels:
                kernel = gaussian_kernel(self.columns[name])
                self.kernels[name] = CentredKernel.from_kernel(kernel)
        return decades(hsic_p_value(self.kernels[a], self.kernels[b]))

    def conditional(self, a: str, b: str, condition: str) -> float:
        """Decades of evidence for a dependence given a third variable.

        By HSIC among rows of similar values of the third, whose linear effect is removed; the
        p-values of the groups are combined by Fisher's method.
        """
        rows = np.argsort(self.columns[condition], kind="stable")
        groups = np.array_split(rows, max(len(rows) // GROUP_ROWS, 1))
        statistic = 0.0
        for group in groups:
            line = np.stack([np.ones(len(group)), self.columns[condition][group]], axis=1)
            noises = [residuals(line, self.columns[name][group]) for name in (a, b)]
            first, second = (CentredKernel.from_kernel(gaussian_kernel(e)) for e in noises)
            statistic -= 2 * np.log(hsic_p_value(first, second))
        return decades(float(chdtrc(2 * len(groups), statistic)))
