"""DCI: disentanglement, completeness and informativeness from the importance of codes in predicting factors (Eastwood and Williams 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervae.errors import DataError, unknown
from intervae.metrics.base import Measurement
from intervae.metrics.samples import Samples, read_samples, split

BOOSTERS = {
    "compiled": "ours: 100 trees a class, depth 3, rate 0.1, every threshold tried",
    "scikit-learn": "GradientBoostingClassifier and -Regressor with their default settings, which are the same, ties aside; slow",
}
ROUNDS, DEPTH, RATE = 100, 3, 0.1


@dataclass(frozen=True)
class DCI(Measurement):
    """Disentanglement is the headline; completeness and informativeness are its parts."""

    @property
    def disentanglement(self) -> float:
        return self.value

    @property
    def completeness(self) -> float:
        return self.parts["dci_completeness"].value

    @property
    def informativeness(self) -> float:
        return self.parts["dci_informativeness"].value


def dci(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    booster: str = "compiled",
    seed: int = 0,
    names: Sequence[str] | None = None,
    kinds: str | Sequence[str] | None = None,
    dims: str | None = None,
) -> DCI:
    """Gradient boosting predicts each factor from all codes; R (d, m) holds the importance of every code in it, each column summing to 1.

    Disentanglement: 1 - entropy of a code's importances over the m factors, base m; mean over codes weighted by their importance.
    Completeness: 1 - entropy of a factor's importances over the d codes, base d; mean over factors weighted likewise.
    Informativeness: accuracy on the test rows, R^2 for a continuous factor; mean over factors.

    Arguments:
        test: fraction of rows held out, or (codes, factors) given apart. The usual sizes are 10,000 training and 5,000 test rows.
        booster: "compiled" (ours, the default) or "scikit-learn" (its GradientBoosting): the same trees but for ties, the second far slower.
        names, kinds, dims: see `samples.read_samples`.
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

    def result(cls: type[Measurement], metric: str, value: float, labels: Sequence[str], values: np.ndarray, **more: Any) -> Measurement:
        each = dict(zip(labels, values.tolist(), strict=True))
        return cls(metric, float(value), n, each, parameters=parameters, higher_is_better=True, **more)

    per_code, code_weights = _concentration(importance)
    per_factor, factor_weights = _concentration(importance.T)
    completeness = result(Measurement, "dci_completeness", per_factor @ factor_weights, train.factor_names, per_factor)
    informativeness = result(Measurement, "dci_informativeness", scores.mean(), train.factor_names, scores)
    training = result(Measurement, "dci_informativeness_train", training_scores.mean(), train.factor_names, training_scores)
    parts = {part.metric: part for part in (completeness, informativeness, training)}
    whole = result(DCI, "dci_disentanglement", per_code @ code_weights, train.code_names, per_code, parts=parts)
    assert isinstance(whole, DCI)
    return whole


def importance_matrix(
    codes: Any,
    factors: Any,
    *,
    test: Any = 1 / 3,
    booster: str = "compiled",
    seed: int = 0,
    kinds: str | Sequence[str] | None = None,
    dims: str | None = None,
) -> np.ndarray:
    """(d, m) importance of every code in predicting every factor, as in `dci`; each column sums to 1."""
    return _fit(*_prepare(codes, factors, test, seed, None, kinds, dims), booster, seed)[0]


def _prepare(
    codes: Any, factors: Any, test: Any, seed: int, names: Sequence[str] | None, kinds: str | Sequence[str] | None, dims: str | None
) -> tuple[Samples, Samples]:
    samples = read_samples(codes, factors, names=names, kinds=kinds, dims=dims)
    if min(samples.codes.shape[1], samples.factors.shape[1]) < 2:
        raise DataError(
            f"DCI spreads importance over codes and factors, but there are {samples.codes.shape[1]} codes and {samples.factors.shape[1]} factors; "
            "pass at least two of each."
        )
    return split(samples, test, seed)


def _fit(train: Samples, test: Samples, booster: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Importance (d, m), and the score of every factor on the training and on the test rows (m,)."""
    if booster not in BOOSTERS:
        raise unknown("booster", booster, BOOSTERS)
    fit = _compiled if booster == "compiled" else _scikit_learn
    columns, training, scores = [], [], []
    for i, discrete in enumerate(train.discrete):
        truth = np.concatenate([train.factors[:, i], test.factors[:, i]])
        if discrete:  # classes of the training rows are 0, 1, ...; one that only the test rows have cannot be predicted
            values = np.unique(train.factors[:, i])
            number = np.searchsorted(values, truth)
            truth = np.where(np.isin(truth, values), number, -1).astype(np.float64)
        importance, predicted = fit(train.codes, test.codes, truth[: len(train)], discrete, seed)
        columns.append(importance)
        training.append(_score(truth[: len(train)], predicted[: len(train)], discrete, train.factor_names[i]))
        scores.append(_score(truth[len(train) :], predicted[len(train) :], discrete, train.factor_names[i]))
    return np.stack(columns, axis=1), np.array(training), np.array(scores)


def _compiled(train: np.ndarray, test: np.ndarray, target: np.ndarray, discrete: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from intervae.metrics._boosting import boost

    table = np.ascontiguousarray(np.concatenate([train, test]).T)  # (d, rows)
    order = np.argsort(table[:, : len(train)], axis=1, kind="stable")
    classes = int(target.max()) + 1 if discrete else 0
    scale = 1.0 if discrete else float(target.std())
    trees = ROUNDS * (classes if classes > 2 else 1)
    turns = np.random.default_rng(seed).permuted(np.tile(np.arange(len(table)), (trees * DEPTH, 1)), axis=1)
    importance, raw = boost(table, order, target / scale, classes, ROUNDS, DEPTH, RATE, turns)
    if not discrete:
        return importance, raw[0] * scale
    return importance, (raw[0] > 0).astype(np.float64) if classes == 2 else raw.argmax(0).astype(np.float64)


def _scikit_learn(train: np.ndarray, test: np.ndarray, target: np.ndarray, discrete: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    model = (GradientBoostingClassifier if discrete else GradientBoostingRegressor)(random_state=seed).fit(train, target)
    return model.feature_importances_, model.predict(np.concatenate([train, test]))


def _score(truth: np.ndarray, predicted: np.ndarray, discrete: bool, name: str) -> float:
    if discrete:
        return float((truth == predicted).mean())
    total = ((truth - truth.mean()) ** 2).sum()
    if total == 0:
        raise DataError(f"factor {name!r} has one value in the {len(truth)} test rows, so R^2 is not defined; pass more samples or test=.")
    return float(1 - ((truth - predicted) ** 2).sum() / total)


def _concentration(importance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each row of importances (a, b): 1 - entropy, base b; and its share in all importance (equal shares where nothing was of use)."""
    padded = importance + 1e-11  # a row of zeros is spread evenly: it scores 0
    share = padded / padded.sum(1, keepdims=True)
    total = importance.sum()
    weights = importance.sum(1) / total if total > 0 else np.full(len(importance), 1 / len(importance))
    return 1 + (share * np.log(share)).sum(1) / np.log(importance.shape[1]), weights
