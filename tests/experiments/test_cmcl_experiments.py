"""CMCL's experiments on simulated data: scores of known latents and graphs, tiny runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import Dataset, load_data
from intervae.discovery import discover
from intervae.errors import UsageError
from intervae.experiments import cmcl, run_experiment
from intervae.experiments.base import MetricKey
from intervae.experiments.cmcl import (
    CMCL_FIG2,
    CMCL_FIG3,
    CMCL_TABLE1,
    CMCL_TABLE2,
    LEARNERS,
    TRAININGS,
)
from intervae.experiments.cmcl_jobs import DECISION, LearnGraph, TrainOnSimulation
from intervae.experiments.cmcl_score import (
    EncodedSplits,
    bipartite,
    decide_weights,
    graph_numbers,
    latent_numbers,
    learner_table,
    match_edges,
    match_latents,
    reorder,
    true_edges,
)
from intervae.models.cmcl.settings import CMCLSettings

ORDER = [3, 0, 5, 1, 4, 2]  # latent k of the oracle is the true latent ORDER[k]
TINY_DATA: dict[str, Any] = {"size": 8, "samples": 120}
TINY: dict[str, Any] = {"epochs": 1, "channels": (4,)}
TINY_CMCL: dict[str, Any] = {
    **TINY,
    "embedding": 4,
    "posterior_widths": (4,),
    "prior_widths": (4,),
    "graph_widths": (3,),
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load_data("cross-modal", graph="4/10", weakest=2.0, size=8, samples=1200, world=7)


@pytest.fixture(scope="module")
def encoded(data: Dataset) -> EncodedSplits:
    """True latents in another order, some negated, all under a monotone map."""
    signs = np.array([1, -1, 1, -1, -1, 1])
    return EncodedSplits(
        *(
            np.sinh(0.3 * signs * split.fields["latents"].numpy()[:, ORDER])
            for split in (data.train, data.test)
        )
    )


def to_oracle_order(matrix: np.ndarray) -> np.ndarray:
    """Reorder a graph over true latents and columns to the oracle's latents."""
    index = [*ORDER, *range(len(ORDER), len(matrix))]
    return matrix[np.ix_(index, index)]


def score(graph: np.ndarray, data: Dataset) -> dict[str, float]:
    return graph_numbers(graph, np.abs(graph).astype(float), data)


def test_true_latents_match_in_any_order_sign_and_scale(
    data: Dataset, encoded: EncodedSplits
) -> None:
    one_to_one, most_correlated = match_latents(encoded, data)
    assert one_to_one == most_correlated == [ORDER.index(j) for j in range(6)]
    numbers = latent_numbers(encoded, data, match_latents(encoded, data))
    for name in ("mic_linked", "mic_all", "mic_linked_repeats", "mic_all_repeats"):
        assert numbers[name] == pytest.approx(1.0)
    assert numbers["mic_by_chance"] < 0.35
    assert numbers["test_rows"] == len(data.test)
    assert numbers["mic_column"] == pytest.approx(numbers["mic_true_column"])
    assert numbers["copied"] == 0


def test_scores_of_the_true_and_of_the_reversed_graph(
    data: Dataset, encoded: EncodedSplits
) -> None:
    true = data.graph.adjacency
    order = match_latents(encoded, data)[0]
    numbers = score(reorder(to_oracle_order(true), order), data)
    assert (numbers["shd"], numbers["tpr"], numbers["fpr"], numbers["fdr"]) == (0, 1, 0, 0)
    assert (
        numbers["direction_right"],
        numbers["direction_right_of_found"],
        numbers["skeleton_found"],
    ) == (1, 1, 1)
    assert score(to_oracle_order(true), data)["shd"] > 0
    back = score(reorder(to_oracle_order(true.T), order), data)
    assert (
        back["shd"],
        back["tpr"],
        back["direction_right"],
        back["direction_right_of_found"],
        back["skeleton_found"],
    ) == (4, 0, 0, 0, 1)


def test_scores_of_missing_undirected_and_double_edges(data: Dataset) -> None:
    true = data.graph.adjacency
    causes, effects = np.nonzero(true)
    graph = true.copy()
    graph[causes[0], effects[0]] = 0  # missing
    graph[causes[1], effects[1]] = graph[effects[1], causes[1]] = -1  # undirected
    graph[effects[2], causes[2]] = 1  # both directions
    numbers = score(graph, data)
    assert numbers["shd"] == 2  # one missing, one extra
    assert numbers["tpr"] == 0.75
    assert numbers["skeleton_found"] == 0.75
    assert numbers["direction_right"] == 0.25
    assert numbers["direction_right_of_found"] == pytest.approx(1 / 3)
    empty = score(np.zeros_like(true), data)
    metrics = ("shd", "skeleton_found", "direction_right_of_found")
    assert [empty[metric] for metric in metrics] == [4, 0, 0]


def test_true_edges_have_latent_column_and_direction(data: Dataset) -> None:
    edges = true_edges(data)
    assert [edge.column for edge in edges] == [0, 1, 2, 3]
    for edge in edges:
        z, u = f"z{edge.latent + 1}", f"u{edge.column + 1}"
        assert (u in data.graph.parents(z)) == edge.causal
        assert (z in data.graph.parents(u)) != edge.causal


def test_latents_that_equal_columns_are_counted_as_copies(
    data: Dataset, encoded: EncodedSplits
) -> None:
    copied = EncodedSplits(*(part.copy() for part in encoded))
    edges = [edge for edge in true_edges(data) if not edge.causal]
    assert edges
    for edge in edges:
        for part, split in zip(copied, (data.train, data.test), strict=True):
            part[:, ORDER.index(edge.latent)] = split.labels.numpy()[:, edge.column]
    numbers = latent_numbers(copied, data, match_latents(copied, data))
    assert (
        numbers[MetricKey("edges_of_kind", "anti-causal")]
        == numbers[MetricKey("copied_edges", "anti-causal")]
        == len(edges)
    )
    assert numbers["mic_linked"] < 1


def test_unmatched_mic_uses_the_latent_at_the_index_of_the_column(data: Dataset) -> None:
    at = {edge.column: edge.latent for edge in true_edges(data)}
    order = [at[i] for i in range(4)] + [j for j in range(6) if j not in at.values()]
    encoded = EncodedSplits(
        *(split.fields["latents"].numpy()[:, order] for split in (data.train, data.test))
    )
    assert latent_numbers(encoded, data, match_latents(encoded, data))[
        "mic_linked_unmatched"
    ] == pytest.approx(1.0)
    shifted = EncodedSplits(*(np.roll(part, 1, axis=1) for part in encoded))
    assert latent_numbers(shifted, data, match_latents(shifted, data))["mic_linked_unmatched"] < 0.5
    assert latent_numbers(shifted, data, match_latents(shifted, data))[
        "mic_linked"
    ] == pytest.approx(1.0)


def test_learners_find_edges_between_latents_and_columns_only(
    data: Dataset, encoded: EncodedSplits
) -> None:
    constant = np.full((len(encoded.train), 1), 0.3)  # a constant latent is no error
    dead = EncodedSplits(np.hstack([encoded.train[:, :5], constant]), encoded.test)
    table, names = learner_table(dead, data, 0), [*(f"z{i}" for i in range(6)), *data.names]
    result = discover(
        table,
        "ges-generalised",
        names=names,
        samples=200,
        knowledge=bipartite(names[:6], names[6:]),
    )
    assert not result.pattern[:6, :6].any()
    assert not result.pattern[6:, 6:].any()
    assert not result.pattern[5].any()
    numbers = score(reorder(result.pattern, [ORDER.index(j) for j in range(6)]), data)
    lost = [edge for edge in true_edges(data) if edge.latent == ORDER[5]]
    assert numbers["skeleton_found"] == 1 - len(lost) / 4
    assert numbers["direction_right"] <= numbers["tpr"]


def test_match_edges_keeps_the_strongest_matching(data: Dataset) -> None:
    true, m = data.graph.adjacency, 6
    causes, effects = np.nonzero(true)
    weights = true.astype(float)
    spare = min(set(range(m)) - {edge.latent for edge in true_edges(data)})
    weights[spare, m:] = 0.3  # weak edges from an unlinked latent to every column
    graph = (weights != 0).astype(int)
    graph[causes[1], effects[1]] = graph[effects[1], causes[1]] = -1
    reduced = match_edges(graph, weights, m)
    assert (reduced != 0).sum(1).max() == 1
    assert (reduced[causes, effects] == graph[causes, effects]).all()
    numbers = graph_numbers(graph, weights, data)
    assert (numbers["shd"], numbers["shd_one_each"]) == (4, 0)
    assert numbers["tpr_one_each"] == 1


def test_the_decision_of_cmcl_finds_the_graph_of_true_latents(
    data: Dataset, encoded: EncodedSplits
) -> None:
    weights = decide_weights(learner_table(encoded, data, 0), 6, **LEARNERS[DECISION])
    numbers = score(reorder((weights != 0).astype(int), match_latents(encoded, data)[0]), data)
    assert numbers["skeleton_found"] == 1
    assert numbers["direction_right"] >= 0.75


def test_experiments_share_equal_trainings() -> None:
    by_key: dict[str, TrainOnSimulation] = {}
    for experiment in (CMCL_FIG2, CMCL_FIG3, CMCL_TABLE1, CMCL_TABLE2):
        assert experiment.runs == TRAININGS.name
        assert len({job.key for job in experiment.jobs}) == len(experiment.jobs)
        for job in experiment.jobs:
            training = job.training_job if isinstance(job, LearnGraph) else job
            assert by_key.setdefault(training.key, training) == training
    assert {job.key for job in TRAININGS.jobs} == by_key.keys()
    assert len(TRAININGS.jobs) == 7 * 5 + 2 * 5 + 4 * 5 + 1 + 5 + 4
    for job in TRAININGS.jobs:
        nodes = job.options["graph"].partition("/")
        assert job.settings["latents"] == (int(nodes[2]) - int(nodes[0]) if nodes[1] else 5)


def tiny(experiment: Any) -> Any:
    """The quick form with minimal training."""

    def shrink(job: TrainOnSimulation) -> TrainOnSimulation:
        settings = {**job.settings, **(TINY_CMCL if job.model == "cmcl" else TINY)}
        return replace(job, options={**job.options, **TINY_DATA}, settings=settings)

    fast = {
        "notears-mlp": {"steps": 5, "rounds": 1, "noise": "free"},
        "ges-generalised": {"samples": 60},
        DECISION: LEARNERS[DECISION],
    }
    jobs = [
        replace(
            job, training_job=shrink(job.training_job), settings=fast[job.model.partition(" + ")[2]]
        )
        if isinstance(job, LearnGraph)
        else shrink(job)
        for job in experiment.quick
    ]
    return replace(experiment, quick=tuple(jobs))


def test_tiny_runs_write_pages_and_train_each_model_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    train = TrainOnSimulation.train
    monkeypatch.setattr(
        TrainOnSimulation,
        "train",
        lambda job, data, seed, device, folder: (
            trained.append(job.key) or train(job, data, seed, device, folder)
        ),
    )
    for experiment in (CMCL_TABLE1, CMCL_FIG2, CMCL_TABLE2, CMCL_FIG3):
        run_experiment(
            tiny(experiment), quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path
        )
        page = (tmp_path / f"{experiment.name}-quick.md").read_text()
        for metric in experiment.columns:
            assert f"| {metric} |" in page
    # CMCL and four baselines, three ablations, one panel
    assert len(trained) == len(set(trained)) == 5 + 3 + 1
    assert (tmp_path / "cmcl-fig2-quick.png").is_file()
    assert (tmp_path / "cmcl-fig3-quick-b.png").is_file()
    page = (tmp_path / "cmcl-fig2-quick.md").read_text()
    # CMCL, four baselines with three learners, and the head of the summary
    assert page.count("| shd |") == 1 + 4 * 3 + 1


def test_stored_latents_of_other_settings_are_refused(tmp_path: Path) -> None:
    job = tiny(CMCL_TABLE1).quick[1]
    folder = tmp_path / f"{job.key}-0"
    job.latents(0, "cpu", folder)
    with pytest.raises(UsageError, match="latents of other settings"):
        replace(job, settings={**job.settings, "beta": 2.0}).latents(0, "cpu", folder)


def test_each_seed_has_its_own_simulator() -> None:
    job = CMCL_TABLE1.jobs[0]
    small = replace(job, options={**job.options, **TINY_DATA})
    first, second = (small.simulated_data(seed) for seed in (0, 1))
    assert [data.source["options"]["world"] for data in (first, second)] == [100, 101]
    assert first.graph != second.graph
    assert not torch.equal(first.train.images, second.train.images)


def test_jobs_have_the_settings_of_the_notes() -> None:
    for job in (*CMCL_TABLE1.jobs, *CMCL_TABLE2.jobs):
        assert {key: job.settings[key] for key in cmcl.PIXELS} == cmcl.PIXELS
        assert {key: job.options[key] for key in cmcl.DATA} == cmcl.DATA or job.variant.endswith(
            cmcl.WEAK
        )


def test_tables_anneal_as_the_default_does_but_for_the_ablation() -> None:
    for job in TRAININGS.jobs:
        if job.model == "cmcl":
            without = job.variant.endswith(cmcl.NO_ANNEALING)
            assert job.settings["annealing"] == (0.0 if without else CMCLSettings().annealing)
