"""Experiments on clips: metrics of models with known latents, a tiny run, the quick form."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import Dataset
from intervae.data.simulators import Motion, Spring
from intervae.experiments import run_experiment
from intervae.experiments.base import MetricKey
from intervae.experiments.causal_prior_motion import CAUSAL_PRIOR_MOTION
from intervae.experiments.causal_prior_motion_figures import MAP_SIZE, responses
from intervae.experiments.causal_prior_motion_metrics import (
    PENALTIES,
    graph_metrics,
    law_metrics,
    path_metrics,
    position_metrics,
    prediction_metrics,
    simulated_future,
)
from intervae.experiments.causal_prior_sprites import CAUSAL_PRIOR_SPRITES
from intervae.models import TemporalCausalPriorVAE

TINY: dict[str, Any] = {
    "widths": (16,),
    "background": "given",
    "background_size": 2,
    "warm_up": 4,
    "epochs": 1,
    "refit_epochs": 1,
    "batch_size": 16,
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Motion(size=12, backgrounds=3).dataset(samples=80)


def model_of(data: Dataset, weights: dict[tuple[int, int], float]) -> TemporalCausalPriorVAE:
    """A model with these coefficients between its 12 variables and no other edges."""
    model = TemporalCausalPriorVAE(data.spec, **TINY)
    with torch.no_grad():
        model.is_fixed.fill_(1.0)
        for edge, weight in weights.items():
            model.fixed[edge], model.sem.weights[edge] = 1.0, weight
    return model


# constant velocity; latents 3 and 1 are the coordinates
LAWS = Motion().coefficients()
STEADY = {(3, 11): -0.98, (7, 11): 2.0, (1, 9): -1.0, (5, 9): 2.08}


def test_graph_metrics_do_not_depend_on_the_order_of_latents(
    data: Dataset,
) -> None:
    numbers = graph_metrics(model_of(data, STEADY), LAWS)
    assert (numbers["shd"], numbers["edges"]) == (0.0, 4.0)
    assert numbers["coefficient_error"] == pytest.approx(0.04, abs=1e-6)
    assert graph_metrics(model_of(data, {**STEADY, (0, 4): 0.5}), LAWS)["shd"] == 1.0
    three = graph_metrics(
        model_of(data, {edge: weight for edge, weight in STEADY.items() if edge != (3, 11)}), LAWS
    )
    # the coefficient of a missing edge is 0
    assert (three["shd"], three["coefficient_error"]) == (1.0, 1.0)


def test_positions_are_regressed_on_all_latents_and_on_those_with_edges(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(data, STEADY)

    def encode(images: torch.Tensor, **_: Any) -> torch.Tensor:
        split = next(s for s in (data.train, data.test) if len(s) == len(images))
        latents = torch.zeros(len(images), 14, 1)
        for t in range(3):
            x, y = split.labels[:, 2 * t], split.labels[:, 2 * t + 1]
            latents[:, 4 * t + 3, 0] = x + 2 * y
            latents[:, 4 * t, 0] = x - y  # a latent without edges
        return latents

    monkeypatch.setattr(model, "encode", encode)
    numbers = position_metrics(model, data)
    assert numbers["position_r2"] == pytest.approx(1.0, abs=1e-6)
    assert numbers[MetricKey("position_r2", "x")] == pytest.approx(1.0, abs=1e-6)
    # x + 2 y alone explains 1/5 of x and 4/5 of y
    assert 0.2 < numbers["position_r2_coupled"] < 0.8


def encode_mixed_positions(
    data: Dataset, mixing: np.ndarray, monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    """Let the model's latents be `mixing` (c, k) of the centred positions of each frame."""
    c, k = mixing.shape

    def encode(images: torch.Tensor, **_: Any) -> torch.Tensor:
        split = next(s for s in (data.train, data.test) if len(s) == len(images))
        positions = split.labels.double().numpy()[:, : 3 * c].reshape(-1, 3, c)
        centre = positions.mean((0, 1))
        latents = ((positions - centre) @ mixing).reshape(len(images), 3 * k)
        return torch.cat([torch.from_numpy(latents), torch.zeros(len(images), 2)], 1)[..., None]

    monkeypatch.setattr(model, "encode", encode)


def test_law_is_read_from_any_mixture_of_the_positions(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(data, STEADY)
    with torch.no_grad():
        model.sem.weights[(3, 11)], model.sem.weights[(5, 9)] = -1.0, 2.0
    mixing = np.array([[0.0, 0.6, 0.0, 0.8], [0.0, -0.8, 0.0, 0.6]])  # a rotation
    encode_mixed_positions(data, mixing, monkeypatch, model)
    numbers = law_metrics(model, data)
    assert numbers == pytest.approx({"law_error": 0.0, "law_shd": 0.0}, abs=1e-3)
    with torch.no_grad():
        model.sem.weights[(5, 9)] = 1.0  # of one direction: a quarter of it in x, the rest mixed
    numbers = law_metrics(model, data)
    assert numbers["law_error"] == pytest.approx(0.64, abs=1e-3)
    assert numbers["law_shd"] == 2.0


def test_modes_of_the_spring_are_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the normal modes: no edge between them, the law of the positions is exact."""
    simulator = Spring(size=20, backgrounds=3)
    data = simulator.dataset(samples=80)
    model = TemporalCausalPriorVAE(data.spec, **TINY, latents=6)
    assert set(responses(model, data)) == {"x, y", "u, v"}
    laws = simulator.laws_of_modes()
    with torch.no_grad():
        model.is_fixed.fill_(1.0)
        for i in range(4):
            for lag, start in ((0, 0), (1, 6)):
                model.fixed[start + i, 12 + i] = 1.0
                model.sem.weights[start + i, 12 + i] = float(laws[lag, i, i])
    mixing = np.zeros((4, 6))
    mixing[:, :4] = simulator.normal_modes().T
    encode_mixed_positions(data, mixing, monkeypatch, model)
    assert law_metrics(model, data) == pytest.approx({"law_error": 0, "law_shd": 0}, abs=1e-4)
    assert graph_metrics(model, laws)["shd"] == 0
    assert graph_metrics(model, laws)["coefficient_error"] < 1e-6
    assert graph_metrics(model, simulator.coefficients())["shd"] == 4  # edges between sprites


def test_prediction_errors_have_a_copy_and_the_truth_as_references(
    data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(data, STEADY)
    truth, inside = simulated_future(data, data.test, 2)
    assert torch.equal(truth[:, 0], data.test.images[:, 2].float() / 255)
    assert 0 < inside.float().mean() < 1
    monkeypatch.setattr(model, "extrapolate", lambda *_, **__: truth + 0.1)
    monkeypatch.setattr(
        model,
        "reconstruct",
        lambda clips, **_: clips.float() / (255 if clips.dtype == torch.uint8 else 1) + 0.2,
    )
    numbers = prediction_metrics(model, data)
    assert numbers["prediction_mse"] == pytest.approx(0.01, rel=1e-4)
    assert numbers[MetricKey("extrapolation_mse", "step 3")] == pytest.approx(0.01, rel=1e-4)
    assert numbers["truth_mse"] == pytest.approx(0.04, rel=1e-4)
    assert numbers["reconstruction_mse"] == pytest.approx(0.04, rel=1e-4)
    assert numbers["accuracy"] == pytest.approx(1 - (3 * 0.04 + 0.01) / 4, rel=1e-4)
    second, third = (data.test.images[:, t].float() / 255 for t in (1, 2))
    assert numbers["copy_mse_next"] == pytest.approx(
        float((second - third).square().mean()), rel=1e-4
    )
    assert numbers["inside"] == pytest.approx(float(inside.float().mean()))


def test_tiny_run_writes_results_and_figures(tmp_path: Path) -> None:
    job = replace(
        CAUSAL_PRIOR_MOTION.jobs[0],
        options={"size": 12, "samples": 80, "backgrounds": 3},
        settings=TINY,
    )
    masks = replace(
        job, settings={**TINY, "selection": "gumbel", "sparsity": 1.0}, variant="masks 1", seeds=1
    )
    tiny = replace(CAUSAL_PRIOR_MOTION, jobs=(job, masks), seeds=2)
    document = run_experiment(
        tiny, device="cpu", runs=tmp_path / "runs", results=tmp_path / "results"
    )
    assert {row["metric"] for row in document["rows"]} >= {
        "position_r2",
        "shd",
        "coefficient_error",
        "path_shd",
        "prediction_mse",
    }
    files = {path.name for path in (tmp_path / "results").iterdir()}
    assert {
        f"causal-prior-motion{end}"
        for end in (".json", ".md", ".png", "-graph.png", "-responses.png")
    } <= files
    assert {
        "causal-prior-motion-interventions.png",
        "causal-prior-motion-extrapolation.png",
    } <= files
    seeds = [
        (
            tmp_path / "runs" / "causal-prior-motion" / f"{job.key}-{seed}" / "config.json"
        ).read_text()
        for seed in (0, 1)
    ]
    assert all(f'"seed": {100 + seed}' in text for seed, text in enumerate(seeds))


def test_path_metrics_use_the_graph_of_each_penalty(data: Dataset) -> None:
    model = model_of(data, STEADY)
    path = model.sparsity_path(data)
    numbers = path_metrics(path, model, data)
    for penalty in PENALTIES:
        graph = max(
            (graph for graph in path if graph.penalty <= penalty),
            key=lambda graph: graph.penalty * 1e6 - graph.count,
        )
        assert numbers[MetricKey("path_edges", f"{penalty:g}")] == graph.count
        assert 0 <= numbers[MetricKey("path_shd", f"{penalty:g}")] <= 48
        assert numbers[MetricKey("path_accuracy", f"{penalty:g}")] < 1


def test_response_maps_have_a_value_for_every_position(data: Dataset) -> None:
    maps = responses(model_of(data, STEADY), data)[""]
    assert maps.shape == (4, MAP_SIZE, MAP_SIZE)
    assert np.isfinite(maps).all()


@pytest.mark.slow
def test_quick_form_learns_constant_velocity(tmp_path: Path) -> None:
    rows = run_experiment(
        CAUSAL_PRIOR_MOTION, quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path
    )["rows"]
    numbers = {row["metric"]: row["mean"] for row in rows if row["variant"] == "path"}
    assert numbers["position_r2"] > 0.95
    assert numbers["shd"] == 0
    assert numbers["coefficient_error"] < 0.1
    assert numbers["prediction_mse"] < 0.5 * numbers["copy_mse_next"]
    assert numbers["prediction_mse"] < 1.1 * numbers["truth_mse_next"]


@pytest.mark.slow
@pytest.mark.skipif(
    "INTERVAE_DATA" not in os.environ,
    reason="needs Sprites in the folder INTERVAE_DATA",
)
def test_sprites_train_and_extrapolate(tmp_path: Path) -> None:
    job = replace(
        CAUSAL_PRIOR_SPRITES.quick[0],
        options={"size": 16, "samples": 300},
        settings={**CAUSAL_PRIOR_SPRITES.quick[0].settings, "epochs": 2},
    )
    rows = run_experiment(
        replace(CAUSAL_PRIOR_SPRITES, quick=(job,)),
        quick=True,
        device="cpu",
        runs=tmp_path / "runs",
        results=tmp_path,
    )["rows"]
    numbers = {row["metric"]: row["mean"] for row in rows if not row["variant"]}
    assert all(math.isfinite(value) for value in numbers.values())
    assert numbers["extrapolation_mse"] > 0
    assert (tmp_path / "causal-prior-sprites-quick-extrapolation.png").is_file()
