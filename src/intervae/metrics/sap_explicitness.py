"""SAP (Kumar et al. 2018) and explicitness (Ridgeway and Mozer 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import (
    CodesAndFactors,
    Kinds,
    check_codes_and_factors,
    train_test_split,
)
from intervae.metrics.disentanglement import gap_measurement

SVM_C = 0.01
MIN_VARIANCE = 1e-12  # of a code that is not constant, as in the reference library


def sap(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    seed: int = 0,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the separated attribute predictability, in [0, 1].

    For each factor the score of the best single code minus that of the second best; the headline is
    the mean over factors. The score of a discrete factor is the accuracy on the test rows of a
    linear SVM (C 0.01, balanced classes) on one code; that of a continuous factor is the squared
    correlation over the training rows. With a single code the second best has 0. A perfect code
    does not reach 1 for a discrete factor: see docs/metrics.md.

    Arguments:
        test: fraction of rows held out, or separate (codes, factors); not used when all factors
            are continuous.
        codes, factors, names, kinds, dims: see `codes_and_factors.check_codes_and_factors`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    train, held_out = _split_if_discrete(samples, test, seed)
    scores = _sap_scores(train, held_out)
    if not any(train.discrete):
        return gap_measurement("sap", scores, train, {})
    parameters = {
        "training_rows": len(train),
        "test_rows": len(held_out),
        "svm_c": SVM_C,
        "seed": seed,
    }
    return replace(gap_measurement("sap", scores, train, parameters), n=len(train) + len(held_out))


def sap_matrix(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    seed: int = 0,
    kinds: Kinds = None,
    dims: str | None = None,
) -> np.ndarray:
    """Return the score (d, m) of every single code for every factor, see `sap`."""
    samples = check_codes_and_factors(codes, factors, names=None, kinds=kinds, dims=dims)
    return _sap_scores(*_split_if_discrete(samples, test, seed))


def explicitness(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    seed: int = 0,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> Measurement:
    """Return the explicitness: linear predictability of each factor from all codes.

    0.5 is chance, 1 the best; the headline is the mean over factors. A discrete factor has the
    one-against-rest AUROC on the test rows of a logistic regression on standardised codes, mean
    over the classes of the test rows. A continuous factor has the fraction of pairs of test rows
    with different values that a linear regression orders correctly (ties count half), which is the
    AUROC for two classes. Arguments as in `sap`.
    """
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    train, held_out = train_test_split(samples, test, seed)
    scale = train.codes.std(0)
    mean, scale = train.codes.mean(0), np.where(scale > 0, scale, 1.0)
    inputs, queries = (train.codes - mean) / scale, (held_out.codes - mean) / scale
    scores = []
    for name, target, truth, discrete in zip(
        train.factor_names, train.factors.T, held_out.factors.T, train.discrete, strict=True
    ):
        if (truth == truth[0]).all():
            raise DataError(
                f"factor {name!r} has one value in the {len(truth)} test rows; "
                "pass more samples, another seed, or test=."
            )
        scores.append((_auroc if discrete else _concordance)(inputs, target, queries, truth))
    parameters = {
        "training_rows": len(train),
        "test_rows": len(held_out),
        "seed": seed,
        **train.parameters,
        "matching": "none",
    }
    per_factor = dict(zip(train.factor_names, scores, strict=True))
    return Measurement(
        "explicitness",
        float(np.mean(scores)),
        len(train) + len(held_out),
        per_factor,
        parameters=parameters,
        higher_is_better=True,
    )


def _split_if_discrete(
    samples: CodesAndFactors, test: Any, seed: int
) -> tuple[CodesAndFactors, CodesAndFactors]:
    if any(samples.discrete):
        return train_test_split(samples, test, seed)
    return samples, samples


def _sap_scores(train: CodesAndFactors, test: CodesAndFactors) -> np.ndarray:
    columns = []
    for target, truth, discrete in zip(
        train.factors.T, test.factors.T, train.discrete, strict=True
    ):
        if discrete:
            values = np.unique(target)
            labels = np.searchsorted(values, target)
            columns.append(
                [
                    _svm_accuracy(a, labels, b, truth, values)
                    for a, b in zip(train.codes.T, test.codes.T, strict=True)
                ]
            )
        else:
            columns.append([_squared_correlation(code, target) for code in train.codes.T])
    return np.array(columns).T


def _svm_accuracy(
    code: np.ndarray,
    labels: np.ndarray,
    test_code: np.ndarray,
    truth: np.ndarray,
    values: np.ndarray,
) -> float:
    from sklearn.svm import LinearSVC

    model = LinearSVC(C=SVM_C, class_weight="balanced", dual=False).fit(code[:, None], labels)
    return float((values[model.predict(test_code[:, None])] == truth).mean())


def _squared_correlation(code: np.ndarray, factor: np.ndarray) -> float:
    covariance = np.cov(code, factor)
    if covariance[0, 0] <= MIN_VARIANCE:
        return 0.0
    return float(covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1]))


def _auroc(inputs: np.ndarray, target: np.ndarray, queries: np.ndarray, truth: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    values = np.unique(target)
    model = LogisticRegression(max_iter=1000).fit(inputs, np.searchsorted(values, target))
    probabilities = model.predict_proba(queries)  # (test rows, classes)
    areas = [
        roc_auc_score(truth == value, probabilities[:, k])
        for k, value in enumerate(values)
        if (truth == value).any()
    ]
    return float(np.mean(areas)) if areas else 0.5


def _concordance(
    inputs: np.ndarray, target: np.ndarray, queries: np.ndarray, truth: np.ndarray
) -> float:
    design = np.column_stack([inputs, np.ones(len(inputs))])
    weights = np.linalg.lstsq(design, target, rcond=None)[0]
    predicted = np.column_stack([queries, np.ones(len(queries))]) @ weights
    # values that differ only by rounding are ties
    steps = np.round((predicted - predicted.mean()) / (1e-9 * np.abs(target).max()))
    if (steps == steps[0]).all():
        return 0.5
    tied = [_pairs(np.unique(column, return_counts=True)[1]).sum() for column in (steps, truth)]
    untied = _pairs(np.array(len(truth))) - tied
    # tau-b rescaled to the pairs whose true values differ
    return float(
        (1 + scipy.stats.kendalltau(steps, truth).statistic * np.sqrt(untied[0] / untied[1])) / 2
    )


def _pairs(counts: np.ndarray) -> np.ndarray:
    return counts * (counts - 1) / 2
