"""DCI: compiled boosting against scikit-learn, and the three scores against closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from intervae.errors import DataError, UsageError
from intervae.metrics import dci, importance_matrix
from intervae.metrics.dci_importance import _concentration
from intervae.metrics.gradient_boosting import boost


def fit(codes, target, classes, *, rounds=100, depth=3, rate=0.1, seed=0):
    table = np.ascontiguousarray(codes.T)
    trees = rounds * (classes if classes > 2 else 1) * depth
    turns = np.random.default_rng(seed).permuted(np.tile(np.arange(len(table)), (trees, 1)), axis=1)
    order = np.argsort(table[:, : len(target)], axis=1, kind="stable")
    return boost(table, order, target.astype(np.float64), classes, rounds, depth, rate, turns)


def problem(classes: int, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three columns, of which two matter, in 32-bit precision, which scikit-learn uses."""
    rng = np.random.default_rng(seed)
    codes = rng.normal(size=(n, 3)).astype(np.float32).astype(np.float64)
    score = codes[:, 0] + 0.5 * codes[:, 1] ** 2 + 0.3 * rng.normal(size=n)
    return codes, score if classes == 0 else np.digitize(
        score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    ).astype(float)


@pytest.mark.parametrize("classes", [0, 2, 4])
@pytest.mark.parametrize(
    ("rounds", "depth", "tolerance"), [(1, 1, 1e-9), (5, 2, 1e-6), (100, 3, 0.01)]
)
def test_boosting_equals_scikit_learn(classes, rounds, depth, tolerance):
    """Few large trees are equal; in many deep ones, ties of small nodes are broken at random."""
    codes, target = problem(classes)
    peer = (GradientBoostingClassifier if classes else GradientBoostingRegressor)(
        n_estimators=rounds, max_depth=depth, random_state=0
    )
    peer.fit(codes[:300], target[:300])
    importance, raw = fit(codes, target[:300], classes, rounds=rounds, depth=depth)
    assert importance == pytest.approx(peer.feature_importances_, abs=tolerance)
    expected = (
        peer.decision_function(codes).reshape(400, -1) if classes else peer.predict(codes)[:, None]
    )
    ours, theirs = (
        values - values.mean(1, keepdims=True) * (classes > 2) for values in (raw.T, expected)
    )  # up to a common shift of all classes
    if rounds < 100:
        assert ours == pytest.approx(theirs, abs=1e-6)
    else:
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.995


def test_equal_columns_share_the_importance():
    codes, target = problem(3)
    importance, _ = fit(np.column_stack([codes[:, 0], codes[:, 0], codes[:, 2]]), target, 3)
    assert importance[0] == pytest.approx(importance[1], abs=0.1)
    assert importance.sum() == pytest.approx(1)


def test_constant_columns_have_no_importance():
    importance, raw = fit(np.zeros((40, 2)), np.arange(40) % 3, 3)
    assert not importance.any()
    assert np.isfinite(raw).all()


def test_a_permuted_copy_of_the_factors_scores_one():
    factors = np.array(list(itertools.product(range(2), range(3), range(4))) * 10)
    codes = factors[:, [2, 0, 1]] * np.array([1.0, -5.0, 0.1])
    result = dci(codes, factors)
    assert (result.disentanglement, result.completeness, result.informativeness) == pytest.approx(
        (1, 1, 1), abs=1e-6
    )
    assert float(result) == result.disentanglement == result.value
    assert importance_matrix(codes, factors) == pytest.approx(
        np.array([[0, 0, 1.0], [1, 0, 0], [0, 1, 0]]), abs=1e-6
    )
    assert [row.metric for row in result.rows()] == [
        "dci_disentanglement",
        "dci_completeness",
        "dci_informativeness",
        "dci_informativeness_train",
    ]
    assert set(result.per_variable) == {"z0", "z1", "z2"}
    assert set(result.components["dci_completeness"].per_variable) == {
        "factor0",
        "factor1",
        "factor2",
    }
    assert result.parameters["booster"] == "compiled"
    assert (result.parameters["training_rows"], result.parameters["test_rows"]) == (160, 80)


def test_entropies_of_a_known_importance_matrix():
    importance = np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, 0.0]])  # (4 codes, 2 factors)
    scores, weights = _concentration(importance)
    assert scores == pytest.approx([1, 1, 1, 0], abs=1e-8)
    assert weights == pytest.approx([0.25, 0.25, 0.5, 0])
    scores, weights = _concentration(importance.T)
    assert scores == pytest.approx([1 - np.log(2) / np.log(4), 1], abs=1e-8)
    assert weights == pytest.approx([0.5, 0.5])
    scores, weights = _concentration(np.zeros((3, 2)))
    assert (scores, weights) == (
        pytest.approx(np.zeros(3), abs=1e-8),
        pytest.approx(np.full(3, 1 / 3)),
    )


def test_one_code_for_two_factors_is_complete_but_not_disentangled():
    factors = np.array(list(itertools.product(range(2), range(2))) * 40)
    codes = np.stack([factors[:, 0] * 2 + factors[:, 1], np.zeros(len(factors))], axis=1)
    result = dci(codes, factors)
    assert result.disentanglement == pytest.approx(0, abs=1e-3)
    assert result.completeness == pytest.approx(1, abs=1e-6)
    assert result.informativeness == 1


def test_noise_has_chance_informativeness():
    rng = np.random.default_rng(0)
    result = dci(rng.normal(size=(1500, 4)), rng.integers(0, [2, 5], (1500, 2)))
    assert result.disentanglement < 0.1
    assert list(result.components["dci_informativeness"].per_variable.values()) == pytest.approx(
        [0.5, 0.2], abs=0.06
    )
    assert result.components["dci_informativeness_train"].value > result.informativeness + 0.1


def test_continuous_factors_are_scored_by_r2():
    rng = np.random.default_rng(0)
    factors = rng.uniform(size=(1200, 2))
    codes = np.column_stack([factors[:, 0], 1e6 * np.exp(factors[:, 1]), rng.normal(size=1200)])
    result = dci(codes, factors * np.array([1e-6, 1e6]))  # any units
    assert result.informativeness > 0.99
    assert result.disentanglement > 0.97
    noise = dci(rng.normal(size=(1200, 2)), factors)
    assert noise.informativeness < 0.05


def test_both_boosters_agree_and_are_named_in_the_result():
    rng = np.random.default_rng(0)
    factors = rng.integers(0, [2, 4], (450, 2))
    codes = factors @ np.array([[1.0, 0.5, 0.0], [0.2, 1.0, 0.0]]) + 0.3 * rng.normal(size=(450, 3))
    ours, peer = (dci(codes, factors, booster=name) for name in ("compiled", "scikit-learn"))
    assert peer.parameters["booster"] == "scikit-learn"
    for a, b in zip(ours.rows(), peer.rows(), strict=True):
        assert a.value == pytest.approx(b.value, abs=0.02)
    with pytest.raises(UsageError, match="unknown booster 'xgboost'"):
        dci(codes, factors, booster="xgboost")


def test_dci_is_deterministic_given_the_seed():
    rng = np.random.default_rng(0)
    codes, factors = rng.normal(size=(200, 3)), rng.integers(0, 3, (200, 2))
    assert dci(codes, factors, seed=1) == dci(codes, factors, seed=1)
    assert dci(codes, factors, seed=1) != dci(codes, factors, seed=2)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1)])
def test_one_code_or_one_factor_raises(shape):
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="at least two of each"):
        dci(rng.normal(size=(30, shape[0])), rng.integers(0, 2, (30, shape[1])))
