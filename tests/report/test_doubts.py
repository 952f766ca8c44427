"""Doubts: each assumption that is violated is said, and a world that keeps them all raises none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracle import TRUE, VARIABLES, drawn, oracle, world

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.report.doubts import CHECKS, SIGNIFICANT, Doubt, association, column_dependences, cramers_v, doubts, holm
from intervae.report.findings import Findings, LinkFound, find

GOOD = LinkFound("a", "z0", 0.8, 0.0, 50.0, 1.0, 1.0, 0.6, None, False, 0.8, 0.8, 0.7)


def findings(*links: LinkFound, rows: int = 500, **changes: Any) -> Findings:
    names = ("z0", "z1", "z2", *(variable.name for variable in changes.get("columns", VARIABLES)))
    graph = CausalGraph.from_edges(names, [(link.cause, link.effect, link.strength) for link in links])
    plain: dict[str, Any] = {"columns": VARIABLES, "confidence": np.zeros((6, 6)), "resamples": 100, "unused": 0, "seconds": 1.0}
    plain |= {"rows": (rows, 50, 100), "resampled_rows": rows + 150, "label_influence": np.zeros(3), "threshold": 0.2}
    return Findings(graph=graph, links=tuple(links), **{**plain, **changes})


def kinds(said: list[Doubt]) -> list[str]:
    return [doubt.kind for doubt in said]


def test_a_world_that_keeps_the_assumptions_raises_no_doubt_but_of_the_directions_of_columns_of_categories() -> None:
    data = world()
    found = find(oracle(data, *TRUE), data, resamples=20)
    said = doubts(found, data, column_dependences(data))
    assert {doubt.kind for doubt in said} == {"no direction"}  # which no world can have
    assert [doubt.about for doubt in said] == [("z1", "b"), ("c", "z2")]


def test_a_world_that_breaks_them_is_doubted_by_name() -> None:
    """a -> z0 is a straight line, and d, for which there is no latent, depends on a without being correlated with it."""
    data = world(line=True, twins=True)
    found = find(oracle(data, *TRUE), data, resamples=20)
    said = doubts(found, data, column_dependences(data))
    assert sorted(kinds(said)) == ["dependent columns", "few latents", "no direction", "no direction", "straight"]
    assert {"a", "d"} == set(said[0].about)
    assert "a and d depend on each other" in said[0].text
    assert [doubt.about for doubt in said if doubt.kind == "straight"] == [("a", "z0")]


CASES: dict[str, tuple[LinkFound, str, str]] = {
    "weak": (replace(GOOD, present=0.4), "weak link", "in only 40% of the resampled tables"),
    "open": (replace(GOOD, direction=0.6), "direction open", "not settled, only 60%"),
    "turned": (replace(GOOD, direction=0.1), "direction open", "points the other way: only 10%"),
    "thin margin": (replace(GOOD, margin=1.2), "direction open", "by 1.2 nats only"),
    "near shuffled rows": (
        replace(GOOD, margin=12.0, chance=7.0),
        "direction open",
        "12.0 nats only; with its rows shuffled the column gives 7.0",
    ),
    "tight": (
        replace(GOOD, strength=0.995, margin=211.0),
        "direction open",
        "only 1.0% of the variance is left unexplained) that either direction fits",
    ),
    "categories": (replace(GOOD, directed=False, direction=None, margin=None), "no direction", "a has categories"),
    "thin weights": (replace(GOOD, margin=None, backwards=0.75), "direction open", "nearly the same weight (0.75 against 0.80)"),
    "straight": (replace(GOOD, straight=True), "straight", "a straight line has no direction"),
    "not on new images": (replace(GOOD, held_out=-0.1), "not on new images", "predicts z0 no better"),
    "copied": (replace(GOOD, alone=0.1), "copied", "z0 copies the table"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_weakness_of_a_link_is_said_once(case: str) -> None:
    link, kind, text = CASES[case]
    data = world(700)
    said = doubts(findings(link), data, [])
    assert kinds(said) == [kind]
    assert text in said[0].text
    assert said[0].about == ("a", "z0")
    assert doubts(findings(GOOD), data, []) == []
    assert doubts(findings(replace(GOOD, margin=15.0, chance=7.0)), data, []) == []
    assert doubts(findings(replace(GOOD, margin=15.0, strength=0.98)), data, []) == []
    assert kind in CHECKS


def test_a_weak_link_of_a_column_of_categories_is_doubted_on_both_accounts() -> None:
    said = doubts(findings(replace(GOOD, directed=False, present=0.4, cause="z1", effect="b")), world(700), [])
    assert kinds(said) == ["weak link", "no direction"]
    assert "b has categories" in said[1].text


def test_a_relation_that_is_weak_with_and_without_the_table_is_no_copy() -> None:
    assert doubts(findings(replace(GOOD, alone=0.1, shown=0.1)), world(700), []) == []


def test_every_node_with_several_edges_is_named() -> None:
    both = findings(GOOD, replace(GOOD, effect="z1"), replace(GOOD, cause="z2", effect="b"))
    said = [doubt for doubt in doubts(both, world(700), []) if doubt.kind == "several edges"]
    assert [doubt.about[0] for doubt in said] == ["a"]
    assert "a has 2 links (z0, z1)" in said[0].text


def test_few_rows_and_rare_categories_are_said() -> None:
    said = doubts(findings(GOOD, rows=120), world(700), [])
    assert kinds(said) == ["few rows"]
    assert "120 training images for 6 latents and columns" in said[0].text
    rng = np.random.default_rng(0)
    rare = np.where(np.arange(700) % 140 == 0, 2, rng.integers(2, size=700))  # 5 of the last category
    data = build_dataset("rare", drawn(rng.normal(size=(700, 3))), np.stack([rng.normal(size=700), rng.integers(2, size=700), rare], 1), VARIABLES)
    said = doubts(findings(GOOD), data, [])
    assert kinds(said) == ["few rows"]
    assert "c: fewer than 10 training images have the value right (" in said[0].text


def test_fewer_latents_than_columns_are_said() -> None:
    data = world(700, twins=True)
    said = doubts(findings(GOOD, columns=data.variables), data, [])
    assert kinds(said) == ["few latents"]
    assert "4 columns but only 3 latents" in said[0].text


def test_no_links_at_all_is_said() -> None:
    said = doubts(findings(), world(700), [])
    assert kinds(said) == ["no links"]
    assert "0.2 or more" in said[0].text


# ---- columns against each other -------------------------------------------------------------------------------------
def columns(make: Callable[[np.random.Generator, int], list[np.ndarray]], *variables: Variable, rows: int = 400, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    return build_dataset("columns", drawn(np.zeros((rows, 3))), np.stack(make(rng, rows), axis=1), variables)


NUMBER, OTHER, FLAG, GROUP = Variable("x"), Variable("y"), Variable("f", "binary"), Variable("g", "categorical", categories=("p", "q", "r"))


@pytest.mark.parametrize(
    ("make", "variables", "measure"),
    [
        (lambda rng, n: [(x := rng.normal(size=n)), x**2 + 0.3 * rng.normal(size=n)], (NUMBER, OTHER), "rank correlation"),
        (lambda rng, n: [(x := rng.normal(size=n)), x + rng.normal(size=n) > 0], (NUMBER, FLAG), "rank correlation"),
        (lambda rng, n: [(g := rng.integers(3, size=n)), g % 2 + 0.7 * rng.normal(size=n)], (GROUP, NUMBER), "correlation ratio"),
        (lambda rng, n: [(g := rng.integers(3, size=n)), (g == 1) ^ (rng.random(n) < 0.2)], (GROUP, FLAG), "Cramér's V"),
    ],
)
def test_columns_of_every_kind_that_depend_are_found(make: Any, variables: tuple[Variable, ...], measure: str) -> None:
    pair = column_dependences(columns(make, *variables))[0]
    assert pair.p < SIGNIFICANT
    assert pair.measure == measure


def test_independent_columns_hardly_ever_raise_an_alarm() -> None:
    def make(rng: np.random.Generator, n: int) -> list[np.ndarray]:
        return [rng.normal(size=n), rng.exponential(size=n), rng.random(n) < 0.2, rng.integers(3, size=n)]

    alarms = [any(d.p < SIGNIFICANT for d in column_dependences(columns(make, NUMBER, OTHER, FLAG, GROUP, rows=150, seed=s))) for s in range(40)]
    assert sum(alarms) <= 2  # 0.4 expected


def test_holm_is_the_step_down_of_the_textbook() -> None:
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.8])).max() == 1


def test_measures_of_association_at_their_ends() -> None:
    g = np.repeat([0.0, 1.0, 2.0], 50)
    assert cramers_v(g, (g + 1) % 3) == pytest.approx(1)
    assert cramers_v(g, np.tile([0.0, 1.0], 75)) == pytest.approx(0, abs=1e-12)
    table = np.array([[30, 10], [10, 30]])  # chi^2 = 20 for 80 rows
    assert cramers_v(np.repeat([0, 0, 1, 1], table.ravel()), np.repeat([0, 1, 0, 1], table.ravel())) == pytest.approx(0.5)
    assert association(g, 5 * g, "categorical", "continuous") == ("correlation ratio", pytest.approx(1))
    assert association(g, np.exp(g), "continuous", "continuous") == ("rank correlation", pytest.approx(1))
