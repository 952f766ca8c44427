"""Disentanglement from simple predictors: SAP (Kumar et al. 2018) and explicitness (Ridgeway and Mozer 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.disentanglement import Kinds, gaps
from intervae.metrics.samples import Samples, read_samples, split

SVM_C = 0.01
LEAST_VARIANCE = 1e-12  # a code that varies less counts as constant in SAP's correlation, as in the reference library


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
    """Separated attribute predictability in [0, 1]: for each factor, how much better its best single code predicts it than the second best.

    A discrete factor is predicted by a linear SVM (C 0.01, classes balanced) on one code, scored by its accuracy on the test rows; a continuous
    one is scored by the squared correlation over the training rows. With a single code the second best scores 0. The gap of a perfect code to a
    useless one is not 1 but 1 - chance for a discrete factor, and less when the code is ordinal: see docs/metrics.md.

    Arguments:
        test: fraction of rows held out, or (codes, factors) given apart; not used when all factors are continuous.
        names, kinds, dims: see `samples.read_samples`.
    """
    train, held_out = _rows(read_samples(codes, factors, names=names, kinds=kinds, dims=dims), test, seed)
    scores = _sap_scores(train, held_out)
    if not any(train.discrete):
        return gaps("sap", scores, train, {})
    parameters = {"training_rows": len(train), "test_rows": len(held_out), "svm_c": SVM_C, "seed": seed}
    return replace(gaps("sap", scores, train, parameters), n=len(train) + len(held_out))


def sap_matrix(codes: Any, factors: Any, *, test: Any = 1 / 3, seed: int = 0, kinds: Kinds = None, dims: str | None = None) -> np.ndarray:
    """(d, m) the score of every code alone in predicting every factor, see `sap`."""
    return _sap_scores(*_rows(read_samples(codes, factors, names=None, kinds=kinds, dims=dims), test, seed))


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
    """Whether all codes together give each factor by a linear map; 0.5 is chance, 1 the best.

    A discrete factor: area under the ROC curve on the test rows, one class against the rest, of a logistic regression on standardised codes;
    the mean over the classes that the test rows have. A continuous one: the share of pairs of test rows with different values that a linear
    regression puts in the right order (ties count half), which is the same area for two classes. Arguments as in `sap`.
    """
    train, held_out = split(read_samples(codes, factors, names=names, kinds=kinds, dims=dims), test, seed)
    scale = train.codes.std(0)
    mean, scale = train.codes.mean(0), np.where(scale > 0, scale, 1.0)
    inputs, queries = (train.codes - mean) / scale, (held_out.codes - mean) / scale
    scores = []
    for name, target, truth, discrete in zip(train.factor_names, train.factors.T, held_out.factors.T, train.discrete, strict=True):
        if (truth == truth[0]).all():
            raise DataError(f"factor {name!r} has one value in the {len(truth)} test rows; pass more samples, another seed, or test=.")
        scores.append((_area if discrete else _concordance)(inputs, target, queries, truth))
    parameters = {"training_rows": len(train), "test_rows": len(held_out), "seed": seed, **train.parameters, "matching": "none"}
    each = dict(zip(train.factor_names, scores, strict=True))
    return Measurement("explicitness", float(np.mean(scores)), len(train) + len(held_out), each, parameters=parameters, higher_is_better=True)


def _rows(samples: Samples, test: Any, seed: int) -> tuple[Samples, Samples]:
    return split(samples, test, seed) if any(samples.discrete) else (samples, samples)


def _sap_scores(train: Samples, test: Samples) -> np.ndarray:
    columns = []
    for target, truth, discrete in zip(train.factors.T, test.factors.T, train.discrete, strict=True):
        if discrete:
            values = np.unique(target)
            labels = np.searchsorted(values, target)
            columns.append([_svm_accuracy(a, labels, b, truth, values) for a, b in zip(train.codes.T, test.codes.T, strict=True)])
        else:
            columns.append([_squared_correlation(code, target) for code in train.codes.T])
    return np.array(columns).T


def _svm_accuracy(code: np.ndarray, labels: np.ndarray, test_code: np.ndarray, truth: np.ndarray, values: np.ndarray) -> float:
    from sklearn.svm import LinearSVC

    model = LinearSVC(C=SVM_C, class_weight="balanced", dual=False).fit(code[:, None], labels)
    return float((values[model.predict(test_code[:, None])] == truth).mean())


def _squared_correlation(code: np.ndarray, factor: np.ndarray) -> float:
    covariance = np.cov(code, factor)
    if covariance[0, 0] <= LEAST_VARIANCE:
        return 0.0
    return float(covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1]))


def _area(inputs: np.ndarray, target: np.ndarray, queries: np.ndarray, truth: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    values = np.unique(target)
    model = LogisticRegression(max_iter=1000).fit(inputs, np.searchsorted(values, target))
    probabilities = model.predict_proba(queries)  # (test rows, classes)
    areas = [roc_auc_score(truth == value, probabilities[:, k]) for k, value in enumerate(values) if (truth == value).any()]
    return float(np.mean(areas)) if areas else 0.5


def _concordance(inputs: np.ndarray, target: np.ndarray, queries: np.ndarray, truth: np.ndarray) -> float:
    design = np.column_stack([inputs, np.ones(len(inputs))])
    weights = np.linalg.lstsq(design, target, rcond=None)[0]
    predicted = np.column_stack([queries, np.ones(len(queries))]) @ weights
    steps = np.round((predicted - predicted.mean()) / (1e-9 * np.abs(target).max()))  # equal but for rounding is equal
    if (steps == steps[0]).all():
        return 0.5
    tied = [_pairs(np.unique(column, return_counts=True)[1]).sum() for column in (steps, truth)]
    untied = _pairs(np.array(len(truth))) - tied
    return float((1 + kendalltau(steps, truth).statistic * np.sqrt(untied[0] / untied[1])) / 2)  # of the pairs that differ in truth


def _pairs(counts: np.ndarray) -> np.ndarray:
    return counts * (counts - 1) / 2
