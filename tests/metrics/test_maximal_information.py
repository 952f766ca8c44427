"""MIC and TIC against brute force and closed forms."""

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

import intervae
from intervae.errors import DataError, UsageError
from intervae.metrics import mic_grid_search
from intervae.metrics.maximal_information import (
    ESTIMATORS,
    mic,
    mic_matrix,
    mine_matrix,
    permutation_null,
    tic,
    tic_matrix,
)


def equipartition(sizes, rows):
    """Rows of indivisible groups; a group starts a new row if that is closer to the target size."""
    labels, row, filled, left = [], 0, 0, sum(sizes)
    target = Fraction(left, rows)
    for size in sizes:
        if filled and abs(filled + size - target) >= abs(filled - target):
            row, filled = row + 1, 0
            target = Fraction(left, rows - row)
        labels.append(row)
        filled += size
        left -= size
    return labels


def entropy(labels):
    counts = np.array(list(Counter(labels).values())) / len(labels)
    return float(-(counts * np.log(counts)).sum())


def largest_information(free, equal, columns, rows, most_clumps):
    """The best mutual information over all cuts of `free` into at most `columns` columns.

    `equal` is equipartitioned. Also returns the number of rows used.
    """
    values, counts = np.unique(equal, return_counts=True)
    row_of = dict(zip(values, equipartition(list(counts), rows), strict=True))
    row = [row_of[v] for v in equal]
    ordered = np.unique(free)
    kinds = [frozenset(r for r, f in zip(row, free, strict=True) if f == v) for v in ordered]
    pure = [len(k) == 1 for k in kinds]
    cuts = [
        i for i in range(1, len(ordered)) if not (pure[i] and kinds[i] == kinds[i - 1])
    ]  # between clumps
    if len(cuts) + 1 > most_clumps:
        edges = [0, *cuts, len(ordered)]
        sizes = [int(np.isin(free, ordered[a:b]).sum()) for a, b in itertools.pairwise(edges)]
        merged = equipartition(sizes, most_clumps)
        cuts = [cut for cut, (a, b) in zip(cuts, itertools.pairwise(merged), strict=True) if a != b]
    best = 0.0
    for k in range(1, columns):
        for chosen in itertools.combinations(cuts, min(k, len(cuts))):
            column = list(np.searchsorted(ordered[list(chosen)], free, side="right"))
            best = max(
                best, entropy(row) + entropy(column) - entropy(list(zip(row, column, strict=True)))
            )
    return best, len(set(row))


def brute_force(x, y, alpha, c, estimator):
    limit = max(len(x) ** alpha, 4)
    cells = []
    for rows in range(2, int(limit // 2) + 1):
        for columns in range(2, int(limit // rows) + 1):
            candidates = []
            for first, free, equal, cut, fixed in (
                (False, x, y, columns, rows),
                (True, y, x, rows, columns),
            ):
                larger = fixed > cut or (fixed == cut and (estimator == "e" or first))
                if estimator == "approx" or larger:
                    information, used = largest_information(
                        free, equal, cut, fixed, int(c * (limit // fixed))
                    )
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
        assert tic(x, y, alpha=1.0, c=c, estimator=estimator, normalised=False) == pytest.approx(
            total, abs=1e-12
        )


@pytest.mark.parametrize(
    "function", [lambda v: v, lambda v: -(v**3), np.exp, lambda v: v**2, lambda v: np.sin(6 * v)]
)
def test_a_noiseless_function_scores_one(function):
    x = np.random.default_rng(1).uniform(-1, 1, 500)
    assert mic(x, function(x)) == pytest.approx(1.0, abs=1e-12)


def test_mic_and_tic_of_a_monotone_function():
    x = np.arange(
        64.0
    )  # 64^0.6 = 12.1: cells (2..6 rows, 2..6 columns) whose partitions divide the samples unevenly
    assert mic(x, x**3) == pytest.approx(1.0, abs=1e-12)
    assert 0.9 < tic(x, x**3) <= 1.0


def test_a_fair_coin_and_its_copy_score_one():
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
def test_approx_and_e_are_symmetric(estimator, n):
    generator = np.random.default_rng(2)
    x = generator.normal(size=n)
    for y in (
        x**2 + generator.normal(size=n),
        np.round(x + generator.normal(size=n)),
        (x > 0.3).astype(float),
    ):
        assert mic(x, y, estimator=estimator) == mic(y, x, estimator=estimator)
        assert tic(x, y, estimator=estimator) == pytest.approx(
            tic(y, x, estimator=estimator), abs=1e-13
        )


def test_e_reference_differs_from_e_only_in_square_cells():
    generator = np.random.default_rng(3)
    x = generator.normal(size=200)
    y = x**2 + generator.normal(size=200)
    forward, swapped, symmetric = (
        tic(*pair, estimator=name, normalised=False)
        for pair, name in (((x, y), "e-reference"), ((y, x), "e-reference"), ((x, y), "e"))
    )
    assert forward != pytest.approx(swapped, abs=1e-6)
    assert (
        max(forward, swapped) - 1e-12 <= symmetric <= max(forward, swapped) + 3
    )  # 200^0.6 = 24 cells: three square grids


def test_increasing_transforms_do_not_change_the_values():
    generator = np.random.default_rng(4)
    x = generator.normal(size=250)
    y = np.round(np.sin(3 * x) + 0.3 * generator.normal(size=250), 1)
    expected = mine_matrix(x[:, None], y[:, None])
    moved = mine_matrix(np.exp(x)[:, None], (5 * y**3 - 2)[:, None])
    assert moved.mic == expected.mic
    assert moved.tic == expected.tic


def test_the_order_of_samples_does_not_matter():
    generator = np.random.default_rng(5)
    x, y = generator.integers(0, 6, 200), generator.normal(size=200)
    shuffle = generator.permutation(200)
    assert mic(x, y) == mic(x[shuffle], y[shuffle])
    assert tic(x, y) == tic(x[shuffle], y[shuffle])


def test_independent_data_score_less_with_more_samples():
    generator = np.random.default_rng(6)
    small = mine_matrix(generator.normal(size=(100, 8)), generator.normal(size=(100, 4)))
    large = mine_matrix(generator.normal(size=(2000, 2)), generator.normal(size=(2000, 2)))
    assert small.mic.mean() == pytest.approx(
        0.235, abs=0.02
    )  # 0.23 to 0.24 is also what the literature's unsupervised baselines "score"
    assert small.tic.mean() == pytest.approx(0.13, abs=0.015)
    assert large.mic.mean() == pytest.approx(0.11, abs=0.02)


def test_permutation_null_separates_dependence_from_independence():
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
    p = [
        permutation_null(*generator.normal(size=(2, 30)), permutations=19, seed=s).tic_p
        for s in range(60)
    ]
    assert np.mean(p) == pytest.approx(0.525, abs=0.12)


def test_permutation_null_depends_on_the_seed():
    x, y = np.random.default_rng(9).normal(size=(2, 40))
    assert permutation_null(x, y, permutations=10, seed=3) == permutation_null(
        x, y, permutations=10, seed=3
    )
    assert permutation_null(x, y, permutations=10, seed=3) != permutation_null(
        x, y, permutations=10, seed=4
    )


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
def test_a_constant_scores_zero(estimator):
    varied = np.random.default_rng(12).normal(size=60)
    constant = np.full(60, 3.5)
    for pair in ((constant, varied), (varied, constant), (constant, constant)):
        assert mic(*pair, estimator=estimator) == 0.0
        assert tic(*pair, estimator=estimator) == 0.0


def test_one_deviating_sample_is_not_a_constant():
    rare = np.zeros(50)
    rare[7] = 1.0
    assert 0.0 < mic(rare, np.random.default_rng(13).normal(size=50)) < 0.2


def test_wrong_data_raises():
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
    [
        ({"alpha": 0}, "alpha is 0"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"c": 0.5}, "c is 0.5"),
        ({"estimator": "aprox"}, "did you mean 'approx'"),
    ],
)
def test_wrong_settings_raise(setting, words):
    with pytest.raises(UsageError, match=words):
        mic(np.arange(10.0), np.arange(10.0), **setting)
    with pytest.raises(UsageError, match="threads is 0"):
        mine_matrix(np.ones((5, 1)), np.ones((5, 1)), threads=0)


def test_fixed_point_scores_stay_exact_and_within_64_bits():
    for n in (4, 1000, 2_000_000):
        scores, unit = mic_grid_search.score_table(n)
        assert scores.max() <= 2**mic_grid_search.SCORE_BITS
        assert scores[n] * unit == pytest.approx(n * math.log(n), rel=1e-15)


def test_imports_where_no_cache_folder_can_be_written(tmp_path):
    package = tmp_path / "intervae"
    shutil.copytree(
        Path(intervae.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "metrics" / "__pycache__").write_text("a file in place of the cache folder")
    environment = {
        **os.environ,
        "HOME": "/dev/null/none",
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)
    program = (
        "import intervae.metrics.mic_grid_search as core; "
        "print(core.__file__, type(core.score_pairs.dispatcher()).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [
        str(package / "metrics" / "mic_grid_search.py"),
        "CPUDispatcher",
    ], done.stderr
