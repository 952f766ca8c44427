"""CausalGAN beside CausalVAE under do(), and CelebA's label graphs: their numbers and pictures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable, build_dataset, load_data
from intervae.experiments import causalvae_celeba
from intervae.experiments.base import MetricKey
from intervae.experiments.causalvae_celeba import CELEBA_GRAPH, LabelGraph, draw_pretraining
from intervae.experiments.causalvae_table1 import DC_IGN, TABLE1
from intervae.experiments.samples_under_do import PICTURES, SAMPLES_UNDER_DO, do_numbers, do_values


class Simulated:
    """Samples of the simulator itself, or without the effects of do()."""

    def __init__(self, data: Dataset, *, effects: bool) -> None:
        self.data, self.effects = data, effects

    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> torch.Tensor:
        simulator, rows = self.data.simulator, self.data.test.fields["exogenous"][:n].numpy()
        values = simulator.simulate(rows, do if self.effects else {})
        for name, value in (do or {}).items():
            values[:, self.data.names.index(name)] = value
        size = self.data.spec.image_shape[-1]
        return torch.as_tensor(simulator.render(values, rows, size=size)).float() / 255


@pytest.fixture(scope="module")
def pendulum() -> Dataset:
    return load_data("pendulum", size=24, samples=1600)


def test_samples_of_the_simulator_obey_do_and_move_its_effects(pendulum: Dataset) -> None:
    numbers = do_numbers(Simulated(pendulum, effects=True), pendulum, 200, 0)
    assert numbers[MetricKey("do_error", "pendulum")] < 0.3
    assert numbers[MetricKey("do_error", "light")] < 0.3
    true = numbers["true_effects_moved"]
    assert numbers["effects_moved"] == pytest.approx(true, abs=0.3)
    assert numbers["true_others_moved"] == 0
    assert numbers["others_moved"] < 0.2
    blind = do_numbers(Simulated(pendulum, effects=False), pendulum, 200, 0)
    assert blind["effects_moved"] < 0.5 * true


def test_values_of_do_are_quartiles_or_both_classes() -> None:
    assert do_values(Variable("a", "continuous"), np.arange(101.0)) == (25.0, 75.0)
    assert do_values(Variable("b", "binary"), np.array([0.0, 1.0])) == (0.0, 1.0)


def test_pictures_are_of_pendulum_alone() -> None:
    assert all(name.startswith("pendulum-") for name in PICTURES)
    assert {job.model for job in SAMPLES_UNDER_DO.jobs} == {
        "causal-vae",
        "condition-vae",
        "causal-gan",
    }
    assert {job.data for job in SAMPLES_UNDER_DO.jobs} == {"pendulum", "celeba"}


def test_dc_ign_stands_in_table_1_with_the_slides_numbers() -> None:
    assert all(job in TABLE1.jobs for job in DC_IGN)
    assert [dict(job.paper) for job in DC_IGN] == [
        {"mic": 0.618, "tic": 0.481},
        {"mic": 0.788, "tic": 0.661},
    ]


# ---- CelebA's label graphs -----------------------------------------------------------------------
def faces(seed: int) -> Dataset:
    """Binary labels of which b follows a; c is independent."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(0, 2, 600), rng.integers(0, 2, 600)
    b = np.where(rng.random(600) < 0.9, a, 1 - a)
    labels = np.stack([a, b, c], axis=1)
    variables = [Variable(name, "binary", categories=("no", "yes")) for name in "abc"]
    graph = CausalGraph.from_edges(list("abc"), [("a", "b")])
    images = np.zeros((600, 1, 8, 8), np.uint8)
    return build_dataset("made", images, labels, variables, seed=seed, graph=graph)


def test_label_graph_is_empty_with_our_penalty_and_has_the_edge_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causalvae_celeba, "load_shared", lambda name, options: faces(0))
    edge_counts = {}
    for l1 in (0.2, 0.01):
        folder = tmp_path / str(l1)
        folder.mkdir()
        numbers = LabelGraph("celeba", "lagrangian", {}, {"l1": l1}).run(0, "cpu", folder)
        edge_counts[l1] = (numbers["edges"], numbers["true_edges"] + numbers["reversed_edges"])
        keys = {key for key in numbers if isinstance(key, MetricKey)}
        assert len(keys) == 6, "every ordered pair, so that all seeds have the same keys"
    assert edge_counts == {0.2: (0.0, 0.0), 0.01: (1.0, 1.0)}
    variant = "SMILE l1=0.01"
    draw_pretraining({variant: tmp_path / "0.01"}, tmp_path / "page")
    assert (tmp_path / "page-smile-l1-0.01.png").stat().st_size > 0


def test_declared_penalties_and_rows() -> None:
    variants = [job.variant for job in CELEBA_GRAPH.jobs]
    assert "SMILE Eq. 11" in variants
    assert "BEARD l1=0.03 800 rows" in variants
    printed = SimpleNamespace(**dict(CELEBA_GRAPH.jobs[4].settings))
    assert (printed.l1, printed.intercept) == (0.0, False)
