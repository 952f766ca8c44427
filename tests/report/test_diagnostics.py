"""Diagnostics of the report: each violated assumption is named, and good data passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracle import TRUE, VARIABLES, encode_in_pixels, oracle, simulate

from intervae.causal.graph import CausalGraph
from intervae.data import build_dataset
from intervae.report.column_dependence import column_dependences
from intervae.report.diagnostics import CHECKS, Diagnostic, diagnose
from intervae.report.findings import Findings, LinkFinding, collect_findings
from intervae.report.link_sections import summary_section

GOOD = LinkFinding("a", "z0", 0.8, 0.0, 50.0, 1.0, 1.0, 0.6, None, False, 0.8, 0.8, 0.7)


def findings(*links: LinkFinding, rows: int = 500, **changes: Any) -> Findings:
    names = ("z0", "z1", "z2", *(variable.name for variable in changes.get("columns", VARIABLES)))
    edges = [(link.cause, link.effect, link.strength) for link in links]
    values: dict[str, Any] = {
        "columns": VARIABLES,
        "confidence": np.zeros((6, 6)),
        "resamples": 100,
        "failed_resamples": 0,
        "seconds": 1.0,
        "rows": (rows, 50, 100),
        "resampled_rows": rows + 150,
        "label_influence": np.zeros(3),
        "threshold": 0.2,
    }
    graph = CausalGraph.from_edges(names, edges)
    return Findings(graph=graph, links=tuple(links), **{**values, **changes})


def kinds(diagnostics: list[Diagnostic]) -> list[str]:
    return [diagnostic.kind for diagnostic in diagnostics]


def test_good_data_fails_only_the_check_of_identifiable_directions() -> None:
    data = simulate()
    results = collect_findings(oracle(data, *TRUE), data, resamples=20)
    diagnostics = diagnose(results, data, column_dependences(data))
    assert set(kinds(diagnostics)) == {"unidentifiable direction"}  # of b and c, in any data
    assert [diagnostic.nodes for diagnostic in diagnostics] == [("z1", "b"), ("c", "z2")]


def test_violated_assumptions_are_named() -> None:
    """a -> z0 is linear, and d, which has no latent, depends on a without being correlated."""
    data = simulate(linear=True, dependent_column=True)
    results = collect_findings(oracle(data, *TRUE), data, resamples=20)
    diagnostics = diagnose(results, data, column_dependences(data))
    assert sorted(kinds(diagnostics)) == [
        "dependent columns",
        "few latents",
        "linear relation",
        "unidentifiable direction",
        "unidentifiable direction",
    ]
    assert {"a", "d"} == set(diagnostics[0].nodes)
    assert "a and d depend on each other" in diagnostics[0].text
    assert [d.nodes for d in diagnostics if d.kind == "linear relation"] == [("a", "z0")]


CASES: dict[str, tuple[LinkFinding, str, str]] = {
    "low link confidence": (
        replace(GOOD, link_confidence=0.4),
        "weak link",
        "in only 40% of the resampled tables",
    ),
    "low direction confidence": (
        replace(GOOD, direction_confidence=0.6),
        "uncertain direction",
        "only 60% of the resampled tables",
    ),
    "opposite direction": (
        replace(GOOD, direction_confidence=0.1),
        "uncertain direction",
        "Most have the opposite one",
    ),
    "small margin": (replace(GOOD, margin=1.2), "uncertain direction", "only 1.2 nats"),
    "margin near chance": (
        replace(GOOD, margin=12.0, chance_std=7.0),
        "uncertain direction",
        "only 12.0 nats; with unrelated latents it has a standard deviation of 7.0",
    ),
    "little noise": (
        replace(GOOD, strength=0.995, margin=211.0),
        "uncertain direction",
        "only 1.0% of the variance is unexplained, so both directions fit",
    ),
    "categories": (
        replace(GOOD, direction_identifiable=False, direction_confidence=None, margin=None),
        "unidentifiable direction",
        "a has categories",
    ),
    "similar weights": (
        replace(GOOD, margin=None, reverse_strength=0.75),
        "uncertain direction",
        "nearly the same weight (0.75 and 0.80)",
    ),
    "linear": (
        replace(GOOD, linear_gaussian=True),
        "linear relation",
        "looks linear and Gaussian",
    ),
    "no test fit": (
        replace(GOOD, test_explained=-0.1),
        "no test fit",
        "predicts z0 no better",
    ),
    "copied": (
        replace(GOOD, strength_without_labels=0.1),
        "copied from labels",
        "z0 copies the labels",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_weakness_of_a_link_has_one_diagnostic(case: str) -> None:
    link, kind, text = CASES[case]
    data = simulate(700)
    diagnostics = diagnose(findings(link), data, [])
    assert kinds(diagnostics) == [kind]
    assert text in diagnostics[0].text
    assert diagnostics[0].nodes == ("a", "z0")
    assert diagnose(findings(GOOD), data, []) == []
    assert diagnose(findings(replace(GOOD, margin=15.0, chance_std=7.0)), data, []) == []
    assert diagnose(findings(replace(GOOD, margin=15.0, strength=0.98)), data, []) == []
    assert kind in CHECKS


def test_a_weak_link_of_a_categorical_column_has_two_diagnostics() -> None:
    link = replace(GOOD, direction_identifiable=False, link_confidence=0.4, cause="z1", effect="b")
    diagnostics = diagnose(findings(link), simulate(700), [])
    assert kinds(diagnostics) == ["weak link", "unidentifiable direction"]
    assert "b has categories" in diagnostics[1].text


def test_a_link_that_is_weak_with_and_without_labels_is_not_called_copied() -> None:
    link = replace(GOOD, strength_without_labels=0.1, strength_with_labels=0.1)
    assert diagnose(findings(link), simulate(700), []) == []


def test_every_node_with_several_links_is_named() -> None:
    results = findings(GOOD, replace(GOOD, effect="z1"), replace(GOOD, cause="z2", effect="b"))
    diagnostics = [d for d in diagnose(results, simulate(700), []) if d.kind == "several links"]
    assert [diagnostic.nodes[0] for diagnostic in diagnostics] == ["a"]
    assert "a has 2 links (z0, z1)" in diagnostics[0].text


def test_few_rows_and_rare_categories_are_reported() -> None:
    diagnostics = diagnose(findings(GOOD, rows=120), simulate(700), [])
    assert kinds(diagnostics) == ["few rows"]
    assert "120 training images for 6 latents and columns" in diagnostics[0].text
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=700)
    codes = np.where(np.arange(700) % 140 == 0, 2, codes)  # 5 of the last category
    images = encode_in_pixels(rng.normal(size=(700, 3)))
    table = np.stack([rng.normal(size=700), rng.integers(2, size=700), codes], 1)
    diagnostics = diagnose(findings(GOOD), build_dataset("rare", images, table, VARIABLES), [])
    assert kinds(diagnostics) == ["few rows"]
    assert "c: fewer than 10 training images have the value right (" in diagnostics[0].text


def test_fewer_latents_than_columns_are_reported() -> None:
    data = simulate(700, dependent_column=True)
    diagnostics = diagnose(findings(GOOD, columns=data.variables), data, [])
    assert kinds(diagnostics) == ["few latents"]
    assert "4 columns but only 3 latents" in diagnostics[0].text


def test_a_graph_without_links_is_reported() -> None:
    diagnostics = diagnose(findings(), simulate(700), [])
    assert kinds(diagnostics) == ["no links"]
    assert "0.2 or more" in diagnostics[0].text


def test_doubt_stands_in_the_sentence_it_is_about() -> None:
    """thickness is an effect in the model, but its direction is uncertain."""
    sure = replace(GOOD, cause="z0", effect="a")
    doubtful = replace(sure, direction_confidence=0.5)
    claim = 'changing <span class="name">a</span> would not change the image'
    for link, condition in (
        (sure, ": "),
        (doubtful, ": if this direction is right, which is doubtful (uncertain direction), "),
    ):
        results = findings(link)
        text = summary_section(results, diagnose(results, simulate(), []))
        assert condition + claim in text
        assert text.count("doubtful") == (link is doubtful)
