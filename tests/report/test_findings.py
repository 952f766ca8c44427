"""Numbers of the report: links and confidence on known data, test fit, copied labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from oracle import TRUE, VARIABLES, curved, encode_in_pixels, oracle, simulate

from intervae.data import Variable, build_dataset
from intervae.models.cmcl.final_graph import decide_directions
from intervae.report import findings
from intervae.report.encoded_table import encode_table, sample_splits
from intervae.report.findings import collect_findings, explained_by_model, is_linear


@pytest.fixture(scope="module")
def results() -> findings.Findings:
    data = simulate()
    return collect_findings(oracle(data, *TRUE), data, resamples=25)


def test_true_links_and_identifiable_directions_have_high_confidence(
    results: findings.Findings,
) -> None:
    assert [(link.cause, link.effect) for link in results.links] == [
        ("z1", "b"),
        ("c", "z2"),
        ("a", "z0"),
    ]  # the strongest first
    for link in results.links:
        assert link.link_confidence is not None
        assert link.link_confidence > 0.9
    by = {link.cause: link for link in results.links}
    assert by["a"].direction_identifiable
    assert by["a"].direction_confidence > 0.9  # type: ignore[operator]
    for name in ("z1", "c"):  # a binary and a categorical column
        assert not by[name].direction_identifiable
        assert by[name].direction_confidence is None
        assert by[name].margin is None
    assert results.resamples == 25
    assert results.failed_resamples == 0
    assert results.rows == (504, 56, 140)
    assert results.resampled_rows == 700


def test_reversed_and_false_links_have_low_confidence() -> None:
    data = simulate()
    wrong = collect_findings(
        oracle(data, ("z0", "a", 0.8), ("b", "z1", 0.8), ("z2", "a", 0.4)), data, resamples=25
    )
    by = {(link.cause, link.effect): link for link in wrong.links}
    assert by["z0", "a"].direction_confidence < 0.1
    assert by["b", "z1"].link_confidence > 0.9  # type: ignore[operator]
    assert by["b", "z1"].direction_confidence is None
    assert by["z2", "a"].link_confidence < 0.1  # type: ignore[operator]


def test_a_latent_that_changes_no_image_gets_no_link_in_the_resamples() -> None:
    """z2 depends on a more closely than z0 does, but the decoder does not use it."""
    rng = np.random.default_rng(4)
    a, z1 = rng.normal(size=500), rng.normal(size=500)
    b = (rng.random(500) < 1 / (1 + np.exp(-6 * z1))).astype(float)
    latents = np.stack([curved(a, rng), z1, a + 0.01 * rng.normal(size=500)], axis=1)
    data = build_dataset("dead", encode_in_pixels(latents), np.stack([a, b], axis=1), VARIABLES[:2])
    model = oracle(data, ("a", "z0", 0.8), ("z1", "b", 0.9), network="mlp")
    links = collect_findings(model, data, resamples=3).links
    assert [(link.cause, link.link_confidence) for link in links] == [("z1", 1), ("a", 0)]
    with torch.no_grad():
        next(iter(model.decoder.parameters()))[:, 2] = 0
    assert model.visible_latents(data.train).tolist() == [True, True, False]
    links = collect_findings(model, data, resamples=3).links
    assert [link.link_confidence for link in links] == [1, 1]


def test_categorical_columns_compete_for_latents_in_the_resamples() -> None:
    """b and its noisy copy both depend on z1; with one edge each the copy gets none."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(500, 3))
    b = rng.random(500) < 1 / (1 + np.exp(-6 * z[:, 1]))
    copy = np.where(rng.random(500) < 0.2, ~b, b)
    data = build_dataset(
        "copies",
        encode_in_pixels(z),
        np.stack([b, copy], axis=1).astype(float),
        [VARIABLES[1], Variable("copy", "binary")],
    )
    edges = (("z1", "b", 0.9), ("z1", "copy", 0.5))
    for one_edge_per_node, expected in ((True, [1, 0]), (False, [1, 1])):
        model = oracle(data, *edges, one_edge_per_node=one_edge_per_node)
        links = collect_findings(model, data, resamples=5).links
        assert [link.link_confidence for link in links] == expected


def test_strengths_agree_with_the_models_own_decision() -> None:
    data = simulate()
    model = oracle(data)
    z = model.encode(data.train.images)[..., 0]
    decide_directions(model, z, data.train)
    for link in collect_findings(model, data, resamples=2).links:
        # measured on all splits, decided on the training rows
        assert link.strength_without_labels == pytest.approx(link.strength, abs=0.03), link
        assert 0.5 < link.strength <= 1
    assert len(model.graph.edges) == 3


def test_the_same_seed_gives_the_same_confidence() -> None:
    data = simulate(300)
    model = oracle(data, *TRUE)
    first, second = (collect_findings(model, data, resamples=5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.confidence, second.confidence)


def test_resamples_are_limited_and_few_rows_have_no_confidence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested = []

    def count_resamples(
        model: object, table: object, visible: object, resamples: int, seed: int
    ) -> tuple[None, int]:
        requested.append(resamples)
        return None, 0

    monkeypatch.setattr(findings, "edge_confidence", count_resamples)
    data = simulate(120)
    collect_findings(oracle(data, *TRUE), data)
    assert requested == [100]  # one column of numbers
    monkeypatch.setattr(findings, "DECISIONS", 10)
    collect_findings(oracle(data, *TRUE), data)
    assert requested == [100, 25]
    monkeypatch.undo()
    small = simulate(45)
    result = collect_findings(oracle(small, *TRUE), small)
    assert result.confidence is None
    assert result.resamples == 0
    assert [link.link_confidence for link in result.links] == [None] * 3


def test_linear_gaussian_links_are_recognised() -> None:
    for linear in (True, False):
        data = simulate(linear=linear)
        link = collect_findings(oracle(data, TRUE[0]), data, resamples=2).links[0]
        assert link.linear_gaussian is linear
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    assert is_linear(x, 3 * x + rng.normal(size=500))
    assert not is_linear(x, x**2 + 0.1 * rng.normal(size=500))


def test_a_latent_that_copies_labels_loses_its_link_when_labels_are_swapped() -> None:
    """With labels z1 is the column a; the image does not contain it."""
    data = simulate()
    honest = oracle(data, ("a", "z0", 0.8), label_dropout=0.0)
    link = collect_findings(honest, data, resamples=2).links[0]
    assert link.strength_without_labels > 0.7
    assert link.strength_with_labels == pytest.approx(link.strength_without_labels, abs=1e-6)
    copier = oracle(data, ("a", "z1", 0.9), label_dropout=0.0)
    copier.copies = 1
    result = collect_findings(copier, data, resamples=2)
    assert result.links[0].strength_without_labels < 0.15
    assert result.links[0].strength_with_labels > 0.99
    assert result.label_influence[1] == pytest.approx(1, abs=0.2)
    assert result.label_influence[0] == 0


def test_latents_are_inferred_without_labels_where_possible() -> None:
    data = simulate(200)
    model = oracle(data, TRUE[0])
    model.copies = 0
    table = encode_table(model, data)
    alone = model.encode(data.train.images)[:, 0, 0].double().numpy()
    np.testing.assert_allclose(table.column("z0")[: len(alone)], alone)
    assert not np.allclose(table.with_labels[: len(alone), 0], alone)


def test_large_data_is_sampled_in_proportion_to_its_splits() -> None:
    assert [len(split) for split in sample_splits(simulate(700), 100, 0)] == [72, 8, 20]


def test_explained_fractions_follow_their_formulas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = simulate(200)
    model = oracle(data, *TRUE)
    truth = torch.tensor([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(
        model, "effect_curve", lambda effect, causes: torch.tensor([0.0, 1.0, 2.0, 1.0])
    )
    assert explained_by_model(model, "a", "z0", {"a": truth, "z0": truth}) == (
        pytest.approx(1 - 1 / 1.25),
        None,
    )
    monkeypatch.setattr(
        model, "effect_curve", lambda effect, causes: torch.tensor([0.1, 0.8, 0.9, 0.4])
    )
    share, right = explained_by_model(
        model, "z1", "b", {"z1": truth, "b": torch.tensor([0.0, 1.0, 1.0, 1.0])}
    )
    without = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert share == pytest.approx(
        1 + (math.log(0.9) + math.log(0.8) + math.log(0.9) + math.log(0.4)) / 4 / without
    )
    assert right == 0.75
