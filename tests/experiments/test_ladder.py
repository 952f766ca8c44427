"""Rows of the Ladder VAE's tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import intervae
from intervae import create, load_data
from intervae.data.simulators import Pendulum
from intervae.experiments import EXPERIMENTS, Experiment, run_experiment
from intervae.experiments.ladder import LATENTS, LVAE_MNIST, LikelihoodJob, likelihood_jobs
from intervae.experiments.ladder_figures import (
    PICTURES,
    image_classes,
    layer_components,
    principal_components,
)
from mnist_files import write_mnist


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small files of MNIST: noise with a digit's own brightness."""
    rng = np.random.default_rng(0)
    digits = np.arange(100) % 10
    pictures = rng.integers(0, 100, (100, 28, 28)) + 15 * digits[:, None, None]
    write_mnist(tmp_path / "mnist", pictures.astype(np.uint8), digits.astype(np.uint8), 80)
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return tmp_path


def test_a_job_measures_the_bound_and_active_units(tmp_path: Path) -> None:
    settings = {"latents": (4, 2), "widths": (16, 8), "batch_size": 16, "epochs": 2, "warm_up": 1}
    job = LikelihoodJob(
        "pendulum",
        "ladder-vae",
        {"size": 16, "samples": 96},
        settings,
        "LVAE 2",
        {"log_likelihood": -1.0},
        samples=20,
    )
    experiment = Experiment(
        "bound", "A bound", (job,), seeds=1, shown=("log_likelihood", "elbo", "active_units")
    )
    document = run_experiment(
        experiment, device="cpu", runs=tmp_path / "runs", results=tmp_path / "results"
    )
    numbers = {(row["metric"], row["variant"]): row["mean"] for row in document["rows"]}
    data, model = (
        Pendulum().dataset(size=16, samples=96),
        intervae.load(tmp_path / "runs" / "bound" / "pendulum-ladder-vae-LVAE-2-0"),
    )
    drawn = model.log_weights(
        data.test.images, None, 400, torch.Generator().manual_seed(9)
    ).double()
    error = drawn.std(0).mean().item() / (20 * len(data.test)) ** 0.5
    assert numbers["elbo", "LVAE 2"] == pytest.approx(drawn.mean().item(), abs=6 * error)
    assert (
        numbers["elbo", "LVAE 2"] < numbers["log_likelihood", "LVAE 2"] < drawn.max(0).values.mean()
    )
    units = [numbers["active_units", f"LVAE 2 z{i}"] for i in (1, 2)]
    assert numbers["active_units", "LVAE 2"] == sum(units)
    assert numbers["active_units_above", "LVAE 2"] == units[1]
    assert 0 <= units[0] <= 4
    assert 0 <= units[1] <= 2
    kl = model.unit_kl(data.test.images, torch.Generator().manual_seed(0))
    assert numbers["kl", "LVAE 2 z2"] == pytest.approx(kl[4:].sum().item(), rel=1e-4, abs=1e-5)
    assert units[0] == (kl[:4] > 0.01).sum().item()


def test_a_row_for_each_variant_and_depth_except_the_ladder_of_one_layer() -> None:
    jobs = likelihood_jobs(
        "mnist", {}, {"warm_up": 7, "epochs": 9}, {"VAE+BN": (1.0, 2.0, 3.0, 4.0, 5.0)}, 10
    )
    assert len({job.key for job in jobs}) == 19
    for job in jobs:
        name, _, depth = job.variant.rpartition(" ")
        assert job.settings["latents"] == LATENTS[: int(depth)]
        assert job.settings["inference"] == ("ladder" if name.startswith("LVAE") else "bottom-up")
        assert job.settings["batch_norm"] == ("+BN" in name)
        assert job.settings["warm_up"] == (7 if "+WU" in name else 0)
        assert job.paper == ({"log_likelihood": float(depth)} if name == "VAE+BN" else {})
    assert {job.variant for job in jobs if job.settings["latents"] == (64,)} == {
        "VAE 1",
        "VAE+BN 1",
        "VAE+BN+WU 1",
    }


@pytest.mark.parametrize(
    ("name", "variant", "paper"),
    [
        ("lvae-omniglot", "VAE 1", -111.21),
        ("lvae-omniglot", "LVAE+BN+WU 5", -102.11),
        ("lvae-norb", "VAE+BN 4", 3201),
        ("lvae-norb", "LVAE+BN+WU 3", 3519),
        ("lvae-mnist", "LVAE+BN+WU 5 long", -82.12),
    ],
)
def test_rows_have_the_papers_numbers(name: str, variant: str, paper: float) -> None:
    experiment = next(e for e in EXPERIMENTS if e.name == name)
    (job,) = (job for job in experiment.jobs if job.variant == variant)
    assert job.paper["log_likelihood"] == paper
    assert job.settings.get("binarise", False) == (name != "lvae-norb")


# ---- figures -------------------------------------------------------------------------------------
def test_runs_of_a_table_draw_the_papers_figures(home: Path, tmp_path: Path) -> None:
    """KL per layer and bound over training, PCA of each layer, samples; deepest of each family."""
    small = {"widths": (16, 8), "batch_size": 16, "epochs": 2}
    jobs = tuple(
        replace(
            job,
            options={"samples": 70},
            settings={**job.settings, **small, "widths": small["widths"][:depth]},
            samples=5,
        )
        for job in LVAE_MNIST.quick
        for depth in [len(job.settings["latents"])]
    )
    experiment = replace(LVAE_MNIST, quick=jobs)
    run_experiment(experiment, quick=True, device="cpu", runs=tmp_path, results=tmp_path / "out")
    names = {f"lvae-mnist-quick-{picture}.png" for picture in PICTURES}
    assert names == {
        f"lvae-mnist-quick-{family}-{figure}.png"
        for family in ("vae", "ladder")
        for figure in ("training", "pca", "samples")
    }
    assert names <= {path.name for path in (tmp_path / "out").iterdir()}
    page = (tmp_path / "out" / "lvae-mnist-quick.md").read_text()
    assert all(f"]({name})" in page for name in names)
    run = tmp_path / "lvae-mnist-quick" / "mnist-ladder-vae-VAE-2-0" / "figures"
    copied = (tmp_path / "out" / "lvae-mnist-quick-vae-pca.png").read_bytes()
    assert copied == (run / "pca.png").read_bytes()  # of two layers, not of one


def test_components_are_those_of_largest_variance() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 3)) * (0.1, 5.0, 1.0) + 7
    components = principal_components(points)
    assert abs(np.corrcoef(components[:, 0], points[:, 1])[0, 1]) > 0.999
    assert abs(np.corrcoef(components[:, 1], points[:, 2])[0, 1]) > 0.999
    assert components.mean(0) == pytest.approx([0, 0], abs=1e-9)
    assert principal_components(points[:, :1])[:, 1].tolist() == [0.0] * 500


def test_layers_are_samples_of_the_posterior_and_digits_the_classes(home: Path) -> None:
    data = load_data("mnist", samples=70)
    model = create("ladder-vae", data, latents=(3, 1), widths=(16, 8), binarise=True)
    components = layer_components(model, data)
    assert {name: points.shape for name, points in components.items()} == {
        "z1": (len(data.test), 2),
        "z2": (len(data.test), 2),
    }
    again = layer_components(model, data, seed=1)
    assert not np.allclose(components["z1"], again["z1"])  # samples, not means
    classes, names = image_classes(data)
    assert names == tuple("0123456789")
    assert classes.tolist() == data.test.labels[:, 0].int().tolist()
    plain = Pendulum().dataset(size=16, samples=96)
    assert set(image_classes(plain)[0]) == {0}
