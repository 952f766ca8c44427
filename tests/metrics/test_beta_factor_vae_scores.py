"""Beta-VAE and FactorVAE scores on encoders with known scores, for tables and simulators."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intervae.errors import DataError, UsageError
from intervae.metrics import (
    beta_vae_score,
    beta_vae_score_from_simulator,
    factor_vae_score,
    factor_vae_score_from_simulator,
)
from intervae.metrics.codes_and_factors import check_codes_and_factors
from intervae.metrics.factor_sampling import SimulatorSampler, TableSampler

SIZES = (2, 3, 4, 5)
FACTORS = np.array(list(itertools.product(*map(range, SIZES))) * 8, dtype=float)
ROTATION = np.linalg.qr(np.random.default_rng(4).normal(size=(4, 4)))[0]
QUICK = {"training": 1000, "test": 1000}


def standard(factors: np.ndarray) -> np.ndarray:
    return (factors - FACTORS.mean(0)) / FACTORS.std(0)


ENCODERS = {
    "identity": standard,
    "rotated": lambda factors: standard(factors) @ ROTATION,
    "merged": lambda factors: standard(factors) @ np.array([[1, 0], [1, 0], [0, 1], [0, 1.0]]),
    "three": lambda factors: standard(factors)[:, :3],
}


def by_rows(score, encoder, **options):
    return score(encoder(FACTORS), FACTORS, **{**QUICK, **options})


def by_images(score, encoder, **options):
    """The "image" of a row of factors is the row, repeated twice."""
    return score(
        lambda images: encoder(images[:, 4:]),
        lambda factors: np.hstack([factors, factors]),
        FACTORS,
        **{**QUICK, **options},
    )


FORMS = {
    "rows": (
        lambda e, **o: by_rows(beta_vae_score, e, **o),
        lambda e, **o: by_rows(factor_vae_score, e, **o),
    ),
    "images": (
        lambda e, **o: by_images(beta_vae_score_from_simulator, e, **o),
        lambda e, **o: by_images(factor_vae_score_from_simulator, e, **o),
    ),
}
both_forms = pytest.mark.parametrize(("beta", "factor"), FORMS.values(), ids=FORMS)


@both_forms
def test_codes_equal_to_the_factors_score_one(beta, factor):
    assert beta(ENCODERS["identity"]).value == 1
    result = factor(ENCODERS["identity"])
    assert result.value == 1
    assert result.parameters["matched"] == {f"z{i}": f"factor{i}" for i in range(4)}
    assert result.parameters["active_codes"] == 4
    assert result.parameters["chance"] == 0.25


@both_forms
def test_merged_codes_predict_one_of_their_two_factors(beta, factor):
    result = factor(ENCODERS["merged"], test=4000)
    assert result.value == pytest.approx(0.5, abs=0.03)
    assert sorted(result.per_variable.values()) == pytest.approx([0, 0, 1, 1], abs=0.01)
    assert 0.5 < beta(ENCODERS["merged"]).value < 0.7


@both_forms
def test_noise_codes_score_chance(beta, factor):
    rng = np.random.default_rng(0)

    def noise(factors: np.ndarray) -> np.ndarray:
        return rng.normal(size=(len(factors), 4))

    assert beta(noise).value == pytest.approx(0.25, abs=0.06)
    assert factor(noise).value == pytest.approx(0.25, abs=0.06)


@both_forms
def test_trap_rotated_codes_keep_a_high_beta_vae_score(beta, factor):
    assert beta(ENCODERS["rotated"]).value > 0.9
    assert factor(ENCODERS["rotated"]).value < 0.8
    assert beta(ENCODERS["rotated"]).parameters["matching"] == "logistic regression"


@both_forms
def test_trap_beta_vae_score_is_one_despite_a_missing_factor(beta, factor):
    """The FactorVAE score detects the missing factor."""
    assert beta(ENCODERS["three"]).value > 0.99
    result = factor(ENCODERS["three"])
    assert result.value == pytest.approx(0.75, abs=0.05)
    assert result.per_variable["factor3"] < 0.05


@both_forms
def test_beta_vae_score_does_not_depend_on_units(beta, factor):
    """Distances are standardised; else the penalty would make codes of 0.01 score chance."""
    units = np.array([1e-40, 1.0, 1e20, 1e45])
    for scale in (1e-3, 1e3, units):
        assert beta(lambda factors, scale=scale: scale * standard(factors)).value > 0.99
    assert beta(lambda factors: 0.01 * ENCODERS["rotated"](factors)).value == pytest.approx(
        beta(ENCODERS["rotated"]).value, abs=0.01
    )


def test_an_unconverged_regression_is_reported(monkeypatch):
    import sklearn.linear_model

    impatient = sklearn.linear_model.LogisticRegression
    monkeypatch.setattr(
        sklearn.linear_model, "LogisticRegression", lambda max_iter: impatient(max_iter=1)
    )
    result = beta_vae_score(standard(FACTORS), FACTORS, **QUICK)
    assert result.parameters["converged"] is False
    assert 0 <= result.value <= 1
    monkeypatch.undo()
    assert "converged" not in by_rows(beta_vae_score, standard).parameters


@both_forms
def test_trap_codes_below_the_pruning_threshold_are_ignored(beta, factor):
    small = factor(lambda factors: 0.01 * standard(factors))
    assert small.value == 0
    assert small.parameters["active_codes"] == 0
    assert factor(lambda factors: 0.01 * standard(factors), prune=0.0).value == 1
    assert (
        factor(
            lambda factors: np.hstack([standard(factors), np.full((len(factors), 1), 0.1)]),
            prune=0.0,
        ).value
        == 1
    )


@both_forms
def test_vector_valued_codes(beta, factor):
    def blocks(factors: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng(len(factors)).normal(size=factors.shape)
        # the second dim depends on another factor, with noise
        return np.stack([standard(factors), standard(factors)[:, ::-1] + noise], axis=2)

    chosen = factor(blocks, dims="best")
    assert chosen.value == 1
    assert chosen.parameters["dims"] == "best"
    assert chosen.parameters["chosen_dims"] == [0, 0, 0, 0]
    assert beta(blocks, dims="each").value == 1
    assert factor(blocks, dims="mean").value < 0.9
    with pytest.raises(UsageError, match="dims="):
        beta(blocks)


@both_forms
def test_scores_repeat_with_their_seed(beta, factor):
    for score in (beta, factor):
        assert score(ENCODERS["rotated"], seed=1) == score(ENCODERS["rotated"], seed=1)
        assert score(ENCODERS["rotated"], seed=1).value != score(ENCODERS["rotated"], seed=2).value


@both_forms
@pytest.mark.parametrize("wrong", [{"batch": 1}, {"training": 1}, {"test": 0}])
def test_too_small_sizes_raise(beta, factor, wrong):
    for score in (beta, factor):
        with pytest.raises(UsageError, match="are usual"):
            score(ENCODERS["identity"], **wrong)


# ---- rows ----------------------------------------------------------------------------------------
def rows_of(factors: np.ndarray) -> TableSampler:
    """Codes are the row numbers."""
    return TableSampler(
        check_codes_and_factors(
            np.arange(len(factors)), factors, names=None, kinds="discrete", dims=None
        ),
        20,
    )


def test_pairs_are_uniform_over_different_rows_that_share_the_factor():
    factors = np.array([[0, 0], [0, 1], [0, 0], [1, 1], [1, 0], [2, 1]])
    index = np.repeat([0, 1], 500)
    first, second = (
        codes[..., 0].astype(int)
        for codes in rows_of(factors).pairs(index, 10, np.random.default_rng(0))
    )
    assert (first != second).all()
    for f in (0, 1):
        assert (factors[first[index == f], f] == factors[second[index == f], f]).all()
    assert 5 not in first[index == 0]  # the only row with its value
    counts = np.bincount(second[(index == 0)[:, None] & (first == 0)], minlength=6)
    assert counts[[0, 3, 4, 5]].sum() == 0
    assert counts[1] == pytest.approx(counts[2], rel=0.15)


def test_groups_are_uniform_over_the_rows_of_one_value():
    factors = np.array([[0, 0], [0, 1], [0, 0], [1, 1], [1, 0], [2, 1]])
    index = np.repeat([0, 1], 300)
    rows = rows_of(factors).groups(index, 12, np.random.default_rng(0))[..., 0].astype(int)
    for f in (0, 1):
        values = factors[rows[index == f], f]
        assert (values == values[:, :1]).all()
    share = np.bincount(rows[index == 0].ravel(), minlength=6) / rows[index == 0].size
    assert share == pytest.approx([0.2, 0.2, 0.2, 0.2, 0.2, 0], abs=0.03)


def test_unshared_values_raise_or_are_counted():
    codes = np.random.default_rng(0).normal(size=(40, 2))
    alone = np.stack([np.arange(40), np.arange(40) % 2], axis=1)
    with pytest.raises(DataError, match="no two rows share a value of factor 'a'"):
        beta_vae_score(codes, alone, kinds="discrete", names=["a", "b"])
    binned = beta_vae_score(codes, alone, training=50, test=10)
    assert binned.parameters["kinds"]["factor0"] == "continuous"
    assert binned.parameters["bins"] == 20
    some = np.stack([np.maximum(np.arange(40), 20), np.arange(40) % 2], axis=1)
    assert beta_vae_score(codes, some, kinds="discrete", training=50, test=10).parameters[
        "rows_left_out"
    ] == {"factor0": 19}
    with pytest.raises(DataError, match="at least two"):
        factor_vae_score(codes, alone[:, 1])


# ---- simulators ----------------------------------------------------------------------------------
def test_simulated_factors_are_independent_except_the_fixed_one():
    table = np.array([[0.0, 0.0], [1.0, 10.0], [1.0, 10.0]])  # fully dependent in the table
    source = SimulatorSampler(
        lambda images: images, lambda factors: factors, table, None, None, 100, 0
    )
    index = np.repeat([0, 1], 400)
    first, second = source.pairs(index, 5, np.random.default_rng(0))
    fixed = source.groups(index, 5, np.random.default_rng(0))
    for f in (0, 1):
        assert (first[index == f][..., f] == second[index == f][..., f]).all()
        assert (fixed[index == f][..., f] == fixed[index == f][:, :1, f]).all()
        other = 1 - f
        assert np.mean(
            first[index == f][..., other] != second[index == f][..., other]
        ) == pytest.approx(4 / 9, abs=0.05)
    assert np.corrcoef(first[..., 0].ravel(), first[..., 1].ravel())[0, 1] == pytest.approx(
        0, abs=0.05
    )
    assert source.n == 1000 + 3 * 4000  # a probe, two of each pair, and the batches


def test_a_function_can_draw_factors_and_images_come_in_chunks():
    sizes = []

    def sample(factors: np.ndarray) -> np.ndarray:
        sizes.append(len(factors))
        return factors

    result = factor_vae_score_from_simulator(
        lambda images: -2 * images,
        sample,
        lambda n, rng: rng.normal(size=(n, 3)),
        variance=500,
        images_at_once=300,
        **QUICK,
    )
    assert result.value == 1
    assert max(sizes) == 300
    assert result.n == sum(sizes) == 1000 + 500 + 64 * 2000


def test_arrays_returned_by_a_draw_function_are_not_modified():
    table = np.random.default_rng(0).normal(size=(10**5, 2))
    before = table.copy()
    beta_vae_score_from_simulator(
        lambda x: x, lambda f: f, lambda n, rng: table[:n], training=10, test=10
    )
    assert np.array_equal(table, before)


def test_simulators_with_wrong_row_counts_raise():
    with pytest.raises(DataError, match="one row for each"):
        beta_vae_score_from_simulator(lambda x: x[:-1], lambda f: f, FACTORS)
    with pytest.raises(DataError, match="is needed"):
        beta_vae_score_from_simulator(lambda x: x, lambda f: f, lambda n, rng: np.zeros(n))
    with pytest.raises(DataError, match="is needed"):
        beta_vae_score_from_simulator(lambda x: x, lambda f: f, FACTORS[:, 0])
    with pytest.raises(UsageError, match="images_at_once"):
        beta_vae_score_from_simulator(lambda x: x, lambda f: f, FACTORS, images_at_once=0)
    with pytest.raises(UsageError, match="variance is 1"):
        factor_vae_score_from_simulator(lambda x: x, lambda f: f, FACTORS, variance=1)
