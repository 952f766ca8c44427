"""Dependence between columns: tests and measures against known cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle import encode_in_pixels

from intervae.data import Dataset, Variable, build_dataset
from intervae.report.column_dependence import (
    SIGNIFICANT,
    association,
    column_dependences,
    cramers_v,
    holm,
)


def simulate_columns(
    make: Callable[[np.random.Generator, int], list[np.ndarray]],
    *variables: Variable,
    rows: int = 400,
    seed: int = 0,
) -> Dataset:
    rng = np.random.default_rng(seed)
    return build_dataset(
        "columns",
        encode_in_pixels(np.zeros((rows, 3))),
        np.stack(make(rng, rows), axis=1),
        variables,
    )


NUMBER, SECOND, FLAG, GROUP = (
    Variable("x"),
    Variable("y"),
    Variable("f", "binary"),
    Variable("g", "categorical", categories=("p", "q", "r")),
)


@pytest.mark.parametrize(
    ("make", "variables", "measure"),
    [
        (
            lambda rng, n: [(x := rng.normal(size=n)), x**2 + 0.3 * rng.normal(size=n)],
            (NUMBER, SECOND),
            "rank correlation",
        ),
        (
            lambda rng, n: [(x := rng.normal(size=n)), x + rng.normal(size=n) > 0],
            (NUMBER, FLAG),
            "rank correlation",
        ),
        (
            lambda rng, n: [(g := rng.integers(3, size=n)), g % 2 + 0.7 * rng.normal(size=n)],
            (GROUP, NUMBER),
            "correlation ratio",
        ),
        (
            lambda rng, n: [(g := rng.integers(3, size=n)), (g == 1) ^ (rng.random(n) < 0.2)],
            (GROUP, FLAG),
            "Cramér's V",
        ),
    ],
)
def test_dependent_columns_of_every_kind_are_detected(
    make: Any, variables: tuple[Variable, ...], measure: str
) -> None:
    pair = column_dependences(simulate_columns(make, *variables))[0]
    assert pair.p < SIGNIFICANT
    assert pair.measure == measure


def test_independent_columns_are_rarely_called_dependent() -> None:
    def make(rng: np.random.Generator, n: int) -> list[np.ndarray]:
        return [
            rng.normal(size=n),
            rng.exponential(size=n),
            rng.random(n) < 0.2,
            rng.integers(3, size=n),
        ]

    false_positives = [
        any(
            d.p < SIGNIFICANT
            for d in column_dependences(
                simulate_columns(make, NUMBER, SECOND, FLAG, GROUP, rows=150, seed=s)
            )
        )
        for s in range(40)
    ]
    assert sum(false_positives) <= 2  # 0.4 expected


def test_holm_correction_of_known_p_values() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.8])).max() == 1


def test_measures_of_association_at_their_limits() -> None:
    g = np.repeat([0.0, 1.0, 2.0], 50)
    assert cramers_v(g, (g + 1) % 3) == pytest.approx(1)
    assert cramers_v(g, np.tile([0.0, 1.0], 75)) == pytest.approx(0, abs=1e-12)
    table = np.array([[30, 10], [10, 30]])  # chi^2 = 20 for 80 rows
    assert cramers_v(
        np.repeat([0, 0, 1, 1], table.ravel()), np.repeat([0, 1, 0, 1], table.ravel())
    ) == pytest.approx(0.5)
    assert association(g, 5 * g, "categorical", "continuous") == (
        "correlation ratio",
        pytest.approx(1),
    )
    assert association(g, np.exp(g), "continuous", "continuous") == (
        "rank correlation",
        pytest.approx(1),
    )
