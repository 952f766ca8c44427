"""MIC and TIC against an independent implementation, and their properties on random data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervae.metrics.maximal_information import mic, mine_matrix, tic, tic_matrix


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
        forward = mine_matrix(x, y, estimator=estimator)
        swapped = mine_matrix(y, x, estimator=estimator)
        raw = tic_matrix(x, y, estimator=estimator, normalised=False)
        values = [forward.mic, forward.tic, raw, swapped.mic, swapped.tic]
        keys = ["mic_{}", "tic_{}_norm", "tic_{}", "mic_{}_swapped", "tic_{}_norm_swapped"]
        expected = [oracle[k_.format(key)][k] for k_ in keys]
        np.testing.assert_allclose(np.ravel(values), expected, rtol=0, atol=1e-9, err_msg=str(name))


def test_symmetric_e_equals_the_larger_oracle_direction(oracle):
    for k, name in enumerate(oracle["names"]):
        x, y = oracle[f"x{k:03d}"], oracle[f"y{k:03d}"]
        value = mic(x, y, estimator="e")
        assert value == pytest.approx(
            max(oracle["mic_e"][k], oracle["mic_e_swapped"][k]), abs=1e-9
        ), name


# ---- properties ----------------------------------------------------
numbers = st.integers(-6, 6)  # many ties
pairs = st.integers(4, 40).flatmap(
    lambda n: st.tuples(
        st.lists(numbers, min_size=n, max_size=n), st.lists(numbers, min_size=n, max_size=n)
    )
)
quick = settings(deadline=None, max_examples=60)


@quick
@given(pairs, st.sampled_from(["approx", "e"]))
def test_mic_and_tic_are_symmetric_and_lie_between_0_and_1(
    pair: tuple[list[int], list[int]], estimator: str
) -> None:
    x, y = (np.array(side, dtype=float) for side in pair)
    value = mic(x, y, estimator=estimator)
    assert value == mic(y, x, estimator=estimator)
    assert tic(x, y, estimator=estimator) == pytest.approx(
        tic(y, x, estimator=estimator), abs=1e-13
    )
    assert (
        0 <= tic(x, y, estimator=estimator) <= value + 1e-12
    )  # a mean of cells, added up in floats
    assert value <= 1
    if min(np.ptp(x), np.ptp(y)) == 0:
        assert value == 0


@quick
@given(
    pairs,
    st.lists(st.floats(-1e6, 1e6), min_size=13, max_size=13, unique=True),
    st.sampled_from(["approx", "e"]),
)
def test_increasing_maps_do_not_change_the_values(
    pair: tuple[list[int], list[int]], heights: list[float], estimator: str
) -> None:
    x, y = (np.array(side) for side in pair)
    climb = np.sort(np.array(heights))  # climb[x + 6] is strictly increasing in x
    assert mic(climb[x + 6], y, estimator=estimator) == mic(x, y, estimator=estimator)
    assert tic(x, climb[y + 6], estimator=estimator) == tic(x, y, estimator=estimator)


def test_trap_a_flipped_sign_can_change_mic() -> None:
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 4, (2, 12)).astype(float) for _ in range(50)]
    assert any(
        mic(x, y) != mic(-x, y) for x, y in tables
    )  # documented as a trap: only increasing maps are exact
