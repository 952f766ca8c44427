"""What the report measures: links and their confidence in a world that is known, what is explained on test images, and copies of the table."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from oracle import TRUE, VARIABLES, bent, drawn, oracle, world

from intervae.data.base import Variable, build_dataset
from intervae.models.cmcl_schedule import decide
from intervae.report import findings
from intervae.report.findings import explained_by_model, find, gather, is_straight


@pytest.fixture(scope="module")
def found() -> findings.Findings:
    data = world()
    return find(oracle(data, *TRUE), data, resamples=25)


def test_true_links_are_sure_and_so_is_their_direction_where_there_is_one(found: findings.Findings) -> None:
    assert [(link.cause, link.effect) for link in found.links] == [("z1", "b"), ("c", "z2"), ("a", "z0")]  # the strongest first
    for link in found.links:
        assert link.present is not None
        assert link.present > 0.9
    by = {link.cause: link for link in found.links}
    assert by["a"].directed
    assert by["a"].direction > 0.9  # type: ignore[operator]
    for other in ("z1", "c"):  # a binary and a categorical column
        assert not by[other].directed
        assert by[other].direction is None
        assert by[other].margin is None
    assert found.resamples == 25
    assert found.unused == 0
    assert found.rows == (504, 56, 140)
    assert found.resampled_rows == 700


def test_a_link_that_the_model_turned_round_or_made_up_is_doubted_by_the_resamples() -> None:
    data = world()
    wrong = find(oracle(data, ("z0", "a", 0.8), ("b", "z1", 0.8), ("z2", "a", 0.4)), data, resamples=25)
    by = {(link.cause, link.effect): link for link in wrong.links}
    assert by["z0", "a"].direction < 0.1
    assert by["b", "z1"].present > 0.9  # type: ignore[operator]
    assert by["b", "z1"].direction is None
    assert by["z2", "a"].present < 0.1  # type: ignore[operator]


def test_a_latent_that_no_picture_shows_takes_no_link_in_the_resamples_either() -> None:
    """z2 follows a more closely than z0 does, but the decoder does not use it."""
    rng = np.random.default_rng(4)
    a, z1 = rng.normal(size=500), rng.normal(size=500)
    b = (rng.random(500) < 1 / (1 + np.exp(-6 * z1))).astype(float)
    latents = np.stack([bent(a, rng), z1, a + 0.01 * rng.normal(size=500)], axis=1)
    data = build_dataset("dead", drawn(latents), np.stack([a, b], axis=1), VARIABLES[:2])
    model = oracle(data, ("a", "z0", 0.8), ("z1", "b", 0.9), network="mlp")
    assert [(link.cause, link.present) for link in find(model, data, resamples=3).links] == [("z1", 1), ("a", 0)]
    with torch.no_grad():
        next(iter(model.decoder.parameters()))[:, 2] = 0
    assert model.visible(data.train).tolist() == [True, True, False]
    assert [link.present for link in find(model, data, resamples=3).links] == [1, 1]


def test_columns_of_categories_compete_for_latents_as_they_do_in_the_model() -> None:
    """b and its noisy copy both follow z1; one edge each leaves the copy without, on every resample."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(500, 3))
    b = rng.random(500) < 1 / (1 + np.exp(-6 * z[:, 1]))
    copy = np.where(rng.random(500) < 0.2, ~b, b)
    data = build_dataset("copies", drawn(z), np.stack([b, copy], axis=1).astype(float), [VARIABLES[1], Variable("copy", "binary")])
    edges = (("z1", "b", 0.9), ("z1", "copy", 0.5))
    assert [link.present for link in find(oracle(data, *edges), data, resamples=5).links] == [1, 0]
    assert [link.present for link in find(oracle(data, *edges, one_each=False), data, resamples=5).links] == [1, 1]


def test_strengths_with_and_without_the_table_are_those_of_the_models_own_decision() -> None:
    data = world()
    model = oracle(data)
    z = model.encode(data.train.images)[..., 0]
    decide(model, z, data.train)
    for link in find(model, data, resamples=2).links:
        assert link.alone == pytest.approx(link.strength, abs=0.03), link  # over all splits, not the training rows alone
        assert 0.5 < link.strength <= 1
    assert len(model.graph.edges) == 3


def test_the_same_seed_gives_the_same_confidence() -> None:
    data = world(300)
    model = oracle(data, *TRUE)
    first, second = (find(model, data, resamples=5, seed=3).confidence for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_number_of_resamples_keeps_the_time_and_too_few_rows_have_no_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def told(model: object, table: object, visible: object, resamples: int, seed: int) -> tuple[None, int]:
        asked.append(resamples)
        return None, 0

    monkeypatch.setattr(findings, "_confidence", told)
    data = world(120)
    find(oracle(data, *TRUE), data)
    assert asked == [100]  # one column of numbers
    monkeypatch.setattr(findings, "DECISIONS", 10)
    find(oracle(data, *TRUE), data)
    assert asked == [100, 25]
    monkeypatch.undo()
    few = world(45)
    none = find(oracle(few, *TRUE), few)
    assert none.confidence is None
    assert none.resamples == 0
    assert [link.present for link in none.links] == [None] * 3


def test_straight_and_gaussian_is_told_from_bent() -> None:
    for line in (True, False):
        data = world(line=line)
        link = find(oracle(data, TRUE[0]), data, resamples=2).links[0]
        assert link.straight is line
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    assert is_straight(x, 3 * x + rng.normal(size=500))
    assert not is_straight(x, x**2 + 0.1 * rng.normal(size=500))


def test_a_latent_that_copies_the_table_loses_its_link_when_rows_are_exchanged() -> None:
    """z1 is a itself as soon as the encoder sees the table; the picture knows nothing of it."""
    data = world()
    honest = oracle(data, ("a", "z0", 0.8), label_dropout=0.0)
    link = find(honest, data, resamples=2).links[0]
    assert link.alone > 0.7
    assert link.shown == pytest.approx(link.alone, abs=1e-6)
    copier = oracle(data, ("a", "z1", 0.9), label_dropout=0.0)
    copier.copies = 1
    got = find(copier, data, resamples=2)
    assert got.links[0].alone < 0.15
    assert got.links[0].shown > 0.99
    assert got.label_influence[1] == pytest.approx(1, abs=0.2)
    assert got.label_influence[0] == 0


def test_latents_are_read_without_the_table_where_that_is_possible() -> None:
    data = world(200)
    model = oracle(data, TRUE[0])
    model.copies = 0
    table = gather(model, data)
    alone = model.encode(data.train.images)[:, 0, 0].double().numpy()
    np.testing.assert_allclose(table.column("z0")[: len(alone)], alone)
    assert not np.allclose(table.shown[: len(alone), 0], alone)


def test_large_data_is_drawn_from_in_the_shares_of_its_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MOST_ROWS", 100)
    data = world(700)
    assert [len(part) for part in findings._drawn(data, 100, 0)] == [72, 8, 20]


def test_what_is_explained_on_test_images_follows_its_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    data = world(200)
    model = oracle(data, *TRUE)
    truth = torch.tensor([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(model, "mechanism", lambda effect, causes: torch.tensor([0.0, 1.0, 2.0, 1.0]))
    assert explained_by_model(model, "a", "z0", {"a": truth, "z0": truth}) == (pytest.approx(1 - 1 / 1.25), None)
    monkeypatch.setattr(model, "mechanism", lambda effect, causes: torch.tensor([0.1, 0.8, 0.9, 0.4]))
    share, right = explained_by_model(model, "z1", "b", {"z1": truth, "b": torch.tensor([0.0, 1.0, 1.0, 1.0])})
    without = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert share == pytest.approx(1 + (math.log(0.9) + math.log(0.8) + math.log(0.9) + math.log(0.4)) / 4 / without)
    assert right == 0.75
