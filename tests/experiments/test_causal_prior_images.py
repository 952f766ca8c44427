"""Experiments on further images: metrics of known latents, and tiny runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.data.simulators import Bowl, Parabola
from intervae.experiments import run_experiment
from intervae.experiments.causal_prior_images import (
    CAUSAL_PRIOR_BOWL,
    CAUSAL_PRIOR_LEARNED,
    bowl_metrics,
    learned_metrics,
)
from intervae.models import CausalPriorVAE

TINY: dict[str, Any] = {
    "widths": (8,),
    "restarts": 1,
    "first_epochs": 1,
    "epochs": 1,
    "batch_size": 64,
}


def with_latents(data: Dataset, z: torch.Tensor, **settings: Any) -> CausalPriorVAE:
    model = CausalPriorVAE(data.spec, **{**TINY, **settings})
    model.encode = lambda images, labels=None: z[: len(images), :, None].float()
    return model


def test_bowl_metrics_do_not_depend_on_a_rotation_of_the_causes() -> None:
    data = Bowl().dataset(size=8, samples=600)
    x, y, growth = data.test.labels.double().T
    cosine, sine = math.cos(0.6), math.sin(0.6)
    z = torch.stack([cosine * x - sine * y, sine * x + cosine * y, 3 * growth, 0 * x], dim=1)
    numbers = bowl_metrics(with_latents(data, z, **CAUSAL_PRIOR_BOWL.jobs[0].settings), data)
    for name in ("r2_causes", "r2_effect", "r2_sum", "r2_causes_from_all", "r2_effect_from_all"):
        assert numbers[name] == pytest.approx(1.0, abs=1e-5)
    assert numbers["other_r2"] == 0.0  # z3 is not active
    swapped = bowl_metrics(with_latents(data, z[:, [2, 1, 0, 3]]), data)
    assert swapped["r2_effect"] < 0.2
    assert swapped["r2_causes"] < 0.8


def test_learned_metrics_read_the_function_and_the_edges() -> None:
    data = Parabola().dataset(size=8, samples=600)
    x, y = data.test.labels[:, :2].double().T
    z = torch.stack([1.7 * x, 1.7**2 * y, 0 * x, 0 * x, 0 * x], dim=1)
    numbers = learned_metrics(with_latents(data, z), data)
    assert numbers["curve_r2"] == pytest.approx(1.0, abs=1e-5)
    assert (numbers["edges"], numbers["shd"]) == (1.0, 0.0)
    settings = CAUSAL_PRIOR_LEARNED.jobs[0].settings
    numbers = learned_metrics(with_latents(data, z, **settings), data)
    assert (numbers["edges"], numbers["shd"]) == (4.0, 3.0)  # all candidates at the start
    shifted = learned_metrics(with_latents(data, z + torch.tensor([1.7, 0, 0, 0, 0])), data)
    assert shifted["curve_r2"] < 0.7  # (x + 1)^2 is not x^2


@pytest.mark.parametrize("experiment", [CAUSAL_PRIOR_BOWL, CAUSAL_PRIOR_LEARNED])
def test_tiny_runs_write_results(experiment: Any, tmp_path: Path) -> None:
    jobs = tuple(
        replace(job, options={"size": 8, "samples": 200}, settings={**job.settings, **TINY})
        for job in experiment.quick
    )
    document = run_experiment(
        replace(experiment, quick=jobs), quick=True, device="cpu", runs=tmp_path, results=tmp_path
    )
    shown = {row["metric"] for row in document["rows"]}
    assert set(experiment.columns) <= shown
    assert all(math.isfinite(row["mean"]) for row in document["rows"])
    assert (tmp_path / f"{experiment.name}-quick.md").is_file()
