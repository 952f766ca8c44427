"""DCI: disentanglement, completeness and informativeness (Eastwood and Williams 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.errors import DataError, unknown
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import (
    CodesAndFactors,
    Kinds,
    check_codes_and_factors,
    train_test_split,
)

BOOSTERS = {
    "compiled": "gradient_boosting.py: 100 trees per class, depth 3, rate 0.1, all thresholds",
    "scikit-learn": "GradientBoostingClassifier and -Regressor with default settings: the same "
    "trees except for ties; slow",
}
ROUNDS, DEPTH, RATE = 100, 3, 0.1


@dataclass(frozen=True)
class DCI(Measurement):
    """Disentanglement as headline, completeness and informativeness as components."""

    @property
    def disentanglement(self) -> float:
        return self.value

    @property
    def completeness(self) -> float:
        return self.components["dci_completeness"].value

    @property
    def informativeness(self) -> float:
        return self.components["dci_informativeness"].value


def dci(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    booster: str = "compiled",
    seed: int = 0,
    names: Sequence[str] | None = None,
    kinds: Kinds = None,
    dims: str | None = None,
) -> DCI:
    """Return disentanglement, completeness and informativeness.

    Gradient boosting predicts each factor from all codes. R (d, m) holds the importances of the
    codes; each column sums to 1.
    Disentanglement: 1 - entropy of a code's importances over the m factors, base m; mean over codes
    weighted by importance.
    Completeness: 1 - entropy of a factor's importances over the d codes, base d; mean over factors
    weighted by importance.
    Informativeness: accuracy on the test rows, R^2 for a continuous factor; mean over factors.

    Arguments:
        test: fraction of rows held out, or separate (codes, factors). The usual sizes are 10,000
            training and 5,000 test rows.
        booster: a key of BOOSTERS.
        codes, factors, names, kinds, dims: see `codes_and_factors.check_codes_and_factors`.
    """
    train, held_out = _prepare(codes, factors, test, seed, names, kinds, dims)
    importance, training_scores, scores = _fit(train, held_out, booster, seed)
    parameters = {
        "booster": booster,
        "training_rows": len(train),
        "test_rows": len(held_out),
        "seed": seed,
        **train.parameters,
        "matching": "none",
    }
    n = len(train) + len(held_out)

    def result(metric: str, value: float, names: Sequence[str], values: np.ndarray) -> Measurement:
        return Measurement(
            metric,
            float(value),
            n,
            dict(zip(names, values.tolist(), strict=True)),
            parameters=parameters,
            higher_is_better=True,
        )

    per_code, code_weights = _concentration(importance)
    per_factor, factor_weights = _concentration(importance.T)
    code_names, factor_names = train.code_names, train.factor_names
    disentanglement = result("dci_disentanglement", per_code @ code_weights, code_names, per_code)
    numbers = (
        result("dci_completeness", per_factor @ factor_weights, factor_names, per_factor),
        result("dci_informativeness", scores.mean(), factor_names, scores),
        result("dci_informativeness_train", training_scores.mean(), factor_names, training_scores),
    )
    return DCI(
        disentanglement.metric,
        disentanglement.value,
        n,
        disentanglement.per_variable,
        parameters=parameters,
        higher_is_better=True,
        components={number.metric: number for number in numbers},
    )


def importance_matrix(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    booster: str = "compiled",
    seed: int = 0,
    kinds: Kinds = None,
    dims: str | None = None,
) -> np.ndarray:
    """Return the importance (d, m) of codes for factors, as in `dci`; each column sums to 1."""
    return _fit(*_prepare(codes, factors, test, seed, None, kinds, dims), booster, seed)[0]


def _prepare(
    codes: Any,
    factors: Any,
    test: Any,
    seed: int,
    names: Sequence[str] | None,
    kinds: Kinds,
    dims: str | None,
) -> tuple[CodesAndFactors, CodesAndFactors]:
    samples = check_codes_and_factors(codes, factors, names=names, kinds=kinds, dims=dims)
    d, m = samples.codes.shape[1], samples.factors.shape[1]
    if min(d, m) < 2:
        raise DataError(
            f"DCI compares codes and factors, but there are {d} codes and {m} factors; "
            "pass at least two of each."
        )
    return train_test_split(samples, test, seed)


def _fit(
    train: CodesAndFactors, test: CodesAndFactors, booster: str, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return importances (d, m), and scores of the factors on training and test rows (m,)."""
    if booster not in BOOSTERS:
        raise unknown("booster", booster, BOOSTERS)
    fit = _compiled if booster == "compiled" else _scikit_learn
    columns, training, scores = [], [], []
    for i, discrete in enumerate(train.discrete):
        truth = np.concatenate([train.factors[:, i], test.factors[:, i]])
        if discrete:  # classes of the training rows are 0, 1, ...; others are -1
            values = np.unique(train.factors[:, i])
            number = np.searchsorted(values, truth)
            truth = np.where(np.isin(truth, values), number, -1).astype(np.float64)
        importance, predicted = fit(train.codes, test.codes, truth[: len(train)], discrete, seed)
        columns.append(importance)
        training.append(
            _score(truth[: len(train)], predicted[: len(train)], discrete, train.factor_names[i])
        )
        scores.append(
            _score(truth[len(train) :], predicted[len(train) :], discrete, train.factor_names[i])
        )
    return np.stack(columns, axis=1), np.array(training), np.array(scores)


def _compiled(
    train: np.ndarray, test: np.ndarray, target: np.ndarray, discrete: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    from intervae.metrics.gradient_boosting import boost

    table = np.ascontiguousarray(np.concatenate([train, test]).T)  # (d, rows)
    order = np.argsort(table[:, : len(train)], axis=1, kind="stable")
    classes = int(target.max()) + 1 if discrete else 0
    scale = 1.0 if discrete else float(target.std())
    trees = ROUNDS * (classes if classes > 2 else 1)
    turns = np.random.default_rng(seed).permuted(
        np.tile(np.arange(len(table)), (trees * DEPTH, 1)), axis=1
    )
    importance, raw = boost(table, order, target / scale, classes, ROUNDS, DEPTH, RATE, turns)
    if not discrete:
        return importance, raw[0] * scale
    predicted = raw[0] > 0 if classes == 2 else raw.argmax(0)
    return importance, predicted.astype(np.float64)


def _scikit_learn(
    train: np.ndarray, test: np.ndarray, target: np.ndarray, discrete: bool, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    model = (GradientBoostingClassifier if discrete else GradientBoostingRegressor)(
        random_state=seed
    ).fit(train, target)
    return model.feature_importances_, model.predict(np.concatenate([train, test]))


def _score(truth: np.ndarray, predicted: np.ndarray, discrete: bool, name: str) -> float:
    if discrete:
        return float((truth == predicted).mean())
    total = ((truth - truth.mean()) ** 2).sum()
    if total == 0:
        raise DataError(
            f"factor {name!r} has one value in the {len(truth)} test rows, "
            "so R^2 is not defined; pass more samples or test=."
        )
    return float(1 - ((truth - predicted) ** 2).sum() / total)


def _concentration(importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - entropy (base b) of each row of importances (a, b), and the rows' weights.

    The weights are proportional to the rows' sums, equal if all importances are 0.
    """
    padded = importance + 1e-11  # a row of zeros becomes uniform and scores 0
    share = padded / padded.sum(1, keepdims=True)
    total = importance.sum()
    weights = (
        importance.sum(1) / total if total > 0 else np.full(len(importance), 1 / len(importance))
    )
    return 1 + (share * np.log(share)).sum(1) / np.log(importance.shape[1]), weights
