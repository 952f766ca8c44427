"""MIC and TIC against the definition by brute force, closed forms, and values of an independent implementation."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import intervae
from intervae.errors import DataError, UsageError
from intervae.metrics import _mine
from intervae.metrics.information import ESTIMATORS, mic, mic_matrix, mine_matrix, permutation_null, tic, tic_matrix


def equipartition(sizes, rows):
    """Rows of indivisible groups: a group opens a new row when it would take the row further from the size wanted than it is now."""
    labels, row, filled, left = [], 0, 0, sum(sizes)
    wanted = Fraction(left, rows)
    for size in sizes:
        if filled and abs(filled + size - wanted) >= abs(filled - wanted):
            row, filled = row + 1, 0
            wanted = Fraction(left, rows - row)
        labels.append(row)
        filled += size
        left -= size
    return labels


def entropy(labels):
    counts = np.array(list(Counter(labels).values())) / len(labels)
    return float(-(counts * np.log(counts)).sum())


def largest_information(free, equal, columns, rows, most_clumps):
    """The best mutual information over all ways to cut `free` into at most `columns`, `equal` being equipartitioned; and the rows used."""
    values, counts = np.unique(equal, return_counts=True)
    row_of = dict(zip(values, equipartition(list(counts), rows), strict=True))
    row = [row_of[v] for v in equal]
    ordered = np.unique(free)
    kinds = [frozenset(r for r, f in zip(row, free, strict=True) if f == v) for v in ordered]
    pure = [len(k) == 1 for k in kinds]
    cuts = [i for i in range(1, len(ordered)) if not (pure[i] and kinds[i] == kinds[i - 1])]  # between clumps
    if len(cuts) + 1 > most_clumps:
        edges = [0, *cuts, len(ordered)]
        sizes = [int(np.isin(free, ordered[a:b]).sum()) for a, b in itertools.pairwise(edges)]
        merged = equipartition(sizes, most_clumps)
        cuts = [cut for cut, (a, b) in zip(cuts, itertools.pairwise(merged), strict=True) if a != b]
    best = 0.0
    for k in range(1, columns):
        for chosen in itertools.combinations(cuts, min(k, len(cuts))):
            column = list(np.searchsorted(ordered[list(chosen)], free, side="right"))
            best = max(best, entropy(row) + entropy(column) - entropy(list(zip(row, column, strict=True))))
    return best, len(set(row))


def brute_force(x, y, alpha, c, estimator):
    limit = max(len(x) ** alpha, 4)
    cells = []
    for rows in range(2, int(limit // 2) + 1):
        for columns in range(2, int(limit // rows) + 1):
            candidates = []
            for first, free, equal, cut, fixed in ((False, x, y, columns, rows), (True, y, x, rows, columns)):
                wanted = fixed > cut or (fixed == cut and (estimator == "e" or first))
                if estimator == "approx" or wanted:
                    information, used = largest_information(free, equal, cut, fixed, int(c * (limit // fixed)))
                    candidates.append(information / math.log(min(cut, used)) if used > 1 else 0.0)
            cells.append(max(candidates))
    return max(cells), sum(cells)


KINDS = {
    "continuous": lambda x, noise: (x, x**2 + 0.5 * noise),
    "coarse": lambda x, noise: (np.round(2 * x), np.round(2 * x + noise)),
    "fine": lambda x, noise: (np.round(4 * x), np.round(4 * x + noise)),
    "binary": lambda x, noise: (x, (x + noise > 0.3).astype(float)),
    "categories": lambda x, noise: ((noise > 0).astype(float), np.digitize(x + noise, [-0.5, 0.5])),
}


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("c", [1, 1.7, 15])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_equals_the_definition_by_brute_force(estimator, c, kind):
    generator = np.random.default_rng(0)
    for n in (4, 7, 10, 12, 13):
        x, y = KINDS[kind](*generator.normal(size=(2, n)))
        largest, total = brute_force(x, y, 1.0, c, estimator)
        assert mic(x, y, alpha=1.0, c=c, estimator=estimator) == pytest.approx(largest, abs=1e-12)
        assert tic(x, y, alpha=1.0, c=c, estimator=estimator, normalised=False) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("function", [lambda v: v, lambda v: -(v**3), np.exp, lambda v: v**2, lambda v: np.sin(6 * v)])
def test_a_noiseless_function_scores_one(function):
    x = np.random.default_rng(1).uniform(-1, 1, 500)
    assert mic(x, function(x)) == pytest.approx(1.0, abs=1e-12)


def test_a_monotone_function_scores_one_in_every_square_cell_and_tic_follows():
    x = np.arange(64.0)  # 64^0.6 = 12.1: cells (2..6 rows, 2..6 columns) whose partitions divide the samples unevenly
    assert mic(x, x**3) == pytest.approx(1.0, abs=1e-12)
    assert 0.9 < tic(x, x**3) <= 1.0


def test_a_fair_coin_and_its_copy_share_exactly_one_bit_in_every_cell():
    coin = np.tile([0.0, 1.0], 50)
    assert mic(coin, coin) == pytest.approx(1.0, abs=1e-12)
    assert tic(coin, coin) == pytest.approx(1.0, abs=1e-12)


def test_unfair_coin_scores_its_entropy():
    coin = np.repeat([0.0, 1.0], [30, 70])
    expected = -(0.3 * math.log2(0.3) + 0.7 * math.log2(0.7))
    assert mic(coin, coin) == pytest.approx(expected, abs=1e-12)
    assert tic(coin, coin) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("estimator", ["approx", "e"])
@pytest.mark.parametrize("n", [30, 300])
def test_symmetric_estimators_do_not_care_which_variable_comes_first(estimator, n):
    generator = np.random.default_rng(2)
    x = generator.normal(size=n)
    for y in (x**2 + generator.normal(size=n), np.round(x + generator.normal(size=n)), (x > 0.3).astype(float)):
        assert mic(x, y, estimator=estimator) == mic(y, x, estimator=estimator)
        assert tic(x, y, estimator=estimator) == pytest.approx(tic(y, x, estimator=estimator), abs=1e-13)


def test_the_reference_variant_of_e_differs_from_the_symmetric_one_only_in_square_cells():
    generator = np.random.default_rng(3)
    x = generator.normal(size=200)
    y = x**2 + generator.normal(size=200)
    one, other, symmetric = (
        tic(*pair, estimator=name, normalised=False) for pair, name in (((x, y), "e-reference"), ((y, x), "e-reference"), ((x, y), "e"))
    )
    assert one != pytest.approx(other, abs=1e-6)
    assert max(one, other) - 1e-12 <= symmetric <= max(one, other) + 3  # 200^0.6 = 24 cells: three square grids


def test_increasing_transforms_change_nothing():
    generator = np.random.default_rng(4)
    x = generator.normal(size=250)
    y = np.round(np.sin(3 * x) + 0.3 * generator.normal(size=250), 1)
    expected = mine_matrix(x[:, None], y[:, None])
    moved = mine_matrix(np.exp(x)[:, None], (5 * y**3 - 2)[:, None])
    assert moved.mic == expected.mic
    assert moved.tic == expected.tic


def test_the_order_of_the_samples_changes_nothing():
    generator = np.random.default_rng(5)
    x, y = generator.integers(0, 6, 200), generator.normal(size=200)
    shuffle = generator.permutation(200)
    assert mic(x, y) == mic(x[shuffle], y[shuffle])
    assert tic(x, y) == tic(x[shuffle], y[shuffle])


def test_independent_data_score_what_small_samples_score_and_less_with_more():
    generator = np.random.default_rng(6)
    small = mine_matrix(generator.normal(size=(100, 8)), generator.normal(size=(100, 4)))
    large = mine_matrix(generator.normal(size=(2000, 2)), generator.normal(size=(2000, 2)))
    assert small.mic.mean() == pytest.approx(0.235, abs=0.02)  # 0.23 to 0.24 is also what the literature's unsupervised baselines "score"
    assert small.tic.mean() == pytest.approx(0.13, abs=0.015)
    assert large.mic.mean() == pytest.approx(0.11, abs=0.02)


def test_permutation_null_tells_dependence_from_independence():
    generator = np.random.default_rng(7)
    x, noise = generator.normal(size=(2, 100))
    dependent = permutation_null(x, x**2 + 0.3 * noise, permutations=99, seed=1)
    independent = permutation_null(x, noise, permutations=99, seed=1)
    assert (dependent.n, dependent.permutations) == (100, 99)
    assert dependent.mic_p == dependent.tic_p == pytest.approx(0.01)
    assert dependent.mic > dependent.mic_null_mean + 5 * dependent.mic_null_std
    assert independent.mic_p > 0.05
    assert independent.mic_null_mean == pytest.approx(0.235, abs=0.02)
    assert abs(independent.mic - independent.mic_null_mean) < 3 * independent.mic_null_std
    assert dependent.mic == mic(x, x**2 + 0.3 * noise)
    assert "n = 100" in str(dependent)


def test_permutation_null_is_uniform_under_independence():
    generator = np.random.default_rng(8)
    p = [permutation_null(*generator.normal(size=(2, 30)), permutations=19, seed=s).tic_p for s in range(60)]
    assert np.mean(p) == pytest.approx(0.525, abs=0.12)


def test_permutation_null_repeats_with_its_seed():
    x, y = np.random.default_rng(9).normal(size=(2, 40))
    assert permutation_null(x, y, permutations=10, seed=3) == permutation_null(x, y, permutations=10, seed=3)
    assert permutation_null(x, y, permutations=10, seed=3) != permutation_null(x, y, permutations=10, seed=4)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_matrix_equals_its_pairs(estimator, threads):
    generator = np.random.default_rng(10)
    X = generator.normal(size=(150, 4))
    X[:, 2], X[:, 3] = X[:, 2] > 0, 1.0
    Y = np.stack([X[:, 0] ** 2, np.round(X[:, 1]), generator.normal(size=150)], axis=1)
    both = mine_matrix(X, Y, estimator=estimator, threads=threads)
    assert both.n == 150
    for i, j in np.ndindex(4, 3):
        assert both.mic[i, j] == mic(X[:, i], Y[:, j], estimator=estimator)
        assert both.tic[i, j] == tic(X[:, i], Y[:, j], estimator=estimator)
    np.testing.assert_array_equal(both.mic, mic_matrix(X, Y, estimator=estimator))
    np.testing.assert_array_equal(both.tic, tic_matrix(X, Y, estimator=estimator))


def test_normalised_tic_is_the_mean_of_the_cells():
    x, y = np.random.default_rng(11).normal(size=(2, 100))
    cells = sum(int(100**0.6 // rows) - 1 for rows in range(2, int(100**0.6 // 2) + 1))
    assert tic(x, y, normalised=False) == pytest.approx(cells * tic(x, y))


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_a_constant_shares_no_information(estimator):
    varied = np.random.default_rng(12).normal(size=60)
    constant = np.full(60, 3.5)
    for pair in ((constant, varied), (varied, constant), (constant, constant)):
        assert mic(*pair, estimator=estimator) == 0.0
        assert tic(*pair, estimator=estimator) == 0.0


def test_one_deviating_sample_is_not_a_constant():
    rare = np.zeros(50)
    rare[7] = 1.0
    assert 0.0 < mic(rare, np.random.default_rng(13).normal(size=50)) < 0.2


def test_wrong_data_is_refused_in_one_sentence():
    good = np.arange(10.0)
    bad = good.copy()
    bad[3] = np.nan
    infinite = good.copy()
    infinite[0] = np.inf
    for pair, words in (
        ((bad, good), "x has nan at index 3"),
        ((good, infinite), "y has inf at index 0"),
        ((good, good[:9]), "X has 10 and Y has 9"),
        ((good[:3], good[:3]), "at least 4 samples, but got 3"),
        ((good[:, None], good), r"x has shape \(10, 1\)"),
        ((["a"] * 5, good[:5]), "x cannot be read as numbers"),
    ):
        with pytest.raises(DataError, match=words):
            mic(*pair)
        with pytest.raises(DataError, match=words):
            permutation_null(*pair)
    with pytest.raises(DataError, match=r"X has shape \(10,\)"):
        mine_matrix(good, good[:, None])
    with pytest.raises(DataError, match=r"Y has nan at index \(3, 0\)"):
        mine_matrix(good[:, None], bad[:, None])


@pytest.mark.parametrize(
    ("setting", "words"),
    [({"alpha": 0}, "alpha is 0"), ({"alpha": 1.5}, "alpha is 1.5"), ({"c": 0.5}, "c is 0.5"), ({"estimator": "aprox"}, "did you mean 'approx'")],
)
def test_wrong_settings_are_refused(setting, words):
    with pytest.raises(UsageError, match=words):
        mic(np.arange(10.0), np.arange(10.0), **setting)
    with pytest.raises(UsageError, match="threads is 0"):
        mine_matrix(np.ones((5, 1)), np.ones((5, 1)), threads=0)


def test_fixed_point_scores_stay_exact_and_within_64_bits():
    for n in (4, 1000, 2_000_000):
        scores, unit = _mine.score_table(n)
        assert scores.max() <= 2**_mine.SCORE_BITS
        assert scores[n] * unit == pytest.approx(n * math.log(n), rel=1e-15)


def test_imports_where_no_cache_folder_can_be_written(tmp_path):
    package = tmp_path / "intervae"
    shutil.copytree(Path(intervae.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "metrics" / "__pycache__").write_text("a file here keeps everybody, root included, from making the folder")
    environment = {**os.environ, "HOME": "/dev/null/none", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)
    program = "import intervae.metrics._mine as core; print(core.__file__, type(core.score_pairs).__name__)"
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(package / "metrics" / "_mine.py"), "CPUDispatcher"], done.stderr


@pytest.fixture(scope="module")
def oracle():
    folder = os.environ.get("INTERVAE_ORACLES")
    if not folder:
        pytest.skip("set INTERVAE_ORACLES to the folder with mic_oracle.npz")
    with np.load(Path(folder) / "mic_oracle.npz") as data:
        return dict(data)


@pytest.mark.parametrize(("estimator", "key"), [("approx", "approx"), ("e-reference", "e")])
def test_agrees_with_an_independent_implementation(oracle, estimator, key):
    for k, name in enumerate(oracle["names"]):
        x, y = oracle[f"x{k:03d}"][:, None], oracle[f"y{k:03d}"][:, None]
        one, other = mine_matrix(x, y, estimator=estimator), mine_matrix(y, x, estimator=estimator)
        raw = tic_matrix(x, y, estimator=estimator, normalised=False)
        found = [one.mic, one.tic, raw, other.mic, other.tic]
        keys = ["mic_{}", "tic_{}_norm", "tic_{}", "mic_{}_swapped", "tic_{}_norm_swapped"]
        expected = [oracle[k_.format(key)][k] for k_ in keys]
        np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=1e-9, err_msg=str(name))


def test_symmetric_e_takes_the_better_square_cells_of_the_oracle(oracle):
    for k, name in enumerate(oracle["names"]):
        x, y = oracle[f"x{k:03d}"], oracle[f"y{k:03d}"]
        value = mic(x, y, estimator="e")
        assert value == pytest.approx(max(oracle["mic_e"][k], oracle["mic_e_swapped"][k]), abs=1e-9), name


# ---- properties, on whatever hypothesis draws -----------------------------------------------------------------------------
numbers = st.integers(-6, 6)  # many ties
pairs = st.integers(4, 40).flatmap(lambda n: st.tuples(st.lists(numbers, min_size=n, max_size=n), st.lists(numbers, min_size=n, max_size=n)))
quick = settings(deadline=None, max_examples=60)


@quick
@given(pairs, st.sampled_from(["approx", "e"]))
def test_mic_and_tic_are_symmetric_and_lie_between_0_and_1(pair: tuple[list[int], list[int]], estimator: str) -> None:
    x, y = (np.array(side, dtype=float) for side in pair)
    value = mic(x, y, estimator=estimator)
    assert value == mic(y, x, estimator=estimator)
    assert tic(x, y, estimator=estimator) == pytest.approx(tic(y, x, estimator=estimator), abs=1e-13)
    assert 0 <= tic(x, y, estimator=estimator) <= value + 1e-12  # a mean of cells, added up in floats
    assert value <= 1
    if min(np.ptp(x), np.ptp(y)) == 0:
        assert value == 0


@quick
@given(pairs, st.lists(st.floats(-1e6, 1e6), min_size=13, max_size=13, unique=True), st.sampled_from(["approx", "e"]))
def test_increasing_maps_change_nothing(pair: tuple[list[int], list[int]], heights: list[float], estimator: str) -> None:
    x, y = (np.array(side) for side in pair)
    climb = np.sort(np.array(heights))  # climb[x + 6] is strictly increasing in x
    assert mic(climb[x + 6], y, estimator=estimator) == mic(x, y, estimator=estimator)
    assert tic(x, climb[y + 6], estimator=estimator) == tic(x, y, estimator=estimator)


def test_a_flipped_sign_can_change_mic_because_bins_are_filled_from_the_low_end() -> None:
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 4, (2, 12)).astype(float) for _ in range(50)]
    assert any(mic(x, y) != mic(-x, y) for x, y in tables)  # documented as a trap: only increasing maps are exact
