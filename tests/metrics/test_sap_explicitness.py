"""SAP and explicitness against closed forms, and their traps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from intervae.errors import DataError
from intervae.metrics import explicitness, sap, sap_matrix
from intervae.metrics.sap_explicitness import _concordance


def ordinal(
    n: int = 3000, sizes: tuple[int, ...] = (2, 3, 4, 5), seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Perfect codes: independent factors, each standardised."""
    factors = np.random.default_rng(seed).integers(0, sizes, (n, len(sizes)))
    return (factors - factors.mean(0)) / factors.std(0), factors


# ---- SAP -----------------------------------------------------------------------------------------
def test_sap_of_continuous_factors_is_the_gap_of_squared_correlations():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(500, 2))
    codes = np.stack(
        [
            factors[:, 0] + 0.5 * rng.normal(size=500),
            rng.normal(size=500),
            -3 * factors[:, 1],
            factors[:, 1] ** 3,
        ],
        axis=1,
    )
    squares = np.corrcoef(codes.T, factors.T)[:4, 4:] ** 2
    assert sap_matrix(codes, factors) == pytest.approx(squares, abs=1e-12)
    result = sap(codes, factors)
    expected = [np.diff(np.sort(column)[-2:])[0] for column in squares.T]
    assert list(result.per_variable.values()) == pytest.approx(expected, abs=1e-12)
    assert result.value == pytest.approx(np.mean(expected))
    assert result.parameters["matched"] == {"factor0": "z0", "factor1": "z2"}
    assert result.n == 500  # no split: nothing is fitted


def test_sap_of_one_bit_is_accuracy_minus_chance():
    rng = np.random.default_rng(0)
    bit = rng.integers(0, 2, 6000)
    wrong = rng.random(6000) < 0.1
    codes = np.stack([2.0 * (bit ^ wrong) - 1, rng.normal(size=6000)], axis=1)
    result = sap(codes, bit)
    assert sap_matrix(codes, bit)[:, 0] == pytest.approx([0.9, 0.5], abs=0.03)
    assert result.value == pytest.approx(0.4, abs=0.03)
    assert (
        result.parameters["training_rows"],
        result.parameters["test_rows"],
        result.parameters["svm_c"],
    ) == (4000, 2000, 0.01)


def test_trap_a_perfect_ordinal_code_has_a_discrete_sap_of_0_6():
    """Two classes have at most 1 - chance = 1/2; a linear SVM often misses middle classes."""
    results = [sap(*ordinal(seed=seed)) for seed in range(4)]
    assert np.mean([r.value for r in results]) == pytest.approx(0.61, abs=0.02)
    assert np.mean([r.per_variable["factor0"] for r in results]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([r.per_variable["factor3"] for r in results]) < 0.7
    assert sap(*ordinal(), kinds="continuous").value > 0.99


def test_trap_discrete_sap_depends_on_the_scale_of_the_codes():
    codes, factors = ordinal()
    assert sap(codes / 100, factors).value < sap(codes, factors).value - 0.2


def test_sap_takes_separate_test_rows():
    codes, factors = ordinal(600)
    same = sap_matrix(codes, factors, test=(codes, factors))
    flipped = sap_matrix(codes, factors, test=(-codes, factors))
    assert same[0, 0] == 1
    assert flipped[0, 0] == 0


def test_a_class_only_in_the_test_rows_counts_as_wrong():
    codes = np.array([0.0] * 10 + [1.0] * 10)
    assert sap(
        codes, codes, test=([0.0, 1.0, 2.0], [0, 1, 2]), kinds="discrete"
    ).value == pytest.approx(2 / 3)


# ---- explicitness --------------------------------------------------------------------------------
def test_explicitness_of_codes_and_of_noise():
    codes, factors = ordinal()
    mixed = codes @ np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    assert explicitness(codes, factors).value == pytest.approx(1, abs=1e-6)
    assert explicitness(mixed * 1000, factors).value == pytest.approx(
        1, abs=1e-3
    )  # rotated and scaled: as explicit as before
    assert explicitness(mixed[::-1], factors).value == pytest.approx(0.5, abs=0.03)
    assert explicitness(np.zeros_like(codes), factors).value == 0.5
    assert explicitness(codes, factors, kinds="continuous").value == pytest.approx(1)
    assert explicitness(np.zeros_like(codes), factors, kinds="continuous").value == 0.5


def test_explicitness_of_one_bit_is_the_auroc():
    rng = np.random.default_rng(0)
    bit = rng.integers(0, 2, 900)
    code, test_bit = bit + rng.normal(size=900), rng.integers(0, 2, 300)
    test_code = test_bit + rng.normal(size=300)
    result = explicitness(code, bit, test=(test_code, test_bit))
    assert result.value == pytest.approx(roc_auc_score(test_bit, test_code), abs=1e-12)
    continuous = explicitness(code, bit, test=(test_code, test_bit), kinds="continuous")
    assert continuous.value == pytest.approx(result.value, abs=1e-12)


def test_concordance_counts_pairs_with_different_true_values():
    rng = np.random.default_rng(0)
    code, truth = rng.integers(0, 5, 60).astype(float), rng.integers(0, 4, 60).astype(float)
    truth += np.round(code / 3)
    pairs = [(a, b) for a in range(60) for b in range(60) if truth[a] > truth[b]]
    expected = np.mean([0.5 + 0.5 * np.sign(code[a] - code[b]) for a, b in pairs])
    assert _concordance(code[:, None], truth, code[:, None], truth) == pytest.approx(
        expected, abs=1e-12
    )


def test_explicitness_needs_two_values_among_the_test_rows():
    codes, factors = ordinal(60)
    with pytest.raises(DataError, match="'factor0' has one value in the 3 test rows"):
        explicitness(codes, factors, test=(codes[:3], 0 * factors[:3]))
