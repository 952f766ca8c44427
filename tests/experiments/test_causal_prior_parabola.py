"""What the experiment on ovals measures, of models whose latents are known; and its quick form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae.data.base import Dataset
from intervae.data.simulators import Parabola
from intervae.experiments import EXPERIMENTS, run_experiment
from intervae.experiments.base import find
from intervae.experiments.causal_prior_parabola import arrays, distances, draw, latent_order, parabola_prior, places
from intervae.models import CausalPriorVAE

SETTINGS: dict[str, Any] = {"widths": (8,), "restarts": 1, "first_epochs": 1, "epochs": 1, "batch_size": 64}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Parabola().dataset(size=8, samples=600)


def knowing(data: Dataset, order: tuple[int, int], **settings: Any) -> CausalPriorVAE:
    """A model whose latents `order` are 1.7 x and 1.7^2 y of the pictures, and whose others are noise."""
    model = CausalPriorVAE(data.spec, **{**SETTINGS, **settings})
    noise = torch.Generator().manual_seed(5)
    known = {
        bytes(image.numpy().tobytes()): label
        for split in (data.train, data.validation, data.test)
        for image, label in zip(split.images, split.labels, strict=True)
    }

    def encode_with_spread(images: torch.Tensor, seed: int = 0) -> torch.Tensor:
        z = torch.randn(len(images), 5, generator=noise)
        for row, image in enumerate(images):
            x, y = known[bytes(image.numpy().tobytes())][:2].tolist()
            z[row, order[0]], z[row, order[1]] = 1.7 * x, 1.7**2 * y
        return z

    model.encode_with_spread = encode_with_spread
    model.encode = lambda images, labels=None: encode_with_spread(images)[..., None]
    return model


def test_latents_that_are_the_place_score_one_and_others_nothing(data: Dataset) -> None:
    found = places(knowing(data, (0, 1)), data, [0, 1, 2, 3, 4])
    assert found["r2_x"] == pytest.approx(1.0)
    assert found["r2_y"] == pytest.approx(1.0)
    assert found["other_r2"] < 0.1
    assert found["active_units"] == 5


def test_a_latent_that_repeats_the_place_is_found_among_the_others(data: Dataset) -> None:
    found = places(knowing(data, (0, 3)), data, [0, 1, 2, 3, 4])
    assert found["r2_y"] < 0.1
    assert found["other_r2"] == pytest.approx(1.0)


def test_latents_without_an_order_are_put_in_that_of_the_parabola(data: Dataset) -> None:
    assert latent_order(knowing(data, (3, 1), edges=()), data, 0)[:2] == [3, 1]
    assert latent_order(knowing(data, (3, 1)), data, 0) == [0, 1, 2, 3, 4]  # with edges they have one


def test_distances_tell_latents_along_the_prior_from_those_that_are_not(data: Dataset) -> None:
    right, wrong = knowing(data, (0, 1)), knowing(data, (1, 0))
    order = [0, 1, 2, 3, 4]
    near, far = (distances(model, data, order, 0) for model in (right, wrong))
    assert near["energy_distance"] < 0.5 * far["energy_distance"]
    isotropic = distances(knowing(data, (0, 1), edges=()), data, order, 0)
    assert isotropic["energy_distance"] == pytest.approx(near["energy_distance"], abs=0.05)
    assert isotropic["own_energy_distance"] > near["own_energy_distance"]


def test_the_prior_that_all_are_compared_with_is_the_parabola(data: Dataset) -> None:
    z = parabola_prior(CausalPriorVAE(data.spec, **SETTINGS, edges=())).sample(20_000, torch.Generator().manual_seed(0)).numpy()
    assert np.std(z[:, 1] - z[:, 0] ** 2) == pytest.approx(0.5, rel=0.03)
    assert np.std(z[:, [0, 2, 3, 4]], axis=0) == pytest.approx(1.0, rel=0.03)


def test_pictures_are_drawn_of_the_runs_that_are_there(data: Dataset, tmp_path: Path) -> None:
    for name, settings in (("a", {}), ("b", {"edges": ()}), ("c", {"isotropic": True})):
        model = CausalPriorVAE(data.spec, **SETTINGS, **settings)
        (tmp_path / name / "figures").mkdir(parents=True)
        np.savez_compressed(tmp_path / name / "figures" / "arrays.npz", **arrays(model, data, [0, 1, 2, 3, 4]))
    draw({name: tmp_path / name for name in ("a", "b", "c", "not there")}, tmp_path / "found")
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["found-latents.png", "found-responses.png", "found-traversals.png"]
    draw({"not there": tmp_path / "not there"}, tmp_path / "none")
    assert not list(tmp_path.glob("none*"))


@pytest.mark.slow
def test_the_quick_form_places_the_ovals_where_isotropic_priors_do_not(tmp_path: Path) -> None:
    experiment = find("causal-prior-parabola", EXPERIMENTS)
    rows = run_experiment(experiment, quick=True, runs=tmp_path / "runs", results=tmp_path / "results", device="cpu")["rows"]
    means = {(row["variant"], row["metric"]): row["mean"] for row in rows}
    assert min(means["causal prior", "r2_x"], means["causal prior", "r2_y"]) > 0.85
    assert means["causal prior", "other_r2"] < 0.2
    for beta in (1, 4):
        assert means["causal prior", "energy_distance"] < 0.5 * means[f"isotropic, beta {beta}", "energy_distance"]
