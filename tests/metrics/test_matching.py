"""Matchings against brute force over permutations, and MCC."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from intervae.errors import UsageError
from intervae.metrics import match, mcc, mic_matrix
from intervae.metrics.matching import METHODS


def mixed(n: int = 300, codes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, 3))
    return factors @ rng.normal(size=(3, codes)) + 0.5 * rng.normal(size=(n, codes)), factors


def table_of(codes: np.ndarray, factors: np.ndarray, coefficient) -> np.ndarray:
    return np.array([[abs(coefficient(z, f).statistic) for f in factors.T] for z in codes.T])


def largest_sum(scores: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """Over all one-to-one choices of a code for each factor."""
    options = itertools.permutations(range(scores.shape[0]), scores.shape[1])
    return max((sum(scores[c, f] for f, c in enumerate(choice)), choice) for choice in options)


@pytest.mark.parametrize("seed", range(5))
def test_mcc_is_the_best_one_to_one_matching(seed):
    codes, factors = mixed(seed=seed)
    for name, coefficient in (("pearson", pearsonr), ("spearman", spearmanr)):
        total, choice = largest_sum(table_of(codes, factors, coefficient))
        result = mcc(codes, factors, correlation=name)
        assert result.value == pytest.approx(total / 3, abs=1e-12)
        assert result.parameters["matched"] == {f"factor{f}": f"z{c}" for f, c in enumerate(choice)}
        assert result.parameters["matching"] == "hungarian"
        assert result.parameters["correlation"] == name


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(4)),
    st.lists(st.sampled_from([-100.0, -0.1, 0.5, 3.0]), min_size=4, max_size=4),
)
def test_mcc_is_invariant_to_order_scale_and_sign(order, scales):
    factors = np.random.default_rng(0).normal(size=(100, 4))
    codes = factors[:, order] * scales + 7
    assert mcc(codes, factors).value == pytest.approx(1)
    assert mcc(np.sinh(codes / 100), factors, correlation="spearman").value == pytest.approx(1)


def test_identity_takes_code_i_for_factor_i():
    codes, factors = mixed(codes=3)
    result = mcc(codes, factors, matching="identity")
    assert list(result.per_variable.values()) == pytest.approx(
        np.diag(table_of(codes, factors, pearsonr)), abs=1e-12
    )
    assert result.value <= mcc(codes, factors).value
    assert match(codes, factors, method="identity").columns == (0, 1, 2)
    with pytest.raises(UsageError, match="2 codes and 3 factors"):
        match(codes[:, :2], factors, method="identity")


def test_factors_without_a_code_count_zero():
    _, factors = mixed()
    result = mcc(factors[:, [2, 0]], factors)
    assert result.per_variable == pytest.approx({"factor0": 1.0, "factor1": 0.0, "factor2": 1.0})
    assert result.parameters["matched"] == {"factor0": "z1", "factor1": None, "factor2": "z0"}
    with pytest.raises(UsageError, match="no code is left for factor1"):
        match(factors[:, [2, 0]], factors)(factors[:, [2, 0]])


def test_constant_codes_have_zero_correlation():
    _, factors = mixed()
    constant = np.full((300, 3), 0.1)
    for name in ("pearson", "spearman"):
        assert mcc(constant, factors, correlation=name).value == 0
        assert mcc(
            np.hstack([constant, factors]), factors, correlation=name
        ).value == pytest.approx(1)


def test_matching_by_mic_may_use_a_code_twice_and_hungarian_may_not():
    rng = np.random.default_rng(0)
    first = rng.normal(size=400)
    factors = np.stack(
        [first, first**2 + 0.05 * rng.normal(size=400), rng.normal(size=400)], axis=1
    )
    codes = np.stack(
        [
            rng.normal(size=400),
            factors[:, 2] + 0.1 * rng.normal(size=400),
            first + 0.01 * rng.normal(size=400),
        ],
        axis=1,
    )
    scores = mic_matrix(codes, factors)
    by_mic = match(codes, factors, method="mic")
    assert by_mic.columns == (2, 2, 1)
    assert by_mic.scores == pytest.approx(scores.max(0))
    assert by_mic.pairs == {"factor0": "z2", "factor1": "z2", "factor2": "z1"}
    one_to_one = match(codes, factors, method="hungarian-mic")
    assert one_to_one.columns == largest_sum(scores)[1]
    assert sorted(one_to_one.columns) == [0, 1, 2]
    assert np.array_equal(by_mic(codes), codes[:, [2, 2, 1]])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_recovers_a_permutation(method):
    _, factors = mixed()
    order = [0, 1, 2] if method == "identity" else [2, 0, 1]
    matching = match(factors[:, order], factors, method=method, names=["a", "b", "c"])
    assert matching.method == method
    assert np.array_equal(matching(factors[:, order]), factors)
    assert matching.pairs == {name: f"z{order.index(i)}" for i, name in enumerate("abc")}


def test_spearman_matches_what_pearson_misses():
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(500, 2))
    codes = np.stack(
        [np.exp(6 * factors[:, 0]), 0.5 * factors[:, 0] + rng.normal(size=500)], axis=1
    )
    assert match(codes, factors[:, 0], method="hungarian-spearman").columns == (0,)
    assert match(codes, factors[:, 0], method="hungarian").columns == (1,)


def test_unknown_methods_raise():
    codes, factors = mixed()
    with pytest.raises(UsageError, match="unknown matching 'hungary'; did you mean 'hungarian'"):
        match(codes, factors, method="hungary")
    with pytest.raises(UsageError, match="unknown matching 'mic'"):
        mcc(codes, factors, matching="mic")
    with pytest.raises(UsageError, match="unknown correlation 'kendall'"):
        mcc(codes, factors, correlation="kendall")
