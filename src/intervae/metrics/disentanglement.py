"""Disentanglement from tables of codes and factors: MIG (Chen et al. 2018), modularity (Ridgeway and Mozer 2018), IRS (Suter et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.samples import Samples, information_matrix, read_samples

Kinds = str | Sequence[str] | None


def mutual_information_matrix(
    codes: Any, factors: Any, *, bins: int = 20, kinds: Kinds = None, dims: str | None = None, normalised: bool = False
) -> np.ndarray:
    """(d, m) mutual information in nats of every code with every factor, or the share of the factor's entropy with normalised=True."""
    matrix, entropies = information_matrix(read_samples(codes, factors, names=None, kinds=kinds, dims=dims), bins)
    return matrix / entropies if normalised else matrix


def mig(codes: Any, factors: Any, *, bins: int = 20, names: Sequence[str] | None = None, kinds: Kinds = None, dims: str | None = None) -> Measurement:
    """Mutual information gap in [0, 1]: for each factor, how much more its best code knows about it than the second best.

    (I(best code; factor) - I(second; factor)) / H(factor), mean over factors; codes (and continuous factors) cut into `bins` of equal width.
    With a single code the second best knows 0. codes, factors, names, kinds, dims: see `samples.read_samples`.
    """
    samples = read_samples(codes, factors, names=names, kinds=kinds, dims=dims)
    matrix, entropies = information_matrix(samples, bins)
    return gaps("mig", matrix / entropies, samples, {"bins": bins})


def modularity(
    codes: Any, factors: Any, *, bins: int = 20, names: Sequence[str] | None = None, kinds: Kinds = None, dims: str | None = None
) -> Measurement:
    """In [0, 1]: whether each code knows about one factor only; the mean over codes of 1 - sum of I^2 over the others / ((m - 1) I_max^2).

    A code without any information scores 0. `per_variable` is per code; the rest as in `mig`.
    """
    samples = read_samples(codes, factors, names=names, kinds=kinds, dims=dims)
    several_factors(samples, "modularity")
    squares = information_matrix(samples, bins)[0] ** 2  # (d, m)
    largest = squares.max(1)
    others = (squares.sum(1) - largest) / (np.where(largest > 0, largest, 1.0) * (squares.shape[1] - 1))
    scores = np.where(largest > 0, 1 - others, 0.0)
    return per_code("modularity", scores, scores.mean(), squares.argmax(1), samples, {"bins": bins})


def irs(
    codes: Any,
    factors: Any,
    *,
    bins: int = 20,
    quantile: float = 0.99,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Interventional robustness score, at most 1: how still a code keeps while one factor is held and all others vary.

    Of each code: 1 - (the `quantile` of its deviations from its mean given the factor, mean over the factor's values) / (its largest deviation
    from its mean), for the factor that does best; the mean over codes weighted by their largest deviation. Constant codes are left out;
    when all are constant the score is 0. `per_variable` is per code; the rest as in `mig`.
    """
    samples = read_samples(codes, factors, names=names, kinds=kinds, dims=dims)
    matrix, largest = _robustness(samples, bins, quantile)
    moving = largest > 0
    scores = matrix.max(1)
    value = np.average(scores[moving], weights=largest[moving]) if moving.any() else 0.0
    return per_code("irs", scores, value, matrix.argmax(1), samples, {"bins": bins, "quantile": quantile, "constant_codes": int((~moving).sum())})


def irs_matrix(codes: Any, factors: Any, *, bins: int = 20, quantile: float = 0.99, kinds: Kinds = None, dims: str | None = None) -> np.ndarray:
    """(d, m) robustness of every code to everything but that factor, see `irs`; 0 for a constant code."""
    return _robustness(read_samples(codes, factors, names=None, kinds=kinds, dims=dims), bins, quantile)[0]


def _robustness(samples: Samples, bins: int, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """The matrix (d, m) of `irs`, and every code's largest deviation from its mean (d,)."""
    if not 0 < quantile <= 1:
        raise UsageError(f"quantile is {quantile}, but it must lie in (0, 1]; 0.99 is usual.")
    if bins < 2:
        raise UsageError(f"bins is {bins}, but at least 2 are needed; 20 is usual.")
    codes = samples.codes
    largest = np.where(np.ptp(codes, axis=0) > 0, np.abs(codes - codes.mean(0)).max(0), 0.0)
    deviations = np.zeros((codes.shape[1], samples.factors.shape[1]))
    for i, classes in enumerate(samples.classes(bins).T):
        order = np.argsort(classes, kind="stable")
        groups = np.split(codes[order], np.flatnonzero(np.diff(classes[order])) + 1)
        deviations[:, i] = np.mean([np.quantile(np.abs(group - group.mean(0)), quantile, axis=0) for group in groups], axis=0)
    still = largest[:, None] == 0
    return np.where(still, 0.0, 1 - deviations / np.where(still, 1.0, largest[:, None])), largest


def gaps(metric: str, scores: np.ndarray, samples: Samples, parameters: dict[str, Any]) -> Measurement:
    """Of scores (d, m), the gap between the best and the second best code of every factor (0 where there is no second)."""
    ordered = np.sort(np.vstack([scores, np.zeros_like(scores[:1])]) if len(scores) == 1 else scores, axis=0)
    values = ordered[-1] - ordered[-2]
    best = {factor: samples.code_names[i] for factor, i in zip(samples.factor_names, scores.argmax(0), strict=True)}
    return Measurement(
        metric,
        float(values.mean()),
        len(samples),
        dict(zip(samples.factor_names, values.tolist(), strict=True)),
        parameters={**parameters, **samples.parameters, "matching": "best code of each factor", "matched": best},
        higher_is_better=True,
    )


def per_code(metric: str, scores: np.ndarray, value: float, best: np.ndarray, samples: Samples, parameters: dict[str, Any]) -> Measurement:
    """A metric that has a score for each code, whose best factors (d,) are given."""
    matched = {code: samples.factor_names[i] for code, i in zip(samples.code_names, best, strict=True)}
    return Measurement(
        metric,
        float(value),
        len(samples),
        dict(zip(samples.code_names, scores.tolist(), strict=True)),
        parameters={**parameters, **samples.parameters, "matching": "best factor of each code", "matched": matched},
        higher_is_better=True,
    )


def several_factors(samples: Samples, metric: str) -> None:
    if samples.factors.shape[1] < 2:
        raise DataError(f"{metric} compares factors, but only {samples.factor_names[0]!r} is given; pass at least two.")
