"""CMCL's tables on made worlds: their numbers on latents and graphs that are known, trainings that are done once, and a tiny run of every job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import load_data
from intervae.data.base import Dataset
from intervae.discovery import discover
from intervae.errors import UsageError
from intervae.experiments import cmcl, run_experiment
from intervae.experiments.cmcl import CMCL_FIG2, CMCL_FIG3, CMCL_TABLE1, CMCL_TABLE2, DECISION, LEARNERS, TRAININGS, Learned, World
from intervae.experiments.cmcl_score import (
    Codes,
    bipartite,
    decided,
    graph_numbers,
    latent_numbers,
    learner_table,
    matched,
    one_each,
    reordered,
    true_edges,
)

ORDER = [3, 0, 5, 1, 4, 2]  # code k of the oracle is the true latent ORDER[k]
TINY_DATA: dict[str, Any] = {"size": 8, "samples": 120}
TINY: dict[str, Any] = {"epochs": 1, "channels": (4,)}
TINY_CMCL: dict[str, Any] = {**TINY, "embedding": 4, "posterior_widths": (4,), "prior_widths": (4,), "graph_widths": (3,)}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_data("cross-modal", graph="4/10", weakest=2.0, size=8, samples=1200, world=7)


@pytest.fixture(scope="module")
def codes(data: Dataset) -> Codes:
    """The true latents in another order, some turned round and all bent: what a perfect encoder may give."""
    signs = np.array([1, -1, 1, -1, -1, 1])
    return Codes(*(np.sinh(0.3 * signs * split.fields["latents"].numpy()[:, ORDER]) for split in (data.train, data.test)))


def over_codes(matrix: np.ndarray) -> np.ndarray:
    """A graph over true latents and columns as the oracle's codes would have it."""
    index = [*ORDER, *range(len(ORDER), len(matrix))]
    return matrix[np.ix_(index, index)]


def score(graph: np.ndarray, data: Dataset) -> dict[str, float]:
    return graph_numbers(graph, np.abs(graph).astype(float), data)


def test_true_latents_in_any_order_sign_and_scale_match_wholly(data: Dataset, codes: Codes) -> None:
    one_to_one, most = matched(codes, data)
    assert one_to_one == most == [ORDER.index(j) for j in range(6)]
    found = latent_numbers(codes, data, matched(codes, data))
    for name in ("mic_linked", "mic_all", "mic_linked_repeats", "mic_all_repeats"):
        assert found[name] == pytest.approx(1.0)
    assert found["mic_by_chance"] < 0.35
    assert found["test_rows"] == len(data.test)
    assert found["mic_column"] == pytest.approx(found["mic_true_column"])
    assert found["copied"] == 0


def test_the_true_graph_over_matched_codes_is_right_and_a_reversed_one_has_no_direction(data: Dataset, codes: Codes) -> None:
    true = data.graph.adjacency
    order = matched(codes, data)[0]
    found = score(reordered(over_codes(true), order), data)
    assert (found["shd"], found["tpr"], found["fpr"], found["fdr"]) == (0, 1, 0, 0)
    assert (found["direction_right"], found["direction_right_of_found"], found["skeleton_found"]) == (1, 1, 1)
    assert score(over_codes(true), data)["shd"] > 0  # not matched
    back = score(reordered(over_codes(true.T), order), data)
    assert (back["shd"], back["tpr"], back["direction_right"], back["direction_right_of_found"], back["skeleton_found"]) == (4, 0, 0, 0, 1)


def test_missing_undirected_and_double_edges_count_as_the_notes_say(data: Dataset) -> None:
    true = data.graph.adjacency
    causes, effects = np.nonzero(true)
    graph = true.copy()
    graph[causes[0], effects[0]] = 0  # missing
    graph[causes[1], effects[1]] = graph[effects[1], causes[1]] = -1  # undirected: right for NOTEARS, but no direction
    graph[effects[2], causes[2]] = 1  # both ways
    found = score(graph, data)
    assert found["shd"] == 2  # one missing, one too many
    assert found["tpr"] == 0.75
    assert found["skeleton_found"] == 0.75
    assert found["direction_right"] == 0.25
    assert found["direction_right_of_found"] == pytest.approx(1 / 3)
    nothing = score(np.zeros_like(true), data)
    assert (nothing["shd"], nothing["skeleton_found"], nothing["direction_right_of_found"]) == (4, 0, 0)


def test_edges_are_told_by_latent_column_and_direction(data: Dataset) -> None:
    edges = true_edges(data)
    assert [edge.column for edge in edges] == [0, 1, 2, 3]
    for edge in edges:
        z, u = f"z{edge.latent + 1}", f"u{edge.column + 1}"
        assert (u in data.graph.parents(z)) == edge.causal
        assert (z in data.graph.parents(u)) != edge.causal


def test_codes_that_are_columns_are_found_to_be_copies(data: Dataset, codes: Codes) -> None:
    copied = Codes(*(part.copy() for part in codes))
    edges = [edge for edge in true_edges(data) if not edge.causal]
    assert edges  # this world has z -> u
    for edge in edges:
        for part, split in zip(copied, (data.train, data.test), strict=True):
            part[:, ORDER.index(edge.latent)] = split.labels.numpy()[:, edge.column]
    found = latent_numbers(copied, data, matched(copied, data))
    assert found["edges_of_kind|anti-causal"] == found["copied_edges|anti-causal"] == len(edges)
    assert found["mic_linked"] < 1


def test_unmatched_is_the_code_at_the_place_of_the_column(data: Dataset) -> None:
    at = {edge.column: edge.latent for edge in true_edges(data)}
    order = [at[i] for i in range(4)] + [j for j in range(6) if j not in at.values()]
    codes = Codes(*(split.fields["latents"].numpy()[:, order] for split in (data.train, data.test)))
    assert latent_numbers(codes, data, matched(codes, data))["mic_linked_unmatched"] == pytest.approx(1.0)
    shifted = Codes(*(np.roll(part, 1, axis=1) for part in codes))
    assert latent_numbers(shifted, data, matched(shifted, data))["mic_linked_unmatched"] < 0.5
    assert latent_numbers(shifted, data, matched(shifted, data))["mic_linked"] == pytest.approx(1.0)


def test_learners_see_codes_and_columns_and_never_join_two_of_a_kind(data: Dataset, codes: Codes) -> None:
    dead = Codes(np.hstack([codes.train[:, :5], np.full((len(codes.train), 1), 0.3)]), codes.test)  # a latent that says nothing is no error
    table, names = learner_table(dead, data, 0), [*(f"z{i}" for i in range(6)), *data.names]
    found = discover(table, "ges-generalised", names=names, samples=200, knowledge=bipartite(names[:6], names[6:]))
    assert not found.pattern[:6, :6].any()
    assert not found.pattern[6:, 6:].any()
    assert not found.pattern[5].any()
    numbers = score(reordered(found.pattern, [ORDER.index(j) for j in range(6)]), data)
    lost = [edge for edge in true_edges(data) if edge.latent == ORDER[5]]
    assert numbers["skeleton_found"] == 1 - len(lost) / 4
    assert numbers["direction_right"] <= numbers["tpr"]


def test_one_edge_each_keeps_the_strongest_matching_and_its_marks(data: Dataset) -> None:
    true, m = data.graph.adjacency, 6
    causes, effects = np.nonzero(true)
    weights = true.astype(float)
    spare = min(set(range(m)) - {edge.latent for edge in true_edges(data)})
    weights[spare, m:] = 0.3  # a latent without an edge is joined with every column, weakly
    graph = (weights != 0).astype(int)
    graph[causes[1], effects[1]] = graph[effects[1], causes[1]] = -1
    kept = one_each(graph, weights, m)
    assert (kept != 0).sum(1).max() == 1
    assert (kept[causes, effects] == graph[causes, effects]).all()
    found = graph_numbers(graph, weights, data)
    assert (found["shd"], found["shd_one_each"]) == (4, 0)
    assert found["tpr_one_each"] == 1


def test_the_decision_of_cmcl_on_true_latents_finds_the_graph(data: Dataset, codes: Codes) -> None:
    weights = decided(learner_table(codes, data, 0), 6, **LEARNERS[DECISION])
    found = score(reordered((weights != 0).astype(int), matched(codes, data)[0]), data)
    assert found["skeleton_found"] == 1
    assert found["direction_right"] >= 0.75


def test_a_training_is_shared_by_every_table_that_has_it() -> None:
    by_key: dict[str, World] = {}
    for experiment in (CMCL_FIG2, CMCL_FIG3, CMCL_TABLE1, CMCL_TABLE2):
        assert experiment.runs == TRAININGS.name
        assert len({job.key for job in experiment.jobs}) == len(experiment.jobs)
        for job in experiment.jobs:
            training = job.of if isinstance(job, Learned) else job
            assert by_key.setdefault(training.key, training) == training  # else the numbers of one would be refused by the other
    assert {job.key for job in TRAININGS.jobs} == by_key.keys()
    assert len(TRAININGS.jobs) == 7 * 5 + 2 * 5 + 2 + 1 + 5 + 4
    for job in TRAININGS.jobs:
        nodes = job.options["graph"].partition("/")
        assert job.settings["latents"] == (int(nodes[2]) - int(nodes[0]) if nodes[1] else 5)


def tiny(experiment: Any) -> Any:
    """The quick form with next to no training."""

    def small(job: World) -> World:
        settings = {**job.settings, **(TINY_CMCL if job.model == "cmcl" else TINY)}
        return replace(job, options={**job.options, **TINY_DATA}, settings=settings)

    fast = {"notears-mlp": {"steps": 5, "rounds": 1, "noise": "free"}, "ges-generalised": {"samples": 60}, DECISION: LEARNERS[DECISION]}
    jobs = [
        replace(job, of=small(job.of), settings=fast[job.model.partition(" + ")[2]]) if isinstance(job, Learned) else small(job)
        for job in experiment.quick
    ]
    return replace(experiment, quick=tuple(jobs))


def test_a_tiny_run_of_every_table_writes_its_page_and_trains_each_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[str] = []
    train = World.train
    monkeypatch.setattr(World, "train", lambda job, data, seed, device, folder: trained.append(job.key) or train(job, data, seed, device, folder))
    for experiment in (CMCL_TABLE1, CMCL_FIG2, CMCL_TABLE2, CMCL_FIG3):
        run_experiment(tiny(experiment), quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path)
        page = (tmp_path / f"{experiment.name}-quick.md").read_text()
        for metric in experiment.columns:
            assert f"| {metric} |" in page
    assert len(trained) == len(set(trained)) == 5 + 3 + 1  # CMCL and four others, three ablations, one panel
    assert (tmp_path / "cmcl-fig2-quick.png").is_file()
    assert (tmp_path / "cmcl-fig3-quick-b.png").is_file()
    page = (tmp_path / "cmcl-fig2-quick.md").read_text()
    assert page.count("| shd |") == 1 + 4 * 3 + 1  # CMCL, four models with three learners, and the head of the summary


def test_latents_of_other_settings_are_refused(tmp_path: Path) -> None:
    job = tiny(CMCL_TABLE1).quick[1]
    folder = tmp_path / f"{job.key}-0"
    job.latents(0, "cpu", folder)
    with pytest.raises(UsageError, match="latents of other settings"):
        replace(job, settings={**job.settings, "beta": 2.0}).latents(0, "cpu", folder)


def test_each_seed_is_a_world_of_its_own() -> None:
    job = CMCL_TABLE1.jobs[0]
    small = replace(job, options={**job.options, **TINY_DATA})
    worlds = [small.world(seed) for seed in (0, 1)]
    assert [world.source["options"]["world"] for world in worlds] == [100, 101]
    assert worlds[0].graph != worlds[1].graph
    assert not torch.equal(worlds[0].train.images, worlds[1].train.images)


def test_all_settings_are_those_that_the_notes_tell() -> None:
    for job in (*CMCL_TABLE1.jobs, *CMCL_TABLE2.jobs):
        assert {key: job.settings[key] for key in cmcl.PIXELS} == cmcl.PIXELS
        assert {key: job.options[key] for key in cmcl.DATA} == cmcl.DATA or job.variant.endswith(cmcl.WEAK)
