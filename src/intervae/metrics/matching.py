"""Matchings of codes to factors, and MCC, the mean correlation under the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from intervae.errors import UsageError, unknown
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import (
    CodesAndFactors,
    Kinds,
    check_codes_and_factors,
)

METHODS = {
    "identity": "code i for factor i; as many codes as factors",
    "mic": "the code with the largest MIC for each factor, as in CMCL; codes may repeat",
    "hungarian": "one to one, largest sum of |Pearson correlation|",
    "hungarian-spearman": "one to one, largest sum of |Spearman correlation|",
    "hungarian-mic": "one to one, largest sum of MIC",
}
SCORES = {
    "identity": "pearson",
    "mic": "mic",
    "hungarian": "pearson",
    "hungarian-spearman": "spearman",
    "hungarian-mic": "mic",
}
"""Method -> the dependence of a code and a factor that it maximises or reports."""
CORRELATIONS = ("pearson", "spearman")
MATCHINGS = ("hungarian", "identity")


@dataclass(frozen=True, eq=False)
class Matching:
    """The code of each factor.

    Arguments:
        method: a key of METHODS.
        columns: (m,) column of the code of each factor; None for a factor without a code.
        pairs: names of the codes by name of the factor.
        scores: (m,) |correlation| or MIC of each pair, 0 for a factor without a code.
    """

    method: str
    columns: tuple[int | None, ...]
    pairs: dict[str, str | None]
    scores: tuple[float, ...]

    def __call__(self, codes: Any) -> np.ndarray:
        """Return the columns of codes (N, d) in the order of the factors, (N, m)."""
        missing = [factor for factor, code in self.pairs.items() if code is None]
        if missing:
            raise UsageError(
                f"no code is left for {', '.join(missing)}: there are fewer codes than factors; "
                "match with method='mic'."
            )
        return np.asarray(codes)[:, [column for column in self.columns if column is not None]]


def match(
    codes: Any,
    factors: Any,
    *,
    method: str = "hungarian",
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Matching:
    """Match codes to factors.

    Arguments:
        method: "identity", "mic", "hungarian", "hungarian-spearman" or "hungarian-mic"; see
            METHODS.
        codes, factors, names, kinds, dims: see `codes_and_factors.check_codes_and_factors`.
    """
    if method not in METHODS:
        raise unknown("matching", method, METHODS)
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    return _matching(method, _scores(samples, method), samples)


def mcc(
    codes: Any,
    factors: Any,
    *,
    correlation: str = "pearson",
    matching: str = "hungarian",
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the mean correlation coefficient, in [0, 1].

    It is the mean over factors of |correlation| with the matched code; 0 for a constant code and
    for a factor without a code.

    Arguments:
        correlation: "pearson" (codes equal factors up to scale and sign) or "spearman" (up to a
            monotone map).
        matching: "hungarian", the one-to-one matching with the largest sum, or "identity", code i
            for factor i.
        codes, factors, names, kinds, dims: see `codes_and_factors.check_codes_and_factors`.
    """
    if correlation not in CORRELATIONS:
        raise unknown("correlation", correlation, CORRELATIONS)
    if matching not in MATCHINGS:
        raise unknown("matching", matching, MATCHINGS)
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    matched = _matching(matching, correlations(samples, correlation), samples)
    return Measurement(
        "mcc",
        float(np.mean(matched.scores)),
        len(samples),
        dict(zip(samples.factor_names, matched.scores, strict=True)),
        parameters={
            "correlation": correlation,
            **samples.parameters,
            "matching": matching,
            "matched": matched.pairs,
        },
        higher_is_better=True,
    )


def correlations(samples: CodesAndFactors, kind: str) -> np.ndarray:
    """Return |correlation| (d, m) of every code with every factor; 0 for a constant code."""

    def standardised(table: np.ndarray) -> np.ndarray:
        ranked = scipy.stats.rankdata(table, axis=0) if kind == "spearman" else table
        centred = ranked - ranked.mean(0)
        length = np.linalg.norm(centred, axis=0)
        varies = np.ptp(ranked, axis=0) > 0
        return np.where(varies, centred / np.where(varies, length, 1.0), 0.0)

    return np.minimum(np.abs(standardised(samples.codes).T @ standardised(samples.factors)), 1.0)


def _scores(samples: CodesAndFactors, method: str) -> np.ndarray:
    kind = SCORES[method]
    if kind == "mic":
        from intervae.metrics.maximal_information import mic_matrix

        return mic_matrix(samples.codes, samples.factors)
    return correlations(samples, kind)


def _matching(method: str, scores: np.ndarray, samples: CodesAndFactors) -> Matching:
    """Return the matching for scores (d, m)."""
    codes, factors = scores.shape
    columns: list[int | None] = [None] * factors
    if method == "identity":
        if codes != factors:
            raise UsageError(
                f"the identity matches code i to factor i, but there are {codes} codes and "
                f"{factors} factors; use another matching."
            )
        columns = list(range(factors))
    elif method == "mic":
        columns = [int(i) for i in scores.argmax(0)]
    else:
        for code, factor in zip(
            *scipy.optimize.linear_sum_assignment(scores, maximize=True), strict=True
        ):
            columns[int(factor)] = int(code)
    pairs = {
        name: None if c is None else samples.code_names[c]
        for name, c in zip(samples.factor_names, columns, strict=True)
    }
    return Matching(
        method,
        tuple(columns),
        pairs,
        tuple(0.0 if c is None else float(scores[c, i]) for i, c in enumerate(columns)),
    )
