"""Counterfactuals of digits on 60 drawn strokes: references, published numbers, quick form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import Dataset, load_data
from intervae.errors import DataError
from intervae.evaluation import simulated_counterfactuals
from intervae.evaluation.simulated_counterfactuals import (
    answer,
    make_references,
    measure_counterfactuals,
)
from intervae.experiments import EXPERIMENTS, run_experiment
from intervae.experiments.counterfactual_morphomnist import (
    COUNTERFACTUAL_MORPHOMNIST,
    published,
)
from intervae.models import MODELS, create
from mnist_files import draw_strokes, write_mnist

TINY: dict[str, Any] = {
    "picture": "vae",
    "channels": (8, 8),
    "hidden": 16,
    "epochs": 1,
    "batch_size": 12,
}
SMALL: dict[str, Any] = {"images": 10, "predictor_images": 64, "predictor_epochs": 1}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    monkeypatch.setenv("INTERVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(simulated_counterfactuals, "_REFERENCES", {})
    write_mnist(tmp_path / "mnist", *draw_strokes(), 40)
    return tmp_path


@pytest.fixture
def data(home: Path) -> Dataset:
    return load_data("morpho-mnist")


def test_networks_are_read_from_the_cache_and_read_the_same(
    data: Dataset, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_references(data, **SMALL)
    assert make_references(data, **SMALL) is first
    monkeypatch.setattr(simulated_counterfactuals, "_REFERENCES", {})
    monkeypatch.setattr(simulated_counterfactuals, "fit_variable_networks", None)
    again = make_references(data, **SMALL)
    images = data.test.images.numpy()
    assert np.array_equal(again.networks(images), first.networks(images))
    assert [m.value for m in again.quality] == [m.value for m in first.quality]


def test_references_are_of_test_digits_alone(data: Dataset) -> None:
    truth = make_references(data, **SMALL).truth
    test = {picture.numpy().tobytes() for picture in data.test.images}
    assert len(truth.images) == 10
    assert all(picture.tobytes() in test for picture in truth.images)


def test_every_cell_has_a_floor_and_doing_nothing(data: Dataset) -> None:
    model = create("deep-scm", data, graph=data.graph, **TINY)
    model.fit(data, seed=0, device="cpu")
    measurements = {
        m.metric: m for m in measure_counterfactuals(model, data, cycles=(1, 2), **SMALL)
    }
    assert {"composition_1_levels", "composition_2_levels", "reversibility_1_levels"} <= set(
        measurements
    )
    error = measurements["effectiveness_error_morphometry"]
    assert len(error.per_variable) == 6
    for reference in ("doing_nothing", "true_picture"):
        assert set(error.parameters[reference]) == {"value", *error.per_variable}
    assert len(measurements["effectiveness_accuracy"].per_variable) == 3
    assert set(measurements["minimality_variables"].per_variable) == {
        "digit",
        "thickness",
        "intensity",
    }


def test_an_answer_has_the_models_own_values_under_do(data: Dataset) -> None:
    """do(thickness) moves the intensity by the model's mechanism and leaves the digit."""
    model = create("deep-scm", data, graph=data.graph, **TINY)
    model.fit(data, seed=0, device="cpu")
    split = data.test[torch.arange(5)]
    images, labels = split.images.numpy(), split.labels.numpy()
    after = answer(model, images, labels, {"thickness": labels[:, 1] + 0.5})
    assert after.labels[:, 1] == pytest.approx(labels[:, 1] + 0.5, abs=1e-4)
    assert np.array_equal(after.labels[:, 0], labels[:, 0])
    assert np.abs(after.labels[:, 2] - labels[:, 2]).min() > 0
    unlabelled = answer(model, images, labels, {"thickness": 3.0}, use_labels=False)
    assert np.array_equal(unlabelled.labels, labels)


def test_data_without_a_simulator_is_refused(data: Dataset) -> None:
    with pytest.raises(DataError, match="has no simulator"):
        make_references(replace(data, simulator=None))


def test_published_numbers_stand_in_the_cells_of_their_variable_and_do() -> None:
    """Table of the counterfactual image benchmark: intensity under do(digit) is 2.10 of HVAE."""
    numbers = published("hvae")
    assert numbers["effectiveness_error|do(digit) intensity"] == 2.10
    assert numbers["effectiveness_error|do(intensity) thickness"] == 0.224
    assert numbers["effectiveness_accuracy|do(thickness) digit"] == 0.985
    assert numbers["composition_10_levels"] == 1.55
    assert len(numbers) == 11


def test_every_job_has_valid_settings() -> None:
    assert COUNTERFACTUAL_MORPHOMNIST in EXPERIMENTS
    assert COUNTERFACTUAL_MORPHOMNIST.seeds == 5
    for job in (*COUNTERFACTUAL_MORPHOMNIST.jobs, *COUNTERFACTUAL_MORPHOMNIST.quick):
        MODELS[job.model].Settings(**job.settings)


def test_the_form_that_runs_in_minutes_writes_numbers_beside_published_ones(home: Path) -> None:
    tiny = tuple(
        replace(
            job,
            options={},
            settings={**job.settings, "widths": (4,), "epochs": 1, "batch_size": 12},
            test_images=10,
            predictor_images=64,
            predictor_epochs=1,
        )
        for job in COUNTERFACTUAL_MORPHOMNIST.quick
    )
    document = run_experiment(
        replace(COUNTERFACTUAL_MORPHOMNIST, quick=tiny),
        quick=True,
        device="cpu",
        runs=home / "runs",
        results=home,
    )
    metrics = {row["metric"] for row in document["rows"]}
    assert set(COUNTERFACTUAL_MORPHOMNIST.shown) <= metrics
    cell = [r for r in document["rows"] if "do(digit) intensity" in r["variant"]]
    row = next(r for r in cell if r["metric"] == "effectiveness_error")
    assert row["paper"] == 2.10
    assert list(home.glob("counterfactual-morphomnist-quick-*.png"))
