"""The experiments of CT-VAE's masks and factors, on small grids."""

from __future__ import annotations

from pathlib import Path

import pytest

from intervae.data.simulators.shapes3d import FACTOR_VALUES
from intervae.experiments.base import MetricKey
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.experiments.ctvae_factors import CTVAE_FIG4, CountFactorValues
from intervae.experiments.ctvae_masks import CTVAE_MASKS, TrainSparseGraphs
from intervae.figures import factor_bars

LEVELS = [3, 2, 2, 2, 2, 3]
SETTINGS = {
    "codes": 16,
    "features": 16,
    "patch": 4,
    "filters": 8,
    "epochs": 1,
    "width": 16,
    "edge_width": 8,
    "transition_epochs": 1,
    "decoder_epochs": 0,
    "masked_action": True,
}


def test_factor_values_are_those_of_the_grid(tmp_path: Path) -> None:
    options = {"size": 8, "levels": LEVELS}
    numbers = CountFactorValues("shapes3d-like", "factors", options).run(0, "cpu", tmp_path)
    counts = [value for key, value in numbers.items() if isinstance(key, MetricKey)]
    assert counts == LEVELS
    assert numbers["images"] == numbers["combinations"] == 144
    assert [job.data for job in CTVAE_FIG4.jobs] == [job.data for job in CTVAE_TABLE1.jobs[:4]]
    assert [len(values) for values in FACTOR_VALUES] == [10, 10, 10, 8, 4, 15]


def test_factor_bars_writes_a_picture(tmp_path: Path) -> None:
    rows = [
        {"data": "a", "metric": "factor_values", "part": "hue", "mean": 3.0},
        {"data": "b", "metric": "factor_values", "part": "size", "mean": 30.0},
    ]
    factor_bars(tmp_path / "bars.png", rows, metric="factor_values", title="Factors")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_sparse_graphs_continue_from_the_dense_model(tmp_path: Path) -> None:
    options = {"size": 16, "levels": LEVELS, "transitions": {"draws": 50, "train_draws": 0}}
    sparse = {"sparse_epochs": 1, "transition_batch": 16}
    job = TrainSparseGraphs(
        "shapes3d-like", "ct-vae", options, SETTINGS, sparse=sparse, shares=(0.1, 0.3)
    )
    numbers = {str(key): value for key, value in job.run(0, "cpu", tmp_path / "run").items()}
    for part in ("", "|0.1", "|0.3"):
        assert 0 <= numbers[f"action_accuracy{part}"] <= 1
        assert 0 < numbers[f"codes_changed{part}"] < 1
    # the codebooks are the same, so the same codes change
    assert numbers["codes_changed|0.1"] == pytest.approx(numbers["codes_changed"])
    assert numbers["edges_open|0.1"] != numbers["edges_open"]


def test_the_experiment_compares_both_masks_on_every_data_set() -> None:
    assert [job.data for job in CTVAE_MASKS.jobs[::2]] == [j.data for j in CTVAE_TABLE1.jobs[:4]]
    assert [bool(job.sparse) for job in CTVAE_MASKS.jobs] == [False, True] * 4
