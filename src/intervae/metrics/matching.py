"""Which code stands for which factor: matchings by name, and MCC, the mean correlation under the best one-to-one matching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from intervae.errors import UsageError, unknown
from intervae.metrics.base import Measurement
from intervae.metrics.disentanglement import Kinds
from intervae.metrics.samples import Samples, read_samples

METHODS = {
    "identity": "code i stands for factor i; as many codes as factors",
    "mic": "each factor gets the code with the largest MIC, as in CMCL; one code may stand for several factors",
    "hungarian": "one to one, largest sum of |Pearson correlation|",
    "hungarian-spearman": "one to one, largest sum of |Spearman correlation|",
    "hungarian-mic": "one to one, largest sum of MIC",
}
CORRELATIONS = ("pearson", "spearman")
MATCHINGS = ("hungarian", "identity")


@dataclass(frozen=True, eq=False)
class Matching:
    """For each factor the code that stands for it.

    Arguments:
        method: how it was found, a key of METHODS.
        columns: (m,) the code's column for every factor; None where fewer codes than factors leave it without.
        pairs: the same by name.
        scores: (m,) what the method looks at (|correlation| or MIC) of each pair, 0 for a factor without a code.
    """

    method: str
    columns: tuple[int | None, ...]
    pairs: dict[str, str | None]
    scores: tuple[float, ...]

    def __call__(self, codes: Any) -> np.ndarray:
        """The columns of codes (N, d) in the order of the factors: (N, m)."""
        missing = [factor for factor, code in self.pairs.items() if code is None]
        if missing:
            raise UsageError(f"no code is left for {', '.join(missing)}: there are fewer codes than factors; match with method='mic'.")
        return np.asarray(codes)[:, [column for column in self.columns if column is not None]]


def match(
    codes: Any, factors: Any, *, method: str = "hungarian", names: Sequence[str] | None = None, kinds: Kinds = None, dims: str | None = None
) -> Matching:
    """Match codes to factors by a named method: "identity", "mic", "hungarian", "hungarian-spearman" or "hungarian-mic"; see METHODS.

    codes, factors, names, kinds, dims: see `samples.read_samples`.
    """
    if method not in METHODS:
        raise unknown("matching", method, METHODS)
    samples = read_samples(codes, factors, names=names, kinds=kinds, dims=dims)
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
    """Mean correlation coefficient in [0, 1]: |correlation| of every factor with its own code, mean over factors.

    Arguments:
        correlation: "pearson" (codes are the factors up to scale and sign) or "spearman" (up to a monotone map).
        matching: "hungarian" finds the one-to-one matching with the largest sum; "identity" takes code i for factor i.
        names, kinds, dims: see `samples.read_samples`.

    A constant code correlates 0; with fewer codes than factors the factors left over count 0.
    """
    if correlation not in CORRELATIONS:
        raise unknown("correlation", correlation, CORRELATIONS)
    if matching not in MATCHINGS:
        raise unknown("matching", matching, MATCHINGS)
    samples = read_samples(codes, factors, names=names, kinds=kinds, dims=dims)
    found = _matching(matching, correlations(samples, correlation), samples)
    return Measurement(
        "mcc",
        float(np.mean(found.scores)),
        len(samples),
        dict(zip(samples.factor_names, found.scores, strict=True)),
        parameters={"correlation": correlation, **samples.parameters, "matching": matching, "matched": found.pairs},
        higher_is_better=True,
    )


def correlations(samples: Samples, kind: str) -> np.ndarray:
    """(d, m) |correlation| of every code with every factor; 0 for a constant code."""

    def standardised(table: np.ndarray) -> np.ndarray:
        ranked = rankdata(table, axis=0) if kind == "spearman" else table
        centred = ranked - ranked.mean(0)
        length = np.linalg.norm(centred, axis=0)
        varies = np.ptp(ranked, axis=0) > 0
        return np.where(varies, centred / np.where(varies, length, 1.0), 0.0)

    return np.minimum(np.abs(standardised(samples.codes).T @ standardised(samples.factors)), 1.0)


def _scores(samples: Samples, method: str) -> np.ndarray:
    if method.endswith("mic"):
        from intervae.metrics.information import mic_matrix

        return mic_matrix(samples.codes, samples.factors)
    return correlations(samples, "spearman" if method.endswith("spearman") else "pearson")


def _matching(method: str, scores: np.ndarray, samples: Samples) -> Matching:
    """The matching of scores (d, m)."""
    codes, factors = scores.shape
    columns: list[int | None] = [None] * factors
    if method == "identity":
        if codes != factors:
            raise UsageError(f"the identity matches code i to factor i, but there are {codes} codes and {factors} factors; use another matching.")
        columns = list(range(factors))
    elif method == "mic":
        columns = [int(i) for i in scores.argmax(0)]
    else:
        for code, factor in zip(*linear_sum_assignment(scores, maximize=True), strict=True):
            columns[int(factor)] = int(code)
    pairs = {name: None if c is None else samples.code_names[c] for name, c in zip(samples.factor_names, columns, strict=True)}
    return Matching(method, tuple(columns), pairs, tuple(0.0 if c is None else float(scores[c, i]) for i, c in enumerate(columns)))
