"""The experiments on clips: their numbers on models whose answers are known, a tiny run, and the quick form, which must find the law."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data.base import Dataset
from intervae.data.simulators import Motion
from intervae.experiments import causal_prior_motion as motion
from intervae.experiments import run_experiment
from intervae.experiments.causal_prior_motion import CAUSAL_PRIOR_MOTION
from intervae.experiments.causal_prior_sprites import CAUSAL_PRIOR_SPRITES
from intervae.models import TemporalCausalPriorVAE

TINY: dict[str, Any] = {"widths": (16,), "background": "given", "background_size": 2, "warm_up": 4, "epochs": 1, "refit_epochs": 1, "batch_size": 16}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Motion(size=12, backgrounds=3).dataset(samples=80)


def model_of(data: Dataset, weights: dict[tuple[int, int], float]) -> TemporalCausalPriorVAE:
    """With these coefficients between the 12 variables, and no other edges."""
    model = TemporalCausalPriorVAE(data.spec, **TINY)
    with torch.no_grad():
        model.is_fixed.fill_(1.0)
        for place, weight in weights.items():
            model.fixed[place], model.sem.weights[place] = 1.0, weight
    return model


STEADY = {(3, 11): -0.98, (7, 11): 2.0, (1, 9): -1.0, (5, 9): 2.08}  # latents 3 and 1 are the coordinates


def test_the_graph_and_the_coefficients_are_compared_whatever_the_order_of_latents(data: Dataset) -> None:
    found = motion.structure(model_of(data, STEADY))
    assert (found["shd"], found["edges"]) == (0.0, 4.0)
    assert found["coefficient_error"] == pytest.approx(0.04, abs=1e-6)
    assert motion.structure(model_of(data, {**STEADY, (0, 4): 0.5}))["shd"] == 1.0
    three = motion.structure(model_of(data, {place: weight for place, weight in STEADY.items() if place != (3, 11)}))
    assert (three["shd"], three["coefficient_error"]) == (1.0, 1.0)  # the coefficient of an edge that is not there is 0


def test_positions_are_read_off_all_latents_and_off_those_with_edges(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(data, STEADY)

    def encode(images: torch.Tensor, **_: Any) -> torch.Tensor:
        split = next(part for part in (data.train, data.test) if len(part) == len(images))
        latents = torch.zeros(len(images), 14, 1)
        for t in range(3):
            x, y = split.labels[:, 2 * t], split.labels[:, 2 * t + 1]
            latents[:, 4 * t + 3, 0], latents[:, 4 * t, 0] = x + 2 * y, x - y  # a mixture, half of it in a latent without edges
        return latents

    monkeypatch.setattr(model, "encode", encode)
    found = motion.positions(model, data)
    assert found["position_r2"] == pytest.approx(1.0, abs=1e-6)
    assert found["position_r2|x"] == pytest.approx(1.0, abs=1e-6)
    assert 0.2 < found["position_r2_coupled"] < 0.8  # x + 2 y alone tells 1/5 of one and 4/5 of the other


def test_errors_of_foreseen_frames_stand_beside_copying_and_the_truth(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(data, STEADY)
    truth, inside = motion.future(data, data.test, 2)
    assert torch.equal(truth[:, 0], data.test.images[:, 2].float() / 255)  # the third frame of the clips themselves
    assert 0 < inside.float().mean() < 1
    monkeypatch.setattr(model, "extrapolate", lambda *_, **__: truth + 0.1)
    monkeypatch.setattr(model, "reconstruct", lambda clips, **_: clips.float() / (255 if clips.dtype == torch.uint8 else 1) + 0.2)
    found = motion.foresight(model, data)
    assert found["prediction_mse"] == pytest.approx(0.01, rel=1e-4)
    assert found["extrapolation_mse|step 3"] == pytest.approx(0.01, rel=1e-4)
    assert found["truth_mse"] == pytest.approx(0.04, rel=1e-4)
    assert found["reconstruction_mse"] == pytest.approx(0.04, rel=1e-4)
    assert found["accuracy"] == pytest.approx(1 - (3 * 0.04 + 0.01) / 4, rel=1e-4)
    second, third = (data.test.images[:, t].float() / 255 for t in (1, 2))
    assert found["copy_mse_next"] == pytest.approx(float((second - third).square().mean()), rel=1e-4)
    assert found["inside"] == pytest.approx(float(inside.float().mean()))


def test_a_tiny_run_from_end_to_end(tmp_path: Path) -> None:
    job = replace(CAUSAL_PRIOR_MOTION.jobs[0], options={"size": 12, "samples": 80, "backgrounds": 3}, settings=TINY)
    masks = replace(job, settings={**TINY, "selection": "gumbel", "sparsity": 1.0}, variant="masks 1", seeds=1)
    tiny = replace(CAUSAL_PRIOR_MOTION, jobs=(job, masks), seeds=2)
    document = run_experiment(tiny, device="cpu", runs=tmp_path / "runs", results=tmp_path / "results")
    assert {row["metric"] for row in document["rows"]} >= {"position_r2", "shd", "coefficient_error", "path_shd", "prediction_mse"}
    made = {path.name for path in (tmp_path / "results").iterdir()}
    assert {f"causal-prior-motion{end}" for end in (".json", ".md", ".png", "-graph.png", "-responses.png")} <= made
    assert {"causal-prior-motion-interventions.png", "causal-prior-motion-extrapolation.png"} <= made
    seeds = [(tmp_path / "runs" / "causal-prior-motion" / f"{job.key}-{seed}" / "config.json").read_text() for seed in (0, 1)]
    assert all(f'"seed": {100 + seed}' in text for seed, text in enumerate(seeds))


def test_the_sparsity_of_the_figure_is_that_of_the_path(data: Dataset) -> None:
    model = model_of(data, STEADY)
    path = model.sparsity_path(data)
    found = motion.along(path, model, data)
    for price in motion.PENALTIES:
        graph = max((one for one in path if one.penalty <= price), key=lambda one: one.penalty * 1e6 - one.count)
        assert found[f"path_edges|{price:g}"] == graph.count
        assert 0 <= found[f"path_shd|{price:g}"] <= 48
        assert found[f"path_accuracy|{price:g}"] < 1


def test_the_maps_have_a_value_for_every_place(data: Dataset) -> None:
    maps = motion.responses(model_of(data, STEADY), data)
    assert maps.shape == (4, motion.MAP, motion.MAP)
    assert np.isfinite(maps).all()


@pytest.mark.slow
def test_the_quick_form_finds_constant_velocity(tmp_path: Path) -> None:
    rows = run_experiment(CAUSAL_PRIOR_MOTION, quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path)["rows"]
    numbers = {row["metric"]: row["mean"] for row in rows if row["variant"] == "path"}
    assert numbers["position_r2"] > 0.95
    assert numbers["shd"] == 0
    assert numbers["coefficient_error"] < 0.1
    assert numbers["prediction_mse"] < 0.5 * numbers["copy_mse_next"]
    assert numbers["prediction_mse"] < 1.1 * numbers["truth_mse_next"]


@pytest.mark.slow
@pytest.mark.skipif("INTERVAE_DATA" not in os.environ, reason="Sprites are read from the folder that INTERVAE_DATA names")
def test_sprites_train_and_extrapolate(tmp_path: Path) -> None:
    job = replace(
        CAUSAL_PRIOR_SPRITES.quick[0], options={"size": 16, "samples": 300}, settings={**CAUSAL_PRIOR_SPRITES.quick[0].settings, "epochs": 2}
    )
    rows = run_experiment(replace(CAUSAL_PRIOR_SPRITES, quick=(job,)), quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path)["rows"]
    numbers = {row["metric"]: row["mean"] for row in rows if not row["variant"]}
    assert all(math.isfinite(value) for value in numbers.values())
    assert numbers["extrapolation_mse"] > 0
    assert (tmp_path / "causal-prior-sprites-quick-extrapolation.png").is_file()
