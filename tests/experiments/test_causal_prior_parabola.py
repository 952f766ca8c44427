"""Experiment on ovals: metrics of models with known latents, figures, the quick form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data import Dataset
from intervae.data.simulators import Parabola
from intervae.experiments import EXPERIMENTS, run_experiment
from intervae.experiments.base import MetricKey, find_experiment
from intervae.experiments.causal_prior_parabola import (
    MAP_SIZE,
    draw_figures,
    figure_arrays,
    metrics_before_unmixing,
)
from intervae.experiments.causal_prior_parabola_metrics import (
    distance_metrics,
    figure_metrics,
    latent_order,
    noise_metrics,
    parabola_prior,
    position_metrics,
)
from intervae.models import CausalPriorVAE

SETTINGS: dict[str, Any] = {
    "widths": (8,),
    "restarts": 1,
    "first_epochs": 1,
    "epochs": 1,
    "batch_size": 64,
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Parabola().dataset(size=8, samples=600)


def model_with_positions(data: Dataset, order: tuple[int, int], **settings: Any) -> CausalPriorVAE:
    """A model whose latents `order` are 1.7 x and 1.7^2 y of the images; the others are noise."""
    model = CausalPriorVAE(data.spec, **{**SETTINGS, **settings})
    noise = torch.Generator().manual_seed(5)
    labels = {
        bytes(image.numpy().tobytes()): label
        for split in (data.train, data.validation, data.test)
        for image, label in zip(split.images, split.labels, strict=True)
    }

    def draw_posterior(images: torch.Tensor, seed: int = 0) -> torch.Tensor:
        z = torch.randn(len(images), 5, generator=noise)
        for row, image in enumerate(images):
            x, y = labels[bytes(image.numpy().tobytes())][:2].tolist()
            z[row, order[0]], z[row, order[1]] = 1.7 * x, 1.7**2 * y
        return z

    model.draw_posterior = draw_posterior
    model.encode = lambda images, labels=None: draw_posterior(images)[..., None]
    return model


def test_position_metrics_of_perfect_latents(data: Dataset) -> None:
    numbers = position_metrics(model_with_positions(data, (0, 1)), data, [0, 1, 2, 3, 4])
    assert numbers["r2_x"] == pytest.approx(1.0)
    assert numbers["r2_y"] == pytest.approx(1.0)
    assert numbers["other_r2"] < 0.1
    assert numbers["active_units"] == 5


def test_other_r2_detects_another_latent_with_the_position(data: Dataset) -> None:
    numbers = position_metrics(model_with_positions(data, (0, 3)), data, [0, 1, 2, 3, 4])
    assert numbers["r2_y"] < 0.1
    assert numbers["other_r2"] == pytest.approx(1.0)


def test_noise_metrics_of_perfect_latents(data: Dataset) -> None:
    numbers = noise_metrics(model_with_positions(data, (0, 1)), data, [0, 1, 2, 3, 4])
    assert numbers["noise_r2"] == pytest.approx(1.0, abs=1e-6)
    assert numbers["noise_scale_r2"] < 0.1


def test_figure_metrics_compare_maps_and_the_brightness_of_a_traversal() -> None:
    maps = np.full((5, 4, 4), np.nan)
    maps[:, :2] = np.arange(8).reshape(2, 4) * np.array([2, 1, 0, 0, 0.5])[:, None, None]
    traversals = np.full((5, 9, 1, 8, 8), 100, np.uint8)
    traversals[1, 8] = 30
    traversals[2, 0] = 0  # not of n1
    numbers = figure_metrics({"responses": maps, "traversals": traversals})
    assert numbers == pytest.approx({"other_response": 0.25, "brightness": 0.3})


def test_maps_have_the_positions_of_the_data_and_unmixing_is_compared(data: Dataset) -> None:
    model = CausalPriorVAE(data.spec, **SETTINGS)
    maps = figure_arrays(model, data, [0, 1, 2, 3, 4])["responses"]
    known = np.isfinite(maps[0])
    assert known.sum(0).max() == 11  # 0.5 high of 1.5 in steps of 0.05
    assert known[-6, MAP_SIZE // 2]  # y = 0 below x = 0
    assert not known[0, MAP_SIZE // 2]
    at = torch.tensor([1, 3])
    model.rotation[at[:, None], at] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    order = [0, 1, 2, 3, 4]
    before = metrics_before_unmixing(model, data, order)
    turned = noise_metrics(model, data, order)
    model.rotation.copy_(torch.eye(5))
    plain = noise_metrics(model, data, order)
    assert (
        before[MetricKey("noise_r2", "before unmixing")] == plain["noise_r2"] != turned["noise_r2"]
    )


def test_latents_of_an_isotropic_prior_are_ordered_by_the_parabola(data: Dataset) -> None:
    assert latent_order(model_with_positions(data, (3, 1), edges=()), data, 0)[:2] == [3, 1]
    assert latent_order(model_with_positions(data, (3, 1)), data, 0) == [0, 1, 2, 3, 4]


def test_energy_distance_is_smaller_for_latents_along_the_prior(data: Dataset) -> None:
    right, wrong = model_with_positions(data, (0, 1)), model_with_positions(data, (1, 0))
    order = [0, 1, 2, 3, 4]
    near, far = (distance_metrics(model, data, order, 0) for model in (right, wrong))
    assert near["energy_distance"] < 0.5 * far["energy_distance"]
    isotropic = distance_metrics(model_with_positions(data, (0, 1), edges=()), data, order, 0)
    assert isotropic["energy_distance"] == pytest.approx(near["energy_distance"], abs=0.05)
    assert isotropic["own_energy_distance"] > near["own_energy_distance"]


def test_reference_prior_is_the_parabola(data: Dataset) -> None:
    z = (
        parabola_prior(CausalPriorVAE(data.spec, **SETTINGS, edges=()))
        .sample(20_000, torch.Generator().manual_seed(0))
        .numpy()
    )
    assert np.std(z[:, 1] - z[:, 0] ** 2) == pytest.approx(0.5, rel=0.03)
    assert np.std(z[:, [0, 2, 3, 4]], axis=0) == pytest.approx(1.0, rel=0.03)


def test_figures_are_drawn_from_the_existing_runs(data: Dataset, tmp_path: Path) -> None:
    for name, settings in (("a", {}), ("b", {"edges": ()}), ("c", {"isotropic": True})):
        model = CausalPriorVAE(data.spec, **SETTINGS, **settings)
        (tmp_path / name / "figures").mkdir(parents=True)
        np.savez_compressed(
            tmp_path / name / "figures" / "arrays.npz",
            **figure_arrays(model, data, [0, 1, 2, 3, 4]),
        )
    draw_figures({name: tmp_path / name for name in ("a", "b", "c", "missing")}, tmp_path / "stem")
    assert sorted(path.name for path in tmp_path.glob("*.png")) == [
        "stem-latents.png",
        "stem-responses.png",
        "stem-traversals.png",
    ]
    draw_figures({"missing": tmp_path / "missing"}, tmp_path / "none")
    assert not list(tmp_path.glob("none*"))


@pytest.mark.slow
def test_quick_form_learns_positions_and_isotropic_priors_do_not(tmp_path: Path) -> None:
    experiment = find_experiment("causal-prior-parabola", EXPERIMENTS)
    rows = run_experiment(
        experiment, quick=True, runs=tmp_path / "runs", results=tmp_path / "results", device="cpu"
    )["rows"]
    means = {(row["variant"], row["metric"]): row["mean"] for row in rows}
    assert min(means["causal prior", "r2_x"], means["causal prior", "r2_y"]) > 0.8
    assert means["causal prior", "other_r2"] < 0.2
    for beta in (1, 4):
        assert (
            means["causal prior", "energy_distance"]
            < 0.5 * means[f"isotropic, beta {beta}", "energy_distance"]
        )
