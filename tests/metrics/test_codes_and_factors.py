"""Checked input of disentanglement metrics: kinds, reductions, splits, bins, information."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from intervae import metrics
from intervae.errors import DataError, UsageError
from intervae.metrics import Measurement
from intervae.metrics.binned_information import equal_width_bins, mutual_information
from intervae.metrics.codes_and_factors import (
    check_codes_and_factors,
    information_matrix,
    train_test_split,
)

QUICK = {"training": 40, "test": 20, "batch": 8}
METRICS = {
    "mig": metrics.mig,
    "modularity": metrics.modularity,
    "irs": metrics.irs,
    "sap": metrics.sap,
    "explicitness": metrics.explicitness,
    "dci": metrics.dci,
    "mcc": metrics.mcc,
    "beta_vae_score": lambda *a, **k: metrics.beta_vae_score(*a, **QUICK, **k),
    "factor_vae_score": lambda *a, **k: metrics.factor_vae_score(*a, **QUICK, **k),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


def table(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    factors = np.stack(
        [rng.integers(0, 2, n), rng.integers(0, 3, n), rng.integers(0, 4, n)], axis=1
    )
    return factors + 0.1 * rng.normal(size=(n, 3)), factors


def check(codes, factors, **options):
    return check_codes_and_factors(
        codes, factors, **{"names": None, "kinds": None, "dims": None, **options}
    )


# ---- one result type -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", METRICS)
def test_every_metric_returns_a_serialisable_measurement(name):
    codes, factors = table()
    result = METRICS[name](codes, factors, names=["a", "b", "c"])
    assert isinstance(result, Measurement)
    assert result.metric == {"dci": "dci_disentanglement"}.get(name, name)
    assert float(result) == result.value
    assert 0 < float(result) <= 1
    assert result.n == 60
    assert set(result.per_variable) == (
        {"z0", "z1", "z2"} if name in ("modularity", "irs", "dci") else {"a", "b", "c"}
    )
    assert "matching" in result.parameters
    assert result.parameters["kinds"] == dict.fromkeys("abc", "discrete")
    assert result.higher_is_better
    assert json.loads(json.dumps(result.to_json()))["value"] == result.value


def test_parts_become_rows_and_are_left_out_of_json_when_empty():
    part = Measurement("b", 2.0, 5)
    measurement = Measurement("a", 1.0, 5, components={"b": part})
    assert [(row.metric, row.value, row.components) for row in measurement.rows()] == [
        ("a", 1.0, {}),
        ("b", 2.0, {}),
    ]
    assert measurement.to_json()["parts"] == {"b": part.to_json()}
    assert "parts" not in part.to_json()


# ---- wrong input -------------------------------------------------------------
@every_metric
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1e200])
def test_non_finite_values_raise_with_their_index(metric, bad):
    codes, factors = table()
    codes[7, 2] = bad
    with pytest.raises(DataError, match=r"codes hold .* at index \(7, 2\)"):
        metric(codes, factors)
    with pytest.raises(DataError, match=r"factors hold .* at index \(7, 2\)"):
        metric(factors, codes)


@every_metric
def test_a_constant_factor_raises_with_its_name(metric):
    codes, factors = table()
    factors[:, 1] = 2
    with pytest.raises(DataError, match="factor 'b' has the single value 2"):
        metric(codes, factors, names=["a", "b", "c"])


@every_metric
def test_constant_codes_score_low_and_finite(metric):
    _, factors = table()
    value = float(metric(np.full((60, 3), 0.1), factors))
    assert 0 <= value < 0.75  # accuracies of guessing and areas of 0.5 are no higher
    for rounding in (np.full((60, 3), 0.1) + 1e-17 * factors, 1e-60 * factors):
        assert 0 <= float(metric(rounding, factors)) < 0.75


@every_metric
def test_an_additional_constant_code_is_no_error(metric):
    codes, factors = table()
    assert float(metric(np.hstack([codes, np.zeros((60, 1))]), factors)) > 0.25


@every_metric
@pytest.mark.parametrize(
    ("codes", "factors", "message"),
    [
        (np.zeros((3, 2)), np.eye(3)[:, :2], "at least 4 samples"),
        (np.zeros((9, 2)), np.eye(8)[:, :2], "9 rows and factors 8"),
        (np.zeros((9, 2, 1, 1)), np.eye(9)[:, :2], r"\(9, 2, 1, 1\)"),
        (np.zeros((9, 0)), np.eye(9)[:, :2], r"\(9, 0\)"),
        (np.array([["a", "b"]] * 9), np.eye(9)[:, :2], "cannot be read as numbers"),
        (torch.zeros(9, 2, requires_grad=True), np.eye(9)[:, :2], "detached tensor"),
    ],
)
def test_mismatched_arrays_raise(metric, codes, factors, message):
    with pytest.raises(DataError, match=message):
        metric(codes, factors)


@every_metric
def test_vector_valued_codes_need_dims(metric):
    codes, factors = table()
    with pytest.raises(
        UsageError,
        match=r"\(60, 3, 1\) are vector-valued; reduce them with dims='mean' or 'best' or 'each'",
    ):
        metric(codes[:, :, None], factors)
    with pytest.raises(UsageError, match="unknown dims 'max'"):
        metric(codes[:, :, None], factors, dims="max")


def test_mismatched_names_and_kinds_raise():
    codes, factors = table()
    for names in (["a", "b"], ["a", "a", "b"]):
        with pytest.raises(UsageError, match="3 different"):
            check(codes, factors, names=names)
    with pytest.raises(UsageError, match="unknown kind of a factor 'ordinal'"):
        check(codes, factors, kinds="ordinal")
    with pytest.raises(UsageError, match="2 entries for 3 factors"):
        check(codes, factors, kinds=["discrete", "continuous"])


# ---- kinds and names -----------------------------------------------------------------------------
def test_kinds_are_inferred_or_passed():
    rng = np.random.default_rng(0)
    factors = np.stack(
        [
            rng.integers(0, 64, 400),
            rng.integers(0, 200, 400),
            rng.integers(0, 3, 400) / 2,
            rng.normal(size=400),
        ],
        axis=1,
    )
    assert check(factors, factors).discrete == (True, False, False, False)
    assert (
        check(factors[:60], factors[:60]).discrete[0] is False
    )  # 60 rows of mostly different whole numbers are no classes
    assert check(factors, factors, kinds="discrete").discrete == (True,) * 4
    passed = check(factors, factors, kinds=["continuous", "discrete", "discrete", "continuous"])
    assert passed.discrete == (False, True, True, False)
    assert passed.parameters["kinds"]["factor1"] == "discrete"


def test_a_data_frame_names_the_factors_and_a_vector_is_one_factor():
    codes, factors = table()
    frame = pd.DataFrame(factors, columns=["light", "shadow", "length"])
    assert list(metrics.mig(codes, frame).per_variable) == ["light", "shadow", "length"]
    assert list(metrics.mig(codes, torch.as_tensor(factors[:, 0])).per_variable) == ["factor0"]


# ---- vector-valued codes -------------------------------------------------------------------------
def test_reductions_of_vector_valued_codes():
    codes, factors = table(400)
    rng = np.random.default_rng(1)
    blocks = np.stack(
        [rng.normal(size=codes.shape), codes, rng.normal(size=codes.shape)], axis=2
    )  # (N, 3, 3): the middle dim is informative
    blocks[:, 2] = blocks[:, 2, [1, 0, 2]]
    mean, best, each = (check(blocks, factors, dims=dims) for dims in ("mean", "best", "each"))
    assert np.array_equal(mean.codes, blocks.mean(2))
    assert np.array_equal(best.codes, codes)
    assert best.parameters["chosen_dims"] == [1, 1, 0]
    assert np.array_equal(each.codes, blocks.reshape(400, 9))
    assert each.code_names[:4] == ("z0[0]", "z0[1]", "z0[2]", "z1[0]")
    assert metrics.mig(blocks, factors, dims="best").value == metrics.mig(codes, factors).value
    assert metrics.mig(blocks, factors, dims="best").parameters["dims"] == "best"
    assert (
        metrics.mig(blocks, factors, dims="each").value
        == metrics.mig(blocks.reshape(400, 9), factors).value
    )
    assert metrics.mig(blocks, factors, dims="mean").value < metrics.mig(codes, factors).value


def test_separate_test_rows_use_the_dims_chosen_in_training():
    codes, factors = table(200)
    blocks = np.stack([np.zeros_like(codes), codes], axis=2)
    other = np.stack([codes[:50], np.zeros((50, 3))], axis=2)  # here the other dim is informative
    train, test = train_test_split(
        check(blocks, factors, dims="best"), (other, factors[:50]), seed=0
    )
    assert np.array_equal(train.codes, codes)
    assert not test.codes.any()


# ---- splitting -----------------------------------------------------------------------------------
def test_a_split_uses_every_row_once_and_depends_on_the_seed():
    samples = check(np.arange(90.0), np.arange(90) % 7)
    train, test = train_test_split(samples, 1 / 3, seed=4)
    assert (len(train), len(test)) == (60, 30)
    assert sorted([*train.codes[:, 0], *test.codes[:, 0]]) == list(range(90))
    assert np.array_equal(train_test_split(samples, 1 / 3, seed=4)[1].codes, test.codes)
    assert not np.array_equal(train_test_split(samples, 1 / 3, seed=5)[1].codes, test.codes)


def test_impossible_splits_raise():
    samples = check(np.arange(8.0), np.arange(8) == 3, names=["rare"])
    with pytest.raises(UsageError, match="fraction between 0 and 1"):
        train_test_split(samples, 1.0, seed=0)
    with pytest.raises(DataError, match="dims must be the same"):
        train_test_split(samples, (np.zeros((4, 2)), np.zeros(4)), seed=0)
    unlucky = next(s for s in range(50) if np.random.default_rng(s).permutation(8)[0] == 3)
    with pytest.raises(DataError, match="'rare' has one value in the 7 training rows"):
        train_test_split(samples, 1 / 8, seed=unlucky)


# ---- bins and mutual information -----------------------------------------------------------------
def test_bins_have_equal_width():
    values = np.array([0.0, 0.99, 1.0, 5.0, 9.99, 10.0])
    assert equal_width_bins(values, 10).tolist() == [0, 0, 1, 5, 9, 9]
    assert (
        equal_width_bins(np.full(5, 3.3), 20).tolist()
        == [equal_width_bins(np.full(5, 3.3), 20)[0]] * 5
    )
    assert equal_width_bins(np.array([1e16, 1e16 + 2]), 20).tolist() == [
        0,
        0,
    ]  # no twenty different numbers lie between them


def test_mutual_information_equals_counting():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 5, 60), rng.integers(0, 4, 60)
        b[a == 2] = 1
        joint, left, right = (Counter(v) for v in (zip(a, b, strict=True), a, b))
        expected = sum(
            c / 60 * math.log(c * 60 / (left[x] * right[y])) for (x, y), c in joint.items()
        )
        assert mutual_information(a, b) == pytest.approx(expected, abs=1e-14)
        assert mutual_information(b, a) == pytest.approx(expected, abs=1e-14)
        assert mutual_information(a, 0 * a) == 0  # exactly


def test_information_matrix_holds_every_pair():
    codes, factors = table(300)
    matrix, entropies = information_matrix(check(codes, factors), 20)
    for i in range(3):
        counts = np.bincount(factors[:, i]) / 300
        assert entropies[i] == pytest.approx(-(counts * np.log(counts)).sum())
        for j in range(3):
            assert matrix[j, i] == mutual_information(
                equal_width_bins(codes[:, j], 20), factors[:, i]
            )
    assert np.array_equal(metrics.mutual_information_matrix(codes, factors), matrix)
    assert np.allclose(
        metrics.mutual_information_matrix(codes, factors, normalised=True), matrix / entropies
    )
    with pytest.raises(UsageError, match="at least 2"):
        metrics.mutual_information_matrix(codes, factors, bins=1)
