"""MIG (Chen et al. 2018), modularity (Ridgeway and Mozer 2018) and IRS (Suter et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import (
    CodesAndFactors,
    Kinds,
    check_codes_and_factors,
    information_matrix,
)


def mutual_information_matrix(
    codes: Any,
    factors: Any,
    *,
    bins: int = 20,
    kinds: Kinds = None,
    dims: str | None = None,
    normalised: bool = False,
) -> np.ndarray:
    """Return the mutual information (d, m) of every code with every factor, in nats.

    With normalised=True it is divided by the factor's entropy. Other arguments as in `mig`.
    """
    matrix, entropies = information_matrix(
        check_codes_and_factors(codes, factors, names=None, kinds=kinds, dims=dims), bins
    )
    return matrix / entropies if normalised else matrix


def mig(
    codes: Any,
    factors: Any,
    *,
    bins: int = 20,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the mutual information gap, in [0, 1].

    For each factor (I(best code; factor) - I(second best code; factor)) / H(factor); the headline
    is the mean over factors. With a single code the second best has 0.

    Arguments:
        bins: number of equal-width bins of codes and continuous factors.
        codes, factors, names, kinds, dims: see `codes_and_factors.check_codes_and_factors`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    matrix, entropies = information_matrix(samples, bins)
    return gap_measurement("mig", matrix / entropies, samples, {"bins": bins})


def modularity(
    codes: Any,
    factors: Any,
    *,
    bins: int = 20,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the modularity, in [0, 1]: whether each code is informative on one factor only.

    For each code 1 - sum of I^2 over the other factors / ((m - 1) I_max^2), 0 for a code without
    information; the headline is the mean over codes. `per_variable` is per code. Arguments as in
    `mig`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    require_two_factors(samples, "modularity")
    squares = information_matrix(samples, bins)[0] ** 2  # (d, m)
    largest = squares.max(1)
    others = (squares.sum(1) - largest) / (
        np.where(largest > 0, largest, 1.0) * (squares.shape[1] - 1)
    )
    scores = np.where(largest > 0, 1 - others, 0.0)
    return code_measurement(
        "modularity", scores, scores.mean(), squares.argmax(1), samples, {"bins": bins}
    )


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
    """Return the interventional robustness score, at most 1.

    It measures how little a code changes while one factor is fixed and the others vary. For each
    code and factor 1 - D / D_max: D is the `quantile` of |code - its mean given the factor|, mean
    over the factor's values; D_max is the largest |code - mean|. A code's score is that of its best
    factor; the headline is the mean over codes weighted by D_max. Constant codes are left out; when
    all are constant the score is 0. `per_variable` is per code. Other arguments as in `mig`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    matrix, largest = _robustness(samples, bins, quantile)
    varying = largest > 0
    scores = matrix.max(1)
    value = np.average(scores[varying], weights=largest[varying]) if varying.any() else 0.0
    constant = int((~varying).sum())
    parameters = {"bins": bins, "quantile": quantile, "constant_codes": constant}
    return code_measurement("irs", scores, value, matrix.argmax(1), samples, parameters)


def irs_matrix(
    codes: Any,
    factors: Any,
    *,
    bins: int = 20,
    quantile: float = 0.99,
    kinds: Kinds = None,
    dims: str | None = None,
) -> np.ndarray:
    """Return the robustness (d, m) of every code given every factor, see `irs`.

    A constant code has 0.
    """
    samples = check_codes_and_factors(codes, factors, names=None, kinds=kinds, dims=dims)
    return _robustness(samples, bins, quantile)[0]


def _robustness(
    samples: CodesAndFactors, bins: int, quantile: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix (d, m) of `irs`, and every code's largest deviation from its mean (d,)."""
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
        deviations[:, i] = np.mean(
            [np.quantile(np.abs(group - group.mean(0)), quantile, axis=0) for group in groups],
            axis=0,
        )
    constant = largest[:, None] == 0
    ratios = deviations / np.where(constant, 1.0, largest[:, None])
    return np.where(constant, 0.0, 1 - ratios), largest


def gap_measurement(
    metric: str, scores: np.ndarray, samples: CodesAndFactors, parameters: dict[str, Any]
) -> Measurement:
    """Return the gaps between the best and the second best code of each factor.

    Arguments:
        scores: (d, m); with a single code the second best has 0.
    """
    ordered = np.sort(
        np.vstack([scores, np.zeros_like(scores[:1])]) if len(scores) == 1 else scores, axis=0
    )
    values = ordered[-1] - ordered[-2]
    best = {
        factor: samples.code_names[i]
        for factor, i in zip(samples.factor_names, scores.argmax(0), strict=True)
    }
    return Measurement(
        metric,
        float(values.mean()),
        len(samples),
        dict(zip(samples.factor_names, values.tolist(), strict=True)),
        parameters={
            **parameters,
            **samples.parameters,
            "matching": "best code of each factor",
            "matched": best,
        },
        higher_is_better=True,
    )


def code_measurement(
    metric: str,
    scores: np.ndarray,
    value: float,
    best: np.ndarray,
    samples: CodesAndFactors,
    parameters: dict[str, Any],
) -> Measurement:
    """Return the measurement of a metric with a score for each code.

    Arguments:
        scores: (d,).
        best: (d,) index of the best factor of each code.
    """
    matched = {
        code: samples.factor_names[i] for code, i in zip(samples.code_names, best, strict=True)
    }
    return Measurement(
        metric,
        float(value),
        len(samples),
        dict(zip(samples.code_names, scores.tolist(), strict=True)),
        parameters={
            **parameters,
            **samples.parameters,
            "matching": "best factor of each code",
            "matched": matched,
        },
        higher_is_better=True,
    )


def require_two_factors(samples: CodesAndFactors, metric: str) -> None:
    if samples.factors.shape[1] < 2:
        raise DataError(
            f"{metric} compares factors, but there is only {samples.factor_names[0]!r}; "
            "pass at least two."
        )
