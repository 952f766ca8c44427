"""MIG, modularity and IRS on full factorial tables with closed forms, and their traps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervae.errors import DataError, UsageError
from intervae.metrics import irs, irs_matrix, mig, modularity, mutual_information_matrix


def grid(*sizes: int, times: int = 4) -> np.ndarray:
    """Every combination of factor values, `times` over."""
    return np.array(list(itertools.product(*map(range, sizes))) * times)


# ---- MIG -----------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=3), st.randoms(use_true_random=False))
def test_mig_of_permuted_rescaled_factors_is_one(sizes, random):
    factors = grid(*sizes)
    order = random.sample(range(len(sizes)), len(sizes))
    codes = factors[:, order] * np.array(
        [random.choice([-3.0, 0.01, 7.0]) for _ in order]
    ) + random.uniform(-5, 5)
    result = mig(codes, factors)
    assert result.value == pytest.approx(1, abs=1e-12)
    assert result.parameters["matched"] == {
        f"factor{f}": f"z{order.index(f)}" for f in range(len(sizes))
    }


def test_mig_is_the_gap_over_the_entropy():
    factors = grid(4, 2)
    codes = np.stack(
        [factors[:, 0] // 2, factors[:, 0] % 2, factors[:, 1]], axis=1
    )  # two codes hold one bit each of the first factor
    result = mig(codes, factors)
    assert result.per_variable == pytest.approx({"factor0": 0.0, "factor1": 1.0})
    both = np.stack(
        [factors[:, 0], factors[:, 0] % 2, factors[:, 1]], axis=1
    )  # 2 bits and 1 bit of 2
    assert mig(both, factors).per_variable["factor0"] == pytest.approx(0.5)


def test_mig_with_a_single_code_is_its_information():
    factors = grid(4, 2)
    assert mig(factors[:, 0] // 2, factors).per_variable == pytest.approx(
        {"factor0": 0.5, "factor1": 0.0}
    )


def test_mig_bins_continuous_factors():
    values = np.arange(400) / 400
    factors = np.stack([values, np.roll(values, 137)], axis=1)
    result = mig(factors, factors)
    assert result.parameters["kinds"] == {"factor0": "continuous", "factor1": "continuous"}
    assert result.parameters["bins"] == 20
    assert result.value == pytest.approx(
        mig(np.floor(factors * 20), np.floor(factors * 20)).value, abs=1e-12
    )


def test_trap_a_copy_of_a_code_takes_mig_to_zero():
    factors = grid(4, 5)
    assert mig(np.hstack([factors, factors]), factors).value == 0


def test_trap_one_outlier_hides_a_perfect_code_from_equal_width_bins():
    factors = grid(4, 5, times=50)
    codes = factors.astype(float)
    assert mig(codes, factors).value == pytest.approx(1)
    codes[0] = 1e4
    assert mig(codes, factors).value < 0.01


def test_trap_with_few_samples_noise_has_mutual_information():
    rng = np.random.default_rng(0)
    few, many = (
        mutual_information_matrix(
            rng.normal(size=(n, 3)), rng.integers(0, 5, (n, 2)), normalised=True
        ).mean()
        for n in (100, 10_000)
    )
    assert few > 0.15
    assert many < 0.005


# ---- modularity ----------------------------------------------------------------------------------
def test_modularity_of_codes_that_mix_factors():
    factors = grid(2, 2, 2)
    mixed = factors[:, 0] * 2 + factors[:, 1]  # as much about two factors, nothing about the third
    result = modularity(np.stack([mixed, factors[:, 2], 0 * mixed], axis=1), factors)
    assert result.per_variable == pytest.approx(
        {"z0": 0.5, "z1": 1.0, "z2": 0.0}
    )  # 1 - (ln 2)^2 / (2 (ln 2)^2); 1; a constant
    assert result.value == pytest.approx(0.5)
    assert modularity(mixed, factors[:, :2]).value == pytest.approx(0, abs=1e-12)


def test_modularity_of_one_factor_raises():
    factors = grid(2, 2)
    with pytest.raises(DataError, match="at least two"):
        modularity(factors, factors[:, 0])


def test_trap_noise_is_quite_modular():
    rng = np.random.default_rng(0)
    assert modularity(
        rng.normal(size=(2000, 6)), rng.integers(0, [2, 3, 4, 5], (2000, 4))
    ).value == pytest.approx(0.69, abs=0.1)


# ---- IRS -----------------------------------------------------------------------------------------
def test_irs_of_a_sum_of_two_factors():
    factors = grid(2, 2)
    codes = np.stack([factors[:, 0], factors.sum(1)], axis=1)
    matrix = irs_matrix(codes, factors, quantile=1.0)
    # the sum lies within 1 of its mean, and within 1/2 of its mean given either factor
    assert matrix == pytest.approx(np.array([[1.0, 0.0], [0.5, 0.5]]))
    result = irs(codes, factors)
    assert result.per_variable == pytest.approx({"z0": 1.0, "z1": 0.5})
    assert result.value == pytest.approx(
        (0.5 * 1 + 1 * 0.5) / 1.5
    )  # weighted by the largest deviations 1/2 and 1
    assert result.parameters["matched"]["z0"] == "factor0"


def test_irs_ignores_constant_codes():
    factors = grid(2, 3)
    some = irs(np.hstack([factors, np.full((len(factors), 2), 0.1)]), factors)
    assert some.value == pytest.approx(1)
    assert some.parameters["constant_codes"] == 2
    assert irs(np.full((len(factors), 2), 0.1), factors).value == 0


def test_irs_uses_the_quantile_of_each_group():
    rng = np.random.default_rng(0)
    codes, factors = rng.normal(size=(500, 2)), rng.integers(0, 3, (500, 2))
    expected = np.zeros((2, 2))
    for f in range(2):
        for z in range(2):
            groups = [codes[factors[:, f] == v, z] for v in range(3)]
            moves = np.mean(
                [np.sort(np.abs(g - g.mean()))[int(np.floor(0.9 * (len(g) - 1)))] for g in groups]
            )
            expected[z, f] = 1 - moves / np.abs(codes[:, z] - codes[:, z].mean()).max()
    assert irs_matrix(codes, factors, quantile=0.9) == pytest.approx(
        expected, abs=0.02
    )  # without interpolation
    for bad in (0, 1.5):
        with pytest.raises(UsageError, match="quantile"):
            irs(codes, factors, quantile=bad)


def test_trap_irs_gives_noise_about_0_3():
    rng = np.random.default_rng(0)
    few, many = (
        irs(rng.normal(size=(n, 6)), rng.integers(0, [2, 3, 4, 5], (n, 4))).value
        for n in (2000, 50_000)
    )
    assert few == pytest.approx(0.28, abs=0.06)
    assert many > few + 0.05  # the largest deviation grows, the quantile does not
